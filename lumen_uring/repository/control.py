"""Loads and unloads models of a running server: as its clients ask, as its folders change, and as
its settings say when they are read again.

Started by server.py. One thread loads one model after another, at most two more take calls and
watch the folders. The queue between them is bounded by the C library's table of calls, which
refuses what is beyond it; changes of folders that wait are one. What is served goes on being served
until the new one is ready, and when it never is.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from lumen_uring.errors import EngineError, LumenError
from lumen_uring.reload import needs_loading
from lumen_uring.repository.entries import entries_in, entries_of, names_in, uploaded_entries
from lumen_uring.repository.prepare import Preparer
from lumen_uring.repository.states import (
    LOADING,
    READY,
    UNAVAILABLE,
    UNLOADED,
    UNLOADING,
    Row,
    States,
)
from lumen_uring.repository.uploads import PREFIX, Uploads
from lumen_uring.repository.watch import SETTLE_S, Look, Watcher, look
from lumen_uring.ring.engine import Errand
from lumen_uring.settings import Config, EnsembleConfig, ExpertsConfig, ModelConfig, base_of

_STEP_S: Final = 0.5
_SHUTTING_DOWN: Final = "the server is shutting down"
_BUILTIN: Final = "builtin:"
_NO_FILES: Final = (
    "parameters: a call brings no files to this server (repository.upload_bytes is 0): put the "
    "model into a folder of repository.paths"
)
Virtual = ExpertsConfig | EnsembleConfig


class Loads(Protocol):
    """What the control needs of the engine."""

    def next_errand(self, timeout_s: float) -> Errand | None: ...
    def finish_errand(self, errand: Errand, code: int, body: bytes = b"") -> None: ...
    def hold_ready(self, hold: bool) -> None: ...
    def reload(self, config: Config) -> None: ...
    def unload(self, name: str) -> None: ...
    def settle(self, timeout_s: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rescan:
    """The repositories have changed."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The settings name other models than before."""

    models: tuple[ModelConfig, ...]
    virtual: tuple[Virtual, ...]
    done: Callable[[list[str]], None]  # with a line for each model that could not be


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
        load_virtual: the same of a virtual model, with the settings in force.
        load: puts a model into the engine, or in the place of the one of its name; gently or not.
        log: takes a level and a sentence.
        asked: answers a call about settings, by its kind and what it asks for.
        preparer: tries a model beforehand.
        settle_s: how long folders must be quiet.
        files: the look of each model's files before it was loaded; None: as they are now.
    """

    def __init__(
        self,
        engine: Loads,
        config: Config,
        load: Callable[[ModelConfig, bool], list[str]],
        load_virtual: Callable[[Config, Virtual], None],
        log: Callable[[str, str], None],
        asked: Callable[[str, dict[str, Any]], dict[str, Any]],
        preparer: Preparer | None = None,
        settle_s: float = SETTLE_S,
        files: dict[str, Look] | None = None,
    ) -> None:
        self._settle_s = settle_s
        self._engine = engine
        self._config = config
        self._load = load
        self._load_virtual = load_virtual
        self._log = log
        self._asked = asked
        self._preparer = preparer or Preparer()
        self._states = States()
        self._uploads = Uploads()
        self._jobs: queue.SimpleQueue[Errand | Rescan | Listed | None] = queue.SimpleQueue()
        self._rescan_waits = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._configuring = threading.Lock()
        self._models = {model.name: model for model in config.models}  # in force
        self._virtual = {entry.name: entry for entry in config.virtual_entries()}
        self._files = files or {model.name: files_of(model) for model in config.models}
        self._listed = set(self._models)
        self._unsettled = False
        for model in config.served():
            self._states.put(model.base, model.version, READY)
        self._loader = threading.Thread(target=self._carry_out, name="lumen-loader")
        self._taker = threading.Thread(target=self._take, name="lumen-calls")
        self._watcher: Watcher | None = None

    def start(self) -> None:
        """Begins to load, to answer calls (explicit) and to watch (watch)."""
        self._loader.start()
        if self._config.repository.control == "explicit":
            self._taker.start()
        if self._config.repository.control == "watch":
            paths = [Path(text).expanduser() for text in self._config.repository.paths]
            try:
                self._watcher = Watcher(paths, self._changed, self._log, self._settle_s)
            except EngineError as error:
                self._log("error", f"The repositories are not watched: {error}")
            self._changed()  # the folders may have changed while the server started

    def close(self) -> None:
        """Ends; calls that wait are answered that the server shuts down."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.close()
        self._preparer.stop()
        if self._taker.ident is not None:
            self._taker.join()
        if self._loader.ident is not None:
            self._jobs.put(None)
            self._loader.join()
        self._uploads.close()

    def models(self) -> tuple[ModelConfig, ...]:
        """The entries of all models that are served now, but for virtual ones."""
        with self._lock:
            return tuple(self._models.values())

    def virtual(self) -> tuple[Virtual, ...]:
        """The entries of all virtual models that are served now."""
        with self._lock:
            return tuple(self._virtual.values())

    def states(self) -> list[Row]:
        """Of all versions; any thread."""
        return self._states.rows()

    def reconfigure(self, config: Config) -> None:
        """Puts keys, hosts and rates in force.

        Args:
            config: of the server; its models are those in force.

        Raises:
            EngineError: they cannot be applied; nothing has changed.
        """
        with self._configuring:
            served = {model.name for model in (*self.models(), *self.virtual())}
            kept = tuple(model for model in config.models if model.name in served)
            virtual = tuple(one for one in config.virtual_entries() if one.name in served)
            config = config.with_entries(kept).with_virtual(virtual)
            self._engine.reload(config)
            self._config = config

    def list_models(
        self,
        models: Sequence[ModelConfig],
        virtual: Sequence[Virtual],
        done: Callable[[list[str]], None],
    ) -> None:
        """Has the models of the settings that were read again loaded, and others unloaded.

        Args:
            models: entries; one that is served as it stands there is left alone.
            virtual: the same of virtual models.
            done: called on the loader's thread, with a line for each model that could not be.
        """
        self._jobs.put(Listed(tuple(models), tuple(virtual), done))

    def _changed(self) -> None:
        if not self._rescan_waits.is_set():
            self._rescan_waits.set()
            self._jobs.put(Rescan())

    # ---- the thread that takes calls ----

    def _take(self) -> None:
        while not self._stopping.is_set():
            errand = self._engine.next_errand(_STEP_S)
            if errand is None:
                continue
            if errand.kind == "index":
                self._answer(errand, self._index)
            elif errand.kind in ("trace", "logging"):
                self._answer(errand, self._settings)
            else:
                self._jobs.put(errand)
        while (errand := self._engine.next_errand(0)) is not None:
            self._finish(errand, 503, _SHUTTING_DOWN)

    def _index(self, errand: Errand) -> bytes:
        ready_only = _object(errand.body).get("ready", False)
        if not isinstance(ready_only, bool):
            raise CallError(400, f"ready: expected true or false, found {ready_only!r}")
        return orjson.dumps(self._states.index(names_in(self._config), ready_only))

    def _settings(self, errand: Errand) -> bytes:
        if errand.name and self._states.ready_version(errand.name) is None:
            raise CallError(400, f"Request for unknown model: '{errand.name}' is not found")
        return orjson.dumps(self._asked(errand.kind, _object(errand.body)))

    # ---- the thread that loads ----

    def _next_job(self) -> Errand | Rescan | Listed | None:
        """Waits for a job, and meanwhile frees models whose last requests are answered."""
        while True:
            with suppress(queue.Empty):
                return self._jobs.get(timeout=_STEP_S if self._unsettled else None)
            try:
                self._unsettled = not self._engine.settle(0)
            except EngineError:  # it has ended, and frees everything
                self._unsettled = False

    def _carry_out(self) -> None:
        while (job := self._next_job()) is not None and not self._stopping.is_set():
            self._unsettled = True
            if isinstance(job, Errand):
                self._answer(job, self._load_asked if job.kind == "load" else self._unload_asked)
                continue
            try:
                self._follow(job)
            except Exception as error:  # later jobs are carried out, whatever happened
                said = f"The list of models: {type(error).__name__}: {error}"
                self._log("error", said)
                if isinstance(job, Listed):
                    job.done([said])
        while job is not None:
            if isinstance(job, Errand):
                self._finish(job, 503, _SHUTTING_DOWN)
            job = self._jobs.get()

    def _follow(self, job: Rescan | Listed) -> None:
        """What folders or settings say."""
        if isinstance(job, Rescan):
            self._rescan_waits.clear()  # first: what changes from here on is another one
            self._rescan()
            self._say_readiness()
        else:
            failed = self._apply_all(job.models, job.virtual)
            self._say_readiness()
            job.done(failed)

    def _say_readiness(self) -> None:
        """Before anybody is told of a change, readiness is as it is from then on."""
        if self._config.repository.strict_readiness:
            self._engine.hold_ready(not self._states.all_as_wanted())

    def _load_asked(self, errand: Errand) -> bytes:
        """Of all versions that its policy names, as Triton: one that fails holds none of the others
        up, and one that the policy no longer names goes."""
        folder: Path | None = None
        try:
            asked, files = _asked_of(errand.body)
            if files and not self._config.repository.upload_bytes:
                raise CallError(400, _NO_FILES)
            if files and asked is None:
                raise CallError(400, "parameters: expected config beside files")
            if files:
                folder = self._uploads.put(errand.name, files)
                wanted = uploaded_entries(folder, errand.name, asked or {})
            else:
                wanted = entries_of(self._config, errand.name, asked)
        except LumenError as error:  # clients look for these words of Triton's
            if folder is not None:
                self._uploads.drop(folder)
            code = error.code if isinstance(error, CallError) else 400
            raise CallError(code, f"failed to load '{errand.name}': {error}") from None
        failed = [line for model in wanted for line in self._try_put(model)]
        if not failed:
            self._uploads.keep(errand.name, folder)
        elif folder is not None and len(failed) == len(wanted):
            self._uploads.drop(folder)
        if not failed:
            names = {model.name for model in wanted}
            for model in self.models():
                if model.base == errand.name and model.name not in names:
                    self._try(self._remove, model.name)
        self._say_readiness()
        if failed:
            said = f"failed to load '{errand.name}': {'; '.join(failed)}"
            if folder is not None:  # where they lie is nothing that their sender knows
                said = said.replace(str(folder), "the call's files")
            raise CallError(400, said)
        return b""

    def _try_put(self, model: ModelConfig) -> list[str]:
        try:
            self._put(model)
        except LumenError as error:
            return [f"version {model.version}: {error}" if ":" in model.name else str(error)]
        return []

    def _unload_asked(self, errand: Errand) -> bytes:
        _parameters(errand.body, {"unload_dependents": bool})
        names = [model.name for model in self.models() if model.base == errand.name]
        if not names and self._states.ready_version(errand.name) is not None:
            names = [errand.name]  # a virtual model
        if not names:
            raise CallError(404, f"failed to unload '{errand.name}': it is not loaded")
        try:
            for name in names:
                self._remove(name)
            self._uploads.keep(errand.name, None)
        except EngineError as error:
            raise CallError(400, f"failed to unload '{errand.name}': {error}") from None
        finally:
            self._say_readiness()
        return b""

    def _put(self, model: ModelConfig) -> None:
        """Loads a model, or replaces it; on an error what was served is served."""
        base, version = model.base, model.version
        before = self._models.get(model.name)
        served = None if before is None else before.version
        if served is None:
            self._states.put(base, version, LOADING)
        files = files_of(model)  # before: a change during the load is one
        try:
            prepared = self._preparer.prepare(self._config, model)
            notes = [*prepared.notes, *self._load(model, prepared.is_gentle)]
        except LumenError as error:
            if served != version:
                self._states.put(base, version, UNAVAILABLE, str(error))
            self._log("error", f"model {model.name}: not loaded: {error}")
            raise
        if served is not None and served != version:
            self._states.put(base, served, UNAVAILABLE, UNLOADED)
        with self._lock:
            self._models[model.name] = model
        self._files[model.name] = files
        self._name_in_keys(model.name)
        self._states.put(base, version, READY)
        self._log("info", f"model {base}: version {version} is loaded")
        for note in dict.fromkeys(notes):
            self._log("info", f"model {model.name}: {note}")

    def _name_in_keys(self, name: str) -> None:
        """A key may name a model that was not there when the keys were read."""
        with self._configuring:
            keys = [key for key in self._config.server.keys if key.models != "all"]
            if any({name, base_of(name)} & set(key.models) for key in keys):
                self._engine.reload(self._in_force())

    def _in_force(self) -> Config:
        return self._config.with_entries(self.models()).with_virtual(self.virtual())

    def _remove(self, name: str) -> None:
        """Unloads a model that is served."""
        model, base = self._models.get(name), base_of(name)
        version = (self._states.ready_version(base) or 1) if model is None else model.version
        self._states.put(base, version, UNLOADING)
        with self._configuring:
            try:
                self._engine.unload(name)
            except EngineError:
                self._states.put(base, version, READY)
                raise
            with self._lock:
                self._models.pop(name, None)
                self._virtual.pop(name, None)
        # Under another name it may be served on.
        stays = any((one.base, one.version) == (base, version) for one in self.models())
        left = (READY, "") if stays else (UNAVAILABLE, UNLOADED)
        self._states.put(base, version, *left)
        self._log("info", f"model {name}: unloaded")

    def _apply_all(self, wanted: Sequence[ModelConfig], virtual: Sequence[Virtual]) -> list[str]:
        """Virtual models go before those that they run, and come after them."""
        failed: list[str] = []
        names = {entry.name for entry in virtual}
        for entry in reversed(self.virtual()):  # ensembles, and then experts that are their steps
            if entry.name not in names:
                failed += self._try(self._remove, entry.name)
        failed += self._apply(wanted)
        for entry in virtual:
            served = self._virtual.get(entry.name)
            if served is None or needs_loading(served, entry):
                failed += self._try(self._put_virtual, entry)
            else:
                with self._lock:
                    self._virtual[entry.name] = entry  # its rates
        return failed

    def _put_virtual(self, entry: Virtual) -> None:
        try:
            self._load_virtual(self._in_force(), entry)
        except LumenError as error:
            self._log("error", f"model {entry.name}: not loaded: {error}")
            raise
        with self._lock:
            self._virtual[entry.name] = entry
        self._name_in_keys(entry.name)
        self._states.put(entry.name, 1, READY)
        self._log("info", f"model {entry.name}: loaded")

    def _apply(self, wanted: Sequence[ModelConfig]) -> list[str]:
        """The list of the settings: loads what is new or has changed, unloads what is gone."""
        names, bases = {model.name for model in wanted}, {model.base for model in wanted}
        gone = [name for name in sorted(self._listed - names) if name in self._models]
        failed: list[str] = []
        for name in gone:
            if base_of(name) not in bases:
                failed += self._try(self._remove, name)
        self._listed = names
        kept = self._put_all(wanted, failed)
        # A version goes when the one that takes requests in its stead is there.
        for name in gone:
            if base_of(name) in bases - kept:
                failed += self._try(self._remove, name)
        return failed

    def _put_all(self, models: Sequence[ModelConfig], failed: list[str]) -> set[str]:
        """Loads what is new or has changed. Returns the names of which a version could not be."""
        wrong = set()
        for model in models:
            if said := self._put_if_changed(model):
                wrong.add(model.base)
                failed += said
        return wrong

    def _rescan(self) -> None:
        """The repositories: the same, but a folder that cannot be read now changes nothing."""
        found, problems = entries_in(self._config)
        for line in problems:
            self._log("error", f"The repositories: {line}")
        kept = self._put_all(found, [])
        # Afterwards: a version goes when the one that takes requests in its stead is there.
        names, bases = {model.name for model in found}, {model.base for model in found}
        for model in self.models():
            is_gone = model.origin is not None and model.name not in names
            if is_gone and (model.base in bases - kept or not _holds_models(model)):
                self._try(self._remove, model.name)

    def _put_if_changed(self, model: ModelConfig) -> list[str]:
        served = self._models.get(model.name)
        same_files = self._files.get(model.name) == files_of(model)
        if served is None or not same_files or needs_loading(served, model):
            return self._try(self._put, model)
        with self._lock:
            self._models[model.name] = model  # its rates
        return []

    def _try(self, change: Callable[[Any], None], what: str | ModelConfig | Virtual) -> list[str]:
        """A change that no client waits for. Returns what went wrong; `_put` logs it itself."""
        try:
            change(what)
        except LumenError as error:
            if not isinstance(what, str):
                return [f"model {what.name}: not loaded: {error}"]
            said = f"model {what}: not unloaded: {error}"
            self._log("error", said)
            return [said]
        return []

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


def files_of(model: ModelConfig) -> Look:
    """The files of a model as they are now: another file under the same name is a change."""
    if model.path.startswith(_BUILTIN):
        return frozenset()
    path = Path(model.path).expanduser()
    labels = [] if model.labels is None else [Path(model.labels).expanduser()]
    # A model of a repository has its version's folder to itself.
    own = path.parent if model.origin is not None and Path(model.origin.folder) != path else path
    return look([own, *labels])


def _holds_models(model: ModelConfig) -> bool:
    """Whether a model's folder is still there with something in it: it may be half copied."""
    assert model.origin is not None
    folder = Path(model.origin.folder)
    with suppress(OSError):
        if not folder.is_dir():
            return folder.exists()
        return any(path.is_dir() and path.name.isdecimal() for path in folder.iterdir())
    return False


def _object(body: bytes | memoryview) -> dict[str, Any]:
    """A body's object; of an empty body an empty one."""
    if not len(body) or (isinstance(body, bytes) and not body.strip()):
        return {}
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(400, f"body: expected JSON, found: {error}") from None
    if not isinstance(data, dict):
        raise CallError(400, "body: expected an object of JSON")
    return data


def _parameters(body: bytes | memoryview, known: dict[str, type]) -> dict[str, Any]:
    """The parameters of a call, and under the names that begin with `file:` its files."""
    data = _object(body)
    parameters = data.pop("parameters", {}) or {}
    if data or not isinstance(parameters, dict):
        raise CallError(400, f"body: expected an object 'parameters' alone, found {list(data)}")
    for name, value in parameters.items():
        kind = str if name.startswith(PREFIX) and "config" in known else known.get(name)
        if kind is None:
            raise CallError(400, f"parameters: expected {' or '.join(known)}, found '{name:.80}'")
        if not isinstance(value, kind):
            raise CallError(400, f"parameters.{name:.80}: expected a {kind.__name__}")
    return parameters


def _asked_of(body: bytes | memoryview) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The model configuration that a call to load brings (None: its folder says it), and files."""
    parameters = _parameters(body, {"config": str})
    text = parameters.pop("config", None)
    asked = None if text is None else _object(text.encode("utf-8", "surrogatepass"))
    return asked, parameters
