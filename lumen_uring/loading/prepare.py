"""Tries a model in a process of its own: optimises its graph, checks it, and fills the cache.

`Preparer` is used by live_models.py in the server; the rest runs in the process that it starts, or
that a nursery forks, by default at the lowest priority, and with bounds on memory and time. A model
that crashes, takes too long or needs too much ends that process alone. What it leaves in the cache
the server maps.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from errno import EAGAIN, EMFILE, ENFILE
from typing import Any, Final, NamedTuple

from lumen_uring.errors import LumenError
from lumen_uring.loading import model_file
from lumen_uring.loading.check import Alone, Check, files
from lumen_uring.loading.nursery import Nursery
from lumen_uring.ring.process import cpu_s, gently
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.origin import Declared, Origin
from lumen_uring.settings.providers import on_device
from lumen_uring.settings.schema import Config

_MODULE: Final = "lumen_uring.loading.prepare"
_TOLD_MAX: Final = 2000
_LAST_LINES: Final = 3  # of what a process said that failed
_CALLED_OFF: Final = "it is not wanted any more"
# As Python, C++, ONNX Runtime, the loader and libc say it.
_NO_MEMORY: Final = re.compile(
    "MemoryError|bad_alloc|[Mm]emory allocation|[Ff]ailed to allocate|failed to map segment|"
    "Cannot allocate memory|no memory"
)


_LOOK_S: Final = 1.0
# How Python ends that the machine refused something; memory is bounded by a setting.
_LACKED: Final = re.compile(rb"Error: \[Errno (%d|%d|%d)\]" % (EAGAIN, EMFILE, ENFILE))
# A gentle check that has had less than this share of a core for so long gives way to nobody.
_STARVED_S: Final = 20.0
_STARVED_SHARE: Final = 0.1


class PrepareError(LumenError):
    """The model cannot be loaded; the message says why."""


class Prepared(NamedTuple):
    """A model that may be loaded: notes on it, and whether others leave time to load it gently."""

    notes: list[str]
    is_gentle: bool


class _StarvedError(Exception):
    """Others leave the check no time."""


def nursery_for(config: Config) -> Nursery | None:
    """The nursery of a server whose models come and go by themselves, or are tried at its start;
    it is neither forked nor started yet.

    Args:
        config: of the server.
    """
    is_of_use = any(model.isolation == "process" for model in config.models)
    if config.repository.control == "none" and not is_of_use:
        return None
    return Nursery(_MODULE, config.repository.load_gently)


class Preparer:
    """Tries one model after another.

    Args:
        module: what a check runs.
        starved_s: for so long a gentle check may have next to no CPU time.
        nursery: forks the checks that have its priority. None: each starts alone.
    """

    def __init__(
        self,
        module: str = _MODULE,
        starved_s: float = _STARVED_S,
        nursery: Nursery | None = None,
    ) -> None:
        self._module = module
        self._starved_s = starved_s
        self._nursery = nursery
        self._lock = threading.Lock()
        self._check: Check | None = None
        self._stopped = False

    def fork(self) -> None:
        """Forks the nursery from this process; called before that has another thread."""
        if self._nursery is not None:
            self._nursery.fork()

    def start(self) -> None:
        """Starts the nursery, so that it is ready when the first check comes."""
        if self._nursery is not None:
            with suppress(OSError):  # then that one starts it
                self._nursery.start()

    def prepare(
        self, config: Config, model: ModelConfig, is_over: Callable[[], bool] = lambda: False
    ) -> Prepared:
        """Tries a model, and returns when it may be loaded.

        Args:
            config: of the server.
            model: its entry.
            is_over: says, once `end_check` is called, that the model is not wanted any more.

        Returns:
            What is known of it. A check that others leave no time begins again, not gently.

        Raises:
            PrepareError: it cannot be served, crashed, took too long, or needed too much memory.
            OSError: the machine has no process, descriptor or memory for the check.
        """
        gentle = config.repository.load_gently
        # From its first instruction on: half a second of imports is noticed too.
        try:
            status, said, trouble = (
                gently(self._run, config, model, True, is_over)
                if gentle
                else self._run(config, model, False, is_over)
            )
        except _StarvedError:
            gentle = False
            status, said, trouble = self._run(config, model, False, is_over)
        if self._stopped:
            raise PrepareError("the server is shutting down")
        if is_over():
            raise PrepareError(_CALLED_OFF)
        try:
            answer: dict[str, Any] = json.loads(said)
        except ValueError:
            lacked = _LACKED.search(trouble)
            if lacked is not None and status == 1:
                number = int(lacked.group(1))
                raise OSError(number, os.strerror(number)) from None
            raise PrepareError(_crash(status, trouble)) from None
        if answer["reason"] is not None:
            raise PrepareError(_with_cure(str(answer["reason"])))
        model_file.learn(answer.get("read", ()))  # the server need not read the file again
        return Prepared([str(note) for note in answer["notes"]], gentle)

    def _run(
        self, config: Config, model: ModelConfig, gentle: bool, is_over: Callable[[], bool]
    ) -> tuple[int, bytes, bytes]:
        """Runs the process, which has the priority of this thread. Returns its status and what it
        wrote."""
        limit_s = config.repository.load_seconds
        spec = _spec(config, model, gentle)
        nursery = self._nursery
        if nursery is not None and nursery.has_priority_of(gentle):
            try:
                with files(spec) as told:
                    check = self._begin(lambda: nursery.begin(told, gentle), is_over)
                    return self._until_it_ends(check, gentle, limit_s), *told.read()
            except OSError:
                nursery.close()  # it has ended, or cannot be spoken to: the check starts alone
        with files(spec) as told:
            check = self._begin(lambda: Alone(self._module, told), is_over)
            return self._until_it_ends(check, gentle, limit_s), *told.read()

    def _begin(self, begin: Callable[[], Check], is_over: Callable[[], bool]) -> Check:
        with self._lock:
            if self._stopped:
                raise PrepareError("the server is shutting down")
            if is_over():
                raise PrepareError(_CALLED_OFF)
            self._check = begin()
            return self._check

    def _until_it_ends(self, check: Check, gentle: bool, limit_s: float) -> int:
        began_s = time.monotonic()
        try:
            while (status := check.wait(min(_LOOK_S, limit_s))) is None:
                self._judge(check, time.monotonic() - began_s, limit_s, gentle)
        except OSError:  # nobody would wait for it
            check.end()
            raise
        finally:
            with self._lock:
                self._check = None
        return status

    def _judge(self, check: Check, took_s: float, limit_s: float, gentle: bool) -> None:
        """Ends a check that takes too long.

        Raises:
            PrepareError: it took longer than it may.
            _StarvedError: others leave it no time.
        """
        starves = gentle and took_s > self._starved_s
        starves = starves and cpu_s(check.pid) < _STARVED_SHARE * took_s
        if took_s < limit_s and not starves:
            return
        check.end()
        if starves:
            raise _StarvedError
        raise PrepareError(f"its check took longer than {limit_s} s (repository.load_seconds)")

    def end_check(self) -> None:
        """Ends the check that is under way, if there is one."""
        with self._lock:
            if self._check is not None:
                self._check.kill()

    def stop(self) -> None:
        """Ends the check that is under way, and the nursery; no other one begins."""
        self._stopped = True
        self.end_check()
        if self._nursery is not None:
            self._nursery.close()


def _crash(status: int, trouble: bytes) -> str:
    text = trouble.decode("utf-8", "replace").strip()[-_TOLD_MAX:]
    if status < 0:
        try:
            how = f"signal {signal.Signals(-status).name}"
        except ValueError:
            how = f"signal {-status}"
    else:
        how = f"status {status}"
    said = " / ".join(line.strip() for line in text.splitlines()[-_LAST_LINES:])
    return _with_cure(f"the process that checked it ended with {how}: {said or 'it said nothing'}")


def _with_cure(sentence: str) -> str:
    """Names the bound on memory where a sentence sounds as if that had been reached."""
    if _NO_MEMORY.search(sentence) is None:
        return sentence
    return f"its check needs more memory than repository.load_bytes allows: {sentence}"


def _spec(config: Config, model: ModelConfig, gentle: bool) -> bytes:
    """What the process is told: a server with this model alone, which opens no port or file."""
    server = {"max_request_bytes", "arena_bytes"}
    engine = config.engine.model_dump(mode="json") | {
        "thread_count": 1, "nodes": 1, "real_time": 0, "lock_memory": False,
        "telemetry_csv_path": None,
    }  # fmt: skip
    origin = model.origin or Origin(model.path, 1)
    entry = model.model_dump(mode="json", exclude_unset=True)
    # This is a process of its own already; memory in common with another one has no place in it.
    entry |= {"isolation": "none", "isolation_memory": 0, "isolation_hang_seconds": 0}
    told = {
        "config": {
            "server": config.server.model_dump(mode="json", include=server) | {"io_threads": 1},
            "engine": engine,
            "models": [entry],
        },
        "declared": [asdict(one) for one in origin.declared],
        # Under a bound of address space CUDA finds no memory at all.
        "memory_bytes": 0 if on_device(model.providers) else config.repository.load_bytes,
        "gently": gentle,
    }
    return json.dumps(told).encode()


def _read(told: dict[str, Any]) -> Config:
    config = Config.model_validate(told["config"])
    declared = tuple(
        Declared(**{**one, "dims": None if one["dims"] is None else tuple(one["dims"])})
        for one in told["declared"]
    )
    model = config.models[0].with_origin(Origin(config.models[0].path, 1, declared=declared))
    return config.with_models((model,), (), ())


def warm_up() -> None:
    """Reads what each check needs, in a nursery: modules, the C library, ONNX Runtime."""
    from onnx import helper, numpy_helper  # noqa: F401

    from lumen_uring.config import load
    from lumen_uring.engine import export as engine_export  # noqa: F401
    from lumen_uring.loading import add as loading  # noqa: F401
    from lumen_uring.loading import inspection  # noqa: F401
    from lumen_uring.ring import onnxruntime_path
    from lumen_uring.ring.engine import Engine

    with Engine(load(environment={}), onnxruntime_path.find()) as engine:
        engine.info()


def main() -> int:
    """The process: reads what it is to try, and says how that went. Returns its exit status."""
    from lumen_uring.loading.inspection import look_at
    from lumen_uring.ring.process import give_way

    told = json.loads(sys.stdin.buffer.read())
    give_way(told["memory_bytes"], told["gently"])
    reason, notes = None, []
    try:
        (found,) = look_at(_read(told)).values()
        if isinstance(found, LumenError):
            reason = str(found)
        else:
            notes = list(found.notes)
    except LumenError as error:
        reason = str(error)
    said = {"reason": reason, "notes": notes, "read": model_file.known()}
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
