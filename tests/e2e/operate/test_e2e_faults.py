"""The server serves on, and loses nothing, whatever call of the operating system fails in Python.

Each line of Lumen's that makes one fails once: a load, an upload, a reload, a page meets
the next such line each time it is repeated, until all of it passes (faults/sitecustomize.py).
"""

from __future__ import annotations

import base64
import errno
import http.client
import json
import os
import signal
from contextlib import closing
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
from conftest import Serve
from harness import Server, eventually
from operating import free_port
from web import Http, get, post

pytestmark = pytest.mark.once  # Python's calls are the same on both backends

FAULTS = Path(__file__).parents[1] / "faults"
# Each in turn: what a machine lacks, forbids, or does not know.
ERRORS = (errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.ENOSPC, errno.EIO)
SCARCE = (errno.EMFILE, errno.ENOMEM)
QUIET = 2  # rounds without a failure
ROUNDS_MOST = 200
X = np.arange(16, dtype=np.float32)[None]
LOAD, UNLOAD = "/v2/repository/models/%s/load", "/v2/repository/models/%s/unload"


class Faulty:
    """A server of whose calls each can be made to fail once."""

    def __init__(
        self, serve: Serve, folder: Path, settings: dict[str, object], **variables: str
    ) -> None:
        self.record = folder / "faults"
        self.record.write_bytes(b"\0")
        variables |= {"LUMEN_FAULTS": str(self.record), "PYTHONPATH": str(FAULTS)}
        # With a command in front it is no process that has imported Python's modules already.
        self.server: Server = serve(settings, prefix=["env"], extra_environment=variables)
        self.server.tally.cut = True  # calls that fail are answered, and no model's failures

    def failed(self) -> list[str]:
        """The calls that have failed, and Lumen's lines that made them."""
        return self.record.read_bytes()[1:].decode().splitlines()

    def set(self, error: int) -> None:
        """From now on calls that never failed do so; 0: none does."""
        with self.record.open("r+b") as file:
            file.write(bytes([error]))


class Operator:
    """Does once what people and programs do with a server."""

    def __init__(self, faulty: Faulty, folder: Path, pages: int) -> None:
        self.faulty, self.server, self.folder, self.pages = faulty, faulty.server, folder, pages
        self.model = (folder / "good/1/model.onnx").read_bytes()
        content = base64.b64encode(self.model).decode()
        parameters = {"config": "{}", "file:1/model.onnx": content}
        self.upload = json.dumps({"parameters": parameters}).encode()

    def act(self) -> set[int]:
        """An upload, a load, an unload, the index, a reload, a rotation of the log, pages: the
        statuses of what was asked for."""
        self._signals()
        return {
            self._call(LOAD % "sent", self.upload),
            self._call(LOAD % "other"),
            self._call(UNLOAD % "other"),
            self._call("/v2/repository/index"),
            *(self._page(path) for path in ("/metrics", "/healthz")),
        }

    def asked(self, name: str) -> int:
        """The status of a request; an answer of 200 is right."""
        with Http(self.server.port) as client:
            answer = client.query(web.infer(name, {"x": X}))
            if answer.code == 200:
                np.testing.assert_array_equal(answer.array("y"), X + X)
            return answer.code

    def is_ready(self) -> bool:
        with Http(self.server.port) as client:
            return client.query(get("/v2/health/ready")).code == 200

    def _signals(self) -> None:
        for number in (signal.SIGHUP, signal.SIGUSR1):
            self.server.process.send_signal(number)

    def _call(self, target: str, body: bytes = b"") -> int:
        with Http(self.server.port) as client:
            return client.query(post(target, body)).code

    def _page(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.pages, timeout=120)
        with closing(connection):
            connection.request("GET", path)
            return connection.getresponse().status


def test_each_call_fails_once(serve: Serve, tmp_path: Path) -> None:
    folder, pages = tmp_path / "models", free_port()
    for name in ("good", "other"):
        (folder / name / "1").mkdir(parents=True)
        graphs.double(folder / name / "1/model.onnx")
    asks = {"control": "explicit", "load": ["good"], "upload_bytes": "4MiB"}
    settings = {
        "server": {"metrics_port": pages, "max_request_bytes": "1MiB", "arena_bytes": "64MiB"},
        "repository": {"paths": [str(folder)], **asks},
        "log": {"path": str(tmp_path / "log"), "access_path": str(tmp_path / "access")},
    }
    faulty = Faulty(serve, tmp_path, settings)
    server = faulty.server
    operator = Operator(faulty, folder, pages)
    for _ in range(2):  # what is done at the first time only is done
        assert operator.act() == {200}
    server.wait_until_idle()
    descriptors, number, quiet = server.fds, 0, 0
    while quiet < QUIET:
        known = len(faulty.failed())
        faulty.set(ERRORS[number % len(ERRORS)])
        operator.act()
        faulty.set(0)
        assert operator.asked("good") == 200
        number += 1
        quiet = quiet + 1 if len(faulty.failed()) == known else 0
        assert number < ROUNDS_MOST, faulty.failed()
    assert len(faulty.failed()) > 20
    assert operator.act() == {200}
    eventually(operator.is_ready, "readiness", 60)
    open_now = f"/proc/{server.pid}/fd"
    eventually(
        lambda: server.fds == descriptors,
        f"{descriptors} descriptors",
        found=lambda: [os.readlink(f"{open_now}/{name}") for name in os.listdir(open_now)],
    )
    server.check_idle()


def test_each_call_fails_once_while_folders_change(serve: Serve, tmp_path: Path) -> None:
    """A folder that comes is served, and one that goes is not, whatever the machine lacked in
    between: nobody asks again."""
    folder, made = tmp_path / "models", tmp_path / "made"
    (folder / "good/1").mkdir(parents=True)
    graphs.double(folder / "good/1/model.onnx")
    settings = {
        "server": {"max_request_bytes": "1MiB", "arena_bytes": "64MiB"},
        "repository": {"paths": [str(folder)], "control": "watch"},
        "log": {"path": str(tmp_path / "log")},
    }
    faulty = Faulty(serve, tmp_path, settings, LUMEN_FAULTS_SERVER="alone")
    operator = Operator(faulty, folder, 0)
    number, quiet = 0, 0
    while quiet < QUIET:
        known = len(faulty.failed())
        (made / "1").mkdir(parents=True)
        graphs.double(made / "1/model.onnx")
        faulty.set(SCARCE[number % len(SCARCE)])
        made.rename(folder / f"m{number + 1}")
        if number:
            (folder / f"m{number}").rename(tmp_path / f"gone{number}")
        number += 1

        def codes(now: int = number) -> list[int]:
            return [operator.asked(f"m{one}") for one in range(1, now + 1)]

        wanted = [*[404] * (number - 1), 200]
        eventually(lambda w=wanted, c=codes: c() == w, f"{wanted}", 120, codes)  # type: ignore[misc]
        faulty.set(0)
        assert operator.asked("good") == 200
        quiet = quiet + 1 if len(faulty.failed()) == known else 0
        assert number < ROUNDS_MOST, faulty.failed()
    assert len(faulty.failed()) > 20
    eventually(operator.is_ready, "readiness", 60)
    faulty.server.check_idle()
