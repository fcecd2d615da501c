"""Loads and unloads models of a running server as its clients ask: index, load, unload.

Started by server.py where repository.control is explicit. Two threads of its own: one takes calls
and answers the index at once, the other loads one model after another. The queue between them is
as long as the C library's table of calls, which refuses what is beyond it. What is served goes on
being served until the new one is ready, and when it never is.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

import orjson

from lumen_uring.errors import EngineError, LumenError
from lumen_uring.repository.entries import entry_of, names_in
from lumen_uring.repository.prepare import Preparer
from lumen_uring.repository.states import (
    LOADING,
    READY,
    UNAVAILABLE,
    UNLOADED,
    UNLOADING,
    States,
)
from lumen_uring.ring.engine import Errand
from lumen_uring.settings import Config, ModelConfig

_STEP_S: Final = 0.5
_SHUTTING_DOWN: Final = "the server is shutting down"


class Loads(Protocol):
    """What the control needs of the engine."""

    def next_errand(self, timeout_s: float) -> Errand | None: ...
    def finish_errand(self, errand: Errand, code: int, body: bytes = b"") -> None: ...
    def hold_ready(self, hold: bool) -> None: ...
    def unload_model(self, name: str) -> None: ...


class CallError(LumenError):
    """A call that is refused.

    Args:
        code: of HTTP.
        message: the sentence.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Control:
    """The control of one server.

    Args:
        engine: that runs.
        config: of the server, with the models that it has loaded.
        load: puts a model into the engine, or in the place of the one of its name.
        log: takes a level and a sentence.
        preparer: tries a model beforehand.
    """

    def __init__(
        self,
        engine: Loads,
        config: Config,
        load: Callable[[ModelConfig], list[str]],
        log: Callable[[str, str], None],
        preparer: Preparer | None = None,
    ) -> None:
        self._engine = engine
        self._config = config
        self._load = load
        self._log = log
        self._preparer = preparer or Preparer()
        self._states = States()
        self._calls: queue.SimpleQueue[Errand | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        for model in config.models:
            self._states.put(model.name, _version(model), READY)
        for entry in config.experts:
            self._states.put(entry.name, 1, READY)
        self._threads = [
            threading.Thread(target=self._take, name="lumen-calls"),
            threading.Thread(target=self._carry_out, name="lumen-loader"),
        ]

    def start(self) -> None:
        """Begins to answer."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends; calls that wait are answered that the server shuts down."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._preparer.stop()
        takes, carries_out = self._threads
        if takes.ident is not None:
            takes.join()
            self._calls.put(None)
            carries_out.join()

    # ---- the thread that takes calls ----

    def _take(self) -> None:
        while not self._stopping.is_set():
            errand = self._engine.next_errand(_STEP_S)
            if errand is None:
                continue
            if errand.kind == "index":
                self._answer(errand, self._index)
            else:
                self._calls.put(errand)
        while (errand := self._engine.next_errand(0)) is not None:
            self._finish(errand, 503, _SHUTTING_DOWN)

    def _index(self, errand: Errand) -> bytes:
        ready_only = _object(errand.body).get("ready", False)
        if not isinstance(ready_only, bool):
            raise CallError(400, f"ready: expected true or false, found {ready_only!r}")
        return orjson.dumps(self._states.index(names_in(self._config), ready_only))

    # ---- the thread that loads ----

    def _carry_out(self) -> None:
        while (errand := self._calls.get()) is not None and not self._stopping.is_set():
            self._answer(errand, self._load_model if errand.kind == "load" else self._unload_model)
            if self._config.repository.strict_readiness:
                self._engine.hold_ready(not self._states.all_as_wanted())
        while errand is not None:
            self._finish(errand, 503, _SHUTTING_DOWN)
            errand = self._calls.get()

    def _load_model(self, errand: Errand) -> bytes:
        model = entry_of(self._config, errand.name, _config_of(errand.body))
        version, served = _version(model), self._states.ready_version(errand.name)
        if served is None:
            self._states.put(model.name, version, LOADING)
        try:
            notes = [*self._preparer.prepare(self._config, model), *self._load(model)]
        except LumenError as error:
            if served != version:  # what is served goes on being served
                self._states.put(model.name, version, UNAVAILABLE, str(error))
            self._log("error", f"model {model.name}: not loaded: {error}")
            raise CallError(400, f"failed to load '{model.name}': {error}") from None
        if served is not None and served != version:
            self._states.put(model.name, served, UNAVAILABLE, UNLOADED)
        self._states.put(model.name, version, READY)
        self._log("info", f"model {model.name}: version {version} is loaded")
        for note in dict.fromkeys(notes):
            self._log("info", f"model {model.name}: {note}")
        return b""

    def _unload_model(self, errand: Errand) -> bytes:
        _parameters(errand.body, {"unload_dependents": bool})
        version = self._states.ready_version(errand.name)
        if version is None:
            raise CallError(404, f"failed to unload '{errand.name}': it is not loaded")
        self._states.put(errand.name, version, UNLOADING)
        try:
            self._engine.unload_model(errand.name)
        except EngineError as error:
            self._states.put(errand.name, version, READY)
            raise CallError(400, f"failed to unload '{errand.name}': {error}") from None
        self._states.put(errand.name, version, UNAVAILABLE, UNLOADED)
        self._log("info", f"model {errand.name}: unloaded")
        return b""

    # ---- answers ----

    def _answer(self, errand: Errand, carry_out: Callable[[Errand], bytes]) -> None:
        try:
            body = carry_out(errand)
        except CallError as error:
            self._finish(errand, error.code, str(error))
        except LumenError as error:
            self._finish(errand, 400, str(error))
        except Exception as error:  # the caller gets an answer, whatever happened
            self._log("error", f"{errand.kind} {errand.name}: {type(error).__name__}: {error}")
            self._finish(errand, 500, f"{errand.kind}: an error of the server's; see its log")
        else:
            self._engine.finish_errand(errand, 200, body)

    def _finish(self, errand: Errand, code: int, text: str) -> None:
        self._engine.finish_errand(errand, code, orjson.dumps({"error": text}))


def _version(model: ModelConfig) -> int:
    return 1 if model.origin is None else model.origin.version


def _object(body: bytes) -> dict[str, Any]:
    """A body's object; of an empty body an empty one."""
    if not body.strip():
        return {}
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(400, f"body: expected JSON, found: {error}") from None
    if not isinstance(data, dict):
        raise CallError(400, "body: expected an object of JSON")
    return data


def _parameters(body: bytes, known: dict[str, type]) -> dict[str, Any]:
    """The parameters of a call."""
    data = _object(body)
    parameters = data.pop("parameters", {}) or {}
    if data or not isinstance(parameters, dict):
        raise CallError(400, f"body: expected an object 'parameters' alone, found {list(data)}")
    for name, value in parameters.items():
        if name.startswith("file:"):
            raise CallError(
                400, "parameters: a call brings no files to this server: put the model into a "
                "folder of repository.paths",
            )  # fmt: skip
        if name not in known:
            raise CallError(400, f"parameters: expected {' or '.join(known)}, found '{name:.80}'")
        if not isinstance(value, known[name]):
            raise CallError(400, f"parameters.{name}: expected a {known[name].__name__}")
    return parameters


def _config_of(body: bytes) -> dict[str, Any] | None:
    """The model configuration that a call brings; None: its folder says it."""
    text = _parameters(body, {"config": str}).get("config")
    if text is None:
        return None
    return _object(text.encode("utf-8", "surrogatepass"))
