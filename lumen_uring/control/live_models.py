"""The models that a running server serves: loaded and replaced one at a time, unloaded at any time.

One thread loads (control.py); any thread unloads, also while a load is under way, and the list and
the states are read on any. What is served goes on being served until the new one is ready, and when
it never is. Whatever goes wrong in a load is its caller's: it is told why, and so is the index.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from lumen_uring.control.calls import LoadError
from lumen_uring.control.states import (
    LOADING,
    READY,
    UNAVAILABLE,
    UNLOADED,
    UNLOADING,
    States,
)
from lumen_uring.control.watch import Look, files_of
from lumen_uring.errors import EngineError, LumenError, is_scarce, no_means
from lumen_uring.loading.prepare import Preparer
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.reload import needs_loading
from lumen_uring.settings.schema import Config
from lumen_uring.settings.types import base_of

Virtual = ExpertsConfig | EnsembleConfig
_Entry = TypeVar("_Entry", ModelConfig, Virtual)
_Result = TypeVar("_Result")
Tell = Callable[[str], None]
_PAUSES_S: Final = (0.5, 1.0, 2.0)  # before a load is tried again that the machine had no means for
_CALLED_OFF: Final = "it was unloaded, or has changed, before it was loaded"


@dataclass(slots=True)
class _Coming:
    """The model that is being loaded."""

    entry: ModelConfig | Virtual
    is_listed: bool  # by the settings or their folders: it may be called off when these change
    files: Look = frozenset()
    called_off: threading.Event = field(default_factory=threading.Event)
    is_unloaded: bool = False  # called off by an unload: the engine has not kept it either


class Changes(Protocol):
    """What the models need of the engine."""

    def reload(self, config: Config) -> None: ...
    def unload(self, name: str) -> None: ...


class LiveModels:
    """The models of one server.

    Args:
        engine: that runs.
        config: of the server, with the models that it has loaded.
        load: puts a model into the engine, or in the place of the one of its name; gently or not.
        load_virtual: the same of a virtual model, with the settings in force.
        log: takes a level and a sentence.
        preparer: tries a model beforehand.
        files: the look of each model's files before it was loaded; None: as they are now.
    """

    def __init__(
        self,
        engine: Changes,
        config: Config,
        load: Callable[[ModelConfig, bool], list[str]],
        load_virtual: Callable[[Config, Virtual], None],
        log: Callable[[str, str], None],
        preparer: Preparer | None = None,
        files: dict[str, Look] | None = None,
    ) -> None:
        self._engine = engine
        self._config = config
        self._load = load
        self._load_virtual = load_virtual
        self._log = log
        self._preparer = preparer or Preparer()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        # Held while what the engine serves and what is known of it change together.
        self._configuring = threading.Lock()
        self._coming: _Coming | None = None
        self._wrong: dict[str, tuple[ModelConfig, Look]] = {}  # as they were when that was seen
        self.lacked_means = False  # a load failed that is worth another try
        self._models = {model.name: model for model in config.models}
        self._virtual = {entry.name: entry for entry in config.virtual_entries()}
        self._files = dict(files or {model.name: files_of(model) for model in config.models})
        self._files |= {entry.name: files_of(entry) for entry in config.virtual_entries()}
        self.states = States()
        for model in config.served():
            self.states.put(model.base, model.version, READY)
        for one in config.broken:
            if not one.is_repository:
                self.states.cannot_be_read(base_of(one.name), one.reason, one.version)
            if one.is_wanted:
                self.states.want(base_of(one.name))
            if isinstance(one.entry, ModelConfig):
                seen = self._files.get(one.entry.name) or files_of(one.entry)
                self._wrong[one.entry.name] = (one.entry, seen)

    @property
    def config(self) -> Config:
        """The settings in force; their models are those that the settings name."""
        return self._config

    def models(self) -> tuple[ModelConfig, ...]:
        """The entries of all models that are served now, but for virtual ones."""
        with self._lock:
            return tuple(self._models.values())

    def virtual(self) -> tuple[Virtual, ...]:
        """The entries of all virtual models that are served now."""
        with self._lock:
            return tuple(self._virtual.values())

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

    def stop(self) -> None:
        """Ends the load that is under way; no other one begins."""
        self._stopping.set()
        self._preparer.stop()

    def get_ready(self) -> None:
        """Makes the first load as cheap as others."""
        self._preparer.start()

    def put(
        self,
        model: ModelConfig,
        told: Callable[[str], str] = str,
        called_off: threading.Event | None = None,
        is_proved: bool = False,
    ) -> None:
        """Loads a model, or replaces it.

        Args:
            model: its entry.
            told: makes of a reason what clients may read of it.
            called_off: of a client's call, set by an unload; None: the settings or their folders
                ask for it, and may think better of it.
            is_proved: the same files were served before: no process of its own tries them first.

        Raises:
            LoadError: it cannot be served; what was served is served.
        """
        base, version = model.base, model.version
        before = self._models.get(model.name)
        served = None if before is None else before.version
        # Its files before the load: a change during it is one.
        coming = self._coming = _Coming(
            model, called_off is None, files_of(model), called_off or threading.Event()
        )
        if served is None:
            self.states.put(base, version, LOADING)
        try:
            notes = self._until_there_are_means(
                coming, lambda: self._check_and_load(model, coming, is_proved)
            )
            self._take_over(coming, lambda: self._list(model, coming.files, served))
        except Exception as error:  # whatever it is, nothing stays LOADING
            failed = self._failed(model.name, error, coming, told)
            if coming.is_listed and failed.code == 400 and not coming.called_off.is_set():
                self._wrong[model.name] = (model, coming.files)
            if served != version:
                reason = UNLOADED if coming.called_off.is_set() else str(failed)
                self.states.put(base, version, UNAVAILABLE, reason)
            raise failed from None
        finally:
            self._coming = None
        self._log("info", f"model {base}: version {version} is loaded")
        for note in dict.fromkeys(notes):
            self._log("info", f"model {model.name}: {note}")

    def _list(self, model: ModelConfig, files: Look, served: int | None) -> None:
        """Notes that a model is served, in the place of a version if there was one."""
        with self._lock:
            self._models[model.name] = model
        self._files[model.name] = files
        self._wrong.pop(model.name, None)
        self.states.put(model.base, model.version, READY)
        if served is not None and served != model.version:
            self.states.put(model.base, served, UNAVAILABLE, UNLOADED)

    def _check_and_load(self, model: ModelConfig, coming: _Coming, is_proved: bool) -> list[str]:
        if is_proved:
            return self._load(model, False)
        prepared = self._preparer.prepare(self._config, model, coming.called_off.is_set)
        if coming.called_off.is_set():
            raise LoadError(_CALLED_OFF)
        return [*prepared.notes, *self._load(model, prepared.is_gentle)]

    def _until_there_are_means(self, coming: _Coming, load: Callable[[], _Result]) -> _Result:
        """Descriptors, processes and memory may be there again in a moment."""
        for pause_s in _PAUSES_S:
            try:
                return load()
            except OSError as error:
                if not is_scarce(error) or self._stopping.is_set():
                    raise
            coming.called_off.wait(pause_s)
        return load()

    def _take_over(self, coming: _Coming, record: Callable[[], object]) -> None:
        """Lists the model that the engine serves now, unless somebody has unloaded it meanwhile."""
        with self._configuring:
            if coming.is_unloaded:
                with suppress(EngineError):  # it may have come behind the unload
                    self._engine.unload(coming.entry.name)
                raise LoadError(_CALLED_OFF)
            record()  # before anybody can unload it

    def _failed(
        self, name: str, error: Exception, coming: _Coming, told: Callable[[str], str]
    ) -> LoadError:
        """Logs a failed load. Returns the error that its caller is told."""
        if coming.called_off.is_set():
            self._log("info", f"model {name}: not loaded: {_CALLED_OFF}")
            return LoadError(_CALLED_OFF)
        if isinstance(error, LumenError):
            self._log("error", f"model {name}: not loaded: {error}")
            return LoadError(told(str(error)))
        if (said := no_means(error)) is not None:
            self.lacked_means = True
            self._log("error", f"model {name}: not loaded: {said}")
            return LoadError(said, 503)
        said = f"an error of the server's: {type(error).__name__}: {error}"
        self._log("error", f"model {name}: not loaded: {said}")
        return LoadError(told(said), 500)

    def call_off(self, wanted: Callable[[ModelConfig | Virtual, Look], bool]) -> None:
        """Ends the load that is under way if the settings or their folders asked for it and do so
        no longer.

        Args:
            wanted: whether they ask for an entry whose files looked so.
        """
        coming = self._coming
        if coming is None or not coming.is_listed or wanted(coming.entry, coming.files):
            return
        coming.called_off.set()
        self._preparer.end_check()

    def forget_wrong(self, names: Set[str]) -> None:
        """Forgets what is wrong with models that no folder holds any more.

        Args:
            names: of those that are there.
        """
        self._wrong = {name: one for name, one in self._wrong.items() if name in names}

    def coming(self) -> str | None:
        """The name of the model that is being loaded."""
        coming = self._coming
        return None if coming is None else coming.entry.name

    def put_if_changed(
        self, model: ModelConfig, again: bool = True, tell: Tell = lambda _: None
    ) -> list[str]:
        """Loads a model that is new, or whose files or settings have changed.

        Args:
            model: its entry.
            again: also one that could not be loaded, and has not changed since.
            tell: takes a line when a load begins, and one when the model is loaded.

        Returns:
            A line for what went wrong, if anything did.
        """
        served = self._models.get(model.name)
        files = files_of(model)
        same_files = self._files.get(model.name) == files
        if not again and self._wrong.get(model.name) == (model, files):
            return [f"model {model.name}: not loaded: it is as it was"]
        if served is None or not same_files or needs_loading(served, model):
            tell(f"model {model.base}: loading version {model.version} ...")
            if failed := _tried(lambda: self.put(model), model.name):
                return failed
            tell(f"model {model.base}: version {model.version} is loaded")
            return []
        with self._lock:
            self._models[model.name] = model  # its rates
        return []

    def put_virtual_if_changed(self, entry: Virtual, tell: Tell = lambda _: None) -> list[str]:
        """The same of a virtual model, whose parts are served."""
        served = self._virtual.get(entry.name)
        same_files = self._files.get(entry.name) == files_of(entry)
        if served is None or not same_files or needs_loading(served, entry):
            tell(f"model {entry.name}: loading ...")
            if failed := _tried(lambda: self.put_virtual(entry), entry.name):
                return failed
            tell(f"model {entry.name}: loaded")
            return []
        with self._lock:
            self._virtual[entry.name] = entry  # its rates
        return []

    def put_virtual(self, entry: Virtual) -> None:
        """Loads a virtual model, whose parts are served, or replaces it.

        Raises:
            LoadError: it cannot be served; what was served is served.
        """
        coming = self._coming = _Coming(entry, True, files_of(entry))
        try:
            self._until_there_are_means(coming, lambda: self._load_virtual(self._in_force(), entry))
            self._take_over(coming, lambda: self._list_virtual(entry, coming.files))
        except Exception as error:  # as of a model
            failed = self._failed(entry.name, error, coming, str)
            if not coming.called_off.is_set():
                self.states.cannot_be_read(entry.name, str(failed))
            raise failed from None
        finally:
            self._coming = None
        self._log("info", f"model {entry.name}: loaded")

    def _list_virtual(self, entry: Virtual, files: Look) -> None:
        """Notes that a virtual model is served."""
        with self._lock:
            self._virtual[entry.name] = entry
        self._files[entry.name] = files
        self.states.put(entry.name, 1, READY)

    def _in_force(self) -> Config:
        return self._config.with_entries(self.models()).with_virtual(self.virtual())

    def remove(self, name: str) -> None:
        """Unloads a model that is served; one of this name that is being loaded does not come.

        Raises:
            EngineError: another model needs it; it is served on.
        """
        with self._configuring:
            coming = self._coming
            comes = coming is not None and coming.entry.name == name
            model, base = self._models.get(name), base_of(name)
            version = (self.states.ready_version(base) or 1) if model is None else model.version
            serves = model is not None or name in self._virtual
            if serves:
                self.states.put(base, version, UNLOADING)
            try:
                self._engine.unload(name)
            except EngineError:
                if serves:
                    self.states.put(base, version, READY)
                if serves or not comes:
                    raise
            if coming is not None and comes:  # the engine had it already, or will not take it
                coming.is_unloaded = True
                coming.called_off.set()
                self._preparer.end_check()
            with self._lock:
                self._models.pop(name, None)
                self._virtual.pop(name, None)
                self._files.pop(name, None)
            if not serves:
                return
            # Under another name it may be served on.
            stays = any((one.base, one.version) == (base, version) for one in self.models())
            self.states.put(base, version, *((READY, "") if stays else (UNAVAILABLE, UNLOADED)))
        self._log("info", f"model {name}: unloaded")

    def try_remove(self, name: str) -> list[str]:
        """Unloads a model that no client has asked to go.

        Returns:
            A line for what went wrong, if anything did.
        """
        try:
            self.remove(name)
        except LumenError as error:
            said = f"model {name}: not unloaded: {error}"
            self._log("error", said)
            return [said]
        return []


def _tried(put: Callable[[], None], name: str) -> list[str]:
    """Loads what no client waits for. Returns what went wrong, which is in the log already."""
    try:
        put()
    except LoadError as error:
        return [f"model {name}: not loaded: {error}"]
    return []
