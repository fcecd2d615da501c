"""From checked settings to the structs of lumen.h: every setting lands in the field of its name.

Used by engine.py and, for the layout, by library.py. No setting is named here that is an ordinary
number, choice or path: lumen_config's fields are those of settings/schema.py, in their order.
Every number is range-checked before it crosses, since ctypes truncates silently.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_char_p, c_double, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from lumen_uring.pictures.image_input import Filter, Fit, ImageConfig, Preset
from lumen_uring.ring import structs
from lumen_uring.ring.ranges import u32, u64
from lumen_uring.settings.keys import KeyConfig, burst_of
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, Feature, ModelConfig
from lumen_uring.settings.origin import FORMATS
from lumen_uring.settings.providers import ProviderConfig, options_of
from lumen_uring.settings.schema import PYTHON_SIDE, Config, EngineConfig, LogConfig, ServerConfig
from lumen_uring.settings.sequences import SequencesConfig
from lumen_uring.settings.types import U32_MAX, base_of
from lumen_uring.settings.warmup import FILLS, WarmupConfig

_LISTS: Final = {"hosts": ctypes.POINTER(c_char_p), "keys": ctypes.POINTER(structs.LumenKeyConfig)}


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """The engine's file, or None and why there is none; and a sentence about a damaged one."""

    path: Path | None
    why: str | None
    note: str | None = None


def crossing() -> Iterator[tuple[str, str, FieldInfo]]:
    """Section, name and field of every setting that C knows, in lumen_config's order."""
    for section, model in (("server", ServerConfig), ("engine", EngineConfig), ("log", LogConfig)):
        for name, field in model.model_fields.items():
            if f"{section}.{name}" not in PYTHON_SIDE:
                yield section, name, field


def whole_range(field: FieldInfo) -> tuple[int, int] | None:
    """The range in C of a whole number or a choice, where "auto" and null are 0.

    Args:
        field: of a setting that C knows.

    Returns:
        The least and the most; None for texts, lists and numbers with a point.
    """
    if get_origin(field.annotation) is Literal:
        return 0, len(get_args(field.annotation)) - 1
    if field.annotation is bool:
        return 0, 1
    if get_origin(field.annotation) in (dict, tuple):
        return None
    arms = get_args(field.annotation) or (field.annotation,)
    whole = [arm for arm in arms if int in (arm, *get_args(arm))]
    if not whole:
        return None
    bounds = [*field.metadata]
    for inner in get_args(whole[0])[1:]:  # of `Literal["auto"] | Annotated[int, Field(ge=1)]`
        bounds += getattr(inner, "metadata", ())
    least = next(bound.ge for bound in bounds if hasattr(bound, "ge"))
    most = next(bound.le for bound in bounds if hasattr(bound, "le"))
    return (0 if len(arms) > 1 else least), most


# Settings of a model that are whole numbers and no ordinary ones: Python's side alone, and those
# whose null is not 0.
_NOT_ORDINARY: Final = {"isolation_memory", "batch_delay_us", "burst"}


def ordinary() -> Iterator[tuple[str, FieldInfo, tuple[int, int]]]:
    """Name, field and range of every ordinary setting of a model, in the header's order."""
    for name, field in ModelConfig.model_fields.items():
        limits = whole_range(field)
        if limits is not None and name not in _NOT_ORDINARY:
            yield name, field, limits


def _number(field: FieldInfo, word: str) -> int:
    """A choice's number: its place among the choices."""
    return get_args(field.annotation).index(word)


def whole_number(name: str, field: FieldInfo, value: Any) -> int:
    """What crosses of an ordinary setting of a model.

    Args:
        name: of the setting.
        field: its declaration.
        value: as the settings have it.

    Raises:
        EngineError: it does not fit its type in C.
    """
    if get_origin(field.annotation) is Literal:
        return _number(field, value)
    limits = whole_range(field)
    assert limits is not None
    return (u32 if limits[1] <= U32_MAX else u64)(name, 0 if value in ("auto", None) else value)


def _fields() -> Iterator[tuple[str, Any]]:
    yield from (("abi_version", c_uint32), ("access_as_json", c_uint32))
    yield ("ort_library_path", c_char_p)
    for _section, name, field in crossing():
        limits = whole_range(field)
        if name in _LISTS:
            yield from ((name, _LISTS[name]), (f"{name.removesuffix('s')}_count", c_uint32))
        elif limits is not None:
            yield name, c_uint32 if limits[1] <= U32_MAX else c_uint64
        else:
            yield name, c_double if field.annotation is float else c_char_p


_FIELDS: Final[dict[str, Any]] = dict(_fields())
structs.LumenConfig._fields_ = list(_FIELDS.items())
structs.LumenModelConfig._fields_ = [
    *((name, c_uint32 if most <= U32_MAX else c_uint64) for name, _, (_least, most) in ordinary()),
    *structs.MODEL_FIELDS,
]


def native_config(
    config: Config, runtime: Path, names: list[str] | None = None
) -> structs.LumenConfig:
    """lumen_config for these settings; it keeps alive what it points to.

    Args:
        config: checked settings.
        runtime: libonnxruntime.so.
        names: of the models, each at its index, "" where none is; None: as the settings list them.

    Raises:
        EngineError: a number does not fit its field.
    """
    if names is None:
        names = [model.name for model in config.served()]
    native = structs.LumenConfig(
        abi_version=structs.ABI_VERSION,
        access_as_json=int(config.log.format == "json"),
        ort_library_path=os.fsencode(runtime),
    )
    for section, name, field in crossing():
        value = getattr(getattr(config, section), name)
        if name == "keys":
            value = [native_key(key, names) for key in value]
        elif name == "burst":
            value = burst_of(config.server.rate, value)
        elif get_origin(field.annotation) is Literal:
            value = _number(field, value)
        _put(native, name, value)
    return native


def _put(native: structs.LumenConfig, name: str, value: Any) -> None:
    kind = _FIELDS[name]
    if name in _LISTS:
        items = [item.encode() if isinstance(item, str) else item for item in value]
        setattr(native, f"{name.removesuffix('s')}_count", len(items))
        setattr(native, name, (kind._type_ * len(items))(*items))
    elif kind is c_uint32 or kind is c_uint64:
        number = 0 if value in ("auto", None) else value
        setattr(native, name, (u32 if kind is c_uint32 else u64)(name, number))
    else:
        setattr(native, name, os.fsencode(value) if isinstance(value, str) else value)


def native_model(
    model: ModelConfig,
    path: Path,
    cache_path: Path | None,
    labels: bytes | None,
    engine: EnginePlace | None = None,
    experts: structs.LumenExpertsConfig | None = None,
    steps: structs.LumenStepsConfig | None = None,
) -> structs.LumenModelConfig:
    """lumen_model_config for one model; the arguments are those of Engine.add_model."""
    dims = [
        structs.LumenDim(name=name.encode(), size=u32(name, size), fixed=fixed)
        for fixed, sizes in ((0, model.max_dims), (1, model.fix_dims))
        for name, size in sizes.items()
    ]
    image = model.takes()
    chosen = _pixels(model, image)
    settings = {
        name: whole_number(name, field, chosen.get(name, getattr(model, name)))
        for name, field, _limits in ordinary()
    }
    warmups = [native_warmup(model.name, at, one) for at, one in enumerate(model.warmup)]
    listed = [native_provider(one, model.intra_op_threads) for one in model.providers]
    lists = {
        **_list("dims", "dim_count", structs.LumenDim, dims),
        **_list("warmups", "warmup_count", structs.LumenWarmup, warmups),
        **_list("providers", "provider_count", structs.LumenProvider, listed),
        **_list("declared", "declared_count", structs.LumenDeclared, _declared(model)),
        **_list("preferred", "preferred_count", c_uint32, model.batch_preferred),
    }
    return structs.LumenModelConfig(
        **settings,
        **lists,
        name=model.name.encode(),
        path=os.fsencode(path),
        cache_path=None if cache_path is None else os.fsencode(cache_path),
        mean=chosen["mean"],
        scale=chosen["scale"],
        batch_delay_us=(
            U32_MAX if model.batch_delay_us is None else u32("batch_delay_us", model.batch_delay_us)
        ),
        rate=model.rate,
        burst=u32("burst", burst_of(model.rate, model.burst)),
        label_bytes=0 if labels is None else u32("labels", len(labels)),
        labels=labels,
        engine_path=None if engine is None or engine.path is None else os.fsencode(engine.path),
        engine_why=None if engine is None or engine.why is None else engine.why.encode(),
        version=u32("version", model.version),
        image=None if image is None else ctypes.pointer(native_image(image)),
        experts=None if experts is None else ctypes.pointer(experts),
        steps=None if steps is None else ctypes.pointer(steps),
        sequences=(
            None
            if model.sequences is None
            else ctypes.pointer(native_sequences(model.name, model.sequences))
        ),
        file_name=model.origin.file_name.encode() or None if model.origin else None,
    )


def _pixels(model: ModelConfig, image: ImageConfig | None) -> dict[str, Any]:
    """What becomes of pixels: the model's own settings, or those of the preset."""
    preset = Preset() if image is None else image.of_preset()
    return {
        name: getattr(model if name in model.model_fields_set else preset, name)
        for name in ("channel_order", "mean", "scale")
    }


def _list(name: str, count: str, kind: Any, items: Sequence[Any]) -> dict[str, Any]:
    """The two fields of a list: NULL and 0 where it is empty."""
    return {name: (kind * len(items))(*items) if items else None, count: len(items)}


def _declared(model: ModelConfig) -> list[structs.LumenDeclared]:
    """lumen_declared for each tensor that the model's configuration file declares."""
    return [
        structs.LumenDeclared(
            name=one.name.encode(),
            label_file=one.label_file.encode() or None,
            format=FORMATS.index(one.format),
            is_output=not one.is_input,
            shape=None if shape is None else (ctypes.c_int64 * len(shape))(*shape),
            rank=0 if shape is None else len(shape),
            no_rows=int(one.no_rows),
        )
        for one in (model.origin.declared if model.origin else ())
        for shape in [one.reshaped()]
        if one.dims is not None  # or else a warm-up's, which says no more
    ]


def native_provider(provider: ProviderConfig, threads: int) -> structs.LumenProvider:
    """lumen_provider for one entry of a model's `providers`, whose Runs have so many threads."""
    options = [
        structs.LumenOption(name=name.encode(), value=value.encode())
        for name, value in options_of(provider, threads).items()
    ]
    return structs.LumenProvider(
        name=provider.name.encode(),
        options=(structs.LumenOption * len(options))(*options),
        option_count=len(options),
    )


def native_experts(entry: ExpertsConfig, indexes: Mapping[str, int]) -> structs.LumenExpertsConfig:
    """lumen_experts_config for a virtual model, where `indexes` has those of the models."""
    experts = [
        structs.LumenExpert(model=u32("model", indexes[one.model]), bound=bound)
        for one, bound in zip(entry.experts, entry.bounds(), strict=True)
    ]
    return structs.LumenExpertsConfig(
        feature=get_args(Feature).index(entry.feature),
        count=len(experts),
        tensor=None if entry.of is None else entry.of.encode(),
        experts=(structs.LumenExpert * len(experts))(*experts),
    )


def native_steps(entry: EnsembleConfig, indexes: Mapping[str, int]) -> structs.LumenStepsConfig:
    """lumen_steps_config for an ensemble, where `indexes` has those of the models."""

    def renamed(names: Mapping[str, str]) -> Any:
        pairs = [structs.LumenStepTensor(a.encode(), b.encode()) for a, b in names.items()]
        return (structs.LumenStepTensor * len(pairs))(*pairs)

    steps = [
        structs.LumenStep(
            model=u32("model", indexes[step.model]),
            input_count=len(step.inputs),
            inputs=renamed(step.inputs),
            output_count=len(step.outputs),
            is_closed=int(entry.is_tritons),
            outputs=renamed(step.outputs),
        )
        for step in entry.steps
    ]
    outputs = [name.encode() for name in entry.outputs]
    return structs.LumenStepsConfig(
        count=len(steps),
        output_count=len(outputs),
        steps=(structs.LumenStep * len(steps))(*steps),
        outputs=(ctypes.c_char_p * len(outputs))(*outputs),
    )


def native_warmup(model: str, index: int, warmup: WarmupConfig) -> structs.LumenWarmup:
    """lumen_warmup for an entry of a model's `warmup`; messages name the model."""
    tensors = []
    for name, one in warmup.inputs.items():
        content = one.content(f"model '{model}': warmup.{index}.inputs.{name}")
        tensors.append(
            structs.LumenWarmupTensor(
                name=name.encode(),
                shape=(ctypes.c_uint32 * len(one.shape))(*one.shape),
                rank=len(one.shape),
                fill=len(FILLS) if content is not None else FILLS.index(one.data),
                data=content,
                bytes=0 if content is None else len(content),
            )
        )
    return structs.LumenWarmup(
        name=(warmup.name or str(index)).encode(),
        inputs=(structs.LumenWarmupTensor * len(tensors))(*tensors),
        input_count=len(tensors),
        count=u32("count", warmup.count),
    )


def native_sequences(model: str, sequences: SequencesConfig) -> structs.LumenSequencesConfig:
    """lumen_sequences_config for a model's section `sequences`; messages name the model."""
    states = []
    for name, output in sequences.state.items():
        initial = sequences.initial(model, name)
        size = 0 if initial is None else len(initial)
        states.append(structs.LumenState(name.encode(), output.encode(), initial, size))
    controls = {
        name: None if control is None else control.encode()
        for name in ("start", "end", "ready", "id")
        for control in (getattr(sequences, name),)
    }
    return structs.LumenSequencesConfig(
        **controls,
        states=(structs.LumenState * len(states))(*states),
        state_count=len(states),
        max_open=u32("max_open", sequences.max_open),
        idle_ms=u32("idle_ms", sequences.idle_ms),
    )


def native_image(image: ImageConfig) -> structs.LumenImageConfig:
    """lumen_image_config for a model's section `image`."""
    preset = image.of_preset()
    return structs.LumenImageConfig(
        filter=get_args(Filter).index(image.filter or preset.filter),
        fit=get_args(Fit).index(image.fit or preset.fit),
        resize=image.resize or 0,
        resize_ratio=preset.resize_ratio,
        pad_value=image.pad_value,
        upright=image.upright,
        fast=image.decode == "fast",
        lenient=image.lenient,
        max_pixels=image.max_pixels,
        max_whole_pixels=image.max_whole_pixels,
    )


def native_key(key: KeyConfig, models: list[str]) -> structs.LumenKeyConfig:
    """lumen_key_config for one key, where `models` are the names of those served, in order."""
    mask = structs.KEY_ALL_MODELS
    if key.models != "all":
        # A reload may name models that only a restart will serve.
        named = set(key.models)
        mask = sum(1 << at for at, name in enumerate(models) if named & {name, base_of(name)})
    return structs.LumenKeyConfig(
        name=key.name.encode(),
        sha256=(ctypes.c_uint8 * 32)(*key.digest()),
        rate=key.rate,
        models=u64("models", mask),
        burst=u32("burst", burst_of(key.rate, key.burst)),
        flags=structs.KEY_ADMIN if key.admin else 0,
    )
