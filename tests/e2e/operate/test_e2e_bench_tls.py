"""`lumen bench` and the load generator behind it over TLS, against a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import graphs
import numpy as np
import pytest
import tls
import web
from harness import Server, run

from lumen_uring.errors import EngineError
from lumen_uring.ring.load import Load, LoadPlan, LoadResult

pytestmark = pytest.mark.once  # commands: the same on both backends

X = np.arange(16, dtype="<f4")
BLOCK = np.arange(1 << 20, dtype="<f4")  # 4 MiB: more than a socket takes at once


@pytest.fixture(scope="module")
def server(
    cache: Path, files: tls.Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    double = graphs.double(folder / "double.onnx")
    block = graphs.double(folder / "block.onnx", BLOCK.size, rows=1)
    settings: dict[str, object] = {
        "server": {"arena_bytes": "128MiB", "tls": files.settings()},
        "models": [{"name": "double", "path": str(double)}, {"name": "block", "path": str(block)}],
    }
    with Server(settings, cache) as running:
        yield running


@pytest.fixture
def trusted(files: tls.Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", files.ca)


def load(server: Server, host: str = "localhost", **changes: object) -> LoadResult:
    values: dict[str, object] = {
        "host": "127.0.0.1",
        "port": tls.port_of(server),
        "connections": 4,
        "model": 0,
        "encoding": 0,
        "rows": 1,
        "payloads": [X.tobytes()],
        "expected": [(2 * X).tobytes()],
        "requests": 200,
        "warmup_s": 0.0,
        "tls_host": host,
    }
    result = Load(LoadPlan(**{**values, **changes})).wait()  # type: ignore[arg-type]
    assert result is not None
    return result


def test_the_command(server: Server, files: tls.Files, cache: Path) -> None:
    url = f"https://localhost:{tls.port_of(server)}"
    ask = ["bench", "--server", url, "--model", "double", "--requests", "300", "--json"]
    before = server.figures().requests
    done = run(ask, cache, extra_environment={"SSL_CERT_FILE": files.ca})
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["requests"], figures["errors"]) == (300, 0)
    assert server.figures().requests >= before + 300
    refused = run(ask, cache)
    assert refused.returncode == 1
    assert "expected a certificate for localhost" in refused.stderr
    plain = run(["bench", "--server", f"https://localhost:{server.port}", "--json"], cache)
    assert plain.returncode == 1
    assert "expected TLS" in plain.stderr


@pytest.mark.usefixtures("trusted")
def test_every_answer_is_looked_at(server: Server) -> None:
    for host in ("localhost", "127.0.0.1"):
        assert load(server, host).requests == 200
    wrong = load(server, expected=[X.tobytes()])
    assert (wrong.requests, wrong.mismatches) == (0, 200)


@pytest.mark.usefixtures("trusted")
def test_requests_and_replies_of_many_records(server: Server) -> None:
    result = load(
        server,
        model=1,
        payloads=[BLOCK.tobytes()],
        expected=[(2 * BLOCK).tobytes()],
        requests=20,
    )
    assert (result.requests, result.errors, result.disconnects) == (20, 0, 0)


@pytest.mark.usefixtures("trusted")
def test_who_is_closed_after_a_reply_greets_again(server: Server) -> None:
    request = web.get("/v2/health/live", "Connection: close")
    result = load(server, protocol=1, payloads=[request], expected=(), requests=50)
    assert (result.requests, result.errors) == (50, 0)
    assert result.disconnects >= 46  # of 4 connections, each request its own


@pytest.mark.usefixtures("trusted")
def test_another_server_than_the_one_named(server: Server, files: tls.Files) -> None:
    with pytest.raises(EngineError, match=r"expected a certificate for elsewhere\.test"):
        load(server, "elsewhere.test")
    with pytest.raises(EngineError, match=r"expected a certificate for 127\.0\.0\.9"):
        load(server, "127.0.0.9")
    with pytest.raises(EngineError, match="no connection with TLS to localhost"):
        load(server, port=server.port)


def test_authorities_that_nobody_trusts(server: Server) -> None:
    with pytest.raises(EngineError, match="certificate verify failed"):
        load(server)


@pytest.mark.usefixtures("trusted")
def test_a_stop_ends_it(server: Server) -> None:
    endless = {"requests": 0, "seconds": 3600.0}
    values = LoadPlan(
        "127.0.0.1", tls.port_of(server), 4, 0, 0, 1, [X.tobytes()], **endless, tls_host="localhost"
    )  # type: ignore[arg-type]
    running = Load(values)
    threading.Timer(0.3, running.stop).start()
    result = running.wait(60)
    assert result is not None
    assert result.errors == 0
