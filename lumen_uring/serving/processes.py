"""The processes of models with `isolation: process`: tried, started, watched, started again.

Called by server.py on the main thread, which is told by SIGCHLD that one has ended. Requests never
pass here: workers hand them over in memory, and notice by themselves that a process is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from lumen_uring.errors import EngineError
from lumen_uring.guard import Guard
from lumen_uring.loading.prepare import PrepareError, Preparer
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.processes import Isolated, ModelProcess
from lumen_uring.serving.logs import Journal
from lumen_uring.serving.start_files import Files, Problems
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config

_BACKOFF_S: Final = 0.1
_BACKOFF_MOST_S: Final = 10.0
_LOOK_S: Final = 0.02  # while one is being started


@dataclass(slots=True)
class _Process:
    """What is known of one model's process."""

    model: Isolated
    is_coming: bool = False  # another thread loads its model: the engine may not know it yet
    child: subprocess.Popen[bytes] | None = None
    is_up: bool = False
    started_s: float = 0.0
    restart_s: float = 0.0  # when it is started again
    backoff_s: float = _BACKOFF_S


class Processes:
    """Keeps a process for each isolated model, from `start` or `expect` until the model goes, or
    until the end of its `with` block.

    Args:
        journal: where it says that a process has ended.
        guard: counts what fails.
    """

    def __init__(self, journal: Journal, guard: Guard) -> None:
        self._journal = journal
        self._guard = guard
        self._processes: list[_Process] = []
        self._engine: Engine | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            _kill(process)

    def start(self, engine: Engine, is_over: Callable[[], bool]) -> bool:
        """Starts the processes, and returns when all take requests.

        Args:
            engine: with all models; it has not started.
            is_over: asked now and then whether to stop waiting.

        Returns:
            False when it was over before.

        Raises:
            EngineError: one of them cannot begin; it has said why on stderr.
        """
        self._engine = engine
        self._processes = [_Process(model) for model in engine.isolated]
        for process in self._processes:
            self._spawn(engine, process)
        while not all(self._has_begun(engine, process) for process in self._processes):
            if is_over():
                return False
            time.sleep(_LOOK_S)
        return True

    @contextmanager
    def expect(self, model: Isolated) -> Iterator[None]:
        """Has the main thread start the process of a model that comes: any other thread, around
        its load.

        Args:
            model: that the engine is about to be given.
        """
        process = _Process(model, is_coming=True)
        self._processes.append(process)
        os.kill(os.getpid(), signal.SIGCHLD)  # the main thread looks at its processes then
        try:
            yield
        finally:
            process.is_coming = False

    def _has_begun(self, engine: Engine, process: _Process) -> bool:
        child = process.child
        name = process.model.settings.name
        if child is not None and (end := _end_of(child)) is not None:
            child.wait()
            raise EngineError(
                f"The process of model {name} ended {_said(end)} before it could serve; see its "
                f"message above.{_memory_hint(process.model)}"
            )
        process.is_up = engine.process_is_up(process.model.key)
        return process.is_up

    def look(self) -> float:
        """Reports and restarts processes that have ended.

        Returns:
            How long until it is to be called again; seconds.
        """
        engine = self._engine
        wait_s = _BACKOFF_MOST_S
        for process in [*self._processes] if engine is not None else ():
            assert engine is not None
            try:
                engine.process_is_up(process.model.key)
            except EngineError:  # not yet, or its model was unloaded, and the last request has left
                if process.is_coming:
                    wait_s = min(wait_s, _LOOK_S)
                    continue
                self._processes.remove(process)
                _kill(process)
                continue
            try:
                self._look_at(engine, process)
            except Exception as error:  # mostly no descriptor, no memory, or no process is left
                self._give_up(engine, process, error)
            if process.child is None:
                wait_s = min(wait_s, max(0.0, process.restart_s - time.monotonic()))
            elif not process.is_up:
                wait_s = min(wait_s, _LOOK_S)
        return wait_s

    def _look_at(self, engine: Engine, process: _Process) -> None:
        name, child = process.model.settings.name, process.child
        if child is None:
            if time.monotonic() >= process.restart_s:
                self._spawn(engine, process)
            return
        end = _end_of(child)
        if end is not None:
            engine.process_ended(process.model.key, end)
            child.wait()
            process.child = None
            self._plan_restart(process)
            then = f"; it is restarted in {process.restart_s - time.monotonic():.1f} s."
            if process.is_coming:  # the load fails, and says so
                then = f" before it could serve.{_memory_hint(process.model)}"
            self._journal.log("error", f"The process of model {name} ended {_said(end)}{then}")
        elif not process.is_up and engine.process_is_up(process.model.key):
            process.is_up = True
            self._journal.log("info", f"The process of model {name} takes requests again.")

    def _give_up(self, engine: Engine, process: _Process, error: Exception) -> None:
        """Ends what was begun of a process, and plans to start it again; one that serves stays."""
        self._guard.failed(f"process {process.model.settings.name}", error)
        if process.is_up:
            return
        if process.child is not None:
            _kill(process)
            process.child = None
        with suppress(EngineError):
            engine.process_ended(process.model.key, signal.SIGKILL)
        self._plan_restart(process)

    @staticmethod
    def _plan_restart(process: _Process) -> None:
        """Waits twice as long as the last time, unless the process has lived for longer."""
        now_s = time.monotonic()
        if process.is_up and now_s - process.started_s > _BACKOFF_MOST_S:
            process.backoff_s = _BACKOFF_S
        process.is_up = False
        process.restart_s = now_s + process.backoff_s
        process.backoff_s = min(2 * process.backoff_s, _BACKOFF_MOST_S)

    @staticmethod
    def _spawn(engine: Engine, process: _Process) -> None:
        model = process.model
        place = engine.next_process(model.key)
        if place is None:  # a worker has not looked yet: soon
            return
        child = subprocess.Popen(
            [sys.executable, "-m", "lumen_uring.serving.isolated"],
            stdin=subprocess.PIPE,
            pass_fds=[place.fd],
        )
        process.child = child
        process.started_s = time.monotonic()
        assert child.stdin is not None
        try:
            with child.stdin as pipe:
                pipe.write(_order(model, place, engine.runtime))
        except BrokenPipeError:
            pass  # it has ended: its status will be seen
        engine.process_started(model.key, child.pid)


def try_isolated(
    config: Config,
    files: Files,
    problems: Problems,
    preparer: Preparer,
    is_over: Callable[[], bool],
) -> bool:
    """Takes isolated models off the list that crash when they are opened, and other bad ones.

    Args:
        config: of the server.
        files: of all models.
        problems: with these; those of the models that go are added.
        preparer: tries them.
        is_over: asked now and then whether to stop waiting.

    Returns:
        False when it was over before.
    """
    for file in [one for one in files if one[0].isolation == "process"]:
        try:
            if not _try_apart(config, file[0], preparer, is_over):
                return False
        except EngineError as error:  # noqa: PERF203 -- all problems are reported
            problems.append((file[0].name, error))
            files.remove(file)
    return True


def _try_apart(
    config: Config, model: ModelConfig, preparer: Preparer, is_over: Callable[[], bool]
) -> bool:
    """Opens and runs an isolated model in a process that it may crash, before the server opens it
    to read its tensors.

    Args:
        config: of the server.
        model: its entry.
        preparer: tries it.
        is_over: asked now and then whether to stop waiting.

    Returns:
        False when it was over before.

    Raises:
        EngineError: it crashed, takes too long, needs too much memory, or cannot be served.
    """
    at_once = config.repository.model_copy(update={"load_gently": False})
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(
            preparer.prepare, config.model_copy(update={"repository": at_once}), model
        )
        while not wait([trial], _LOOK_S).done:
            if is_over():
                preparer.stop()
                return False
    try:
        trial.result()
    except PrepareError as error:
        raise EngineError(f"model {model.name}: {error}") from None
    return True


def _kill(process: _Process) -> None:
    if process.child is not None:
        process.child.kill()
        process.child.wait()


def _order(model: Isolated, place: ModelProcess, runtime: Path) -> bytes:
    """What isolated.py reads."""
    settings = model.settings.model_dump(mode="json", exclude_unset=True)
    order: dict[str, Any] = {
        "parent": os.getpid(),
        "runtime": str(runtime),
        "path": str(model.path),
        "cache_path": None if model.cache_path is None else str(model.cache_path),
        # Pictures and labels are the workers'.
        "settings": settings | {"path": str(model.path), "image": None, "labels": None},
        "place": {name: getattr(place, name) for name in place.__slots__},
    }
    return json.dumps(order).encode()


def _end_of(child: subprocess.Popen[bytes]) -> int | None:
    """A signal, or 256 + the exit status; None while it runs. It is not reaped."""
    found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    is_exit = found.si_code == os.CLD_EXITED
    return 256 + found.si_status if is_exit else found.si_status


def _said(end: int) -> str:
    if end >= 256:
        leaked = " (a Run failed while more than half of its memory was taken)"
        return f"with status {end - 256}{leaked if end - 256 == 3 else ''}"
    try:
        return f"by signal {end} ({signal.Signals(end).name})"
    except ValueError:
        return f"by signal {end}"


def _memory_hint(model: Isolated) -> str:
    bytes_most = model.settings.isolation_memory
    return "" if not bytes_most else f" Its isolation_memory is {bytes_most} bytes: is that enough?"
