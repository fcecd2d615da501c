"""Calls that load and unload models: which there are, and their bodies, read and checked.

Called by control.py, on the threads that take calls and that load.
"""

from __future__ import annotations

import codecs
from typing import Any, Protocol

import orjson

from lumen_uring.control import long_texts
from lumen_uring.control.long_texts import LongText
from lumen_uring.control.uploads import PREFIX
from lumen_uring.errors import EngineError, LumenError
from lumen_uring.ring.errands import Errand
from lumen_uring.settings.schema import Config


class CallError(LumenError):
    """A call that is refused.

    Args:
        code: of HTTP.
        message: the sentence.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class LoadError(EngineError):
    """A model was not loaded.

    Args:
        message: why, for the caller.
        code: of HTTP: 400 where the model is wrong, 503 where the machine had no means for now.
    """

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class Calls(Protocol):
    """What the control needs of the engine."""

    def next_errand(self, timeout_s: float) -> Errand | None: ...
    def finish_errand(self, errand: Errand, code: int, body: bytes = b"") -> None: ...
    def hold_ready(self, hold: bool) -> None: ...
    def settle(self, timeout_s: float) -> bool: ...
    def end_errands(self) -> None: ...
    def longest_idle(self, spared: list[str]) -> str | None: ...


def kinds_of(config: Config) -> tuple[str, ...]:
    """The kinds of calls that a server's control answers.

    Args:
        config: of the server.
    """
    changes = ("load", "unload") if config.repository.control == "explicit" else ()
    demand = ("demand",) if config.repository.max_loaded else ()
    return ("trace", "logging", "index", *changes, *demand)


def object_of(body: bytes | memoryview) -> dict[str, Any]:
    """A body's object; of an empty body an empty one."""
    return _object_of(body)[0]


def _object_of(body: bytes | memoryview) -> tuple[dict[str, Any], dict[str, LongText]]:
    """The same, and the long strings of a long body by the marks that stand in their places."""
    texts: dict[str, LongText] = {}
    if not len(body) or (isinstance(body, bytes) and not body.strip()):
        return {}, texts
    try:
        if isinstance(body, bytes):
            data = orjson.loads(body.removeprefix(codecs.BOM_UTF8))
        else:
            data, texts = long_texts.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(400, f"body: expected JSON, found: {error}") from None
    if not isinstance(data, dict):
        raise CallError(400, "body: expected an object of JSON")
    return data, texts


def parameters_of(body: bytes | memoryview, known: dict[str, type]) -> dict[str, Any]:
    """The parameters of a call, and under the names that begin with `file:` its files: texts, or
    long ones where they lie in the body."""
    data, texts = _object_of(body)
    parameters = data.pop("parameters", {}) or {}
    if data or not isinstance(parameters, dict):
        raise CallError(400, f"body: expected an object 'parameters' alone, found {list(data)}")
    for name, value in parameters.items():
        is_file = name.startswith(PREFIX) and "config" in known
        kind = str if is_file else known.get(name)
        if kind is None:
            raise CallError(400, f"parameters: expected {' or '.join(known)}, found '{name:.80}'")
        if not isinstance(value, kind):
            raise CallError(400, f"parameters.{name:.80}: expected a {kind.__name__}")
        if isinstance(value, str) and value in texts:
            parameters[name] = texts[value] if is_file else _text(name, texts[value])
    return parameters


def _text(name: str, text: LongText) -> str:
    try:
        return text.text()
    except orjson.JSONDecodeError as error:
        raise CallError(400, f"parameters.{name}: expected a string, found: {error}") from None


def asked_of(
    body: bytes | memoryview,
) -> tuple[dict[str, Any] | None, dict[str, str | LongText]]:
    """The model configuration that a call to load brings (None: its folder says it), and files."""
    parameters = parameters_of(body, {"config": str})
    text = parameters.pop("config", None)
    asked = None if text is None else object_of(text.encode("utf-8", "surrogatepass"))
    return asked, parameters
