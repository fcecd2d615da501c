"""Loads and unloads models of a running server: as its clients ask, as its folders change, and as
its settings say when they are read again.

Started by server.py. One thread loads one model after another, at most two more take calls and
watch the folders. The queue between them is bounded by the C library's table of calls; changes of
folders that wait are one. An unload waits for no load: the thread that takes calls carries it out,
or the one that notices. live_models.py makes each change, following.py says which.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import orjson

from lumen_uring.control.calls import (
    CallError,
    Calls,
    LoadError,
    asked_of,
    object_of,
    parameters_of,
)
from lumen_uring.control.following import Following, Listed, Rescan, Unloaded
from lumen_uring.control.live_models import LiveModels, Tell, Virtual
from lumen_uring.control.on_demand import OnDemand
from lumen_uring.control.uploads import Uploads
from lumen_uring.control.virtual import load as load_virtual
from lumen_uring.control.watch import SETTLE_S, Watcher
from lumen_uring.errors import EngineError, LumenError, no_means
from lumen_uring.files import expanded
from lumen_uring.guard import Guard
from lumen_uring.repository.entries import entries_of, names_in, uploaded_entries, virtual_of
from lumen_uring.ring.errands import Errand
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.models import EnsembleConfig, ModelConfig
from lumen_uring.settings.types import base_of

_STEP_S: Final = 0.5
# Until what the machine had no means for is tried again: at first, and at most.
_FIRST_RETRY_S: Final = 0.5
RETRY_S: Final = 10.0
_SHUTTING_DOWN: Final = "the server is shutting down"
_NO_FILES: Final = (
    "parameters: a call brings no files to this server (repository.upload_bytes is 0): put the "
    "model into a folder of repository.paths"
)

Job = Errand | Rescan | Listed | None


class Control:
    """The control of one server.

    Args:
        engine: that runs.
        live: its models.
        log: takes a level and a sentence.
        asked: answers a call about settings, by its kind and what it asks for.
        guard: of the server's threads.
        settle_s: how long folders must be quiet.
    """

    def __init__(
        self,
        engine: Calls,
        live: LiveModels,
        log: Callable[[str, str], None],
        asked: Callable[[str, dict[str, Any]], dict[str, Any]],
        guard: Guard,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._settle_s = settle_s
        self._engine = engine
        self._live = live
        self._log = log
        self._asked = asked
        self._uploads = Uploads(lambda: [model.path for model in live.models()])
        self._following = Following(live, log)
        self.listed = self._following.listed
        self._on_demand = OnDemand(engine, live)
        self._jobs: queue.SimpleQueue[Job | Unloaded] = queue.SimpleQueue()
        self._again: list[Rescan | Listed] = []  # what is tried again, one of a kind
        self._again_s = 0.0  # and when
        self._retry_s = _FIRST_RETRY_S
        self._lock = threading.Lock()
        self._waiting: dict[int, Errand] = {}  # loads that wait, by the call's id
        self._loading = ("", threading.Event())  # the call that is carried out; set: it is off
        self._rescan_waits = threading.Event()
        self._stopping = threading.Event()
        self._unsettled = False
        self._threads_ended = False
        self._guard = guard
        self._loader = guard.thread("lumen-loader", self._carry_out)
        self._taker = guard.thread("lumen-calls", self._take)
        self._watcher: Watcher | None = None

    def start(self) -> None:
        """Begins to load, to answer calls and to watch (watch)."""
        self._say_readiness()
        self._loader.start()
        self._taker.start()
        if self._live.config.repository.control != "none":
            self._live.get_ready()
        if self._live.config.repository.control == "watch":
            paths = [expanded(text) for text in self._live.config.repository.paths]
            self._watcher = Watcher(paths, self._changed, self._log, self._guard, self._settle_s)
            with self._guard.part("lumen-watch"):
                self._changed()  # the folders may have changed while the server started

    def close(self) -> None:
        """Ends; calls that wait are answered that the server shuts down."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._guard.end()
        if self._watcher is not None:
            self._watcher.close()
        self._live.stop()
        if self._taker.ident is not None:
            self._engine.end_errands()
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
        broken: Sequence[Broken] = (),
        tell: Tell = lambda _: None,
    ) -> None:
        """Has the models of the settings that were read again loaded, and unloads others now.

        Args:
            models: entries; one that is served as it stands there is left alone.
            virtual: the same of virtual models.
            done: called on the loader's thread, with a line for each model that could not be.
            broken: what the settings name and cannot be read; what was served is served.
            tell: takes a line for each load that begins, and for each model that is loaded.
        """
        for one in broken:
            self._live.states.cannot_be_read(one.name, one.reason)
        later, failed = self._following.drop_unlisted(models, virtual, {o.name for o in broken})
        failed += [f"model {one.name}: not loaded: {one.reason}" for one in broken]
        self._jobs.put(Listed(tuple(models), tuple(virtual), later, failed, tell, done))

    def _changed(self) -> None:
        """Where this raises, what can be loaded is loaded, and the watcher calls it again."""
        try:
            self._following.drop_gone()
        finally:
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
            elif errand.kind == "unload":
                self._answer(errand, self._unload_asked)
            elif errand.kind == "demand" and (refusal := self._on_demand.refusal(errand.name)):
                self._finish(errand, *refusal)
            else:
                with self._lock:
                    self._waiting[errand.id] = errand
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

    def _next_job(self) -> Job:
        """Waits for a job, and meanwhile frees models whose last requests are answered."""
        while True:
            waits_s = _STEP_S if self._unsettled or self._again else None
            with suppress(queue.Empty):
                job = self._jobs.get(timeout=waits_s)
                if not isinstance(job, Unloaded):
                    return job
                self._unsettled = True
                continue
            if self._again and time.monotonic() >= self._again_s:
                return self._again.pop(0)
            try:
                self._unsettled = not self._engine.settle(0)
            except EngineError:  # it has ended, and frees everything
                self._unsettled = False

    def _carry_out(self) -> None:
        while (job := self._next_job()) is not None and not self._stopping.is_set():
            self._unsettled = True
            if isinstance(job, Errand):
                if self._begins(job):
                    is_call = job.kind == "load"
                    self._answer(job, self._load_asked if is_call else self._load_on_demand)
                continue
            self._live.lacked_means = False
            try:
                self._follow(job)
            except Exception as error:  # later jobs are carried out, whatever happened
                said = f"The list of models: {type(error).__name__}: {error}"
                self._log("error", said)
                self._live.lacked_means = True
                if isinstance(job, Listed):
                    job.done([said])
            if self._live.lacked_means:
                again = _untold(job) if isinstance(job, Listed) else job
                self._again = [one for one in self._again if type(one) is not type(again)]
                self._again.append(again)
                self._again_s = time.monotonic() + min(self._retry_s, RETRY_S)
                self._retry_s = min(2 * self._retry_s, RETRY_S)
            else:
                self._retry_s = _FIRST_RETRY_S
        while job is not None:
            if isinstance(job, Errand) and self._begins(job):
                self._finish(job, 503, _SHUTTING_DOWN)
            job = self._next_job()

    def _begins(self, errand: Errand) -> bool:
        """Whether it is this call's turn: an unload may have answered it."""
        with self._lock:
            self._loading = (errand.name, threading.Event())
            return self._waiting.pop(errand.id, None) is not None

    def _follow(self, job: Rescan | Listed) -> None:
        """What folders or settings say."""
        if isinstance(job, Rescan):
            self._rescan_waits.clear()  # first: what changes from here on is another one
            self._following.rescan()
            self._say_readiness()
        else:
            # A newer list.
            self._again = [one for one in self._again if not isinstance(one, Listed)]
            failed = job.failed + self._following.load(job.models, job.virtual, job.later, job.tell)
            self._say_readiness()
            job.done(failed)

    def _say_readiness(self) -> None:
        """Before anybody is told of a change, readiness is as it is from then on."""
        if self._live.config.repository.strict_readiness:
            with self._lock:  # the newer word is the last one
                is_well = self._live.states.all_as_wanted() and self._guard.all_alive()
                self._engine.hold_ready(not is_well)

    def look(self) -> None:
        """Says readiness anew when a thread has ended that should not. On the main thread."""
        if self._guard.all_alive() == self._threads_ended:
            self._threads_ended = not self._threads_ended
            self._say_readiness()

    def _load_asked(self, errand: Errand) -> bytes:
        """As Triton: all versions that its policy names, each for itself; others go."""
        off = self._loading[1]
        try:
            failed, code = [], 200
            brings_none = asked_of(errand.body) == (None, {})
            if virtual := virtual_of(self._live.config, errand.name) if brings_none else None:
                load_virtual(self._live, virtual, self._uploads.hide, off)
                wanted = []
            else:
                wanted = self._wanted(errand)
            for model in wanted:
                try:
                    self._live.put(model, self._uploads.hide, off)
                except LoadError as error:  # noqa: PERF203 -- one holds none of the others up
                    is_one = ":" in model.name
                    failed.append(f"version {model.version}: {error}" if is_one else str(error))
                    code = max(code, error.code) if code != 400 else 400
            if not failed:
                names = {model.name for model in wanted}
                for model in self._live.models():
                    if model.base == errand.name and model.name not in names:
                        self._live.try_remove(model.name)
                with suppress(LumenError):  # others are needed: this one stays all the same
                    self._on_demand.make_room(wanted)
        except LumenError as error:
            code = error.code if isinstance(error, CallError) else 400
            said = self._uploads.hide(str(error))
            # Clients look for these words of Triton's.
            raise CallError(code, f"failed to load '{errand.name}': {said}") from None
        finally:
            self._loading = ("", off)
            self._uploads.drop_unused()
        self._following.find_repositories()
        self._say_readiness()
        if failed:
            raise CallError(code, f"failed to load '{errand.name}': {'; '.join(failed)}")
        return b""

    def _load_on_demand(self, errand: Errand) -> bytes:
        try:
            self._on_demand.load(errand.name, self._loading[1])
        finally:
            self._loading = ("", self._loading[1])
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

    def _unload_asked(self, errand: Errand) -> bytes:
        """On the thread that takes calls: also of a model that is being loaded, or waits for it."""
        asked = parameters_of(errand.body, {"unload_dependents": bool})
        never_comes = self._call_off(errand.name)
        live = self._live
        names = [model.name for model in live.models() if model.base == errand.name]
        names += [one.name for one in live.virtual() if one.name == errand.name]
        coming = live.coming()
        if coming is not None and base_of(coming) == errand.name and coming not in names:
            names.append(coming)
        steps = self._steps(errand.name) if asked.get("unload_dependents") else []
        try:
            for name in names:
                live.remove(name)
            for name in steps:
                with suppress(EngineError):  # another model needs it
                    live.remove(name)
        except EngineError as error:
            raise CallError(400, f"failed to unload '{errand.name}': {error}") from None
        finally:
            self._jobs.put(Unloaded())
            self._uploads.drop_unused(is_loaded=False)
            forgotten = live.states.forget(errand.name)
            self._say_readiness()
        if not names and not forgotten and not never_comes:
            raise CallError(404, f"failed to unload '{errand.name}': it is not loaded")
        return b""

    def _steps(self, name: str) -> list[str]:
        """The models that an ensemble runs, as far as they are served."""
        served = {model.name for model in (*self._live.models(), *self._live.virtual())}
        ensembles = (one for one in self._live.virtual() if isinstance(one, EnsembleConfig))
        steps = (step.model for one in ensembles if one.name == name for step in one.steps)
        return [step for step in dict.fromkeys(steps) if step in served]

    def _call_off(self, name: str) -> bool:
        """Ends the calls to load a model that is not served yet. Returns whether there were any."""
        with self._lock:
            is_under_way = name in (self._loading[0], base_of(self._loading[0]))
            if is_under_way:
                self._loading[1].set()
            calls = [one for one in self._waiting.values() if name in (one.name, base_of(one.name))]
            for one in calls:
                del self._waiting[one.id]
        for one in calls:
            said = f"failed to load '{one.name}': it was unloaded before its turn"
            self._finish(one, 503 if one.kind == "demand" else 400, said)
        return is_under_way or bool(calls)

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
            said = no_means(error)
            code = 500 if said is None else 503
            said = said or f"an error of the server's ({type(error).__name__}); see its log"
            self._finish(errand, code, f"{errand.kind}: {said}")
        else:
            self._engine.finish_errand(errand, 200, body)

    def _finish(self, errand: Errand, code: int, text: str) -> None:
        is_sentence = errand.kind == "demand"  # for each of the clients that wait
        body = text.encode() if is_sentence else orjson.dumps({"error": text})
        self._engine.finish_errand(errand, code, body)


def _untold(job: Listed) -> Listed:
    """The same list once more: its reload has been reported."""
    return replace(job, tell=lambda _: None, done=lambda _: None)
