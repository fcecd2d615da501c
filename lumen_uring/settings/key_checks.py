"""Checks keys and rates that contradict each other; called by config.py, on the main thread.

It works on the raw settings, so that a value of the wrong type elsewhere hides no contradiction.
It reports each problem with its place and never raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from lumen_uring.settings.keys import token_problem
from lumen_uring.settings.types import base_of

Path = tuple["str | int", ...]
# (place, what was expected, what was found)
Report = Callable[[Path, str, str], None]
_MODELS: Final = ("models", "experts", "ensembles")  # the sections whose names a key may have


def check(data: dict[str, Any], report: Report, models: Sequence[str] | None = ()) -> None:
    """Reports contradictions in server.keys, and every burst without a rate.

    Args:
        data: the settings as read.
        report: takes one problem.
        models: with those of the repositories; None: keys may name others, which come later.
    """
    for path, section in _sections(data):
        for prefix in ("", "token_"):
            burst, rate = section.get(f"{prefix}burst"), section.get(f"{prefix}rate")
            if burst is not None and not rate:
                found = f"{burst!r} beside no {prefix}rate"
                report((*path, f"{prefix}burst"), f"none without a {prefix}rate", found)
    _check_keys(data, report, models)


def _sections(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The mappings that can hold a rate, with their places."""
    server = data.get("server")
    if isinstance(server, dict):
        yield ("server",), server
    for index, key in _mappings(server.get("keys") if isinstance(server, dict) else None):
        yield ("server", "keys", index), key
    for section in _MODELS:
        for index, model in _mappings(data.get(section)):
            yield (section, index), model


def _mappings(entries: object) -> Iterator[tuple[int, dict[str, Any]]]:
    for index, entry in enumerate(entries if isinstance(entries, (list, tuple)) else ()):
        if isinstance(entry, dict):
            yield index, entry


def _check_keys(data: dict[str, Any], report: Report, all_models: Sequence[str] | None) -> None:
    server = data.get("server")
    if not isinstance(server, dict):
        return
    written = [
        model.get("name") for section in _MODELS for _index, model in _mappings(data.get(section))
    ]
    known = [name for name in written if isinstance(name, str)]  # a field's own check says so
    known += sorted({base_of(name) for name in all_models or ()} - set(known))
    upstreams = data.get("upstreams")
    for entry in upstreams.values() if isinstance(upstreams, dict) else ():
        models = entry.get("models") if isinstance(entry, dict) else None
        known += models if isinstance(models, dict) else ()
    names: dict[str, int] = {}
    tokens: dict[str, int] = {}
    for index, key in _mappings(server.get("keys")):
        place: Path = ("server", "keys", index)
        name = key.get("name")
        if isinstance(name, str):
            if name in names:
                found = f"{name!r}, the name of key {names[name]} too"
                report((*place, "name"), "a name of its own", found)
            names.setdefault(name, index)
        source, digest = _token(key, place, report)
        if digest:
            if digest in tokens:
                found = f"that of key {tokens[digest]} again"
                report((*place, source), "a token of its own", found)
            tokens.setdefault(digest, index)
        models = key.get("models")
        for model in models if isinstance(models, list) else ():
            if all_models is not None and isinstance(model, str) and model not in known:
                said = ", ".join(known) or "none"
                report((*place, "models"), f"names of models ({said})", f"{model!r}")


def _token(key: dict[str, Any], place: Path, report: Report) -> tuple[str, str]:
    """The setting that gives a key's token, and the token's hash; both empty after a problem."""
    given = [name for name in ("sha256", "token_env", "subject") if key.get(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        report(place, "one of sha256, token_env and subject", found)
        return "", ""
    value = key[given[0]]
    if not isinstance(value, str):
        return given[0], ""  # the field's own check says so
    if given[0] == "sha256":
        return "sha256", value.lower()
    if given[0] == "subject":
        return "subject", f"subject {value}"
    problem, token = token_problem(value)
    if problem:
        report((*place, "token_env"), "a variable that holds the token", problem)
        return "token_env", ""
    return "token_env", hashlib.sha256(token.encode()).hexdigest()
