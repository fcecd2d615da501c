"""Models with free dimensions beside the rows: exports as people have them, against ONNX Runtime.

Each graph is made here: one as Hugging Face exports a BERT, one that segments pictures of any size,
one whose output has a size that only the Run shows, one without names.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import graphs
import harness
import numpy as np
import onnxruntime as ort
import pytest
import web
import wire
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from harness import Server
from onnx import TensorProto, helper
from web import Http

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import BadRequest, Unauthorised

pytestmark = pytest.mark.once  # what runs models is the same on both backends

SHAPES = 40
TOKENS = 100
Arrays = dict[str, np.ndarray]


def bert(path: Path) -> Path:
    """Token ids and mask INT64 [batch_size, sequence_length] -> hidden [.., 8] and pooled."""
    random = np.random.default_rng(7)
    ids = ["batch_size", "sequence_length"]
    return graphs.save(
        path,
        [
            helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["columns"]),
            helper.make_node("Mul", ["embedded", "columns"], ["masked"]),
            helper.make_node("MatMul", ["masked", "weights"], ["product"]),
            helper.make_node("Tanh", ["product"], ["hidden"]),
            helper.make_node("ReduceMean", ["hidden"], ["pooled"], axes=[1], keepdims=0),
        ],
        [tensor("input_ids", INT64, ids), tensor("attention_mask", INT64, ids)],
        [tensor("hidden", FLOAT, [*ids, 8]), tensor("pooled", FLOAT, ["batch_size", 8])],
        {
            "table": random.standard_normal((TOKENS, 8)).astype(np.float32),
            "weights": random.standard_normal((8, 8)).astype(np.float32),
            "last": np.array([2], np.int64),
        },
    )


def segments(path: Path) -> Path:
    """A picture FP32 [1, 3, height, width] -> two classes per pixel."""
    weights = np.random.default_rng(8).standard_normal((2, 3, 3, 3)).astype(np.float32)
    return graphs.save(
        path,
        [helper.make_node("Conv", ["picture", "weights"], ["classes"], pads=[1, 1, 1, 1])],
        [tensor("picture", FLOAT, [1, 3, "height", "width"])],
        [tensor("classes", FLOAT, [1, 2, "height", "width"])],
        {"weights": weights},
    )


def nonzero(path: Path) -> Path:
    """x FP32 [n, length] -> where it is not 0, INT64 [2, ?], and twice x."""
    return graphs.save(
        path,
        [helper.make_node("NonZero", ["x"], ["where"]), helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", FLOAT, ["n", "length"])],
        [tensor("where", INT64, [2, "found"]), tensor("y", FLOAT, ["n", "length"])],
    )


def unnamed(path: Path) -> Path:
    """x UINT8 [?, 2, ?] -> the same, no dimension having a name."""
    return graphs.save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", TensorProto.UINT8, [None, 2, None])],
        [tensor("y", TensorProto.UINT8, [None, 2, None])],
    )


MODELS = {"bert": bert, "segments": segments, "nonzero": nonzero, "unnamed": unnamed}


def made(model: str, random: np.random.Generator, one: int, other: int) -> Arrays:
    """Inputs whose free dimensions have these sizes."""
    if model == "bert":
        ids = random.integers(0, TOKENS, (one, other))
        return {"input_ids": ids, "attention_mask": random.integers(0, 2, (one, other))}
    if model == "segments":
        return {"picture": random.standard_normal((1, 3, one, other)).astype(np.float32)}
    if model == "nonzero":
        return {"x": random.integers(-1, 2, (one, other)).astype(np.float32)}
    return {"x": random.integers(0, 256, (one, 2, other)).astype(np.uint8)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("free")
    return {name: make(folder / f"{name}.onnx") for name, make in MODELS.items()}


class Reference:
    """What ONNX Runtime itself says."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._sessions = {
            name: ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for name, path in files.items()
        }

    def outputs(self, model: str, inputs: Arrays) -> Arrays:
        session = self._sessions[model]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.fixture(scope="module")
def reference(files: dict[str, Path]) -> Reference:
    return Reference(files)


@pytest.fixture(scope="module")
def _free(files: dict[str, Path], cache: Path) -> Iterator[Server]:
    # By default one row may have a million of these elements, and a request few rows.
    most = {"nonzero": {"length": 96}, "unnamed": {"x[2]": 96}}
    models = [
        {"name": name, "path": str(path), "max_dims": most.get(name, {})}
        for name, path in files.items()
    ]
    with Server({"engine": {"thread_count": 2}, "models": models}, cache) as server:
        yield server


@pytest.fixture
def free(_free: Server) -> Iterator[Server]:
    """A server with all four, idle before and after the test."""
    yield _free
    _free.check_idle()


def same(found: Mapping[str, Any], expected: Arrays) -> None:
    """Equal in shape and to the bit."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


def random_inputs(model: str, seed: int, most: int = 48) -> Iterator[Arrays]:
    """Among them the smallest shape, and pairs that differ in one size alone."""
    random = np.random.default_rng(seed)
    yield made(model, random, 1, 1)
    yield made(model, random, 1, 7)
    yield made(model, random, 7, 1)
    for _ in range(SHAPES - 3):
        rows = min(most, 32)  # of models whose first free dimension is the rows
        one, other = random.integers(1, [rows + 1, most + 1])
        yield made(model, random, int(one), int(other))


# ---- answers ----


@pytest.mark.parametrize("model", MODELS)
def test_the_client_of_the_native_protocol(free: Server, reference: Reference, model: str) -> None:
    with Client("127.0.0.1", free.port) as client:
        for inputs in random_inputs(model, 1):
            same(client.infer(model, inputs).outputs, reference.outputs(model, inputs))


@pytest.mark.parametrize("model", MODELS)
def test_the_native_protocol_to_the_byte(free: Server, reference: Reference, model: str) -> None:
    with free.connect() as connection:
        for inputs in random_inputs(model, 2):
            expected = reference.outputs(model, inputs)
            rows = 1 if model == "segments" else next(iter(inputs.values())).shape[0]
            reply = connection.ask(native_request(free, model, inputs, rows))
            assert (reply.status, reply.flags, reply.rows) == (wire.OK, wire.SHAPES, rows), reply
            shapes, data = wire.split_shapes(reply.payload)
            assert shapes == [array.shape for array in expected.values()]
            assert data == b"".join(array.tobytes() for array in expected.values())


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("model", MODELS)
def test_http(free: Server, reference: Reference, model: str, binary: bool) -> None:
    with Http(free.port) as http:
        for inputs in random_inputs(model, 3 + binary, 48 if binary else 12):
            answer = http.query(web.infer(model, inputs, binary=binary))
            assert answer.code == 200, answer
            outputs = {name: output.array for name, output in answer.outputs.items()}
            same(outputs, reference.outputs(model, inputs))


@pytest.mark.parametrize("model", MODELS)
def test_the_largest_shape(free: Server, reference: Reference, model: str) -> None:
    """As large as describe says, over every lane; the rows are one."""
    (entry,) = [entry for entry in described(free) if entry["name"] == model]
    largest = [dim["max"] for dim in entry["free_dims"]]
    one, other = largest if model == "segments" else (1, largest[0])
    inputs = made(model, np.random.default_rng(9), one, other)
    expected = reference.outputs(model, inputs)
    with Client("127.0.0.1", free.port) as client, Http(free.port) as http:
        same(client.infer(model, inputs).outputs, expected)
        answer = http.query(web.infer(model, inputs))
        same({name: output.array for name, output in answer.outputs.items()}, expected)


def native_request(
    server: Server, model: str, inputs: Arrays, rows: int, block: bytes | None = None
) -> bytes:
    """A request with the shapes of its arrays, or with another shape block."""
    shapes = wire.shape_block([array.shape for array in inputs.values()])
    payload = b"".join(array.tobytes() for array in inputs.values())
    return wire.frame(
        (shapes if block is None else block) + payload,
        model=server.models[model],
        rows=rows,
        flags=wire.SHAPES,
        id=3,
    )


def test_a_request_in_pieces_of_any_size(free: Server, reference: Reference) -> None:
    """Cut after every byte of header and shape block, and byte by byte as a whole."""
    inputs = made("bert", np.random.default_rng(12), 1, 2)
    expected = b"".join(array.tobytes() for array in reference.outputs("bert", inputs).values())
    request = native_request(free, "bert", inputs, 1)
    with free.connect() as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, 32 + 28 + 4):
            for piece in (request[:cut], request[cut:]):
                end = free.figures().io["bytes_in"] + len(piece)
                connection.send(piece)
                harness.eventually(
                    lambda end=end: free.figures().io["bytes_in"] >= end,
                    "the server reads the piece",
                )
            reply = connection.reply()
            assert wire.split_shapes(reply.payload)[1] == expected, cut
        for byte in request:
            connection.send(bytes([byte]))
        assert wire.split_shapes(connection.reply().payload)[1] == expected


def test_pipelined_requests_of_other_shapes(free: Server, reference: Reference) -> None:
    """In one piece, refused ones and pings among them: each is answered as if it were alone."""
    random = np.random.default_rng(13)
    sent, expected = b"", {}
    for number in range(60):
        model = list(MODELS)[number % 4]
        inputs = made(model, random, *(int(size) for size in random.integers(1, 9, 2)))
        rows = 1 if model == "segments" else next(iter(inputs.values())).shape[0]
        shapes = [array.shape for array in inputs.values()]
        wrong = number % 5 == 3
        block = wire.shape_block([tuple(size + wrong for size in shape) for shape in shapes])
        payload = block + b"".join(array.tobytes() for array in inputs.values())
        sent += wire.frame(
            payload, model=free.models[model], rows=rows, flags=wire.SHAPES, id=number
        )
        sent += wire.ping(1000 + number)
        expected[number] = None if wrong else reference.outputs(model, inputs)
    with free.connect() as connection:
        connection.send(sent)
        replies = connection.replies(120)
    for number, outputs in expected.items():
        assert replies[1000 + number].status == wire.OK
        if outputs is None:
            assert replies[number].status == wire.BAD_REQUEST
            continue
        shapes, data = wire.split_shapes(replies[number].payload)
        assert shapes == [array.shape for array in outputs.values()]
        assert data == b"".join(array.tobytes() for array in outputs.values())


# ---- what describe says ----


def described(server: Server) -> list[dict[str, Any]]:
    return server.description["models"]  # type: ignore[return-value]


def test_describe_names_every_free_dimension(free: Server) -> None:
    entries = {entry["name"]: entry for entry in described(free)}
    assert [tensor["dims"] for tensor in entries["bert"]["inputs"]] == [
        ["batch_size", "sequence_length"]
    ] * 2
    assert [tensor["shape"] for tensor in entries["bert"]["outputs"]] == [[-1, -1, 8], [-1, 8]]
    assert [tensor["dims"] for tensor in entries["bert"]["outputs"]] == [
        ["batch_size", "sequence_length", 8],
        ["batch_size", 8],
    ]
    assert entries["segments"]["inputs"][0]["dims"] == [1, 3, "height", "width"]
    assert entries["unnamed"]["inputs"][0]["dims"] == ["rows", 2, "x[2]"]
    assert entries["nonzero"]["outputs"][0]["dims"] == [2, -1]
    free_dims = {
        name: {dim["name"]: (dim["max"], dim["default"]) for dim in entry["free_dims"]}
        for name, entry in entries.items()
    }
    assert free_dims == {
        "bert": {"sequence_length": (512, True)},
        "segments": {"height": (512, True), "width": (512, True)},  # 3 MiB of floats
        "nonzero": {"length": (96, False)},
        "unnamed": {"x[2]": (96, False)},
    }
    # A request and its answer, each of the largest shape, and their text.
    least = {"bert": 32 * 512 * (16 + 32), "segments": 5 << 20, "nonzero": 32 * 96 * 4}
    for name, size in least.items():
        assert size < entries[name]["slot_bytes"] < 2 * size + (2 << 20), name
    assert [entry["max_rows"] for entry in described(free)][:2] == [32, 1]


# ---- what is refused ----

IDS = np.ones((2, 5), np.int64)


def refused_natively(server: Server, request: bytes) -> str:
    """The sentence, after which the connection serves on."""
    good = native_request(server, "bert", {"input_ids": IDS, "attention_mask": IDS}, 2)
    with server.connect() as connection:
        reply = connection.ask(request)
        assert reply.status == wire.BAD_REQUEST, reply
        assert connection.ask(good).status == wire.OK
    return reply.text


def refused_over_http(server: Server, request: bytes) -> str:
    with Http(server.port) as http:
        answer = http.query(request)
        assert answer.code == 400, answer
        assert http.query(web.infer("bert", {"input_ids": IDS, "attention_mask": IDS})).code == 200
    return answer.error


def shaped(ids: tuple[int, int], mask: tuple[int, int]) -> Arrays:
    return {"input_ids": np.ones(ids, np.int64), "attention_mask": np.ones(mask, np.int64)}


@pytest.mark.parametrize(
    ("inputs", "dimension", "expected", "found"),
    [
        (shaped((2, 5), (2, 4)), "sequence_length", "5", "4"),
        (shaped((2, 5), (2, 10)), "sequence_length", "5", "10"),
        (shaped((1, 513), (1, 513)), "sequence_length", "0 to 512", "513"),
    ],
)
@pytest.mark.parametrize("lane", ["client", "native", "binary", "json"])
def test_sizes_that_do_not_fit(
    free: Server, lane: str, inputs: Arrays, dimension: str, expected: str, found: str
) -> None:
    rows = inputs["input_ids"].shape[0]
    if lane == "client":
        with Client("127.0.0.1", free.port) as client, pytest.raises(BadRequest) as caught:
            client.infer("bert", inputs)
        said = str(caught.value)
    elif lane == "native":
        said = refused_natively(free, native_request(free, "bert", inputs, rows))
    else:
        said = refused_over_http(free, web.infer("bert", inputs, binary=lane == "binary"))
    assert f"'{dimension}'" in said
    assert f"expected {expected}" in said
    assert f"found {found}" in said


def test_rows_beside_the_shape_block(free: Server) -> None:
    inputs = {"input_ids": IDS, "attention_mask": IDS}
    for rows in (1, 3):
        said = refused_natively(free, native_request(free, "bert", inputs, rows))
        assert f"expected {rows}" in said, said
        assert "found 2" in said, said
    long = shaped((33, 1), (33, 1))
    said = refused_natively(free, native_request(free, "bert", long, 33))
    assert "takes at most 32, found 33" in said


@pytest.mark.parametrize(
    "block",
    [
        wire.shape_block([(2, 5)]),
        wire.shape_block([(2, 5)] * 3),
        wire.shape_block([(2, 5), (2, 5, 1)]),
        wire.shape_block([(10,), (2, 5)]),
        wire.shape_block([(2, 5), (5, 2)]),
        wire.shape_block([(2, 2**32 - 1)] * 2),
        wire.shape_block([(2, 2**31)] * 2),
        b"",
        bytes(28),
        b"\xff" * 28,
    ],
    ids=["one", "three", "rank 3", "rank 1", "turned", "2^32-1", "2^31", "none", "zeros", "ones"],
)
def test_a_shape_block_that_is_none(free: Server, block: bytes) -> None:
    inputs = {"input_ids": IDS, "attention_mask": IDS}
    refused_natively(free, native_request(free, "bert", inputs, 2, block))


def test_a_missing_shape_block(free: Server) -> None:
    said = refused_natively(free, wire.frame(IDS.tobytes() * 2, model=free.models["bert"], rows=2))
    assert "expected a shape block (bit 1)" in said


def test_a_raw_body_needs_one_free_dimension(free: Server, reference: Reference) -> None:
    x = np.arange(14, dtype=np.uint8)
    expected = reference.outputs("unnamed", {"x": x.reshape(1, 2, 7)})
    with Http(free.port) as http:
        answer = http.query(web.raw("unnamed", x.tobytes()))
        assert answer.array("y").tobytes() == expected["y"].tobytes()
        assert answer.array("y").shape == (1, 2, 7)
    for model, size in (("unnamed", 13), ("unnamed", 194), ("segments", 192), ("bert", 80)):
        said = refused_over_http(free, web.raw(model, bytes(size)))
        assert model == "bert" or "send JSON before the bytes" in said, said


# ---- `lumen bench` ----


@pytest.mark.parametrize("url", ["lumen", "http", "http --http-json"])
def test_a_load_of_one_shape(free: Server, cache: Path, url: str) -> None:
    scheme, *options = url.split()
    for model, sizes in (("bert", "sequence_length=17"), ("segments", "height=6,width=9")):
        done = harness.run(
            [
                "bench",
                *("--url", f"{scheme}://127.0.0.1:{free.port}", "--model", model, "--json"),
                *("--dims", sizes, "--requests", "50", "--warmup", "0", *options),
            ],
            cache,
        )
        assert done.returncode == 0, done
        figures = json.loads(done.stdout)
        assert (figures["requests"], figures["errors"]) == (50, 0)


# ---- other ways to run ----


@pytest.mark.parametrize(
    ("settings", "batches"),
    [
        ({"engine": {"queue_type": "inline"}}, False),
        ({"engine": {"allocator_type": "standard"}}, False),
        ({"engine": {"batch_size": 8, "batch_delay_us": 500}}, True),
        ({"engine": {"queue_type": "batched", "batch_size": 8}}, True),
        ({"server": {"io_backend": "epoll", "io_threads": 2}}, False),
        ({"server": {"arena_bytes": "8MiB", "max_request_bytes": "1MiB"}}, False),
    ],
    ids=["inline", "standard", "batches", "batched", "epoll", "small arena"],
)
def test_many_shapes_at_a_time(
    serve: Serve,
    files: dict[str, Path],
    reference: Reference,
    settings: dict[str, Any],
    batches: bool,
) -> None:
    """A batch takes requests of one shape alone; ONNX Runtime's floats may differ in it."""
    models = [
        {"name": name, "path": str(files[name]), "max_dims": most, **({} if many else single)}
        for name, most, many, single in (
            ("bert", {"sequence_length": 64}, True, {}),
            ("segments", {"height": 64, "width": 64}, False, {"batch_size": 1}),
        )
    ]
    server = serve({**settings, "models": models})
    random = np.random.default_rng(14)

    async def ask(client: AsyncClient, model: str, inputs: Arrays) -> None:
        outputs = (await client.infer(model, inputs)).outputs
        expected = reference.outputs(model, inputs)
        if not batches:
            same(outputs, expected)
        for name, array in expected.items():
            assert outputs[name].shape == array.shape
            np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6)

    async def main() -> None:
        async with (
            AsyncClient("127.0.0.1", server.port, timeout_s=60) as one,
            AsyncClient("127.0.0.1", server.port, timeout_s=60) as other,
        ):
            for _ in range(4):
                jobs = []
                for number in range(60):
                    # Few lengths, so that requests of one shape meet.
                    first, second = int(random.integers(1, 4)), int(random.choice([1, 7, 33]))
                    model = "bert" if number % 3 else "segments"
                    inputs = made(model, random, first, second)
                    jobs.append(ask((one, other)[number % 2], model, inputs))
                await asyncio.gather(*jobs)

    asyncio.run(main())


def test_keys_beside_a_shape_block(
    serve: Serve, files: dict[str, Path], reference: Reference
) -> None:
    """The credential comes first."""
    key = {"name": "ada", "sha256": hashlib.sha256(b"a-token").hexdigest()}
    server = serve(
        {"server": {"keys": [key]}, "models": [{"name": "m", "path": str(files["bert"])}]}
    )
    inputs = made("bert", np.random.default_rng(15), 3, 5)
    with Client("127.0.0.1", server.port, token="a-token") as client:
        same(client.infer("m", inputs).outputs, reference.outputs("bert", inputs))
        with pytest.raises(BadRequest, match="found 513"):
            client.infer("m", made("bert", np.random.default_rng(15), 1, 513))
    with Client("127.0.0.1", server.port) as client, pytest.raises(Unauthorised):
        client.infer("m", inputs)


# ---- settings ----


def start(serve: Serve, path: Path, **model: object) -> Server:
    return serve({"models": [{"name": "m", "path": str(path), **model}]})


def test_max_dims_raise_the_limit(
    serve: Serve, files: dict[str, Path], reference: Reference
) -> None:
    server = start(serve, files["bert"], max_dims={"sequence_length": 600}, max_rows=2)
    (entry,) = described(server)
    assert [dim["max"] for dim in entry["free_dims"]] == [600]
    assert entry["max_rows"] == 2
    inputs = made("bert", np.random.default_rng(5), 2, 600)
    with Client("127.0.0.1", server.port) as client:
        same(client.infer("m", inputs).outputs, reference.outputs("bert", inputs))
        with pytest.raises(BadRequest, match="expected 0 to 600"):
            client.infer("m", made("bert", np.random.default_rng(5), 2, 601))


def test_max_dims_of_the_rows(serve: Serve, files: dict[str, Path]) -> None:
    server = start(serve, files["bert"], max_dims={"batch_size": 3})
    assert described(server)[0]["max_rows"] == 3


def test_fix_dims_make_a_model_fixed(
    serve: Serve, files: dict[str, Path], reference: Reference
) -> None:
    """Started twice, the second time from the cache, with other sizes in between."""
    for height, width in ((5, 7), (7, 5), (5, 7)):
        server = start(serve, files["segments"], fix_dims={"height": height, "width": width})
        (entry,) = described(server)
        assert entry["inputs"][0]["shape"] == [1, 3, height, width]
        assert entry["outputs"][0]["shape"] == [1, 2, height, width]
        assert entry["outputs"][0]["shape_known"] is True
        assert "free_dims" not in entry
        inputs = made("segments", np.random.default_rng(4), height, width)
        expected = reference.outputs("segments", inputs)
        payload = inputs["picture"].tobytes()
        with server.connect() as connection:
            reply = connection.ask(wire.frame(payload, model=0, rows=1, id=1))
            assert (reply.status, reply.flags) == (wire.OK, 0), reply
            assert reply.payload == expected["classes"].tobytes()
        with Client("127.0.0.1", server.port) as client:
            same(client.infer("m", inputs).outputs, expected)
        server.stop()


def test_fix_dims_of_one_of_two(serve: Serve, files: dict[str, Path], reference: Reference) -> None:
    server = start(serve, files["segments"], fix_dims={"height": 6}, max_dims={"width": 11})
    (entry,) = described(server)
    assert entry["inputs"][0]["dims"] == [1, 3, 6, "width"]
    assert [(dim["name"], dim["max"]) for dim in entry["free_dims"]] == [("width", 11)]
    with Client("127.0.0.1", server.port) as client:
        for width in (1, 11, 4):
            inputs = made("segments", np.random.default_rng(width), 6, width)
            same(client.infer("m", inputs).outputs, reference.outputs("segments", inputs))


def test_fix_dims_let_a_model_take_pictures(
    serve: Serve, files: dict[str, Path], reference: Reference
) -> None:
    server = start(serve, files["segments"], fix_dims={"height": 4, "width": 6}, scale=0.5)
    assert described(server)[0]["rgb8"] is not None
    image = np.random.default_rng(3).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    planes = (image.transpose(2, 0, 1)[None] * np.float32(0.5)).astype(np.float32)
    with Client("127.0.0.1", server.port) as client:
        outputs = client.infer_rgb8("m", image).outputs
    same(outputs, reference.outputs("segments", {"picture": planes}))


def test_fix_dims_of_the_rows(serve: Serve, files: dict[str, Path], reference: Reference) -> None:
    server = start(serve, files["bert"], fix_dims={"batch_size": 2})
    (entry,) = described(server)
    assert [tensor["dims"] for tensor in entry["inputs"]] == [[2, "sequence_length"]] * 2
    assert entry["max_rows"] == 1
    with Client("127.0.0.1", server.port) as client:
        for length in (1, 9, 512):
            inputs = made("bert", np.random.default_rng(length), 2, length)
            same(client.infer("m", inputs).outputs, reference.outputs("bert", inputs))


def test_sizes_that_nobody_set(serve: Serve, files: dict[str, Path], reference: Reference) -> None:
    """A row of 4 MiB at most, whose JSON takes a quarter of the arena at most; 32 rows."""
    for model, most, rows in (("nonzero", 1 << 17, 32), ("unnamed", 1 << 19, 32)):
        limits = {"arena_bytes": "256MiB", "max_request_bytes": "8MiB"}
        server = serve({"server": limits, "models": [{"name": "m", "path": str(files[model])}]})
        (entry,) = described(server)
        assert [dim["max"] for dim in entry["free_dims"]] == [most], model
        assert entry["max_rows"] == rows
        with Client("127.0.0.1", server.port) as client:
            inputs = made(model, np.random.default_rng(6), rows, 500)
            same(client.infer("m", inputs).outputs, reference.outputs(model, inputs))


@pytest.mark.parametrize("key", ["max_dims", "fix_dims"])
def test_a_name_that_no_dimension_has(cache: Path, files: dict[str, Path], key: str) -> None:
    options = ("--model", f"m={files['bert']}", "--set", f"models.0.{key}.lenght=4")
    done = harness.run(["--port", "0", *options], cache)
    assert done.returncode == 1, done
    assert f"{key}: expected " in done.stderr
    assert "'sequence_length'" in done.stderr
    assert "found 'lenght'" in done.stderr
    assert "Traceback" not in done.stderr
