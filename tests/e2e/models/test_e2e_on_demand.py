"""Models that are loaded when a request asks for them (repository.max_loaded): the first request
waits and is answered, the model that nobody has asked for longest goes, and nobody else is hurt."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import web
from conftest import Serve
from graphs import times
from harness import Server, eventually
from http2 import Http2
from tritonclient.utils import InferenceServerException
from web import Http, post

from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what loads models: the same on both backends

X = np.arange(16, dtype=np.float32)[None]


def settings(tmp_path: Path, count: int, **repository: Any) -> dict[str, Any]:
    for number in range(1, count + 1):
        times(tmp_path / f"models/m{number}/1/model.onnx", number)
    chosen = {"paths": [str(tmp_path / "models")], "control": "explicit", "max_loaded": 2}
    return {"repository": {**chosen, **repository}}


def factor(server: Server, name: str) -> int:
    """What the model multiplies by; below 0: the code of the refusal."""
    time.sleep(0.02)  # the time of the last answer is known to some milliseconds
    with Http(server.port) as http:
        answer = http.query(web.infer(name, {"x": X}))
        return int(answer.array("y")[0, 1]) if answer.code == 200 else -answer.code


def ready(server: Server) -> list[str]:
    with Http(server.port) as http:
        listed = http.query(post("/v2/repository/index", b'{"ready": true}')).json()
        return sorted(one["name"] for one in listed)


def last_inference_ms(server: Server, name: str) -> int:
    with Http(server.port) as http:
        [stats] = http.query(web.get(f"/v2/models/{name}/stats")).json()["model_stats"]
        return int(stats["last_inference"])


def are_ready(server: Server, names: list[str]) -> None:
    """A model answers a moment before the index has it."""
    eventually(lambda: ready(server) == names, f"{names} alone", found=lambda: ready(server))


def count_loads(server: Server, name: str) -> int:
    return (server.output + server.errors).count(f"model {name}: version 1 is loaded")


def test_the_one_goes_that_was_not_asked_for_longest(serve: Serve, tmp_path: Path) -> None:
    chosen = settings(tmp_path, 5, load=["m4"])
    chosen["models"] = [{"name": "own", "path": str(times(tmp_path / "own.onnx", 9))}]
    server = serve(chosen)
    are_ready(server, ["m4", "own"])
    assert [factor(server, f"m{n}") for n in (1, 2, 1, 3)] == [1, 2, 1, 3]
    # It came before the others, and was never asked for; then m2's turn was before m1's.
    are_ready(server, ["m1", "m3", "own"])
    for number in (5, 4, 1, 2):
        assert factor(server, f"m{number}") == number
        assert factor(server, "own") == 9  # an entry of `models` does not go
    are_ready(server, ["m1", "m2", "own"])
    eventually(
        lambda: [count_loads(server, f"m{n}") for n in (1, 2, 3, 5)] == [2, 2, 1, 1],
        "the lines of the log",
    )
    with Http(server.port) as http:  # what is asked about a model loads none
        assert http.query(web.get("/v2/models/m3")).code == 404
        assert http.query(web.get("/v2/models/m3/ready")).code == 404
        assert http.query(post("/v2/repository/models/m3/load", b"{}")).code == 200
    are_ready(server, ["m2", "m3", "own"])  # a call makes room as well
    server.terminate()
    server.expect_clean_end()


def test_answers_that_are_kept_are_asked_for_too(serve: Serve, tmp_path: Path) -> None:
    """Those of the response cache, which no worker sees."""
    chosen = settings(tmp_path, 3)
    for number in (1, 2, 3):
        (tmp_path / f"models/m{number}/config.pbtxt").write_text("response_cache { enable: true }")
    server = serve(chosen)
    assert [factor(server, f"m{n}") for n in (1, 2)] == [1, 2]
    before_ms = last_inference_ms(server, "m1")
    assert factor(server, "m1") == 1
    eventually(lambda: server.figures().io["cache_hits"] == 1, "the hit is counted")
    assert last_inference_ms(server, "m1") > before_ms
    assert factor(server, "m3") == 3
    are_ready(server, ["m1", "m3"])


def test_whoever_asks_at_once_waits_for_one_load(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, 3))
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(factor(server, f"m{1 + n % 2}")))
        for n in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1] * 12 + [2] * 12
    eventually(
        lambda: [count_loads(server, name) for name in ("m1", "m2")] == [1, 1],
        "the lines of the log",
    )
    with Http2(server.port) as http2:
        answer = http2.query(web.infer("m3", {"x": X}))
        assert answer.array("y")[0, 1] == 3
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    given = triton.InferInput("x", [1, 16], "FP32")
    given.set_data_from_numpy(X)
    assert client.infer("m2", [given]).as_numpy("y")[0, 1] == 2
    with pytest.raises(InferenceServerException, match="is not found"):
        client.infer("m9", [given])
    client.close()


def test_nobody_else_waits(serve: Serve, tmp_path: Path) -> None:
    """While one waits for its model, others find slots and places as if nobody did."""
    chosen = settings(tmp_path, 12)
    chosen["models"] = [{"name": "own", "path": str(times(tmp_path / "own.onnx", 9))}]
    chosen["server"] = {"max_in_flight": 4}
    server = serve(chosen)
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    given = triton.InferInput("x", [1, 16], "FP32")
    given.set_data_from_numpy(X)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(factor(server, f"m{n}")))
        for n in range(1, 13)
    ]
    for thread in threads:
        thread.start()
    asked = 0
    while any(thread.is_alive() for thread in threads) or asked == 0:
        assert client.infer("own", [given]).as_numpy("y")[0, 1] == 9
        asked += 1
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 13))
    snapshot = read(server.stats_path)
    assert snapshot.counters["io"]["slot_waits"] == 0
    client.close()


def test_models_that_cannot_be_loaded(serve: Serve, tmp_path: Path) -> None:
    """Row 54: a broken one is tried once in 5 s, a name that nobody has never."""
    chosen = settings(tmp_path, 2)
    (tmp_path / "models/broken/1").mkdir(parents=True)
    (tmp_path / "models/broken/1/model.onnx").write_bytes(b"no model")
    server = serve(chosen)
    for _ in range(2):  # the second time nobody tries
        with Http(server.port) as http:
            answer = http.query(web.infer("broken", {"x": X}))
            assert answer.code == 503
            assert answer.error.startswith("model 'broken' could not be loaded: ")
            unknown = http.query(web.infer("nobody", {"x": X}))
            assert unknown.code == 404
            assert unknown.error == "Request for unknown model: 'nobody' is not found"
            assert http.query(web.infer("m1", {"x": X})).code == 200  # the same connection
    assert (server.output + server.errors).count("model broken: not loaded") <= 1
    # One that comes later is found; and a version that is not there is not.
    times(tmp_path / "models/late/1/model.onnx", 7)
    assert factor(server, "late") == 7
    with Http(server.port) as http:
        asked = web.infer("late", {"x": X}).replace(b"/late/infer", b"/late/versions/4/infer", 1)
        assert http.query(asked).code == 404
    server.terminate()
    server.expect_clean_end()


def test_a_key_loads_what_it_may_use(serve: Serve, tmp_path: Path) -> None:
    """Row 54: else it could have the models of others unloaded."""
    chosen = settings(tmp_path, 3)
    sha, other = (hashlib.sha256(token).hexdigest() for token in (b"token", b"often"))
    chosen["server"] = {
        "keys": [
            {"name": "ada", "sha256": sha, "models": ["m1", "m2:1"]},
            {"name": "bob", "sha256": other, "rate": 0.001, "burst": 1},
        ]
    }
    server = serve(chosen)
    with Http(server.port) as http:
        for name, code in (("m1", 200), ("m2", 403), ("m3", 403), ("nobody", 403)):
            asked = web.infer(name, {"x": X}, headers=["Authorization: Bearer token"])
            answer = http.query(asked)
            assert answer.code == code, name
            if code == 403:
                assert answer.error == f"this key may not use model '{name}'"
            assert http.query(web.infer(name, {"x": X})).code == 401
    eventually(
        lambda: [count_loads(server, f"m{n}") for n in (1, 2, 3)] == [1, 0, 0],
        "the lines of the log",
    )
    with Http(server.port) as http:  # its one request a thousand seconds is for one load
        for name, code in (("m2", 200), ("m3", 429)):
            asked = web.infer(name, {"x": X}, headers=["Authorization: Bearer often"])
            assert http.query(asked).code == code
    eventually(
        lambda: [count_loads(server, f"m{n}") for n in (1, 2, 3)] == [1, 1, 0],
        "the lines of the log",
    )
    server.terminate()
    server.expect_clean_end()


def test_clients_that_leave_meanwhile(serve: Serve, tmp_path: Path) -> None:
    """Row 54: what they asked for is loaded, and answered to nobody."""
    server = serve(settings(tmp_path, 6))
    for number in range(1, 7):
        for _ in range(3):
            with Http(server.port) as http:
                http.send(web.infer(f"m{number}", {"x": X}))
    assert factor(server, "m2") == 2
    assert factor(server, "m6") == 6
    eventually(lambda: len(ready(server)) <= 2, "the others have gone")
    server.terminate()
    server.expect_clean_end()
