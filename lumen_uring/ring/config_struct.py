"""From checked settings to the library's structs: every setting lands in the field of its name.

Used by engine.py and, for the layout, by library.py. No setting is named here that is an ordinary
number, choice or path: lumen_config's fields are those of settings/schema.py, in their order.
Every number is range-checked before it crosses, since ctypes truncates silently.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import c_char_p, c_double, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from lumen_uring.pictures.image_input import ImageConfig, Preset
from lumen_uring.ring import structs
from lumen_uring.ring.model_structs import (
    listed,
    native_image,
    native_provider,
    native_sequences,
    native_text,
    native_warmup,
)
from lumen_uring.ring.ranges import u32, u64
from lumen_uring.settings.keys import KeyConfig, burst_of
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.origin import FORMATS
from lumen_uring.settings.schema import PYTHON_SIDE, Config, EngineConfig, LogConfig, ServerConfig
from lumen_uring.settings.types import U32_MAX

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


def native_config(config: Config, runtime: Path) -> structs.LumenConfig:
    """lumen_config for these settings; it keeps alive what it points to.

    Args:
        config: checked settings.
        runtime: libonnxruntime.so.

    Raises:
        EngineError: a number does not fit its field.
    """
    native = structs.LumenConfig(
        abi_version=structs.ABI_VERSION,
        access_as_json=int(config.log.format == "json"),
        ort_library_path=os.fsencode(runtime),
    )
    for section, name, field in crossing():
        value = getattr(getattr(config, section), name)
        if name == "keys":
            value = [native_key(key) for key in value]
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
    tokenizer: Path | None = None,
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
    chosen_providers = [native_provider(one, model.intra_op_threads) for one in model.providers]
    lists = {
        **listed("dims", "dim_count", structs.LumenDim, dims),
        **listed("warmups", "warmup_count", structs.LumenWarmup, warmups),
        **listed("providers", "provider_count", structs.LumenProvider, chosen_providers),
        **listed("declared", "declared_count", structs.LumenDeclared, _declared(model)),
        **listed("preferred", "preferred_count", c_uint32, model.batch_preferred),
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
        image=_pointer(None if image is None else native_image(image)),
        experts=_pointer(experts),
        steps=_pointer(steps),
        sequences=_pointer(native_sequences(model.name, model.sequences)),
        text=_pointer(native_text(model.text, tokenizer)),
        file_name=model.origin.file_name.encode() or None if model.origin else None,
    )


def _pointer(struct: ctypes.Structure | None) -> Any:
    """NULL where there is none."""
    return None if struct is None else ctypes.pointer(struct)


def _pixels(model: ModelConfig, image: ImageConfig | None) -> dict[str, Any]:
    """What becomes of pixels: the model's own settings, or those of the preset."""
    preset = Preset() if image is None else image.of_preset()
    return {
        name: getattr(model if name in model.model_fields_set else preset, name)
        for name in ("channel_order", "mean", "scale")
    }


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


def native_key(key: KeyConfig) -> structs.LumenKeyConfig:
    """lumen_key_config for one key."""
    models = None
    if key.models != "all":
        models = (ctypes.c_char_p * (len(key.models) + 1))(*(name.encode() for name in key.models))
    return structs.LumenKeyConfig(
        name=key.name.encode(),
        sha256=(ctypes.c_uint8 * 32)(*key.digest()),
        rate=key.rate,
        token_rate=key.token_rate,
        models=models,
        model_count=0 if models is None else len(models) - 1,
        burst=u32("burst", burst_of(key.rate, key.burst)),
        token_burst=u32("token_burst", burst_of(key.token_rate, key.token_burst)),
        flags=structs.KEY_ADMIN * key.admin
        | structs.KEY_BULK * key.bulk
        | structs.KEY_SUBJECT * (key.subject is not None),
    )
