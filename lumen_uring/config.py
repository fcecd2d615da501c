"""Reads config.yaml, the environment and options into a checked Config, or reports every problem.

Called by the commands, on the main thread, before anything starts. It keeps the place of each
value, so that a message can say `config.yaml:7 server.port: expected ..., found ...`. It must never
stop at the first problem, and never let a YAML or pydantic error reach a user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from lumen_uring.errors import ConfigError
from lumen_uring.files import take
from lumen_uring.repository.entries import expand
from lumen_uring.settings import (
    complaints,
    contradictions,
    ensembles,
    expert_checks,
    key_checks,
    paths,
    text_files,
    yaml_text,
)
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.keys import KeyConfig
from lumen_uring.settings.models import (
    ModelConfig,
)
from lumen_uring.settings.schema import Config, EngineConfig, ServerConfig
from lumen_uring.settings.without import starts_without, without

__all__ = ["Config", "EngineConfig", "KeyConfig", "ModelConfig", "ServerConfig", "load"]

_Path = tuple["str | int", ...]
_FILE_BYTES_MAX: Final = 1 << 20
_MAY_BE_EMPTY: Final = ("server", "engine", "log", "repository")
_PREFIX: Final = "LUMEN_"
_MERGE: Final = "tag:yaml.org,2002:merge"
_NO_PATHS: Final = ("builtin:", "~")  # "~" is expanded where the file is opened


class _Draft:
    """The raw settings, and the place of each for messages."""

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name
        self.data: dict[str, Any] = {}
        self.lines: dict[_Path, int] = {}
        self.flags: dict[_Path, str] = {}
        self.problems: list[str] = []

    def place(self, path: _Path) -> str:
        """Names the place of a value: the option that set it, or the file and line."""
        dotted = _dotted(path)
        for length in range(len(path), 0, -1):
            flag = self.flags.get(path[:length])
            if flag is not None:
                return f"{flag} {dotted}".rstrip()
        for length in range(len(path), 0, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return f"{self.file_name}:{line} {dotted}"
        return f"{self.file_name} {dotted}".rstrip()

    def report(self, path: _Path, expected: str, found: str) -> None:
        self.problems.append(f"{self.place(path)}: expected {expected}, found {found}")


def load(
    path: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    models: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    repositories: Sequence[str] = (),
) -> Config:
    """Reads the settings and checks all of them.

    The environment overrides the file, `models` and `repositories` the environment, and `overrides`
    all of them. Models of repositories become entries like others.

    Args:
        path: a YAML file; None takes the defaults that come with the package.
        overrides: "KEY=VALUE" with a dotted key and a YAML value, as given to --set.
        models: "NAME=PATH" as given to --model; the first one replaces the file's list of models.
        environment: variables such as LUMEN_SERVER__PORT, with a YAML value; None looks at none.
        repositories: folders as given to --model-repository; the first one replaces the file's.

    Returns:
        The checked settings.

    Raises:
        ConfigError: with one line for each problem.
    """
    if path is None:
        text = resources.files("lumen_uring").joinpath("default.yaml").read_text("utf-8")
        draft = _Draft("default.yaml")
    else:
        text = _read(Path(path))
        draft = _Draft(str(path))
    _parse(draft, text)
    _apply_environment(draft, environment or {})
    for model in models:
        _apply_model(draft, model)
    for repository in repositories:
        _apply_repository(draft, repository)
    for override in overrides:
        _apply_override(draft, override)
    if path is not None:
        _place_paths(draft, os.path.dirname(path))
    else:
        _drop_defaults(draft)
    config = _validate(draft)
    contradictions.check_names(draft.data, draft.report)
    if config is not None and not draft.problems:
        config, problems = expand(config)
        draft.problems += problems
    comes_later = config is not None and (config.repository.control != "none" or config.broken)
    all_models: tuple[str, ...] | None = None if comes_later else ()
    if config is not None and not comes_later:
        all_models = tuple(one.name for one in (*config.models, *config.virtual_entries()))
    key_checks.check(draft.data, draft.report, all_models)
    if config is not None:
        config = _checked_together(draft, config)
    if draft.problems or config is None:
        raise ConfigError("\n".join(draft.problems))
    return config


def _checked_together(draft: _Draft, config: Config) -> Config:
    """Reports contradictions; those of a repository's model are its own where the server starts
    without it."""
    broken: dict[str, list[str]] = {}
    own = {"ensembles": len(draft.data.get("ensembles") or ())}

    def report(path: _Path, expected: str, found: str) -> None:
        name = ""
        if len(path) > 1 and isinstance(path[1], int) and starts_without(config):
            if path[0] == "models" and config.models[path[1]].origin is not None:
                name = config.models[path[1]].base
            elif path[0] == "ensembles" and path[1] >= own["ensembles"]:
                name = config.ensembles[path[1]].name
        if name:
            line = f"{_dotted(path[2:])}: expected {expected}, found {found}"
            broken.setdefault(name, []).append(line)
        else:
            draft.report(path, expected, found)

    from lumen_uring.ring import rules  # the C library is loaded where a model asks for it

    contradictions.check_together(config, report)
    rules.check(config, report)
    expert_checks.check(config, report)
    ensembles.check(config, report)
    entries = {model.base: model for model in config.models}
    return without(
        config,
        (Broken(name, "\n".join(said), entry=entries.get(name)) for name, said in broken.items()),
    )


def _read(path: Path) -> str:
    raw = take(path, _FILE_BYTES_MAX)
    try:
        return text_files.decode(raw)
    except text_files.NotUtf8Error as error:
        raise ConfigError(f"{path}: expected UTF-8, found {error}.") from None


def _parse(draft: _Draft, text: str) -> None:
    """Fills the draft from YAML; a file that is no YAML ends the check."""
    try:
        loader, node = yaml_text.compose(text)
        if node is None:
            return
        # First, since construct_document removes merge keys (`<<`) from the nodes.
        _collect_lines(draft, node, (), set())
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(
            f"{draft.file_name}:{line}: expected YAML, found: {error.problem}."
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        sentence = " ".join(str(error).split())
        raise ConfigError(f"{draft.file_name}: expected YAML, found: {sentence}.") from None
    except RecursionError:
        raise ConfigError(f"{draft.file_name}: expected settings two levels deep.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{draft.file_name}: expected a mapping, found {complaints.found(data)}.")
    draft.data = data


def _collect_lines(draft: _Draft, node: yaml.Node, path: _Path, above: set[int]) -> None:
    """Records the line of every key, and reports keys written twice (YAML keeps the last)."""
    if id(node) in above:
        raise ValueError("an alias inside the value it names")
    above = above | {id(node)}
    if isinstance(node, yaml.MappingNode):
        written: set[str] = set()
        merged = [value for key, value in node.value if key.tag == _MERGE]
        for value in merged:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                _collect_lines(draft, source, path, above)
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            name = str(key.value)
            here: _Path = (*path, name)
            line = key.start_mark.line + 1
            if name in written:
                first = draft.lines[here]
                draft.lines[here] = line
                draft.report(here, "each key once", f"it again (first on line {first})")
            written.add(name)
            draft.lines[here] = line
            _collect_lines(draft, value, here, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            here = (*path, index)
            draft.lines[here] = value.start_mark.line + 1
            _collect_lines(draft, value, here, above)


def _apply_model(draft: _Draft, option: str) -> None:
    name, equals, path = option.partition("=")
    if not equals or not name or not path:
        draft.problems.append(f"--model: expected NAME=PATH, found {option!r}")
        return
    if draft.flags.get(("models",)) != "--model":
        draft.flags = {place: flag for place, flag in draft.flags.items() if place[0] != "models"}
        draft.flags[("models",)] = "--model"
        draft.data["models"] = []
    draft.data["models"].append({"name": name, "path": path})


def _apply_repository(draft: _Draft, folder: str) -> None:
    place = ("repository", "paths")
    section = draft.data.get("repository")
    if not isinstance(section, dict):
        section = draft.data["repository"] = {}
    if draft.flags.get(place) != "--model-repository":
        draft.flags[place] = "--model-repository"
        section["paths"] = []
    section["paths"].append(folder)


def _drop_defaults(draft: _Draft) -> None:
    """The model of the defaults is there to be tried; who has a repository has not asked for it."""
    if _repositories(draft.data) and not any(place[0] == "models" for place in draft.flags):
        draft.data["models"] = []


def _apply_environment(draft: _Draft, environment: Mapping[str, str]) -> None:
    """LUMEN_SERVER__PORT is server.port, LUMEN_MODELS__0__PATH models.0.path.

    Every name with a double underscore is read as a setting; LUMEN_MODELS is the whole list. An
    empty value is ignored, since some programs pass on every variable, set or not.
    """
    for name, text in sorted(environment.items()):
        meant = name.startswith(_PREFIX) and ("__" in name or name == f"{_PREFIX}MODELS")
        steps = name.removeprefix(_PREFIX).lower().split("__")
        if not meant or not text:
            continue
        if all(steps):
            _put(draft, steps, text, name)
        else:
            draft.problems.append(f"{name}: expected a name such as {_PREFIX}SERVER__PORT")


def _apply_override(draft: _Draft, option: str) -> None:
    key, equals, text = option.partition("=")
    steps = key.split(".")
    if not equals or not all(steps):
        draft.problems.append(f"--set: expected KEY=VALUE with a dotted KEY, found {option!r}")
        return
    _put(draft, steps, text, "--set")


def _put(draft: _Draft, steps: list[str], text: str, flag: str) -> None:
    """Puts a YAML value at a place; `flag` is what messages call its source."""
    key = f"{flag} {'.'.join(steps)}"
    try:
        value = (
            text if text == "-" else yaml.load(text, yaml_text.Loader)
        )  # YAML reads "-" as a list
    except (yaml.YAMLError, ValueError, RecursionError):
        draft.problems.append(f"{key}: expected a YAML value, found {text!r}")
        return
    at: Any = draft.data
    path: list[str | int] = []
    for step in steps[:-1]:
        inner = _descend(draft, at, step, path, flag)
        if inner is None:
            problem = f"{key}: expected settings at {_dotted(tuple(path)) or 'the top'}"
            draft.problems.append(f"{problem}, found no {step!r} that could hold one")
            return
        at = inner
    last: str | int = steps[-1]
    if isinstance(at, list):
        if not steps[-1].isdecimal() or int(steps[-1]) >= len(at):
            draft.problems.append(f"{key}: expected an index below {len(at)}, found {steps[-1]!r}")
            return
        last = int(steps[-1])
    at[last] = value
    place = (*path, last)
    draft.flags[place] = flag


def _place_paths(draft: _Draft, folder: str) -> None:
    """Makes the paths of a settings file relative to that file, not to the working directory."""
    for place in paths.of(draft.data):
        if any(place[:length] in draft.flags for length in range(1, len(place) + 1)):
            continue
        holder: Any = draft.data
        for step in place[:-1]:
            holder = holder[step]
        is_list = isinstance(holder, list)
        value = holder[place[-1]] if is_list or place[-1] in holder else None
        if isinstance(value, str) and value not in ("", "-") and not value.startswith(_NO_PATHS):
            holder[place[-1]] = os.path.join(folder, value)


def _descend(draft: _Draft, at: Any, step: str, path: list[str | int], flag: str) -> Any:
    """Goes one step into the settings and adds a missing section; None when it cannot."""
    if isinstance(at, list) and step.isdecimal() and int(step) < len(at):
        path.append(int(step))
        inner = at[int(step)]
    elif isinstance(at, dict):
        path.append(step)
        if at.get(step) is None:
            at[step] = {}
            draft.flags[tuple(path)] = flag
        inner = at[step]
    else:
        return None
    return inner if isinstance(inner, (dict, list)) else None


def _repositories(data: dict[str, Any]) -> Any:
    section = data.get("repository")
    return section.get("paths") if isinstance(section, dict) else None


def _validate(draft: _Draft) -> Config | None:
    # `server:` with nothing under it is YAML's null and means "all defaults".
    data = {
        key: {} if value is None and key in _MAY_BE_EMPTY else value
        for key, value in draft.data.items()
    }
    models = data.get("models", ())
    others = _repositories(data) or data.get("upstreams")
    if not models and isinstance(models, (list, tuple)) and not others:
        none = "an empty list" if "models" in data else "nothing"
        draft.report(("models",), Config.model_fields["models"].description or "", none)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        found = {complaints.field_path(detail["loc"]): detail for detail in details}
        for path, detail in found.items():
            # A list with an entry that is wrong is said to be too short as well.
            inner = any(len(other) > len(path) and other[: len(path)] == path for other in found)
            if detail["type"] != "too_short" or not inner:
                expected = complaints.expected(path)
                draft.report(path, expected, complaints.problem(data, path, detail, expected))
        return None


def _dotted(path: _Path) -> str:
    return ".".join(str(step) for step in path)
