"""What a server does with a model: opens it through the C library as a server does, up to the plan
of its memory, and starts nothing.

Called by `lumen inspect` and `lumen doctor`, on the main thread.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.options import model_option

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lumen_uring.pictures.image_input import Guess
    from lumen_uring.ring.description import SlotClass
    from lumen_uring.ring.engine import Engine
    from lumen_uring.settings.models import ModelConfig
    from lumen_uring.settings.schema import Config

# An override: what cannot be served is shown beside what can.
WITH_REFUSED: Final = "repository.strict_readiness=false"


@dataclass(frozen=True, slots=True)
class Found:
    """A model that can be served: its entry of describe, and the slots of a server of its own."""

    entry: dict[str, Any]
    slot_classes: tuple[SlotClass, ...]
    notes: tuple[str, ...]

    @property
    def guess(self) -> Guess | None:
        """The preset of its pictures, where the graph tells one and `image` is not set."""
        from lumen_uring.pictures.image_input import guess_preset

        if self.entry.get("image") or len(self.entry["inputs"]) != 1:
            return None
        (tensor,) = self.entry["inputs"]
        outputs = [(output["name"], output["shape"]) for output in self.entry["outputs"]]
        return guess_preset(tensor["name"], tensor["datatype"], tensor["shape"], outputs)


def look(path: str, overrides: Sequence[str]) -> Found:
    """Opens a model as a server with it alone would.

    Args:
        path: of its file, or builtin:NAME.
        overrides: settings, as for --set.

    Raises:
        ConfigError: a setting is wrong, or the file is not there.
        EngineError: the model cannot be served.
    """
    config = settings_of(path, overrides)
    if len(config.models) != 1:
        raise ConfigError("inspect: expected settings of one model.")
    (found,) = look_at(config).values()
    if isinstance(found, EngineError):
        raise found
    return found


def settings_of(path: str, overrides: Sequence[str]) -> Config:
    """The settings of a server with what a path names; of a folder, also what cannot be served.

    Args:
        path: of a model's file, builtin:NAME, or a folder of models.
        overrides: settings, as for --set.

    Raises:
        ConfigError: a setting is wrong, or the file is not there.
    """
    from lumen_uring.config import load

    if os.path.isdir(path):
        return load(None, [WITH_REFUSED, *overrides], (), os.environ, [path])
    return load(None, overrides, [model_option(path)], os.environ)


def look_at(config: Config) -> dict[str, Found | EngineError]:
    """Opens the models of a configuration as a server does.

    Args:
        config: of the server.

    Returns:
        For each model's name what was found, or why it cannot be served, which the settings may
        say already. All share the slots.

    Raises:
        ConfigError: a file is not there.
        EngineError: the models cannot be served together.
    """
    from lumen_uring.loading import weight_only
    from lumen_uring.loading.model_cache import resolve
    from lumen_uring.ring.engine import Engine

    files = [(model, resolve(model.path)) for model in config.models]
    with Engine(config) as engine:
        said = {model.name: _add(engine, model, file) for model, file in files}
        _add_virtual(engine, config, said)
        served = any(isinstance(told, list) for told in said.values())
        entries = engine.describe()["models"] if served else []
        if served:
            _compare(engine, config, said)
        info = engine.info()
    for model, file in files:
        told = said[model.name]
        if isinstance(told, list) and (stored := weight_only.note(file)):
            told.append(stored)
    # Notes on the machine are for `lumen doctor`.
    notes = [note for note in info.notes if note.startswith("model ")]
    found: dict[str, Found | EngineError] = {
        one.name: EngineError(one.reason) for one in config.broken
    }
    for name, told in said.items():
        if isinstance(told, EngineError):
            found[name] = told
            continue
        (entry,) = [entry for entry in entries if entry["name"] == name]
        own = [note for note in notes if f"'{name}'" in note]
        found[name] = Found(entry, info.slot_classes, (*told, *own))
    return found


def plan_of(config: Config, root: str) -> list[str]:
    """Which core each thread of a server gets, and why.

    Args:
        config: of the server.
        root: where /proc and /sys are found; empty for this machine's.

    Returns:
        Lines.

    Raises:
        ConfigError: a file is not there.
        EngineError: a model cannot be served, or engine.cores names cores that are not there.
    """
    from lumen_uring.loading.model_cache import resolve
    from lumen_uring.ring.engine import Engine

    with Engine(config) as engine:
        for model in config.models:
            if isinstance(problem := _add(engine, model, resolve(model.path)), EngineError):
                raise problem
        return engine.plan(root)


def _add(engine: Engine, model: ModelConfig, file: Path) -> list[str] | EngineError:
    from lumen_uring.loading.add import add_model
    from lumen_uring.loading.model_cache import labels

    try:
        return add_model(engine, engine.info().ort_version, model, file, labels(model))
    except EngineError as error:
        return error


def _compare(engine: Engine, config: Config, said: dict[str, list[str] | EngineError]) -> None:
    from lumen_uring.loading.add import check_declared

    loaded = [model for model in config.models if isinstance(said[model.name], list)]
    for name, (wrong, notes) in check_declared(engine, loaded).items():
        told = said[name]
        if wrong:
            said[name] = EngineError("\n".join(wrong))
        elif isinstance(told, list):
            told += notes


def _add_virtual(engine: Engine, config: Config, said: dict[str, list[str] | EngineError]) -> None:
    from lumen_uring.loading.add import add_ensemble, add_experts
    from lumen_uring.loading.model_cache import labels

    loaded = {
        model.name: labels(model) for model in config.models if isinstance(said[model.name], list)
    }
    for entry in config.experts:
        try:
            add_experts(engine, config, entry, loaded)
        except EngineError as error:
            said[entry.name] = error
            continue
        if loaded.keys() >= {expert.model for expert in entry.experts}:
            said[entry.name] = []
            loaded[entry.name] = None  # it may be a step
    for ensemble in config.ensembles:
        try:
            add_ensemble(engine, config, ensemble, loaded)
        except EngineError as error:
            said[ensemble.name] = error
            continue
        if loaded.keys() >= {step.model for step in ensemble.steps}:
            said[ensemble.name] = []


def document(found: Found) -> dict[str, Any]:
    """Says the same as an object of JSON.

    Args:
        found: of look.
    """
    return {
        "model": found.entry,
        "slots": [
            {"slot_bytes": entry.slot_bytes, "slot_count": entry.slot_count}
            for entry in found.slot_classes
        ],
        "notes": found.notes,
        "guessed_preset": asdict(found.guess) if found.guess else None,
    }


def lines(found: Found) -> list[str]:
    """Says what a server does with the model.

    Args:
        found: of look.
    """
    from lumen_uring.loading.words import (
        engine_text,
        free_dims_text,
        providers_text,
        run_text,
        sequences_text,
        strings_text,
        tensor_text,
        width_text,
    )

    entry = found.entry
    text = [f"model {entry['name']}: can be served"]
    text += [f"  input    {tensor_text(tensor, entry)}" for tensor in entry["inputs"]]
    text += [f"  output   {tensor_text(tensor, entry)}" for tensor in entry["outputs"]]
    text.append(f"  rows     {_rows(entry)}")
    if entry.get("free_dims"):
        text.append(f"  sizes    {free_dims_text(entry)}")
    if "max_string_bytes" in entry:
        text.append(f"  strings  {strings_text(entry)}")
    if "sequences" in entry:
        text.append(f"  sequence {sequences_text(entry)}")
    text.append(f"  engine   {engine_text(entry)}")
    if "providers" in entry:
        text.append(f"  provider {providers_text(entry)}")
    text.append(f"  runs     {run_text(entry)}")
    text.append(f"  memory   {_memory(found.slot_classes)}")
    text.append(f"  width    {width_text(entry)}")
    if any(tensor["datatype"] != "BYTES" for tensor in entry["inputs"]):
        text.append(f"  pictures {_pictures(entry)}")
    if found.guess:
        text.append(f"  preset   {found.guess.preset}, most likely: {found.guess.reason}")
    if entry["labels"]:
        text.append(f"  labels   {len(entry['labels'])}")
    text += [f"  note     {note}" for note in found.notes]
    return text


def _rows(entry: dict[str, Any]) -> str:
    free = {dim["name"] for dim in entry.get("free_dims", [])}
    first = [
        tensor.get("dims", [None])[0]
        for tensor in entry["inputs"]
        if tensor["shape"][:1] == [-1] and not tensor.get("max_rank")
    ]
    if "sequences" in entry:
        return "1: a request is a step of one sequence"
    if not first:
        return "1: no input has a free first dimension"
    if all(name in free for name in first):
        return "1: the first dimension is not the same in all inputs"
    why = "max_rows and server.max_request_bytes decide that"
    return f"n is 1 to {entry['max_rows']} in a request ({why})"


def _memory(classes: Sequence[SlotClass]) -> str:
    from lumen_uring.loading.words import rounded_size

    largest = max(entry.slot_bytes for entry in classes)
    total = sum(entry.slot_bytes * entry.slot_count for entry in classes)
    count = sum(entry.slot_count for entry in classes)
    return (
        f"the largest slot takes {rounded_size(largest)}; {count} slots take at most "
        f"{rounded_size(total)} for each I/O thread (server.arena_bytes)"
    )


def _pictures(entry: dict[str, Any]) -> str:
    from lumen_uring.loading.words import image_text

    rgb8, image = entry["rgb8"], entry.get("image")
    if image:
        return f"files (JPEG, PNG){' and rgb8' if rgb8 else ''}: {image_text(entry)}"
    if rgb8 is None:
        return "no rgb8: that takes one input [n,3,H,W] or [n,H,W,3], FP32 or UINT8, of fixed size"
    return (
        f"rgb8 of {rgb8['width']} x {rgb8['height']} pixels; the model gets {rgb8['layout']}, "
        f"{rgb8['channel_order']} (channel_order, mean and scale change that)"
    )
