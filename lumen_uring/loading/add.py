"""Adds a model to an engine as a server does: without its ZipMap, with its place in the cache.

Called by server.py and by `lumen inspect`, on the main thread before the engine starts, and on the
loader's while it runs.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lumen_uring.engine.cache import engine_place
from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.loading import model_file, weights, zipmap
from lumen_uring.loading.agreement import disagreements
from lumen_uring.loading.model_cache import CachePlace, cache_place, used
from lumen_uring.loading.model_cache import labels as labels_of
from lumen_uring.loading.tokenizer import laid_out
from lumen_uring.ring.process import gently
from lumen_uring.settings import providers
from lumen_uring.settings.models import ExpertsConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lumen_uring.ring.engine import Engine
    from lumen_uring.settings.models import EnsembleConfig, ModelConfig
    from lumen_uring.settings.schema import Config

_Result = TypeVar("_Result")


def add_model(
    engine: Engine,
    ort_version: str,
    model: ModelConfig,
    path: Path,
    names: bytes | None,
    put: Callable[..., object] | None = None,
    is_gentle: bool = False,
) -> list[str]:
    """Loads a model.

    Args:
        engine: that gets it.
        ort_version: of its ONNX Runtime.
        model: the entry of the configuration.
        path: its file.
        names: its classes, one a line; None takes those that the file itself names, if any.
        put: Engine.load of an engine that runs; None: Engine.add_model.
        is_gentle: what is read takes only the CPU time that nobody else wants.

    Returns:
        Sentences for the person who starts the server.

    Raises:
        ConfigError: the file cannot be read.
        EngineError: the model cannot be served.
    """
    # What is read of a large file in a server that runs is no reason to keep its clients waiting.
    call = gently if is_gentle else _at_once
    with ExitStack() as stack:
        cut, classes, note = call(stack.enter_context, zipmap.cut(path))
        file = cut
        try:
            before = model_file.stamp(cut)
            place = call(cache_place, cut, ort_version, model.fix_dims, model.path)
            labels = classes if names is None else names
            file, place = call(_with_weights, model, cut, place)
            native = (
                call(engine_place, file, path.name, place.path) if _may_be_native(model) else None
            )
            with weights.held(file) if place.copy else nullcontext(), laid_out(model) as pieces:
                (put or engine.add_model)(model, file, place.path, labels, native, pieces)
            if place.path is not None and model_file.stamp(cut) != before:
                # Its name is of what was read first, and its content may be of what came then.
                with suppress(OSError):
                    place.path.unlink(missing_ok=True)
                place = CachePlace(None, f"{path} was written while it was loaded: load it again")
            with suppress(OSError):  # the model is loaded, whatever becomes of the cache
                if place.copy is not None and model.isolation == "none" and place.has_graph:
                    weights.forget(place.copy)
                call(used, place)
        except (ConfigError, EngineError) as error:
            # Neither the file without its ZipMap nor the copy is one that anybody knows.
            text = str(error).replace(str(file), str(path)).replace(str(cut), str(path))
            raise type(error)(text + _asked_by(model, text)) from None
    made_anew = None if native is None else native.note
    said = [text for text in (note, place.note, made_anew) if text is not None]
    return said if model.origin is None else [*said, *model.origin.notes]


def _may_be_native(model: ModelConfig) -> bool:
    """Whether a native engine may run the model in the place of ONNX Runtime."""
    is_wished = model.engine != "onnxruntime" and model.text is None
    return is_wished and not providers.others(model.providers)


def _asked_by(model: ModelConfig, text: str) -> str:
    """Where a repository's file asked for providers, behind an error that is about them."""
    notes = model.origin.notes if model.origin is not None and "providers: " in text else ()
    asked = [note for note in notes if " is providers: " in note]
    return f" ({'; '.join(asked)})" if asked else ""


def _with_weights(model: ModelConfig, file: Path, place: CachePlace) -> tuple[Path, CachePlace]:
    """The file to load: of a model with weights beside it one of a copy, until the optimised graph
    holds them. Where there is no room for a copy, what cannot be is noted."""
    if place.copy is None or place.weights is None:
        return file, place
    if place.has_graph and not providers.others(model.providers):
        return file, place
    try:
        names = model_file.read(file).weights
        return weights.copy(file, place.weights, names, place.copy), place
    except weights.NoRoomError as error:
        note = (
            f"there is no room for a copy of the weights of {model.name} ({error}): whoever writes "
            "into their files while it is served changes its answers, or ends the server"
        )
        return file, replace(place, note=note, copy=None)


def _at_once(call: Callable[..., _Result], *arguments: Any) -> _Result:
    return call(*arguments)


def check_declared(
    engine: Engine, models: Iterable[ModelConfig]
) -> dict[str, tuple[list[str], list[str]]]:
    """Compares models of repositories with the tensors that their files declare.

    Args:
        engine: with all models; none can be added afterwards.
        models: entries that it has.

    Returns:
        By name of a model: what contradicts its graph, and notes.
    """
    declared = {model.name: model.origin for model in models if model.origin is not None}
    if not any(origin.declared for origin in declared.values()):
        return {}
    return {
        entry["name"]: disagreements(declared[entry["name"]], entry)
        for entry in engine.describe()["models"]
        if entry["name"] in declared
    }


def add_experts(
    engine: Engine, config: Config, entry: ExpertsConfig, loaded: Mapping[str, bytes | None]
) -> None:
    """Adds a virtual model; without one of its experts, which has been reported, nothing happens.

    Args:
        engine: not started yet.
        config: of the server.
        entry: the virtual model.
        loaded: the models that the engine has, in its order, and their labels.

    Raises:
        EngineError: the experts differ, or the rule does not fit them.
    """
    if not loaded.keys() >= {expert.model for expert in entry.experts}:
        return
    indexes = {name: index for index, name in enumerate(loaded)}
    labels = loaded[entry.experts[-1].model]
    engine.add_experts(entry, config.virtual(entry), indexes, labels)


def load_virtual(engine: Engine, config: Config, entry: ExpertsConfig | EnsembleConfig) -> None:
    """Loads a virtual model into a server that runs, or in the place of the one of its name.

    Args:
        engine: that runs.
        config: of the server; its models are those in force.
        entry: the virtual model.

    Raises:
        ConfigError: its labels cannot be read.
        EngineError: a model that it runs is not served, or they do not fit each other.
    """
    parts = entry.experts if isinstance(entry, ExpertsConfig) else entry.steps
    by_name = {model.name: model for model in config.models}
    served = by_name.keys() | {one.name for one in config.experts}
    missing = [part.model for part in parts if part.model not in served]
    if missing:
        raise EngineError(f"it runs '{missing[0]}', which is not served")
    if isinstance(entry, ExpertsConfig):
        names = labels_of(by_name[entry.experts[-1].model])
        engine.load_experts(entry, config.virtual(entry), engine.indexes(), names)
    else:
        model = config.ensemble(entry)
        engine.load_ensemble(entry, model, engine.indexes(), labels_of(model))


def add_ensemble(
    engine: Engine, config: Config, entry: EnsembleConfig, loaded: Mapping[str, bytes | None]
) -> None:
    """Adds an ensemble; without the model of a step, which has been reported, nothing happens.

    Args:
        engine: not started yet.
        config: of the server.
        entry: the ensemble.
        loaded: the models that the engine has, in its order, and their labels.

    Raises:
        ConfigError: its labels cannot be read.
        EngineError: the tensors of the steps do not fit each other.
    """
    if not loaded.keys() >= {step.model for step in entry.steps}:
        return
    indexes = {name: index for index, name in enumerate(loaded)}
    model = config.ensemble(entry)
    engine.add_ensemble(entry, model, indexes, labels_of(model))
