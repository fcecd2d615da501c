"""`lumen bench` over HTTP, and the load generator's HTTP side, against servers made up here.

The servers are scripts of peer.py that read requests by themselves. They answer in pieces, refuse,
close and misbehave; what the generator counts is compared with what they did.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from peer import Connection, Peer

from lumen_uring.cli import main, make_parser
from lumen_uring.commands import bench
from lumen_uring.errors import (
    ConfigError,
    ConnectionFailed,
    EngineError,
    ProtocolError,
    Unauthorised,
    UnknownModel,
)
from lumen_uring.loadgen import http as bench_http
from lumen_uring.loadgen.target import Target, target
from lumen_uring.protocol.describe import Model, Rgb8Info, TensorInfo
from lumen_uring.ring.load import Load, LoadPlan, LoadResult

pytestmark = pytest.mark.usefixtures("c_library")
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


# ---- a server ----


@dataclass
class Request:
    method: str
    path: str
    fields: dict[str, str]
    body: bytes


def read_head(connection: Connection) -> Request:
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        head += connection.exactly(1)
    first, *lines = head.decode("ascii").split("\r\n")[:-2]
    method, path, version = first.split(" ")
    assert version == "HTTP/1.1"
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    assert "host" in fields
    return Request(method, path, fields, b"")


def read_request(connection: Connection) -> Request:
    request = read_head(connection)
    request.body = connection.exactly(int(request.fields.get("content-length", "0")))
    return request


def reply(body: bytes = b"", code: int = 200, *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {code} Something", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*lines, "", ""]).encode() + body


def always(answer: Callable[[Request], bytes]) -> Callable[[Connection], None]:
    """Answers each request in one piece, for as long as the client asks."""

    def script(connection: Connection) -> None:
        while True:
            connection.send(answer(read_request(connection)))

    return script


# ---- the generator ----


def plan(peer: Peer, **changes: Any) -> LoadPlan:
    values: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": peer.port,
        "connections": 3,
        "model": 0,
        "encoding": 0,
        "rows": 1,
        "payloads": [GET],
        "requests": 60,
        "warmup_s": 0.0,
        "protocol": 1,
    }
    return LoadPlan(**{**values, **changes})


def put(peer: Peer, **changes: Any) -> LoadResult:
    result = Load(plan(peer, **changes)).wait(60)
    assert result is not None, "the load does not end"
    return result


def post(body: bytes) -> bytes:
    return f"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_payloads_are_sent_as_they_are_in_turn() -> None:
    bodies = [bytes([at]) * 5000 for at in range(4)]
    seen: list[bytes] = []

    def twice(request: Request) -> bytes:
        seen.append(request.body)
        return reply(request.body + request.body)

    with Peer((always(twice),)) as peer:
        result = put(peer, payloads=[*map(post, bodies)], expected=[body + body for body in bodies])
        assert (result.requests, result.errors, result.mismatches) == (60, 0, 0)
        assert (result.disconnects, peer.connections) == (0, 3)
    assert {body: seen.count(body) for body in bodies} == dict.fromkeys(bodies, 15)


def test_replies_are_looked_at() -> None:
    with Peer((always(lambda _request: reply(b"other")),)) as peer:
        for expected in (b"thing", b"oth", b"others"):
            result = put(peer, expected=[expected])
            assert (result.requests, result.mismatches, result.errors) == (0, 60, 60)
        assert put(peer, expected=[b"other"]).requests == 60


def test_a_reply_in_single_bytes() -> None:
    def dribble(connection: Connection) -> None:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            read_request(connection)
            for byte in reply(b"body", 200, "X-Filler: " + "y" * 100):
                connection.send(bytes([byte]))

    with Peer((dribble,)) as peer:
        result = put(peer, expected=[b"body"], requests=30)
        assert (result.requests, result.errors) == (30, 0)


def test_large_replies() -> None:
    body = np.random.default_rng(1).bytes(3_000_000)
    with Peer((always(lambda _request: reply(body)),)) as peer:
        result = put(peer, expected=[body], requests=12)
        assert (result.requests, result.errors) == (12, 0)


def test_http_statuses_have_native_likes() -> None:
    codes = {200: 0, 400: 1, 404: 2, 413: 3, 503: 4, 401: 6, 403: 6, 429: 7, 500: 8, 418: 15}
    order = iter(list(codes) * 6)
    with Peer((always(lambda _request: reply(b"{}", next(order))),)) as peer:
        result = put(peer, connections=1)
        assert (result.requests, result.errors) == (6, 54)
        expected = dict.fromkeys(codes.values(), 6) | {6: 12}
        assert result.statuses == expected


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"bye", 200, "Connection: close"),
        reply(b"bye").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_a_closing_reply_is_no_error(answer: bytes) -> None:
    def once(connection: Connection) -> None:
        read_request(connection)
        connection.send(answer)

    with Peer((once,)) as peer:
        result = put(peer, expected=[b"bye"])
        assert (result.requests, result.errors, result.disconnects) == (60, 0, 60)
        assert peer.connections == 60


def test_a_refusal_that_closes() -> None:
    def refuse(connection: Connection) -> None:
        read_request(connection)
        connection.send(reply(b"{}", 429, "Connection: close"))

    with Peer((refuse, refuse, always(lambda _request: reply()))) as peer:
        result = put(peer, connections=2)
        assert (result.statuses, result.errors) == ({0: 58, 7: 2}, 2)


def test_an_answer_before_the_request_is_read() -> None:
    def refuse(connection: Connection) -> None:
        read_head(connection)
        connection.send(reply(b"{}", 413, "Connection: close"))
        over.wait(60)  # reads no more of it, and leaves the closing to the client

    def in_a_hurry(connection: Connection) -> None:
        while True:
            request = read_head(connection)
            connection.send(reply(b"done"))
            body = connection.exactly(int(request.fields["content-length"]))
            assert body == large

    over = threading.Event()
    large = b"x" * (16 << 20)
    with Peer((refuse,)) as peer:
        result = put(peer, payloads=[post(large)], requests=10, connections=2)
        over.set()
        assert (result.requests, result.statuses) == (0, {3: 10})
    with Peer((in_a_hurry,)) as peer:
        result = put(peer, payloads=[post(large)], requests=10, connections=2, expected=[b"done"])
        assert (result.requests, result.errors, peer.connections) == (10, 0, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmore than four",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 9000,
        b"LMR1" + bytes(60),
        b"",
    ],
)
def test_what_is_no_reply_loses_the_connection(answer: bytes) -> None:
    def bad(connection: Connection) -> None:
        read_request(connection)
        connection.send(answer)

    with Peer((bad, always(lambda _request: reply()))) as peer:
        result = put(peer, connections=2)
        assert (result.requests, result.errors, result.disconnects) == (59, 1, 1)
    with Peer((bad,)) as peer, pytest.raises(EngineError, match="closed every connection"):
        put(peer)


def test_open_loop() -> None:
    with Peer((always(lambda _request: reply()),)) as peer:
        result = put(peer, rate=2000.0, requests=200, connections=8)
        assert (result.requests, result.errors) == (200, 0)


def test_an_unknown_protocol_is_a_sentence() -> None:
    with Peer() as peer, pytest.raises(EngineError, match=r"protocol: expected 0 .*found 2"):
        put(peer, protocol=2)


# ---- the command ----

MODELS: dict[str, Any] = {
    "two inputs": {
        "name": "two inputs",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "n", "datatype": "INT64", "shape": [-1, 2]},
        ],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 8]}],
    },
    "picture": {
        "name": "picture",
        "inputs": [{"name": "data", "datatype": "FP32", "shape": [-1, 3, 6, 5]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 10]}],
    },
    "half": {
        "name": "half",
        "inputs": [{"name": "h", "datatype": "FP16", "shape": [1, 2]}],
        "outputs": [],
    },
    "words": {
        "name": "words",
        "inputs": [{"name": "text", "datatype": "COMPLEX64", "shape": [1]}],
        "outputs": [],
    },
}


@dataclass
class Server:
    """A little of the Open Inference Protocol."""

    models: tuple[str, ...] = tuple(MODELS)
    infers: list[Request] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> bytes:
        path = request.path.replace("%20", " ")
        if (request.method, path) == ("POST", "/v2/repository/index"):
            return self._json([{"name": name, "state": "READY"} for name in self.models])
        if request.method == "GET":
            name = path.removeprefix("/v2/models/")
            with self.lock:
                self.gets.append(path)
            if name in self.models:
                return self._json(MODELS[name])
            if path == "/v2/health/live":
                return reply()
            message = f"Request for unknown model: '{name}' is not found"
            return self._json({"error": message}, 404)
        assert path.endswith("/infer")
        with self.lock:
            self.infers.append(request)
        return reply(b"12345678")

    def _json(self, document: object, code: int = 200) -> bytes:
        return reply(json.dumps(document).encode(), code, "Content-Type: application/json")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with Peer((always(server.answer),)) as running:
        yield running


def arguments(peer: Peer, *options: str) -> argparse.Namespace:
    url = f"http://127.0.0.1:{peer.port}"
    return make_parser().parse_args(["bench", "--url", url, *options])


def run(
    peer: Peer, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, Any]]:
    url = f"http://localhost:{peer.port}"
    common = ["--requests", "20", "--warmup", "0", "--connections", "2", "--json"]
    code = main(["bench", "--url", url, *common, *options])
    said = capsys.readouterr()
    return code, json.loads(said.out)


def split(request: Request) -> tuple[Any, bytes]:
    size = int(request.fields["inference-header-content-length"])
    return json.loads(request.body[:size]), request.body[size:]


def test_tensors_as_bytes(peer: Peer, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    code, figures = run(peer, capsys, "--model", "two inputs", "--rows", "3")
    assert (code, figures["requests"], figures["errors"]) == (0, 20, 0)
    assert len(server.infers) == 20
    for request in server.infers:
        assert request.path == "/v2/models/two%20inputs/infer"
        assert request.fields["host"] == f"localhost:{peer.port}"
        head, blobs = split(request)
        assert head == {
            "inputs": [
                {
                    "name": "x",
                    "shape": [3, 4],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 48},
                },
                {
                    "name": "n",
                    "shape": [3, 2],
                    "datatype": "INT64",
                    "parameters": {"binary_data_size": 48},
                },
            ],
            "parameters": {"binary_data_output": True},
        }
        assert len(blobs) == 96
        assert np.frombuffer(blobs[48:], "<i8").tolist() == [1] * 6
    assert len({request.body for request in server.infers}) == 16


def test_tensors_as_json(peer: Peer, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "two inputs", "--http-json", "--rows", "2", "--timeout-us", "5000")
    code, figures = run(peer, capsys, *options)
    assert (code, figures["requests"], figures["errors"]) == (0, 20, 0)
    for request in server.infers:
        assert request.fields["content-type"] == "application/json"
        assert "inference-header-content-length" not in request.fields
        document = json.loads(request.body)
        x, n = document["inputs"]
        assert (x["name"], x["shape"], x["datatype"], len(x["data"])) == ("x", [2, 4], "FP32", 8)
        assert all(0 <= value < 1 for value in x["data"])
        assert n["data"] == [1, 1, 1, 1]
        assert document["parameters"] == {"timeout": 5000}
    assert len({len(request.body) for request in server.infers}) == 1


def test_json_and_bytes_are_the_same_values(peer: Peer) -> None:
    chosen = ("--model", "two inputs")
    as_bytes = bench.make_plan(arguments(peer, *chosen)).payloads
    as_json = bench.make_plan(arguments(peer, *chosen, "--http-json")).payloads
    for blobs, document in zip(as_bytes, as_json, strict=True):
        values = json.loads(document.partition(b"\r\n\r\n")[2])["inputs"][0]["data"]
        x = np.frombuffer(blobs[-32:], "<f4")[:4]
        assert np.array_equal(np.float32(values), x)


def test_rgb8_is_a_raw_request(
    peer: Peer, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    code, figures = run(peer, capsys, "--model", "picture", "--encoding", "rgb8")
    assert (code, figures["requests"]) == (0, 20)
    for request in server.infers:
        assert request.fields["inference-header-content-length"] == "0"
        assert len(request.body) == 6 * 5 * 3
    for options in (("--rows", "2"), ("--http-json",), ("--timeout-us", "9")):
        with pytest.raises(ConfigError, match="raw binary request"):
            bench.make_plan(arguments(peer, "--model=picture", "--encoding=rgb8", *options))
    with pytest.raises(ConfigError, match="takes no rgb8"):
        bench.make_plan(arguments(peer, "--model=two inputs", "--encoding=rgb8"))


def test_plain_gets(peer: Peer, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    code, figures = run(peer, capsys, "--get", "/v2/health/live")
    assert (code, figures["requests"]) == (0, 20)
    assert server.gets == ["/v2/health/live"] * 20
    code, figures = run(peer, capsys, "--get", "/nowhere")
    assert (code, figures["requests"], figures["statuses"]) == (1, 0, {"2": 20})
    for path in ("v2", "/a b", "/ä", "/a\r\nX: y"):
        with pytest.raises(ConfigError, match="expected a path"):
            bench.make_plan(arguments(peer, "--get", path))


def test_the_only_model_needs_no_name(peer: Peer, server: Server) -> None:
    with pytest.raises(UnknownModel, match=r"\['half', 'picture', .*choose one with --model"):
        bench.make_plan(arguments(peer))
    server.models = ("picture",)
    made = bench.make_plan(arguments(peer))
    assert made.payloads[0].startswith(b"POST /v2/models/picture/infer HTTP/1.1\r\n")


def test_models_that_cannot_be_loaded(peer: Peer) -> None:
    with pytest.raises(UnknownModel, match="unknown model: 'none' is not found"):
        bench.make_plan(arguments(peer, "--model", "none"))
    with pytest.raises(ConfigError, match="holds COMPLEX64"):
        bench.make_plan(arguments(peer, "--model", "words"))
    with pytest.raises(ConfigError, match="bytes only"):
        bench.make_plan(arguments(peer, "--model", "half", "--http-json"))
    assert bench.make_plan(arguments(peer, "--model", "half")).payloads


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"LMR1 is not HTTP\r\n\r\n", ProtocolError),
        (reply(b"{"), ProtocolError),
        (reply(b"{}"), ProtocolError),
        (reply(b"[]", 500), ProtocolError),
        (reply(b'{"inputs": [{"name": "x"}], "outputs": []}'), ProtocolError),
        (b"", (ConnectionFailed, ProtocolError)),
    ],
)
def test_a_server_of_another_kind(answer: bytes, error: type[Exception]) -> None:
    def once(connection: Connection) -> None:
        read_request(connection)
        connection.send(answer)

    with Peer((once,)) as peer, pytest.raises(error):
        bench.make_plan(arguments(peer, "--model", "m"))


def test_the_address_that_takes_a_connection(
    peer: Peer, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a system where localhost is ::1 first, and the server has IPv4 alone."""
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", peer.port, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", peer.port)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_named: found)
    code, figures = run(peer, capsys, "--model", "two inputs")
    assert (code, figures["requests"]) == (0, 20)


def test_urls() -> None:
    assert target("http://127.0.0.1") == Target("127.0.0.1:8000", "127.0.0.1", 8000)
    assert target("http://[::1]:81/") == Target("[::1]:81", "::1", 81)
    assert target("http://localhost:9").address in ("127.0.0.1", "::1")
    for url in ("http://", "http://h:x", "http://h:1/v2", "http://me@h:1", "http://h:99999"):
        with pytest.raises(ConfigError, match="expected http://HOST:PORT"):
            target(url)
    with pytest.raises(ConfigError, match="has no address"):
        target("http://no.such.host.invalid")


@pytest.mark.parametrize(
    "url",
    ["lumen://h:99999", "lumen://h:x", "lumen://", "lumen://h:1/x", "http://[::1", "lumen://[::1"],
)
def test_urls_that_are_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--url", url]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lumen: --url: expected ")
    assert line.endswith(f"found {url!r}.")


@pytest.mark.parametrize(
    ("option", "texts", "expected"),
    [
        ("--rate", ("nan", "inf", "-1", "2e9", "1e-9", "x"), "0 or 0.001 to 1000000000"),
        ("--warmup", ("nan", "-1", "inf", "86401"), "0 to 86400"),
        ("--seconds", ("nan", "-1", "inf", ""), "0 to 86400"),
        ("--seed", ("-1", "18446744073709551616", "1.5", "x"), "0 to 18446744073709551615"),
        ("--timeout-us", ("4294967297", "-1", "x"), "0 to 4294967295"),
        ("--poll-us", ("4294967296", "-1"), "0 to 4294967295"),
        ("--cpu", ("9999", "-2", "x", "99999999999"), "a core that this process may use"),
    ],
)
def test_numbers_out_of_range(
    option: str, texts: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """C would cut them off, wait for ever or stumble."""
    for text in texts:
        with pytest.raises(SystemExit) as ended:
            main(["bench", f"{option}={text}"])
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert f"argument {option}: expected " in said
        assert expected in said
        assert said.endswith(f"found {text!r}\n")


def test_numbers_in_range() -> None:
    own = str(min(os.sched_getaffinity(0)))
    taken = make_parser().parse_args(
        ["bench", "--rate=1e3", "--warmup=0", "--seconds=0.5", f"--cpu={own}", "--seed=7"]
    )
    found = (taken.rate, taken.warmup, taken.seconds, taken.cpu, taken.seed)
    assert found == (1000.0, 0.0, 0.5, int(own), 7)
    assert make_parser().parse_args(["bench", "--cpu=-1"]).cpu == -1


def test_http_options_need_http(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--get", "/"], ["--http-json"]):
        assert main(["bench", "--url", "lumen://127.0.0.1:1", *options]) == 2
        assert "expected --url http://HOST:PORT" in capsys.readouterr().err
    assert main(["bench", "--url", "ftp://127.0.0.1:1"]) == 2
    assert main(["bench", "--url", "http://127.0.0.1:1", "--model", "m"]) == 1
    assert capsys.readouterr().err.count("lumen: ") == 2


def test_each_input_of_a_request_has_its_own_values() -> None:
    inputs = (
        TensorInfo("a", "FP32", (-1, 2), True),
        TensorInfo("b", "INT64", (3,), True),
        TensorInfo("c", "UINT8", (-1,), True),
    )
    model = Model(0, "m", 9, inputs, (), None)
    arrays = [np.arange(4, dtype="<f4") / 2, np.arange(7, 10, dtype="<i8"), np.array([5, 6], "u1")]
    body = b"".join(array.tobytes() for array in arrays)
    server = Target("host:1", "127.0.0.1", 1)
    (request,) = bench_http.json_requests(server, model, 2, 77, [body])
    document = json.loads(request.partition(b"\r\n\r\n")[2])
    assert document["parameters"] == {"timeout": 77}
    shapes = [[2, 2], [3], [2]]
    for entry, tensor, array, shape in zip(document["inputs"], inputs, arrays, shapes, strict=True):
        assert (entry["name"], entry["datatype"]) == (tensor.name, tensor.datatype)
        assert (entry["shape"], entry["data"]) == (shape, array.tolist())
    (request,) = bench_http.binary_requests(server, model, 2, 77, [body])
    head, _blank, rest = request.partition(b"\r\n\r\n")
    size = int(head.partition(b"Inference-Header-Content-Length: ")[2].split(b"\r\n")[0])
    document = json.loads(rest[:size])
    assert rest[size:] == body
    assert document["parameters"] == {"binary_data_output": True, "timeout": 77}  # µs, as given
    sizes = [entry["parameters"]["binary_data_size"] for entry in document["inputs"]]
    assert sizes == [array.nbytes for array in arrays]


@pytest.mark.parametrize("shape", [(-1, 3, 4, 6), (1, 3, 4, 6), (-1, 4, 6, 3)])
def test_a_picture_has_its_rows_and_columns(shape: tuple[int, ...]) -> None:
    model = Model(0, "m", 9, (TensorInfo("x", "FP32", shape, True),), (), None)
    assert bench_http.with_rgb8(model).rgb8 == Rgb8Info(4, 6)


def test_which_inputs_are_pictures() -> None:
    def sized(*shapes: tuple[int, ...]) -> Model:
        tensors = tuple(TensorInfo("x", "FP32", shape, True) for shape in shapes)
        return Model(0, "m", 9, tensors, (), None)

    # Three colours in both places: planes come first, as most models have them.
    assert bench_http.with_rgb8(sized((-1, 3, 5, 3))).rgb8 == Rgb8Info(5, 3)
    for shapes in (
        [(2, 3, 4, 6)], [(-1, 4, 4, 6)], [(3, 4, 6)], [(-1, 3, 4)], [(-1, 3, -1, 6)],
        [(-1, 3, 4, 0)], [(-1, 3, 4, 6), (1,)], [],
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="'m' takes no rgb8"):
            bench_http.with_rgb8(sized(*shapes))


def test_no_proxy_stands_between_the_load_and_its_server(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert bench.make_plan(arguments(peer, "--model", "picture")).payloads


def test_a_refusal_over_http_is_the_error_it_would_be_otherwise() -> None:
    for code, kind in ((401, Unauthorised), (404, UnknownModel), (500, ProtocolError)):
        error = bench_http._refusal("GET /x", code, b'{"error": "because"}')
        assert type(error) is kind
        assert str(error) == f"The server answered GET /x with {code}: because"
    for body in (b"", b"{}", b"[]", b"<html>"):
        assert str(bench_http._refusal("GET /x", 500, body)).endswith("with 500: no reason given")


def test_a_token_is_in_every_request() -> None:
    asked = Target("host:1", "127.0.0.1", 1, "abc")
    model = Model(0, "a b/c", 9, (TensorInfo("x", "FP32", (-1,), True),), (), None)
    path, fields = "/v2/models/a%20b%2Fc/infer", "Host: host:1\r\nAuthorization: Bearer abc\r\n"
    get = bench_http.get_request(asked, "/x?y")
    assert get == f"GET /x?y HTTP/1.1\r\n{fields}\r\n".encode()
    (raw,) = bench_http.raw_requests(asked, model, [b"body"])
    assert (
        raw
        == (
            f"POST {path} HTTP/1.1\r\n{fields}Content-Type: application/octet-stream\r\n"
            "Content-Length: 4\r\nInference-Header-Content-Length: 0\r\n\r\nbody"
        ).encode()
    )
    (as_json,) = bench_http.json_requests(asked, model, 1, 0, [b"\0\0\0\0"])
    head, _, document = as_json.partition(b"\r\n\r\n")
    assert (
        head
        == (
            f"POST {path} HTTP/1.1\r\n{fields}Content-Type: application/json\r\n"
            f"Content-Length: {len(document)}"
        ).encode()
    )
    assert json.loads(document) == {
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.0]}]
    }
    unix = target("http+unix:/run/s", "abc")
    assert unix == Target("localhost", "unix:/run/s", 0, "abc")
    assert (unix.name, asked.name) == ("unix:/run/s", "host:1")
