"""Loads and unloads models of a running server: as its clients ask, as its folders change, and as
its settings say when they are read again.

Started by server.py. One thread loads one model after another, at most two more take calls and
watch the folders. The queue between them is bounded by the C library's table of calls, which
refuses what is beyond it; changes of folders that wait are one. live_models.py makes each change.
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
from lumen_uring.model_settings import EnsembleConfig, ModelConfig
from lumen_uring.repository.calls import CallError, asked_of, object_of, parameters_of
from lumen_uring.repository.entries import entries_in, entries_of, names_in, uploaded_entries
from lumen_uring.repository.live_models import LiveModels, Virtual
from lumen_uring.repository.uploads import Uploads
from lumen_uring.repository.watch import SETTLE_S, Watcher
from lumen_uring.ring.engine import Errand
from lumen_uring.setting_types import base_of
from lumen_uring.settings import Config

_STEP_S: Final = 0.5
_SHUTTING_DOWN: Final = "the server is shutting down"
_NO_FILES: Final = (
    "parameters: a call brings no files to this server (repository.upload_bytes is 0): put the "
    "model into a folder of repository.paths"
)


class Calls(Protocol):
    """What the control needs of the engine."""

    def next_errand(self, timeout_s: float) -> Errand | None: ...
    def finish_errand(self, errand: Errand, code: int, body: bytes = b"") -> None: ...
    def hold_ready(self, hold: bool) -> None: ...
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


def kinds_of(config: Config) -> tuple[str, ...]:
    """The kinds of calls that a server's control answers.

    Args:
        config: of the server.
    """
    changes = ("index", "load", "unload") if config.repository.control == "explicit" else ()
    return ("trace", "logging", *changes)


class Control:
    """The control of one server.

    Args:
        engine: that runs.
        live: its models.
        log: takes a level and a sentence.
        asked: answers a call about settings, by its kind and what it asks for.
        settle_s: how long folders must be quiet.
    """

    def __init__(
        self,
        engine: Calls,
        live: LiveModels,
        log: Callable[[str, str], None],
        asked: Callable[[str, dict[str, Any]], dict[str, Any]],
        settle_s: float = SETTLE_S,
    ) -> None:
        self._settle_s = settle_s
        self._engine = engine
        self._live = live
        self._log = log
        self._asked = asked
        self._uploads = Uploads()
        self._jobs: queue.SimpleQueue[Errand | Rescan | Listed | None] = queue.SimpleQueue()
        self._rescan_waits = threading.Event()
        self._stopping = threading.Event()
        self._listed = {model.name for model in live.models()}
        self._unsettled = False
        self._loader = threading.Thread(target=self._carry_out, name="lumen-loader")
        self._taker = threading.Thread(target=self._take, name="lumen-calls")
        self._watcher: Watcher | None = None

    def start(self) -> None:
        """Begins to load, to answer calls and to watch (watch)."""
        self._loader.start()
        self._taker.start()
        if self._live.config.repository.control == "watch":
            paths = [Path(text).expanduser() for text in self._live.config.repository.paths]
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
        self._live.stop()
        if self._taker.ident is not None:
            self._taker.join()
        if self._loader.ident is not None:
            self._jobs.put(None)
            self._loader.join()
        self._uploads.close()

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
        ready_only = object_of(errand.body).get("ready", False)
        if not isinstance(ready_only, bool):
            raise CallError(400, f"ready: expected true or false, found {ready_only!r}")
        return orjson.dumps(self._live.states.index(names_in(self._live.config), ready_only))

    def _settings(self, errand: Errand) -> bytes:
        if errand.name and self._live.states.ready_version(errand.name) is None:
            raise CallError(400, f"Request for unknown model : {errand.name} is not found")
        return orjson.dumps(self._asked(errand.kind, object_of(errand.body)))

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
        if self._live.config.repository.strict_readiness:
            self._engine.hold_ready(not self._live.states.all_as_wanted())

    def _load_asked(self, errand: Errand) -> bytes:
        """Of all versions that its policy names, as Triton: one that fails holds none of the others
        up, and one that the policy no longer names goes."""
        try:
            wanted = self._wanted(errand)
            failed = [line for model in wanted for line in self._try_put(model)]
            if not failed:
                names = {model.name for model in wanted}
                for model in self._live.models():
                    if model.base == errand.name and model.name not in names:
                        self._live.try_remove(model.name)
        except LumenError as error:
            code = error.code if isinstance(error, CallError) else 400
            said = self._uploads.hide(str(error))
            # Clients look for these words of Triton's.
            raise CallError(code, f"failed to load '{errand.name}': {said}") from None
        finally:
            self._uploads.keep_used(model.path for model in self._live.models())
        self._say_readiness()
        if failed:
            raise CallError(400, f"failed to load '{errand.name}': {'; '.join(failed)}")
        return b""

    def _wanted(self, errand: Errand) -> list[ModelConfig]:
        """The entries that a call to load asks for."""
        asked, files = asked_of(errand.body)
        if not files:
            return entries_of(self._live.config, errand.name, asked)
        if not self._live.config.repository.upload_bytes:
            raise CallError(400, _NO_FILES)
        if asked is None:
            raise CallError(400, "parameters: expected config beside files")
        if ":" in errand.name:
            raise CallError(400, "model name: expected none with ':', which versions have")
        folder = self._uploads.put(errand.name, files)
        return uploaded_entries(folder, errand.name, asked)

    def _try_put(self, model: ModelConfig) -> list[str]:
        try:
            self._live.put(model, self._uploads.hide)
        except LumenError as error:
            return [f"version {model.version}: {error}" if ":" in model.name else str(error)]
        return []

    def _unload_asked(self, errand: Errand) -> bytes:
        asked = parameters_of(errand.body, {"unload_dependents": bool})
        names = [model.name for model in self._live.models() if model.base == errand.name]
        if not names and self._live.states.ready_version(errand.name) is not None:
            names = [errand.name]  # a virtual model
        if not names:
            raise CallError(404, f"failed to unload '{errand.name}': it is not loaded")
        try:
            steps = self._steps(errand.name) if asked.get("unload_dependents") else []
            for name in names:
                self._live.remove(name)
            for name in steps:
                with suppress(EngineError):  # another model needs it
                    self._live.remove(name)
        except EngineError as error:
            raise CallError(400, f"failed to unload '{errand.name}': {error}") from None
        finally:
            self._uploads.keep_used(model.path for model in self._live.models())
            self._say_readiness()
        return b""

    def _steps(self, name: str) -> list[str]:
        """The models that an ensemble runs, as far as they are served."""
        served = {model.name for model in (*self._live.models(), *self._live.virtual())}
        ensembles = (one for one in self._live.virtual() if isinstance(one, EnsembleConfig))
        steps = (step.model for one in ensembles if one.name == name for step in one.steps)
        return [step for step in dict.fromkeys(steps) if step in served]

    def _apply_all(self, wanted: Sequence[ModelConfig], virtual: Sequence[Virtual]) -> list[str]:
        """Virtual models go before those that they run, and come after them."""
        failed: list[str] = []
        names = {entry.name for entry in virtual}
        for entry in reversed(self._live.virtual()):  # ensembles before experts of their steps
            if entry.name not in names:
                failed += self._live.try_remove(entry.name)
        failed += self._apply(wanted)
        for entry in virtual:
            failed += self._live.put_virtual_if_changed(entry)
        return failed

    def _apply(self, wanted: Sequence[ModelConfig]) -> list[str]:
        """The list of the settings: loads what is new or has changed, unloads what is gone."""
        names, bases = {model.name for model in wanted}, {model.base for model in wanted}
        served = {model.name for model in self._live.models()}
        gone = sorted((self._listed - names) & served)
        failed: list[str] = []
        for name in gone:
            if base_of(name) not in bases:
                failed += self._live.try_remove(name)
        self._listed = names
        kept = self._put_all(wanted, failed)
        # A version goes when the one that takes requests in its stead is there.
        for name in gone:
            if base_of(name) in bases - kept:
                failed += self._live.try_remove(name)
        return failed

    def _put_all(self, models: Sequence[ModelConfig], failed: list[str]) -> set[str]:
        """Loads what is new or has changed. Returns the names of which a version could not be."""
        wrong = set()
        for model in models:
            if said := self._live.put_if_changed(model):
                wrong.add(model.base)
                failed += said
        return wrong

    def _rescan(self) -> None:
        """The repositories: the same, but a folder that cannot be read now changes nothing."""
        found, problems = entries_in(self._live.config)
        for line in problems:
            self._log("error", f"The repositories: {line}")
        kept = self._put_all(found, [])
        # Afterwards: a version goes when the one that takes requests in its stead is there.
        names, bases = {model.name for model in found}, {model.base for model in found}
        for model in self._live.models():
            is_gone = model.origin is not None and model.name not in names
            if is_gone and (model.base in bases - kept or not _holds_models(model)):
                self._live.try_remove(model.name)

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


def _holds_models(model: ModelConfig) -> bool:
    """Whether a model's folder is still there with something in it: it may be half copied."""
    assert model.origin is not None
    folder = Path(model.origin.folder)
    with suppress(OSError):
        if not folder.is_dir():
            return folder.exists()
        return any(path.is_dir() and path.name.isdecimal() for path in folder.iterdir())
    return False
