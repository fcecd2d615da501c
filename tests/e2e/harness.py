"""Starts real servers as a person would, watches them from outside, and stops them.

Used by conftest.py and tests, on the test's thread. A server is the command `python -m lumen_uring`
in a process of its own, forked from one that has imported it where a test allows that (forked.py);
what is known of it comes from its banner, its statistics file and /proc. No wait here is without a
bound, and none asserts how long something took.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import account
import numpy as np
import wire
import yaml
from forked import Forked, run_forked

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
STOP_S = 30.0
SETTLE_S = 60.0  # far beyond what a busy machine takes
_STEADY_S = 1.0
_FIGURES = re.compile(r"figures +(\S+)")
_BANNER = re.compile(r"serves on (\S+):(\d+) ")
_LAST_LINE = re.compile(r"^Try: ", re.MULTILINE)
# What a bug of ours looks like on stderr, whatever the exit status.
_TROUBLE = re.compile(
    r"assertion failed|Assertion|Sanitizer|runtime error:|Traceback|double free|corrupted|"
    r"stack smashing|WARNING: ThreadSanitizer|Segmentation fault|I/O thread \d+:"
)


def eventually(
    condition: Callable[[], object],
    what: str,
    seconds: float = SETTLE_S,
    found: Callable[[], object] | None = None,
) -> None:
    """Waits until a condition holds; fails with `what` where it does not within the bound."""
    until = time.monotonic() + seconds
    pause_s = 0.002
    while not condition():
        if time.monotonic() > until:
            seen = f"; found {found()}" if found is not None else ""
            raise AssertionError(f"expected within {seconds:g} s: {what}{seen}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)  # looking takes a core from what is waited for


# Why the time of a Run decides which threads run a model, on the machine as it is: and which do.
BY_TIME = {"its Runs are short": "auto", "its Runs take longer than a hand-over": "worker"}


def children(pid: int) -> list[int]:
    """The processes that this one has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def processes_of_models(pid: int) -> list[int]:
    """The processes of its models with `isolation: process`."""
    found = []
    for child in children(pid):
        with suppress(OSError):
            if b"lumen_uring.serving.isolated" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def stand_still(pid: int) -> None:
    """Stops a process, and waits until all its threads stand: SIGSTOP only asks for that."""
    os.kill(pid, signal.SIGSTOP)

    def stands() -> bool:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks
        )

    eventually(stands, f"process {pid} to stand still")


def environment(cache: Path) -> dict[str, str]:
    """The tests' own environment, with a cache of optimised graphs of their own.

    LUMEN_E2E_LIBRARY is what the servers load (the tests' own process keeps the release
    one), LUMEN_E2E_PRELOAD their LD_PRELOAD: what a sanitizer's variant needs before all else.
    """
    mine = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONUNBUFFERED": "1"}
    if preload := os.environ.get("LUMEN_E2E_PRELOAD"):
        mine["LD_PRELOAD"] = preload
    if library := os.environ.get("LUMEN_E2E_LIBRARY"):
        mine["LUMEN_LIBRARY"] = library
    return mine


def backend() -> str:
    """LUMEN_E2E_BACKEND: the io_backend of servers whose test does not choose one."""
    return os.environ.get("LUMEN_E2E_BACKEND", "auto")


def sanitized() -> bool:
    """Whether the servers run under a sanitizer, which has its own idea of memory."""
    return "LUMEN_E2E_PRELOAD" in os.environ


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lumen_uring", *arguments]


def run(
    arguments: Sequence[str],
    cache: Path,
    prefix: Sequence[str] = (),
    extra_environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command that ends by itself; one that would serve, on the tests' backend. What a start
    says of its progress is left out: only on a slow machine is there any."""
    serves = bool(arguments) and arguments[0].startswith("--")
    chosen = ["--set", f"server.io_backend={backend()}"] if serves else []
    variables = {**environment(cache), **(extra_environment or {})}
    if not prefix and "LD_PRELOAD" not in variables:
        return without_progress(run_forked([*chosen, *arguments], variables, START_S))
    done = subprocess.run(
        [*prefix, *command(*chosen, *arguments)],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    return without_progress(done)


def without_progress(
    done: subprocess.CompletedProcess[str],
) -> subprocess.CompletedProcess[str]:
    """The same without the lines that say how long a step of a start has taken so far."""

    def told(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if not line.rstrip().endswith(" s so far."))

    done.stdout, done.stderr = told(done.stdout), told(done.stderr)
    return done


def with_backend(settings: dict[str, object]) -> dict[str, object]:
    """The settings with the tests' backend, models loaded at an ordinary priority, since tests
    leave no processor idle, and an end without a wait; where they say nothing of that. A
    sanitizer's shadow takes all of the address space, which cannot be bounded then."""
    server, repository = settings.get("server", {}), settings.get("repository", {})
    assert isinstance(server, dict)
    assert isinstance(repository, dict)
    check = {"load_gently": False, **({"load_bytes": 0} if sanitized() else {})}
    return {
        **settings,
        "server": {"io_backend": backend(), "unready_seconds": 0, **server},
        "repository": {**check, **repository},
    }


@dataclass(frozen=True)
class Figures:
    """One reading of a server's statistics, summed over threads."""

    io: dict[str, int]
    worker: dict[str, int]
    connections_open: int
    slots_in_use: int

    @property
    def requests(self) -> int:
        return self.io["requests"]

    @property
    def settled(self) -> int:
        """Requests of which the end is known; equals `requests` when nothing is in flight."""
        io, worker = self.io, self.worker
        return (
            io["requests_ok"]
            + io["requests_error"]
            + io["requests_refused"]
            + io["requests_gone"]
            + io["upstream_failed"]
            + worker["requests_ok"]
            + worker["requests_error"]
            + worker["requests_overloaded"]
            + worker["requests_expired"]
            + worker["requests_gone"]
        )

    def since(self, earlier: Figures) -> dict[str, int]:
        """What was counted since, without zeros, as io.NAME and worker.NAME."""
        changes = {}
        for role, now, then in (
            ("io", self.io, earlier.io),
            ("worker", self.worker, earlier.worker),
        ):
            for name, value in now.items():
                if value != then.get(name, 0):
                    changes[f"{role}.{name}"] = value - then.get(name, 0)
        return changes


class Server:
    """One running server."""

    def __init__(
        self,
        settings: dict[str, object],
        cache: Path,
        prefix: Sequence[str] = (),
        extra_environment: dict[str, str] | None = None,
        options: Sequence[str] = ("--port", "0"),
    ) -> None:
        models = settings.get("models", ())
        self._names = [str(entry["name"]) for entry in models]  # type: ignore[attr-defined]
        # ruff: noqa: SIM115 -- these files live as long as the server
        self._config = tempfile.NamedTemporaryFile("w", suffix=".yaml")
        yaml.dump(
            with_backend(settings), self._config, getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        )
        self._config.flush()
        self._stdout = tempfile.NamedTemporaryFile("w+")
        self._stderr = tempfile.NamedTemporaryFile("w+")
        arguments = ["--config", self._config.name, *options]
        variables = {**environment(cache), **(extra_environment or {})}
        self.process: subprocess.Popen[bytes] | Forked
        if prefix or "LD_PRELOAD" in variables:
            self.process = subprocess.Popen(
                [*prefix, *command(*arguments)],
                cwd=ROOT,
                env=variables,
                stdout=self._stdout,
                stderr=self._stderr,
            )
        else:
            self.process = Forked(arguments, variables, self._stdout.name, self._stderr.name)
        self.idle_fds = 0
        try:
            eventually(self._has_started, "the banner", START_S)
            self._look(settings)
        except BaseException:
            self.process.kill()  # or the tests' process would wait for it at its end, for ever
            self.process.wait()
            raise

    def _look(self, settings: dict[str, object]) -> None:
        """What is known of it from the start on; it is idle."""
        found = _BANNER.search(self.output)
        assert found is not None, self.output + self.errors
        self.port = int(found.group(2))
        self.tally = wire.Tally()
        if found.group(1) in ("127.0.0.1", "0.0.0.0"):  # where Wire connects to
            wire.TALLIES[self.port] = self.tally
        if (path := with_backend(settings)["server"].get("unix_socket")) is not None:  # type: ignore[attr-defined]
            wire.TALLIES[Path(str(path))] = self.tally
        self.models: dict[str, int] = {}
        self.description = self._describe()
        self.check_idle()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def output(self) -> str:
        return _text(self._stdout)

    @property
    def errors(self) -> str:
        return _text(self._stderr)

    @property
    def stats_path(self) -> Path:
        """As the banner says: where somebody else's server has the port's name, it is another."""
        found = _FIGURES.search(self.output)
        assert found is not None, self.output
        return Path(found.group(1))

    @property
    def fds(self) -> int:
        """Without those of connections to upstreams, which are kept, and tried again where they
        cannot be had: nobody may come or go between the two looks."""
        from lumen_uring.ring.stats import read

        while True:
            kept, fds, still = (
                read(self.stats_path).gauges["io"]["upstream_connections"],
                len(os.listdir(f"/proc/{self.pid}/fd")),
                read(self.stats_path).gauges["io"]["upstream_connections"],
            )
            if kept == still:
                return fds - int(kept)

    @property
    def rss_bytes(self) -> int:
        """Resident memory; 0 under a sanitizer, whose quarantine grows by design."""
        if sanitized():
            return 0
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None
        return int(found.group(1)) * 1024

    def connect(self, receive_buffer_bytes: int | None = None) -> wire.Wire:
        return wire.Wire(self.port, receive_buffer_bytes=receive_buffer_bytes)

    def figures(self) -> Figures:
        from lumen_uring.ring.stats import read

        snapshot = read(self.stats_path)
        return Figures(
            snapshot.counters["io"],
            snapshot.counters["worker"],
            snapshot.gauges["io"]["connections_open"],
            snapshot.gauges["io"]["slots_in_use"],
        )

    def wait_until_idle(self) -> None:
        """Nothing is held any more, and it is still the same process."""

        def idle() -> bool:
            assert self.alive, f"the server ended with {self.process.returncode}: {self.errors}"
            figures = self.figures()
            return figures.connections_open == 0 and figures.slots_in_use == 0

        eventually(idle, "no open connection, no slot in use", found=self.figures)
        if not self.idle_fds:
            # A look may find one too few, as a connection to an upstream comes and goes.
            self.idle_fds = max(self.fds for _ in range(5))
        fewer, since = 0, 0.0

        def are_as_before() -> bool:
            """Fewer for a second: what was counted before held one for a moment, as a look does."""
            nonlocal fewer, since
            now, at = self.fds, time.monotonic()
            if now != fewer:
                fewer, since = now, at
            if now < self.idle_fds and at - since >= _STEADY_S:
                self.idle_fds = now
            return now == self.idle_fds

        eventually(are_as_before, f"{self.idle_fds} fds", found=lambda: self.fds)

    def check_idle(self) -> None:
        """The invariants after every case: nothing held, nothing lost, nothing said on stderr."""
        self.wait_until_idle()
        figures = self.figures()
        assert figures.requests == figures.settled, (
            f"the account does not balance: {figures.requests} requests, of {figures.settled} the "
            f"end is counted: {figures}"
        )
        self.check_figures()
        self.check_errors()

    def check_figures(self) -> None:
        """Every figure agrees with the others, and with what the tests' clients counted."""
        from lumen_uring.ring.stats import read

        def found() -> list[str]:
            return account.problems(read(self.stats_path), self.tally)

        # A client that was stopped may have connections that are accepted after it has gone.
        eventually(lambda: not found(), "the figures agree", found=lambda: "; ".join(found()))

    def check_errors(self) -> None:
        found = _TROUBLE.search(self.errors)
        assert found is None, self.errors

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(STOP_S)

    def stop(self) -> None:
        """Ends it as a service manager would, and looks at how it went."""
        try:
            self.check_idle()
        except BaseException:
            self.kill()  # or the tests' process would wait for it at its end, for ever
            raise
        self.terminate()
        self.expect_clean_end()

    def expect_clean_end(self) -> None:
        try:
            code = self.wait()
        finally:
            self.kill()
        assert code == 0, f"exit status {code}: {self.errors}"
        self.check_errors()
        assert not has_figures(self.stats_path, self.pid), f"{self.stats_path} was left behind"

    def kill(self) -> None:
        if self.alive:
            self.process.kill()
            self.process.wait()
            remove_figures(self.stats_path, self.pid)

    def _has_started(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"exit status {self.process.returncode}: {self.errors}")
        return _LAST_LINE.search(self.output) is not None

    def _describe(self) -> dict[str, object]:
        import json

        with self.connect() as connection:
            reply = connection.ask(wire.frame(kind=wire.DESCRIBE, id=7))
        if reply.status == wire.UNAUTHORISED:  # the models' order is known all the same
            self.models.update({name: index for index, name in enumerate(self._names)})
            return {}
        assert (reply.status, reply.id) == (wire.OK, 7)
        description: dict[str, object] = json.loads(reply.payload)
        for entry in description["models"]:  # type: ignore[attr-defined]
            self.models[entry["name"]] = entry["index"]
        return description


def has_figures(path: Path, pid: int) -> bool:
    """Whether a statistics file is that process's: another server may have got the port since it
    ended, and the name with it."""
    from lumen_uring.errors import StatsError
    from lumen_uring.ring.stats import read

    try:
        return read(path).pid == pid
    except (OSError, StatsError):
        return False


def remove_figures(path: Path, pid: int) -> None:
    """The statistics file of a server that was killed."""
    if has_figures(path, pid):
        path.unlink()


class Canary:
    """A well-behaved client on a connection of its own: its answers stay right whatever others do.

    It runs from `with` to the end of the block, and must get at least one more answer before it
    leaves, so that what happened in the block did not silence the server.
    """

    def __init__(self, server: Server, model: str = "double", columns: int = 16) -> None:
        self._server = server
        self._model = server.models[model]
        self._columns = columns
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.answers = 0
        self._thread = threading.Thread(target=self._main, name="canary", daemon=True)

    def __enter__(self) -> Canary:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        before = self.answers
        if kind is None and self._error is None:
            eventually(
                lambda: self.answers > before or self._error,
                "one more answer for the canary",
                wire.TIMEOUT_S + 5,
                lambda: self.answers,
            )
        self._stop.set()
        self._thread.join(wire.TIMEOUT_S + 5)
        if kind is None and self._error is not None:
            raise AssertionError(
                f"the canary died after {self.answers} answers: {self._error!r}"
            ) from self._error

    def _main(self) -> None:
        random = np.random.default_rng(1)
        try:
            with self._server.connect() as connection:
                while not self._stop.is_set():
                    x = random.standard_normal((1, self._columns), np.float32)
                    number = self.answers + 1
                    reply = connection.ask(wire.frame(x.tobytes(), model=self._model, id=number))
                    assert (reply.status, reply.id) == (wire.OK, number), reply
                    assert reply.payload == (x + x).tobytes()
                    self.answers += 1
                    self._stop.wait(0.002)
        except BaseException as error:
            self._error = error


def _text(file: object) -> str:
    # pread: the child writes through the same open file, whose position must not move.
    descriptor = file.fileno()  # type: ignore[attr-defined]
    return os.pread(descriptor, 1 << 24, 0).decode("utf-8", "replace")
