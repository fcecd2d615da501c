"""Makes ordinary entries of the settings of what a server's repositories hold.

Called by config.py once the settings are checked. An entry of `models` whose path is a folder is
filled in from it; what such an entry sets itself counts more than the folder's files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from lumen_uring.errors import ConfigError
from lumen_uring.files import expanded
from lumen_uring.repository import text_folder
from lumen_uring.repository.files import FoundModel, Place, away
from lumen_uring.repository.folders import find, find_named, of_versions
from lumen_uring.repository.model_config import Asked, read
from lumen_uring.repository.tree import Problems, from_json
from lumen_uring.settings import complaints
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.origin import Origin
from lumen_uring.settings.schema import Config
from lumen_uring.settings.types import MODELS_MAX, NAME_BYTES_MAX, NAME_PATTERN
from lumen_uring.settings.without import CURE, starts_without, without

_BUILTIN: Final = "builtin:"


def expand(config: Config) -> tuple[Config, list[str]]:
    """Adds the models of the repositories to those of `models`.

    Args:
        config: checked settings.

    Returns:
        The settings with all models, and a line for each problem. Where the server starts without
        what cannot be served there are none of these: the settings name such models as broken.
    """
    problems = Problems()
    notes: list[str] = []
    entries: list[ModelConfig] = []
    for entry in config.models:
        with problems.alone(entry.base, f"model {entry.name}: {entry.path}"):
            entries += _filled_in(entry, problems, notes)
    first = {model.base: "an entry of `models`" for model in entries}
    ensembles = list(config.ensembles)
    first |= {entry.name: "an entry of `ensembles`" for entry in ensembles}
    control, wanted = config.repository.control, set(config.repository.load)
    for text in config.repository.paths:
        found, said = find(expanded(text), problems)
        notes += said
        for model in found:
            if model.name in first:
                expected = f"another name than {model.name!r}"
                problems.add(model.where, expected, f"it: {first[model.name]} has it too")
                continue
            first[model.name] = model.where
            if control == "explicit" and not wanted & {model.name, "*"}:
                continue
            with problems.alone(model.name, model.where):
                if model.asked.steps:
                    ensembles += _ensemble(model, problems)
                else:
                    entries += _entries(model, problems)
    ensembles = [with_versions(entry, entries) for entry in ensembles]
    for name in sorted(wanted - first.keys() - problems.of.keys() - {"*"}):
        known = ", ".join(first) or "none"
        with problems.within(name):
            problems.add("repository.load", f"models that are there ({known})", repr(name))
    most = config.repository.max_loaded
    if most and len(entries) > most:
        expected = f"at most {most} models at the start (repository.max_loaded)"
        problems.add("repository.load", expected, f"{len(entries)}")
    if len(entries) > MODELS_MAX:
        _leave_out(entries, problems)
    if not (entries or config.upstreams or problems.lines) and control == "none":
        problems.add("repository.paths", "at least one model", "none")
    filled = config.with_models(tuple(entries), tuple(ensembles), tuple(notes))
    if not problems.lines:
        return filled, []
    if not starts_without(config):
        return filled, [*problems.lines, CURE]
    notes += problems.general()
    filled = config.with_models(tuple(entries), tuple(ensembles), tuple(notes))
    return without(filled, _broken(config, problems)), []


def _broken(config: Config, problems: Problems) -> list[Broken]:
    """What cannot be served, by name, and the repositories that are not there."""
    wanted = set(config.repository.load)
    is_wanted = config.repository.control != "explicit" or "*" in wanted
    own = {model.base for model in config.models}
    broken = [
        Broken(name, "\n".join(lines), is_wanted or name in wanted | own)
        for name, lines in problems.of.items()
    ]
    broken += [
        Broken(text, why, is_repository=True)
        for text in config.repository.paths
        if (why := away(expanded(text)))
    ]
    return broken


def _leave_out(entries: list[ModelConfig], problems: Problems) -> None:
    """A server that starts without what it has no room for starts without the last ones."""
    for base in dict.fromkeys(model.base for model in entries[MODELS_MAX:]):
        with problems.within(base):
            found = f"{len(entries)}, of which {base!r} is one too many"
            problems.add("repository.paths", f"at most {MODELS_MAX} models in all", found)


def entries_of(config: Config, name: str, asked: dict[str, Any] | None = None) -> list[ModelConfig]:
    """Reads a model again: from its entry in the settings, or its folder in a repository.

    Args:
        config: of the server.
        name: of the model, without a version; it is looked up and never made a path.
        asked: a model configuration of Triton's that takes the place of its file; None: its file.

    Returns:
        An entry for each version that is to be served.

    Raises:
        ConfigError: there is no such model, or what there is cannot be served.
    """
    problems = Problems()
    own = [one for one in config.models if one.base == name]
    written = [one for one in own if one.origin is None]
    if written and asked is None:
        return written
    said = None if asked is None else _read_asked(asked, name, problems)
    found: list[FoundModel] = []
    wrong: list[str] = []
    general: list[str] = []
    for text in [] if problems.lines else config.repository.paths:
        here = Problems()
        instead = {} if said is None else {name: said}
        found += find_named(expanded(text), name, here, instead)
        # Other models of the folder may be wrong: that is not what was asked.
        wrong += here.of.get(name, [])
        general += here.general()
    problems.lines += wrong
    if len(found) > 1:
        places = " and ".join(one.where for one in found)
        raise ConfigError(f"expected one model of the name {name!r}, found {places}")
    if not found:
        if own and asked is None and not problems.lines and not away(expanded(own[0].path)):
            return own  # an entry of `models` whose path is a folder
        none = "\n".join((f"no repository holds a model {name!r}", *general))
        raise ConfigError("\n".join(problems.lines) or none)
    (one,) = found
    if one.asked.steps:
        raise ConfigError(
            f"{name!r} is an ensemble: expected a model, or a call that loads it as it is"
        )
    chosen: FoundModel | None = one
    if said is not None and one.asked is not said:
        chosen = _with_asked(one, said, problems)
    entries = [] if chosen is None or problems.lines else _entries(chosen, problems)
    if not entries:
        raise ConfigError("\n".join(problems.lines))
    return entries if said is None else [_given(entry) for entry in entries]


def _given(entry: ModelConfig) -> ModelConfig:
    origin = entry.origin
    return entry if origin is None else entry.with_origin(replace(origin, is_given=True))


def virtual_of(config: Config, name: str) -> ExpertsConfig | EnsembleConfig | None:
    """Reads a virtual model again: from its entry in the settings, or its folder in a repository.

    Args:
        config: of the server.
        name: of the model; it is looked up and never made a path.

    Returns:
        Its entry; None: no virtual model has the name.

    Raises:
        ConfigError: its folder cannot be read.
    """
    problems = Problems()
    # A folder first: after a reload the settings in force have its old entry.
    for text in config.repository.paths:
        for found in find_named(expanded(text), name, problems, {}):
            if found.asked.steps and (ensembles := _ensemble(found, problems)):
                return ensembles[0]
    if name in problems.of:
        raise ConfigError("\n".join(problems.of[name]))
    return next((entry for entry in config.virtual_entries() if entry.name == name), None)


def _read_asked(asked: dict[str, Any], name: str, problems: Problems) -> Asked:
    """The configuration of a call, which takes the place of the one in the model's folder."""
    said = read(from_json(asked, "config"), problems)
    if said.name not in ("", name):
        problems.add("config name", repr(name), repr(said.name))
    files = [*said.state_files.values(), *(one[:2] for one in said.warmup_files)]
    for where, file in files:
        problems.add(where, "zeros: a call's configuration names no files", repr(file))
    return said


def _with_asked(one: FoundModel, said: Asked, problems: Problems) -> FoundModel | None:
    """A model of another layout than Triton's, with a call's configuration."""
    folder = Path(one.where)
    with problems.alone(one.name, one.where):
        if folder.is_dir():
            return of_versions(Place(folder, problems), folder, one.name, said)
    said.policy.of(one.versions, problems)  # a file is version 1, or the one of its settings
    return replace(one, asked=said)


def uploaded_entries(folder: Path, name: str, asked: dict[str, Any]) -> list[ModelConfig]:
    """Reads a model whose files a call has brought.

    Args:
        folder: of the files.
        name: of the model.
        asked: its model configuration.

    Returns:
        An entry for each version that is to be served.

    Raises:
        ConfigError: it cannot be served.
    """
    problems = Problems()
    said = read(from_json(asked, "config"), problems)
    if said.name not in ("", name):
        problems.add("config name", repr(name), repr(said.name))
    if said.steps:
        problems.add("config ensemble_scheduling", "a model's own files", "an ensemble")
    found = None
    with problems.alone(name, str(folder)):
        if not problems.lines:
            found = of_versions(Place(folder, problems), folder, name, said)
    entries = [] if found is None or problems.lines else _entries(found, problems)
    if not entries:
        raise ConfigError("\n".join(problems.lines))
    return entries


class Held(NamedTuple):
    """The repositories' entries, all names, problems, and the entries of ensembles, whose steps
    have the names of their files. A model with a problem has no entry."""

    entries: list[ModelConfig]
    names: set[str]
    problems: Problems
    ensembles: list[EnsembleConfig]


def entries_in(config: Config) -> Held:
    """The models that the repositories hold now, but for those that `models` names itself.

    Args:
        config: of the server.
    """
    problems = Problems()
    taken = {model.base for model in config.models if model.origin is None}
    taken |= {one.name for one in config.experts}
    taken |= {one.name for one in config.ensembles if not one.folder}
    entries: list[ModelConfig] = []
    ensembles: list[EnsembleConfig] = []
    for text in config.repository.paths:
        for model in find(expanded(text), problems)[0]:
            if model.name in taken:
                expected = f"another name than {model.name!r}"
                problems.add(model.where, expected, "it: another model has it too")
                continue
            taken.add(model.name)
            with problems.alone(model.name, model.where):
                if model.asked.steps:
                    ensembles += _ensemble(model, problems)
                else:
                    entries += _entries(model, problems)
    return Held(entries, taken | problems.of.keys(), problems, ensembles)


def names_in(config: Config) -> set[str]:
    """The names of all models that the settings and the repositories hold now, without versions."""
    names = {model.base for model in config.served()}
    for text in config.repository.paths:
        names |= {one.name for one in find(expanded(text), Problems())[0]}
    return names


def _filled_in(model: ModelConfig, problems: Problems, notes: list[str]) -> list[ModelConfig]:
    path = expanded(model.path)
    if model.path.startswith(_BUILTIN) or not path.is_dir():
        return [model]
    of_text = {} if model.text is None else model.text.model_dump(exclude_unset=True)
    found, said = find(path, problems, text=of_text)
    notes += said
    if len(found) != 1:
        if found:
            names = ", ".join(one.name for one in found)
            expected = "one model; use repository.paths or --model-repository for several"
            problems.add(f"model {model.name}: {path}", expected, names)
        return [model]
    (one,) = found
    if ":" in model.name and not text_folder.is_one(path):  # whose files say no version
        expected = f"the file of version {model.version}, or the name {model.base!r} alone"
        problems.add(f"model {model.name}: {path}", expected, "a folder, whose files say versions")
        return [model]
    one.name = model.name
    own = {name: getattr(model, name) for name in model.model_fields_set - {"path", "name"}}
    filled = []
    for entry in _entries(one, problems):
        if model.text is not None and entry.text is not None:
            own["text"] = model.text.filled_in(entry.text)
        filled.append(entry.model_copy(update=own))
    return filled or [model]


def _ensemble(found: FoundModel, problems: Problems) -> list[EnsembleConfig]:
    """The entry of an ensemble, whose answer is what its file declares; none after a problem."""
    asked = found.asked
    outputs = [one.name for one in asked.declared if not one.is_input]
    values = {"name": found.name, "steps": asked.steps, "outputs": outputs}
    of_both = ("batch_size", "batch_delay_us", "max_output_bytes", "max_rows")
    values |= {name: asked.settings[name] for name in of_both if name in asked.settings}
    if found.labels is not None:
        values["labels"] = str(found.labels.absolute())
    try:
        return [EnsembleConfig.model_validate(values).as_tritons(found.where)]
    except ValidationError as error:
        for one in error.errors(include_url=False):
            place = ".".join(map(str, one["loc"]))
            problems.add(f"{found.where} {place}", one["msg"], repr(one["input"])[:80])
        return []


def with_versions(ensemble: EnsembleConfig, models: Sequence[ModelConfig]) -> EnsembleConfig:
    """Steps by the names under which their models are served: NAME:VERSION is NAME where one
    version is served at a time, and NAME the highest of several.

    Args:
        ensemble: as its file or entry has it.
        models: those that are served.
    """
    names = {model.name for model in models}
    steps = []
    for step in ensemble.steps:
        base, _, version = step.model.partition(":")
        served = {str(one.version): one.name for one in models if one.base == base}
        highest = max(served, key=int, default="")
        known = step.model in names or not served
        name = step.model if known else served.get(version or highest, step.model)
        steps.append(step.model_copy(update={"model": name}))
    return ensemble.model_copy(update={"steps": tuple(steps)})


def _what_failed(name: str, values: dict[str, Any], error: ValidationError) -> tuple[str, str]:
    """What was expected of the first setting that is wrong, and what was found."""
    loc = error.errors()[0]["loc"]
    if loc[0] != "name":
        expected = complaints.expected(complaints.field_path(("models", 0, *loc)))
        return f"{loc[0]}: {expected}", complaints.found(values.get(str(loc[0])))
    if re.fullmatch(NAME_PATTERN, name):
        expected = f"at most {NAME_BYTES_MAX} characters with the version, where several are served"
        return expected, repr(values["name"])
    return f"a name of 1 to {NAME_BYTES_MAX} letters, digits, '_', '.' or '-'", repr(name)


def _entries(found: FoundModel, problems: Problems) -> list[ModelConfig]:
    """An entry for each version: NAME alone where the policy serves one at a time, so that the next
    takes its place; NAME:VERSION where it serves several. None after a problem."""
    entries: list[ModelConfig] = []
    for version, file in found.files.items():
        name = found.name if found.asked.policy.is_single else f"{found.name}:{version}"
        values = {"name": name, "path": str(file.absolute()), **found.asked.settings}
        if found.labels is not None:
            values["labels"] = str(found.labels.absolute())
        try:
            entry = ModelConfig.model_validate(values)
        except ValidationError as error:
            problems.add(found.where, *_what_failed(found.name, values, error))
            return []
        origin = Origin(
            found.where,
            version,
            found.versions,
            tuple(found.asked.declared),
            tuple(found.asked.notes),
            found.asked.file_name,
            found.listed,
        )
        entries.append(entry.with_origin(origin))
    return entries
