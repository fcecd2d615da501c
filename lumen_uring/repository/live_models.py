"""The models that a running server serves: loaded, replaced and unloaded one at a time.

Changed by control.py on the loader's thread alone; the list and the states are read on any. What is
served goes on being served until the new one is ready, and when it never is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from lumen_uring.errors import EngineError, LumenError
from lumen_uring.model_settings import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.reload import needs_loading
from lumen_uring.repository.prepare import Preparer
from lumen_uring.repository.states import (
    LOADING,
    READY,
    UNAVAILABLE,
    UNLOADED,
    UNLOADING,
    States,
)
from lumen_uring.repository.watch import Look, look
from lumen_uring.setting_types import base_of
from lumen_uring.settings import Config

_BUILTIN: Final = "builtin:"
Virtual = ExpertsConfig | EnsembleConfig
_Entry = TypeVar("_Entry", ModelConfig, Virtual)


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
        self._lock = threading.Lock()
        self._configuring = threading.Lock()
        self._models = {model.name: model for model in config.models}
        self._virtual = {entry.name: entry for entry in config.virtual_entries()}
        self._files = files or {model.name: files_of(model) for model in config.models}
        self.states = States()
        for model in config.served():
            self.states.put(model.base, model.version, READY)

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
        self._preparer.stop()

    def put(self, model: ModelConfig, told: Callable[[str], str] = str) -> None:
        """Loads a model, or replaces it.

        Args:
            model: its entry.
            told: makes of a reason what clients may read of it.

        Raises:
            EngineError: it cannot be served; what was served is served.
        """
        base, version = model.base, model.version
        before = self._models.get(model.name)
        served = None if before is None else before.version
        if served is None:
            self.states.put(base, version, LOADING)
        files = files_of(model)  # before: a change during the load is one
        try:
            prepared = self._preparer.prepare(self._config, model)
            notes = [*prepared.notes, *self._load(model, prepared.is_gentle)]
        except LumenError as error:
            reason = told(str(error))
            if served != version:
                self.states.put(base, version, UNAVAILABLE, reason)
            self._log("error", f"model {model.name}: not loaded: {error}")
            raise EngineError(reason) from None
        if served is not None and served != version:
            self.states.put(base, served, UNAVAILABLE, UNLOADED)
        with self._lock:
            self._models[model.name] = model
        self._files[model.name] = files
        self._name_in_keys(model.name)
        self.states.put(base, version, READY)
        self._log("info", f"model {base}: version {version} is loaded")
        for note in dict.fromkeys(notes):
            self._log("info", f"model {model.name}: {note}")

    def put_if_changed(self, model: ModelConfig) -> list[str]:
        """Loads a model that is new, or whose files or settings have changed.

        Returns:
            A line for what went wrong, if anything did.
        """
        served = self._models.get(model.name)
        same_files = self._files.get(model.name) == files_of(model)
        if served is None or not same_files or needs_loading(served, model):
            return _tried(self.put, model)
        with self._lock:
            self._models[model.name] = model  # its rates
        return []

    def put_virtual_if_changed(self, entry: Virtual) -> list[str]:
        """The same of a virtual model, whose parts are served."""
        served = self._virtual.get(entry.name)
        if served is None or needs_loading(served, entry):
            return _tried(self._put_virtual, entry)
        with self._lock:
            self._virtual[entry.name] = entry  # its rates
        return []

    def _put_virtual(self, entry: Virtual) -> None:
        try:
            self._load_virtual(self._in_force(), entry)
        except LumenError as error:
            self._log("error", f"model {entry.name}: not loaded: {error}")
            raise
        with self._lock:
            self._virtual[entry.name] = entry
        self._name_in_keys(entry.name)
        self.states.put(entry.name, 1, READY)
        self._log("info", f"model {entry.name}: loaded")

    def _name_in_keys(self, name: str) -> None:
        """A key may name a model that was not there when the keys were read."""
        with self._configuring:
            keys = [key for key in self._config.server.keys if key.models != "all"]
            if any({name, base_of(name)} & set(key.models) for key in keys):
                self._engine.reload(self._in_force())

    def _in_force(self) -> Config:
        return self._config.with_entries(self.models()).with_virtual(self.virtual())

    def remove(self, name: str) -> None:
        """Unloads a model that is served.

        Raises:
            EngineError: another model needs it; it is served on.
        """
        model, base = self._models.get(name), base_of(name)
        version = (self.states.ready_version(base) or 1) if model is None else model.version
        self.states.put(base, version, UNLOADING)
        with self._configuring:
            try:
                self._engine.unload(name)
            except EngineError:
                self.states.put(base, version, READY)
                raise
            with self._lock:
                self._models.pop(name, None)
                self._virtual.pop(name, None)
        # Under another name it may be served on.
        stays = any((one.base, one.version) == (base, version) for one in self.models())
        left = (READY, "") if stays else (UNAVAILABLE, UNLOADED)
        self.states.put(base, version, *left)
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


def _tried(put: Callable[[_Entry], None], entry: _Entry) -> list[str]:
    """Loads what no client waits for. Returns what went wrong, which is in the log already."""
    try:
        put(entry)
    except LumenError as error:
        return [f"model {entry.name}: not loaded: {error}"]
    return []


def files_of(model: ModelConfig) -> Look:
    """The files of a model as they are now: another file under the same name is a change."""
    if model.path.startswith(_BUILTIN):
        return frozenset()
    path = Path(model.path).expanduser()
    labels = [] if model.labels is None else [Path(model.labels).expanduser()]
    # A model of a repository has its version's folder to itself.
    own = path.parent if model.origin is not None and Path(model.origin.folder) != path else path
    return look([own, *labels])
