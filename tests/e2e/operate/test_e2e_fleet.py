"""As one of several servers: what balancers are told, and that none of their requests is lost.

The balancers are real, with the files of deploy/.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import struct
from pathlib import Path
from typing import Any, Final

import graphs
import needs
import numpy as np
import pytest
import web
import wire
from conftest import Serve, zoo_settings
from harness import Server, eventually
from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, Http2, Raw, frame, literal
from tritonclient.grpc import service_pb2
from web import Http

from bench.fleet.rolling import restart_all

pytestmark = pytest.mark.once  # what is told to balancers is the same on both backends

X: Final = np.arange(16, dtype="<f4").reshape(1, 16)
REPORT: Final = "endpoint-load-metrics"
ASKS: Final = "endpoint-load-metrics-format"
NAMES: Final = ["application_utilization", "rps_fractional", "eps"]
OURS: Final = ["named_metrics.waiting", "named_metrics.running"]


def settings(tmp_path: Path, **server: Any) -> dict[str, Any]:
    model = {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))}
    return {"server": server, "models": [model]}


def infer(*fields: str) -> bytes:
    return web.infer("double", {"x": X}, headers=fields)


def figures(answer: web.Answer) -> dict[str, float]:
    form, _, text = answer.headers[REPORT].partition(" ")
    assert form == "TEXT"
    return {name: float(value) for name, value in (part.split("=") for part in text.split(","))}


def trailers(server: Server) -> bytes:
    """The block of fields behind the message that answers a call of gRPC. (Its own libraries keep
    what is in them about load to themselves.)"""
    message = service_pb2.ModelInferRequest(model_name="double")
    message.inputs.add(name="x", datatype="FP32", shape=X.shape)
    message.raw_input_contents.append(X.tobytes())
    data = message.SerializeToString()
    head = literal(
        (":method", "POST"), (":scheme", "http"), (":authority", "lumen"),
        (":path", "/inference.GRPCInferenceService/ModelInfer"),
        ("content-type", "application/grpc"), ("te", "trailers"),
    )  # fmt: skip
    with Raw(server.port) as link:
        link.send(frame(HEADERS, 1, head, END_HEADERS))
        link.send(frame(DATA, 1, struct.pack(">BI", 0, len(data)) + data, END_STREAM))
        return next(
            payload
            for kind, flags, of, payload in link.frames()
            if (kind, of) == (HEADERS, 1) and flags & END_STREAM
        )


@pytest.mark.parametrize("connect", [Http, Http2])
def test_who_asks_is_told_the_load(serve: Serve, tmp_path: Path, connect: Any) -> None:
    """As text or as JSON; and refusals say it, too, since a full server has no other answers."""
    server = serve(settings(tmp_path, rate=1000))
    with connect(server.port) as peer:
        assert REPORT not in peer.query(infer()).headers
        assert REPORT not in peer.query(infer(f"{ASKS}: bin")).headers
        found = figures(peer.query(infer(f"{ASKS}: text")))
        assert list(found) == NAMES + OURS
        eventually(
            lambda: figures(peer.query(infer(f"{ASKS}: text")))["rps_fractional"] > 5, "a rate"
        )
        text = peer.query(infer(f"{ASKS}: JSON")).headers[REPORT]
        document = json.loads(text.removeprefix("JSON "))
        assert list(document) == [*NAMES, "named_metrics"]
        assert list(document["named_metrics"]) == ["waiting", "running"]
        unknown = web.infer("none", {"x": X}, headers=(f"{ASKS}: text",))
        assert list(figures(peer.query(unknown))) == NAMES + OURS
    block = trailers(server)
    assert b"grpc-status" in block
    assert REPORT.encode() not in block


def test_everybody_is_told_the_load(serve: Serve, tmp_path: Path) -> None:
    """Over gRPC in a trailer, as a message of three numbers."""
    server = serve(settings(tmp_path, orca="always"))
    with Http(server.port) as peer:
        assert figures(peer.query(infer()))["application_utilization"] < 2
        assert REPORT not in peer.query(web.get("/v2/health/live")).headers
    text = trailers(server).partition(REPORT.encode() + b"-bin")[2]
    assert text[0] == len(text) - 1  # its length stands before it
    tags = struct.unpack("<BdBdBd", base64.b64decode(text[1:]))
    assert [tag >> 3 for tag in tags[::2]] == [6, 7, 9]
    assert all(value >= 0 for value in tags[1::2])


@pytest.mark.parametrize("run", ["inline", "worker"])
def test_a_small_slot_has_room_for_the_longest_head(serve: Serve, tmp_path: Path, run: str) -> None:
    """Of a refusal with its sentence, its trace and the load, for a model of a few bytes."""
    path = str(graphs.gather(tmp_path / "gather.onnx"))
    models = [{"name": "gather", "path": path, "max_rows": 1, "run": run}]
    server = serve({"server": {"orca": "always"}, "models": models})
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=wire.TIMEOUT_S)
    fields = {
        "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "0",
        ASKS: "json",
    }  # fmt: skip
    for number, code in ((99, 400), (1, 200)) * 3:
        body = np.array([number], "<i8").tobytes()
        link.request("POST", web.path("gather"), body, fields)
        answer = link.getresponse()
        answer.read()
        assert answer.status == code
        assert json.loads(answer.headers[REPORT].removeprefix("JSON "))


def test_who_may_not_ask_is_told_nothing(serve: Serve, tmp_path: Path) -> None:
    token = hashlib.sha256(b"token").hexdigest()
    server = serve(settings(tmp_path, orca="always", keys=[{"name": "ann", "sha256": token}]))
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=wire.TIMEOUT_S)
    for fields in ({}, {"Authorization": "Bearer other"}):
        link.request("POST", web.path("double"), X.tobytes(), {ASKS: "text", **fields})
        answer = link.getresponse()
        answer.read()
        assert (answer.status, answer.headers[REPORT]) == (401, None)


def test_nobody_is_told_the_load(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, orca="never"))
    with Http(server.port) as peer:
        assert REPORT not in peer.query(infer(f"{ASKS}: text")).headers


def test_a_long_run_and_what_waits_is_load(serve: Serve, tmp_path: Path) -> None:
    """Also while it goes on. Before its end a server says the most there is."""
    document = zoo_settings(tmp_path)
    document["server"] |= {"unready_seconds": 600}
    document["engine"] = {"thread_count": 1}
    server = serve(document)
    with Http(server.port) as peer, Http2(server.port) as many:
        for _ in range(3):
            many.send(web.infer("slow", {"x": np.array([30_000], "<i8")}))

        def load() -> dict[str, float]:
            asked = web.infer("none", {"x": X}, headers=(f"{ASKS}: text",))
            return figures(peer.query(asked))

        eventually(lambda: load()["application_utilization"] > 0.9, "a worker that is busy")
        assert [load()[name] for name in OURS] == [2, 1]
        server.terminate()
        eventually(
            lambda: load()["application_utilization"] == 10, "the load of a server that ends"
        )
    server.terminate()
    server.expect_clean_end()


def test_the_other_code_of_overload(serve: Serve, tmp_path: Path) -> None:
    """For a balancer that takes 503 for a server that is down."""
    document = zoo_settings(tmp_path)
    document["server"] |= {"max_in_flight": 1, "overload_status": 429}
    server = serve(document)
    with Http(server.port) as slow:
        slow.send(web.infer("slow", {"x": np.array([20_000], "<i8")}))
        eventually(lambda: server.figures().slots_in_use == 1, "a request in flight")
        link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=wire.TIMEOUT_S)
        link.request("POST", web.path("double"), X.tobytes(), {
            "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "0",
        })  # fmt: skip
        answer = link.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert re.search(b"the server is full", answer.read())


@pytest.mark.parametrize(("policy", "is_grpc"), [("agent", False), ("orca", True)])
def test_a_rolling_restart_loses_nothing(tmp_path: Path, policy: str, is_grpc: bool) -> None:
    needs.program("haproxy" if policy == "agent" else "envoy")
    for clients in restart_all(tmp_path, policy, is_grpc, rounds=1, servers=2, pause_s=0.01):
        assert not clients.lost
    assert clients.answered > 100
