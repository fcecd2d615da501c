"""`python -m bench.fleet.rolling`: what is lost while each of three Lumens is restarted, one after
the other, under load, behind HAProxy or Envoy as deploy/ has them.

A developer's tool. Each client asks without a pause, over one connection; a request is lost where
its answer is not 200, or does not come. gRPC's clients are Triton's own.
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.fleet.nodes import MODEL, POLICIES, balancer, fleet

DIGITS: Final = "builtin:digits"
# HAProxy and Envoy ask for each server's health once a second: three times until one that ends gets
# nothing more (with two Envoy, on a busy machine, lost requests), one until a new one gets some.
_UNREADY_S: Final = 3
_KNOWN_S: Final = 1.5
_CLIENTS: Final = 4
_SHAPE: Final = (1, 1, 8, 8)


class Crowd:
    """Clients that ask for ever.

    Args:
        port: of the balancer.
        grpc: they speak gRPC.
        clients: how many.
        host: of the balancer.
        pause_s: of each, behind an answer.

    Attributes:
        answered: requests so far.
        lost: the others, by what went wrong.
    """

    def __init__(
        self,
        port: int,
        grpc: bool,
        clients: int = _CLIENTS,
        host: str = "127.0.0.1",
        pause_s: float = 0,
    ) -> None:
        self._pause_s = pause_s
        self.answered = 0
        self.lost: Counter[str] = Counter()
        self._host, self._port = host, port
        self._lock = threading.Lock()
        self._ends = threading.Event()
        connect = self._calls if grpc else self._requests
        self._threads = [
            threading.Thread(target=self._run, args=(connect,), daemon=True) for _ in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Lets each wait for its last answer."""
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _run(self, connect: Callable[[], Callable[[], Any]]) -> None:
        ask = None
        while not self._ends.wait(self._pause_s):
            try:
                ask = ask or connect()
                said = ask()
            except Exception as error:  # whatever it is, it is counted
                said, ask = f"{type(error).__name__}: {error}", None
            with self._lock:
                if said == 200:
                    self.answered += 1
                else:
                    self.lost[str(said)] += 1

    def _requests(self) -> Callable[[], int]:
        link = http.client.HTTPConnection(self._host, self._port, timeout=30)
        body = np.zeros(_SHAPE, np.float32).tobytes()
        headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": "0",
        }

        def ask() -> int:
            link.request("POST", f"/v2/models/{MODEL}/infer", body, headers)
            answer = link.getresponse()
            answer.read()
            return answer.status

        return ask

    def _calls(self) -> Callable[[], int]:
        import tritonclient.grpc as triton

        client = triton.InferenceServerClient(f"{self._host}:{self._port}")
        name = client.get_model_metadata(MODEL).inputs[0].name
        given = triton.InferInput(name, list(_SHAPE), "FP32")
        given.set_data_from_numpy(np.zeros(_SHAPE, np.float32))

        def ask() -> int:
            client.infer(MODEL, [given])
            return 200

        return ask


@contextmanager
def crowd(port: int, grpc: bool, pause_s: float) -> Iterator[Crowd]:
    """Clients of a balancer, while its servers restart."""
    clients = Crowd(port, grpc, pause_s=pause_s)
    try:
        yield clients
    finally:
        clients.end()


def restart_all(
    folder: Path, policy: str, grpc: bool, rounds: int, servers: int = 3, pause_s: float = 0
) -> Iterator[Crowd]:
    """Restarts servers one after the other; yields what is known after each, and at the end.

    Args:
        folder: for their files.
        policy: of the balancer: one of POLICIES.
        grpc: clients speak gRPC.
        rounds: how often each is restarted.
        servers: how many, at most those of deploy/.
        pause_s: of each client, behind an answer.
    """
    settings = (f"server.unready_seconds={_UNREADY_S}",)
    with (
        fleet(folder, [DIGITS] * servers, settings) as nodes,
        balancer(folder, policy, nodes) as port,
        crowd(port, grpc, pause_s) as clients,
    ):
        for _ in range(rounds):
            for node in nodes:
                node.stop()
                node.begin()
                node.wait()
                time.sleep(_KNOWN_S)
                yield clients
        clients.end()
        yield clients


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=POLICIES, default="agent")
    parser.add_argument("--grpc", action="store_true")
    parser.add_argument("--rounds", type=int, default=100, help="each restarts all three")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runs = restart_all(Path(folder), options.policy, options.grpc, options.rounds)
        for count, clients in enumerate(runs, 1):
            print(
                f"{min(count, 3 * options.rounds)} restarts in {time.monotonic() - began_s:.0f} s: "
                f"{clients.answered} answered, {clients.lost.total()} lost "
                f"{dict(clients.lost) or ''}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
