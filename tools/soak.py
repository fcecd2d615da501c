"""`make soak`: load, bad clients, kills and restarts for as long as asked; what must not grow.

A developer's tool. One server at a time, always on the same port. In turns: a phase of good and
bad clients (those of test_e2e_random.py, every answer checked) beside the load generator over
both protocols and open connections that say nothing; then a look at memory, descriptors, slots
and the account, which must be back where they were; and now and then a kill -9 under load and a
new start on the port at once. Ends at the first thing that is wrong, with the seed. It judges no
times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / "e2e" / part) for part in ("", "native"))]

import conftest  # noqa: E402
import harness  # noqa: E402
from test_e2e_random import Actor  # noqa: E402

from bench.common.local_server import LocalServer  # noqa: E402
from bench.common.measure import Shape, plan_of, start  # noqa: E402

_MIB: Final = 1 << 20
# What the allocator and ONNX Runtime may still take after the first phase.
_SLACK_BYTES: Final = 48 * _MIB


class Soak:
    """The server under test and what was seen of it.

    Args:
        options: as the command line gave them.
        folder: for the models and the cache.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._cache = folder / "cache"
        self._cache.mkdir()
        self._settings = conftest.zoo_settings(folder)
        self._port = 0
        self._seed = options.seed
        self.looks: list[dict[str, float]] = []
        self.kills = 0
        self.server = self._started()

    def _started(self) -> harness.Server:
        server = harness.Server(self._settings, self._cache, options=("--port", str(self._port)))
        self._port = server.port
        self._baseline: tuple[int, int] | None = None
        return server

    def _local(self) -> LocalServer:
        return LocalServer(self.server.process.pid, self._port, 0.0)

    def phase(self, seconds: float) -> None:
        """Good and bad clients, load and silent connections; then everything is as before."""
        self._seed += 1
        actors = [Actor(self.server, self._seed * 100 + number) for number in range(6)]
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=actor.main, args=(until,)) for actor in actors]
        silent = [self.server.connect() for _ in range(200)]
        loads = [
            start(plan_of(self._local(), Shape("double", 8, seconds, 0.1, protocol=protocol)))
            for protocol in ("native", "http")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 90)
            if thread.is_alive():
                raise AssertionError(f"seed {self._seed}: a client still waits")
        for load in loads:
            result = load.wait(60)
            if result is None or result.errors or result.mismatches:
                raise AssertionError(f"seed {self._seed}: the load had errors: {result}")
        for connection in silent:
            connection.close()
        for actor in actors:
            if actor.error is not None:
                raise AssertionError(f"seed {self._seed}: {actor.error!r}") from actor.error
        self.server.check_idle()

    def look(self) -> None:
        """Notes memory and descriptors; refuses growth since the first look at this server."""
        memory, fds = self.server.rss_bytes, self.server.fds
        self.looks.append(
            {"at_s": time.monotonic(), "rss_mib": memory / _MIB, "fds": fds, "kills": self.kills}
        )
        if self._baseline is None:
            self._baseline = (memory, fds)
        most, held = self._baseline
        if memory > most + _SLACK_BYTES or fds > held:
            raise AssertionError(
                f"seed {self._seed}: {memory / _MIB:.0f} MiB and {fds} fds, after "
                f"{most / _MIB:.0f} MiB and {held} in the beginning"
            )

    def kill(self) -> None:
        """kill -9 in the middle of load, and a new server on the port at once."""
        crowd = [self.server.connect() for _ in range(50)]
        load = start(plan_of(self._local(), Shape("double", 8, 5, 0.05)))
        self.server.kill()
        load.stop()
        for connection in crowd:
            connection.close()
        self.kills += 1
        self.server = self._started()


def main(arguments: list[str] | None = None) -> int:
    """Soaks for --seconds, or until something is wrong."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    found.add_argument("--seconds", type=float, default=3600.0, help="in all (%(default)s)")
    found.add_argument("--phase", type=float, default=20.0, help="seconds each (%(default)s)")
    found.add_argument("--kill-every", type=int, default=5, help="phases; 0: never (%(default)s)")
    found.add_argument("--kills", type=int, default=1, help="in a row (%(default)s)")
    found.add_argument("--seed", type=int, default=int(time.time()), help="of the clients")
    found.add_argument("--json", action="store_true")
    options = found.parse_args(arguments)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        soak = Soak(options, Path(directory))
        phases = 0
        try:
            while time.monotonic() - begin < options.seconds:
                soak.phase(options.phase)
                soak.look()
                phases += 1
                last = soak.looks[-1]
                print(
                    f"{time.monotonic() - begin:6.0f} s, {phases} phases, {soak.kills} kills: "
                    f"{last['rss_mib']:.0f} MiB, {last['fds']} descriptors",
                    file=sys.stderr,
                )
                if options.kill_every and phases % options.kill_every == 0:
                    for _ in range(options.kills):
                        soak.kill()
        finally:
            soak.server.kill()
    figures: dict[str, Any] = {
        "phases": phases,
        "kills": soak.kills,
        "seconds": time.monotonic() - begin,
        "rss_mib": [look["rss_mib"] for look in soak.looks],
        "descriptors": [look["fds"] for look in soak.looks],
    }
    print(
        json.dumps(figures)
        if options.json
        else f"{phases} phases, {soak.kills} kills: all as before"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
