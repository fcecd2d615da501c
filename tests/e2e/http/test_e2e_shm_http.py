"""Triton's system shared memory over HTTP: registering, answers, and files that are not what they
were. The files of the tests are in /dev/shm and begin with shm-test."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
import tritonclient.utils.shared_memory as triton_shm
import web
import wire
from conftest import Serve
from harness import Canary, Server, eventually
from operating import key
from test_e2e_limits import own_address
from test_e2e_regions import words
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from web import Answer, Http, get, post

from lumen_uring.ring.stats import read

# test_e2e_regions.py has regions on both backends; here it is what HTTP says of them.
pytestmark = pytest.mark.once

X = np.arange(16, dtype="<f4").reshape(1, 16)
COLUMNS = 1 << 16
BASE = "/v2/systemsharedmemory"
TOP = 2**64
Json = dict[str, Any]


class File:
    """A file of /dev/shm of a test."""

    def __init__(self, number: int = 0, size: int = 1 << 16) -> None:
        self.key = f"shm-test-{os.getpid()}-{number}"
        self.path = Path("/dev/shm", self.key)
        self.path.write_bytes(bytes(size))

    def put(self, offset: int, values: np.ndarray) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(values.tobytes())

    def get(self, offset: int, like: np.ndarray) -> np.ndarray:
        data = self.path.read_bytes()[offset : offset + like.nbytes]
        return np.frombuffer(data, like.dtype).reshape(like.shape)


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for path in Path("/dev/shm").glob(f"shm-test-{os.getpid()}-*"):
        path.unlink()


def settings(folder: Path, **server: object) -> dict[str, object]:
    models = [
        {"name": "double", "path": graphs.double(folder / "double.onnx"), "max_rows": 64},
        {"name": "large", "path": graphs.double(folder / "large.onnx", COLUMNS, rows=1)},
        {"name": "nonzero", "path": graphs.nonzero(folder / "nonzero.onnx", 6)},
        {"name": "slow", "path": graphs.slow(folder / "slow.onnx")},
        {"name": "gather", "path": graphs.gather(folder / "gather.onnx")},
        {"name": "strings", "path": words(folder / "strings.onnx")},
        {"name": "dtypes", "path": graphs.dtypes(folder / "dtypes.onnx")},
        {
            "name": "picture",
            "path": graphs.image(folder / "picture.onnx", graphs.FLOAT, [1, 3, 9, 11]),
            "image": {},
        },
    ]
    return {
        "server": {
            "arena_bytes": "64MiB", "max_request_bytes": "1MiB", "shared_memory": True, **server,
        },
        "engine": {"thread_count": 2},
        "models": [{**model, "path": str(model["path"])} for model in models],
    }  # fmt: skip


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> Server:
    return serve(settings(tmp_path))


def register(name: str, key: object, size: object, offset: object = 0) -> bytes:
    body = json.dumps({"key": key, "offset": offset, "byte_size": size}).encode()
    return post(f"{BASE}/region/{name}/register", body)


def place(region: str, size: int, offset: int | None = None) -> Json:
    where = {"shared_memory_region": region, "shared_memory_byte_size": size}
    return where if offset is None else {**where, "shared_memory_offset": offset}


def ask(
    model: str, inputs: list[Json], outputs: list[Json], blobs: bytes = b"", **more: object
) -> bytes:
    text = json.dumps({"inputs": inputs, "outputs": outputs, **more}).encode()
    return post(web.path(model), text + blobs, f"{web.JSON_LENGTH}: {len(text)}")


def double(where: Json, to: Json, rows: int = 1, **more: object) -> bytes:
    x = {"name": "x", "datatype": "FP32", "shape": [rows, 16], "parameters": where}
    return ask("double", [x], [{"name": "y", "parameters": to}], **more)


def queued(server: Server) -> int:
    """How many requests of the model slow a worker has been given; the canary's are another's."""
    return read(server.stats_path).models["slow"]["queued"]


def expect_empty(answer: Answer) -> None:
    assert (answer.code, answer.body) == (200, b""), answer


def expect_outputs(answer: Answer, *outputs: Json) -> None:
    assert answer.code == 200, answer
    assert web.read_json(answer.body)["outputs"] == list(outputs)


Y = {"name": "y", "datatype": "FP32", "shape": [1, 16]}


# ---- what it is for ----


def test_register_ask_unregister(server: Server) -> None:
    file = File()
    with Canary(server), Http(server.port) as http:
        assert "system_shared_memory" in http.query(get("/v2")).json()["extensions"]
        assert http.query(get(f"{BASE}/status")).json() == []
        expect_empty(http.query(register("in", f"/{file.key}", 4096)))
        expect_empty(http.query(register("out", file.key, 4096, 8192)))
        listed = [
            {"name": "in", "key": f"/{file.key}", "offset": 0, "byte_size": 4096},
            {"name": "out", "key": file.key, "offset": 8192, "byte_size": 4096},
        ]
        assert http.query(get(f"{BASE}/status")).json() == listed
        assert http.query(get(f"{BASE}/region/out/status")).json() == listed[1:]
        for number in range(20):
            file.put(64, X + number)
            answer = http.query(double(place("in", 64, 64), place("out", 64, number), id="a"))
            expect_outputs(answer, Y)
            assert web.read_json(answer.body)["id"] == "a"
            np.testing.assert_array_equal(file.get(8192 + number, X), (X + number) * 2)
        expect_empty(http.query(post(f"{BASE}/region/in/unregister")))
        assert http.query(get(f"{BASE}/status")).json() == listed[1:]
        gone = http.query(double(place("in", 64), place("out", 64)))
        assert (gone.code, "Unable to find" in gone.error) == (400, True)
        expect_empty(http.query(post(f"{BASE}/unregister")))
        assert http.query(get(f"{BASE}/status")).json() == []


def test_inputs_and_outputs_each_its_own_way(server: Server) -> None:
    """Binary in, shared out; shared in, JSON or binary out; several rows; a large tensor."""
    file = File(size=1 << 20)
    with Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 1 << 20)))
        blob = {"name": "x", "datatype": "FP32", "shape": [1, 16]}
        sent = {**blob, "parameters": {"binary_data_size": 64}}
        to = {"name": "y", "parameters": place("r", 100, 32)}
        expect_outputs(http.query(ask("double", [sent], [to], X.tobytes())), Y)
        np.testing.assert_array_equal(file.get(32, X), X + X)
        file.put(0, X)
        shared = {**blob, "parameters": place("r", 64)}
        plain = http.query(ask("double", [shared], [{"name": "y"}]))
        np.testing.assert_array_equal(plain.array("y"), X + X)
        binary = {"name": "y", "parameters": {"binary_data": True}}
        np.testing.assert_array_equal(
            http.query(ask("double", [shared], [binary])).array("y"), X + X
        )
        rows = np.random.default_rng(2).standard_normal((64, 16), np.float32)
        file.put(128, rows)
        expect_outputs(
            http.query(double(place("r", 4096, 128), place("r", 4096, 8192), rows=64)),
            {**Y, "shape": [64, 16]},
        )
        np.testing.assert_array_equal(file.get(8192, rows), rows + rows)
        x = np.random.default_rng(3).standard_normal((1, COLUMNS), np.float32)
        file.put(0, x)
        large = {**blob, "shape": [1, COLUMNS], "parameters": place("r", x.nbytes)}
        to = {"name": "y", "parameters": place("r", x.nbytes, 1 << 19)}
        assert http.query(ask("large", [large], [to])).code == 200
        np.testing.assert_array_equal(file.get(1 << 19, x), x + x)
        # JSON alone goes as before.
        np.testing.assert_array_equal(
            http.query(web.infer("double", {"x": X}, binary=False)).array("y"), X + X
        )
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_an_output_of_unknown_shape(server: Server) -> None:
    file = File()
    file.put(0, np.array([[0, 1, 0, 2, 0, 0]], np.float32))
    x = {"name": "x", "datatype": "FP32", "shape": [1, 6], "parameters": place("r", 24)}
    with Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 8192)))
        to = {"name": "where", "parameters": place("r", 4096, 4096)}
        expect_outputs(
            http.query(ask("nonzero", [x], [to])),
            {"name": "where", "datatype": "INT64", "shape": [2, 2]},
        )
        expected = np.array([[0, 0], [1, 3]])
        np.testing.assert_array_equal(file.get(4096, expected), expected)
        to = {"name": "where", "parameters": place("r", 31, 4096)}
        small = http.query(ask("nonzero", [x], [to]))
        assert (small.code, "at least 32, found 31" in small.error) == (400, True)
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_tritons_client(server: Server) -> None:
    """Unmodified, with the memory that its own module makes."""
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    key = f"/shm-test-{os.getpid()}-triton"
    memory = triton_shm.create_shared_memory_region("memory", key, 128)
    try:
        triton_shm.set_shared_memory_region(memory, [X])
        client.register_system_shared_memory("memory", key, 128)
        (status,) = client.get_system_shared_memory_status()
        assert (status["name"], status["key"], status["byte_size"]) == ("memory", key, 128)
        given = http_client.InferInput("x", [1, 16], "FP32")
        given.set_shared_memory("memory", 64)
        wanted = http_client.InferRequestedOutput("y")
        wanted.set_shared_memory("memory", 64, 64)
        result = client.infer("double", [given], outputs=[wanted])
        output = result.get_output("y")
        found = triton_shm.get_contents_as_numpy(memory, np.float32, output["shape"], 64)
        np.testing.assert_array_equal(found, X + X)
        client.unregister_system_shared_memory("memory")
    finally:
        triton_shm.destroy_shared_memory_region(memory)
        client.close()


# ---- what is refused ----


def keys(folder: Path) -> dict[str, tuple[object, str]]:
    file = File(9)
    name = f"shm-test-{os.getpid()}-"
    Path("/dev/shm", f"{name}link").symlink_to(file.path)
    Path("/dev/shm", f"{name}out").symlink_to("/etc/passwd")
    os.mkfifo(f"/dev/shm/{name}fifo")
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(f"/dev/shm/{name}socket")
    bound.close()
    return {
        "nothing there": (f"{name}nothing", "Unable to open"),
        "above": ("../x", "without slashes"),
        "far above": ("/../etc/passwd", "without slashes"),
        "the folder": (".", "without slashes"),
        "its folder": ("..", "without slashes"),
        "empty": ("", "one name"),
        "a slash": ("/", "one name"),
        "slashes": ("///", "without slashes"),
        "a file elsewhere": (str(folder / "x"), "without slashes"),
        "a link": (f"{name}link", "Unable to open"),
        "a link out": (f"{name}out", "Unable to open"),
        "a pipe": (f"{name}fifo", "another kind of file"),
        "a socket": (f"{name}socket", "Unable to open"),
        "the server's own": ("lumen-8000", "the server's own"),
        "the server's own, with a slash": ("/lumen-8000", "the server's own"),
        "too long": ("x" * 256, "at most 255"),
        "long": ("x" * 255, "Unable to open"),
        "a control character": ("a\nb", "visible ASCII"),
        "NUL": ("a\0b", "at most 255"),
        "a quote": ('a"b', "without slashes, quotes"),
        "no text": (5, "expected a string"),
    }


def test_keys_that_are_none(server: Server, tmp_path: Path) -> None:
    """Row 20: nothing but a plain file of /dev/shm is opened."""
    with Canary(server) as canary, Http(server.port) as http:
        eventually(lambda: canary.answers > 0, "the canary's connection")
        http.query(get("/v2"))
        before = server.fds
        for what, (key, sentence) in keys(tmp_path).items():
            answer = http.query(register("r", key, 8))
            assert (answer.code, sentence in answer.error) == (400, True), (what, answer)
        assert server.fds == before
        assert http.query(get(f"{BASE}/status")).json() == []


def test_registrations_that_do_not_fit(server: Server) -> None:
    """Row 20: sizes, names, bodies."""
    file = File(size=8192)
    with Canary(server), Http(server.port) as http:
        for size, offset in (
            (0, 0), (8193, 0), (8192, 1), (1, 8192), (TOP - 1, 0), (64, TOP - 32),
            (TOP - 32, 64), (-1, 0), (8, -1), (0.5, 0), ("8", 0), (None, 0), (TOP, 0),
        ):  # fmt: skip
            assert http.query(register("r", file.key, size, offset)).code == 400, (size, offset)
        for body in (b"", b"{}", b"[]", b"{", b'{"key":"a"}', b'{"byte_size":8}', b"\xff",
                     json.dumps({"key": file.key}).encode(), b" " * 9000):  # fmt: skip
            answer = http.query(post(f"{BASE}/region/r/register", body))
            assert answer.code == 400, (body[:20], answer)
        for name in ("%22", "a%5Cb", "a%20b"):
            assert http.query(register(name, file.key, 8)).code == 400, name
        expect_empty(http.query(register("r", file.key, 8192)))
        again = http.query(register("r", file.key, 8192))
        assert (again.code, "already in manager" in again.error) == (400, True)
        none = http.query(get(f"{BASE}/region/other/status"))
        assert (none.code, "Unable to find" in none.error) == (400, True)
        expect_empty(http.query(post(f"{BASE}/region/other/unregister")))  # as clients begin
        expect_empty(http.query(post(f"{BASE}/unregister")))
    with Http(server.port) as http:
        body = json.dumps({"key": file.key, "byte_size": 8}).encode()
        chunks = web.chunked(body, 9)
        coded = "Transfer-Encoding: chunked"
        answer = http.query(post(f"{BASE}/region/r/register", chunks, coded, length=None))
        assert (answer.code, "Content-Length" in answer.error) == (400, True)


def test_a_registration_in_pieces(server: Server) -> None:
    """Head and body in any pieces; two connections at once."""
    file = File()
    with Http(server.port) as http, Http(server.port) as other:
        whole = register("r", file.key, 4096, 64)
        for at in (1, 20, whole.index(b"\r\n\r\n") + 4, len(whole) - 1):
            http.send(whole[:at])
            expect_empty(other.query(register("o", file.key, 8)))
            http.send(whole[at:])
            expect_empty(http.answer("POST"))
            (one,) = http.query(get(f"{BASE}/region/r/status")).json()
            assert one == {"name": "r", "key": file.key, "offset": 64, "byte_size": 4096}
            expect_empty(http.query(post(f"{BASE}/unregister")))
        http.send(whole[:-1])


BAD_PLACES: dict[str, tuple[Json, Json, str]] = {
    "no such region": (place("none", 64), place("r", 64), "Unable to find"),
    "a path": (place("../r", 64), place("r", 64), "Unable to find"),
    "over the end": (place("r", 64, 4033), place("r", 64), "within the region's 4096 bytes"),
    "near 2^64": (place("r", 64, TOP - 64), place("r", 64), "within the region"),
    "wraps": (place("r", TOP - 32, 64), place("r", 64), "within the region"),
    "too few": (place("r", 63), place("r", 64), "expected 64 for its shape, found 63"),
    "too many": (place("r", 65), place("r", 64), "expected 64 for its shape, found 65"),
    "no size": ({"shared_memory_region": "r"}, place("r", 64), "byte_size"),
    "a negative offset": (place("r", 64, -1), place("r", 64), "shared_memory_offset"),
    "a number for a region": ({**place("r", 64), "shared_memory_region": 5}, place("r", 64),
                              "expected a string"),
    "binary data too": ({**place("r", 64), "binary_data_size": 64}, place("r", 64), "found both"),
    "output over the end": (place("r", 64), place("r", 64, 4033), "within the region"),
    "output too small": (place("r", 64), place("r", 63), "at least 64, found 63"),
    "output binary too": (place("r", 64), {**place("r", 64), "binary_data": True}, "alone"),
    "output as classes": (place("r", 64), {**place("r", 64), "classification": 1}, "alone"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_PLACES)
def test_places_that_are_none(server: Server, case: str) -> None:
    """Row 20: bounds, sums that wrap, two ways at once."""
    where, to, sentence = BAD_PLACES[case]
    file = File()
    with Canary(server), Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 4096)))
        answer = http.query(double(where, to))
        assert (answer.code, sentence in answer.error) == (400, True), answer
        expect_outputs(http.query(double(place("r", 64), place("r", 64, 64))), Y)
        expect_empty(http.query(post(f"{BASE}/unregister")))


def wire_strings(*words: bytes) -> bytes:
    return b"".join(len(word).to_bytes(4, "little") + word for word in words)


def test_strings_from_and_to_shared_memory(server: Server) -> None:
    """Both ways, beside a blob, and with lengths that lie."""
    file = File()
    content = wire_strings(b"", "\u00e9".encode(), b"x" * 300)
    to = [{"name": "y", "parameters": place("r", 1024, 1024)}]

    def given(size: int, count: int = 3) -> Json:
        return {"name": "x", "datatype": "BYTES", "shape": [count], "parameters": place("r", size)}

    with Canary(server), Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 4096)))
        file.put(0, np.frombuffer(content, "u1"))
        told = {"name": "y", "datatype": "BYTES", "shape": [3]}
        for _ in range(3):
            expect_outputs(http.query(ask("strings", [given(len(content))], to)), told)
            assert file.get(1024, np.frombuffer(content, "u1")).tobytes() == content
        # The answer in the body, and the question in the body.
        answer = http.query(ask("strings", [given(len(content))], []))
        assert answer.outputs["y"].data == [b"", "\u00e9".encode(), b"x" * 300]
        blob = {**given(0), "parameters": {"binary_data_size": len(content)}}
        expect_outputs(http.query(ask("strings", [blob], to, content)), told)
        for size, count, says in (
            (8, 3, "expected at least 12 for its shape, found 8"),
            (len(content), 2, "bytes behind them"),
            (len(content) - 1, 3, "expected the 300 bytes of its length, found 299"),
            (len(content), 4, "x"),
        ):
            wrong = http.query(ask("strings", [given(size, count)], to))
            assert (wrong.code, says in wrong.error) == (400, True), wrong
        short = [{"name": "y", "parameters": place("r", 100, 1024)}]
        wrong = http.query(ask("strings", [given(len(content))], short))
        assert (wrong.code, "expected at least 314, found 100" in wrong.error) == (400, True)
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_strings_of_more_bytes_than_a_size_can_count(server: Server) -> None:
    """A file may be as large without having any page."""
    file = File()
    most = 2**63 - 1
    os.truncate(file.path, most)
    with Canary(server), Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, most)))
        for size in (most, most - 63, most - 127, most // 2 - 63, 1 << 40):
            given = {"name": "x", "datatype": "BYTES", "shape": [3], "parameters": place("r", size)}
            answer = http.query(ask("strings", [given], []))
            assert (answer.code, "more than any slot has" in answer.error) == (413, True), answer
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_many_inputs_over_grpc(server: Server) -> None:
    """Their bytes come raw, an output goes to a region. Typed contents have no such way."""
    file = File()
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        client.register_system_shared_memory("r", file.key, 64)
        message = pb.ModelInferRequest(model_name="dtypes")
        for name, kind in web.NUMPY.items():
            message.inputs.add(name=f"in_{name}", datatype=name, shape=[1, 3])
            values = np.ones((1, 3), kind)
            message.raw_input_contents.append(values.tobytes())
        wanted = message.outputs.add(name="out_INT32")
        wanted.parameters["shared_memory_region"].string_param = "r"
        wanted.parameters["shared_memory_byte_size"].int64_param = 12
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            stub.ModelInfer(message)
            ones = np.ones(3, "<i4")
            np.testing.assert_array_equal(file.get(0, ones), ones)
            message = pb.ModelInferRequest(model_name="double", outputs=[wanted])
            message.outputs[0].name = "y"
            one = message.inputs.add(name="x", datatype="FP32", shape=X.shape)
            one.contents.fp32_contents.extend(X[0].tolist())
            with pytest.raises(grpc.RpcError, match="found a body that is read whole"):
                stub.ModelInfer(message)
        client.unregister_system_shared_memory("r")


def test_what_goes_another_way(server: Server) -> None:
    """Row 20: data in JSON beside it, long JSON, chunks, pictures."""
    file = File()
    x = {"name": "x", "datatype": "FP32", "shape": [1, 16]}
    to = {"name": "y", "parameters": place("r", 64)}
    with Canary(server), Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 4096)))
        mixed = http.query(ask("double", [{**x, "data": X.ravel().tolist()}], [to]))
        assert (mixed.code, "beside shared memory" in mixed.error) == (400, True)
        shared = {**x, "parameters": place("r", 64)}
        long = http.query(ask("double", [shared], [to], b"", more="x" * 9000))
        assert (long.code, "found a body that is read whole" in long.error) == (400, True)
        text = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": place("r", 64)}
        file_of_picture = {**text, "name": "x"}
        pictures = http.query(ask("picture", [file_of_picture], []))
        assert (pictures.code, "files of pictures are not taken" in pictures.error) == (400, True)
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_a_file_that_shrinks_or_goes(server: Server) -> None:
    """Row F21: it is read and written by calls that say so; nothing grows again."""
    file = File(size=8192)
    with Canary(server), Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 8192)))
        good = double(place("r", 64), place("r", 64, 4096))
        expect_outputs(http.query(good), Y)
        os.truncate(file.path, 4096 + 63)
        short = http.query(good)
        assert (short.code, "found fewer" in short.error) == (400, True)
        os.truncate(file.path, 0)
        gone = http.query(good)
        assert (gone.code, "found fewer" in gone.error) == (400, True)
        assert file.path.stat().st_size == 0
        os.truncate(file.path, 8192)
        expect_outputs(http.query(good), Y)
        file.path.unlink()  # the memory stays until it is unregistered
        expect_outputs(http.query(good), Y)
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_a_file_that_changes_its_size_all_the_time(server: Server) -> None:
    """Row F21: whatever its size when it is read, an answer comes."""
    file = File(size=1 << 19)
    x = {"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "parameters": place("r", 1 << 18)}
    to = {"name": "y", "parameters": place("r", 1 << 18, 1 << 18)}
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            os.truncate(file.path, 0)
            os.truncate(file.path, 1 << 19)

    thread = threading.Thread(target=change)
    with Canary(server), Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 1 << 19)))
        thread.start()
        try:
            codes = {http.query(ask("large", [x], [to])).code for _ in range(300)}
        finally:
            stop.set()
            thread.join()
        assert codes <= {200, 400}
        expect_empty(http.query(post(f"{BASE}/unregister")))


def ask_slow(steps_at: int) -> bytes:
    """A Run of some time, whose steps and answer are in the region r."""
    x = {"name": "x", "datatype": "INT64", "shape": [1], "parameters": place("r", 8, steps_at)}
    return ask("slow", [x], [{"name": "y", "parameters": place("r", 8, steps_at + 8)}])


@pytest.mark.parametrize("which", ["/region/r", ""], ids=["by name", "all"])
def test_unregistered_in_flight(server: Server, which: str) -> None:
    """Row F21: a region that requests use goes with the last of them, as in Triton. Until then its
    name is in use, so that no answer comes to memory of another registration."""
    first, second = File(1), File(2)
    first.put(0, np.array([2000, 0, 2000]))
    with (
        Canary(server),
        Http(server.port) as http,
        Http(server.port) as later,
        Http(server.port) as other,
    ):
        expect_empty(other.query(register("r", first.key, 64)))
        before = queued(server)
        http.send(ask_slow(0))
        eventually(lambda: queued(server) > before, "at work")
        expect_empty(other.query(post(f"{BASE}{which}/unregister")))
        expect_empty(other.query(post(f"{BASE}{which}/unregister")))  # is no error
        (listed,) = other.query(get(f"{BASE}/region/r/status")).json()
        assert listed["key"] == first.key
        again = other.query(register("r", second.key, 64))
        assert (again.code, "already in manager" in again.error) == (400, True)
        later.send(ask_slow(16))  # it finds the region, and keeps it too
        assert http.answer("POST").code == 200
        assert later.answer("POST").code == 200
        # Both have their answers: the region is gone, without another call.
        gone = other.query(get(f"{BASE}/region/r/status"))
        assert (gone.code, "Unable to find" in gone.error) == (400, True)
        assert first.get(8, np.zeros(1, "<i8"))[0] == first.get(24, np.zeros(1, "<i8"))[0] != 0
        expect_empty(other.query(register("r", second.key, 64)))
        assert second.path.read_bytes() == bytes(1 << 16)
        expect_empty(other.query(post(f"{BASE}/unregister")))


def test_a_run_that_nobody_waits_for_keeps_its_region(server: Server) -> None:
    """Row F21: its client has gone, or has another answer; the Run may still be under way."""
    file = File()
    file.put(0, np.array([120_000]))
    x = {"name": "x", "datatype": "INT64", "shape": [1], "parameters": place("r", 8)}
    to = [{"name": "y", "parameters": place("r", 8, 8)}]
    with Canary(server), Http(server.port) as http:
        for pause_s in (0.05, 0.2, 0.8):
            expect_empty(http.query(register("r", file.key, 64)))
            with Http(server.port) as leaves:
                before = queued(server)
                leaves.send(ask("slow", [x], to))
                eventually(lambda before=before: queued(server) > before, "a worker's turn")  # type: ignore[misc]
                time.sleep(pause_s)  # who leaves before the Run begins has none
            expect_empty(http.query(post(f"{BASE}/region/r/unregister")))
            again = http.query(register("r", file.key, 64))
            if again.code == 400:
                break
        assert again.code == 400
        eventually(lambda: http.query(get(f"{BASE}/status")).json() == [], "the end of the Run", 60)
        expect_empty(http.query(register("r", file.key, 64)))
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_as_many_as_there_may_be(server: Server) -> None:
    """Row 20."""
    file = File()
    with Canary(server), Http(server.port) as http:
        for number in range(128):
            expect_empty(http.query(register(f"r{number}", file.key, 64)))
        assert http.query(register("more", file.key, 64)).code == 503
        assert len(http.query(get(f"{BASE}/status")).json()) == 128
        expect_outputs(http.query(double(place("r127", 64), place("r64", 64))), Y)
        expect_empty(http.query(post(f"{BASE}/unregister")))
        expect_empty(http.query(register("more", file.key, 64)))
        expect_empty(http.query(post(f"{BASE}/unregister")))


def test_other_machines_and_keys(serve: Serve, tmp_path: Path) -> None:
    """Row 44: regions are for this machine, whoever has registered them."""
    file = File()
    server = serve(settings(tmp_path), options=["--port", "0", "--host", "0.0.0.0"])
    with Http(server.port) as here, Http(server.port, own_address()) as there:
        expect_empty(here.query(register("r", file.key, 4096)))
        for request in (
            register("s", file.key, 64), get(f"{BASE}/status"), post(f"{BASE}/unregister"),
            double(place("r", 64), place("r", 64)),
        ):  # fmt: skip
            assert there.query(request).code == 403
        expect_empty(here.query(post(f"{BASE}/unregister")))


def with_header(request: bytes, line: str) -> bytes:
    return request.replace(b"\r\n", f"\r\n{line}\r\n".encode(), 1)


def test_an_admins_key_is_not_a_machine(serve: Serve, tmp_path: Path) -> None:
    """Row 44: an admin on another machine, or behind a proxy, has no regions here."""
    token = "root-token"
    admin = f"Authorization: Bearer {token}"
    chosen = settings(tmp_path, keys=[key(token, admin=True)])
    server = serve(chosen, options=["--port", "0", "--host", "0.0.0.0"])
    file = File()
    requests = {
        "register": register("r", file.key, 4096),
        "status": get(f"{BASE}/status"),
        "unregister": post(f"{BASE}/unregister"),
        "infer": double(place("r", 64), place("r", 64)),
    }
    requests = {name: with_header(request, admin) for name, request in requests.items()}
    with Http(server.port) as here, Http(server.port, own_address()) as there:
        expect_empty(here.query(requests["register"]))
        for name, request in requests.items():
            assert there.query(request).code == 403, name
            assert here.query(with_header(request, "Via: 1.1 nginx")).code == 403, name
        for name in ("infer", "unregister"):
            assert here.query(requests[name]).code == 200, name


def test_the_end_with_regions(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path))
    file = File()
    with Http(server.port) as http:
        expect_empty(http.query(register("r", file.key, 64)))
    server.terminate()
    server.expect_clean_end()


def test_both_kinds_of_sockets(serve: Serve, tmp_path: Path) -> None:
    import tempfile

    file = File()
    with tempfile.TemporaryDirectory(prefix="lumen-") as folder:
        path = Path(folder) / "s"
        server = serve(settings(tmp_path, unix_socket=str(path)))
        file.put(0, X)
        with Http(path) as unix, wire.Wire(path) as native:
            expect_empty(unix.query(register("r", file.key, 4096)))
            expect_outputs(unix.query(double(place("r", 64), place("r", 64, 64))), Y)
            reply = native.ask(wire.frame(X.tobytes(), model=server.models["double"]))
            assert reply.payload == (X + X).tobytes()
            expect_empty(unix.query(post(f"{BASE}/unregister")))
