"""Memory shared over the unix socket: answers, batches, and everything a client can get wrong."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import graphs
import numpy as np
import pytest
import regions
import wire
from conftest import Serve
from harness import Canary, Server, eventually
from PIL import Image
from regions import Region
from wire import Wire

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import BadRequest, DeadlinePassed, TooLarge

X = np.arange(16, dtype="<f4").reshape(1, 16)
COLUMNS = 1 << 16
TOP = 2**64


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lumen-") as folder:
        yield Path(folder) / "s"


def words(path: Path) -> Path:
    """y = x, BYTES [n]."""
    text = graphs.onnx.TensorProto.STRING
    return graphs.save(
        path,
        [graphs.helper.make_node("Identity", ["x"], ["y"])],
        [graphs.tensor("x", text, ["n"])],
        [graphs.tensor("y", text, ["n"])],
    )


def settings(
    folder: Path, path: Path, engine: dict[str, object], **server: object
) -> dict[str, object]:
    models = [
        {"name": "double", "path": graphs.double(folder / "double.onnx"), "max_rows": 64},
        {"name": "large", "path": graphs.double(folder / "large.onnx", COLUMNS, rows=1)},
        {"name": "dtypes", "path": graphs.dtypes(folder / "dtypes.onnx"), "max_rows": 64},
        {"name": "nonzero", "path": graphs.nonzero(folder / "nonzero.onnx", 6)},
        {"name": "gather", "path": graphs.gather(folder / "gather.onnx")},
        {"name": "slow", "path": graphs.slow(folder / "slow.onnx")},
        {
            "name": "nhwc",
            "path": graphs.image(folder / "nhwc.onnx", graphs.FLOAT, ["n", 5, 7, 3]),
            "max_rows": 8,
            "image": {},
        },
        {"name": "free", "path": graphs.double(folder / "free.onnx", "length")},  # type: ignore[arg-type]
        {"name": "strings", "path": words(folder / "strings.onnx")},
    ]
    return {
        "server": {
            "arena_bytes": "64MiB",
            "max_request_bytes": "1MiB",
            "unix_socket": str(path),
            "shared_memory": True,
            "shared_memory_bytes": "64MiB",
            **server,
        },
        "engine": {"thread_count": 2, **engine},
        "models": [{**model, "path": str(model["path"])} for model in models],
    }


@pytest.fixture
def server(serve: Serve, tmp_path: Path, path: Path) -> Server:
    return serve(settings(tmp_path, path, {}))


def gauges(server: Server) -> tuple[int, int]:
    from lumen_uring.ring.stats import read

    found = read(server.stats_path).gauges["io"]
    return found["regions"], found["region_bytes"]


def mapped(server: Server) -> int:
    """How many regions are in the server's address space."""
    return Path(f"/proc/{server.pid}/maps").read_text().count("/memfd:test")


def nothing_is_left(server: Server) -> None:
    eventually(lambda: gauges(server) == (0, 0), "no region", found=lambda: gauges(server))
    eventually(lambda: mapped(server) == 0, "no mapping")


def open_descriptors(server: Server, canary: Canary) -> int:
    eventually(lambda: canary.answers > 0, "the canary's connection")
    return server.fds


def double(server: Server, region: Region, at: int = 0, **rest: int) -> bytes:
    """x at `at`, y 4096 bytes behind it."""
    spans = [region.put(at, X), (at + 4096, X.nbytes)]
    return regions.frame(spans, model=server.models["double"], **rest)


# ---- what it is for ----


@pytest.mark.parametrize("queue", ["mpmc", "inline", "naive"])
def test_tensors_in_a_region(serve: Serve, tmp_path: Path, path: Path, queue: str) -> None:
    server = serve(settings(tmp_path, path, {"queue_type": queue}))
    random = np.random.default_rng(8)
    region = Region(4 << 20)
    with Canary(server), Wire(path) as connection:
        region.hand_over(connection)
        assert gauges(server) == (1, 4 << 20)
        for number in range(20):
            x = random.standard_normal((1, COLUMNS), np.float32)
            at = 64 * number
            spans = [region.put(at, x), (1 << 20, x.nbytes)]
            reply = connection.ask(regions.frame(spans, model=server.models["large"], id=number))
            assert (reply.status, reply.id, reply.payload) == (wire.OK, number, b""), reply
            np.testing.assert_array_equal(region.get(1 << 20, x), x + x)
            tensors = connection.ask(wire.frame(X.tobytes(), model=server.models["double"]))
            assert tensors.payload == (X + X).tobytes()  # both ways on one connection
    nothing_is_left(server)
    region.close()


def test_pipelined_in_one_region(server: Server, path: Path) -> None:
    region = Region()
    with Canary(server), Wire(path) as connection:
        region.hand_over(connection)
        for _ in range(10):
            frames = [double(server, region, 8192 * n, id=n) for n in range(60)]
            connection.send(b"".join(frames))
            assert all(reply.status == wire.OK for reply in connection.replies(60).values())
            for n in range(60):
                np.testing.assert_array_equal(region.get(8192 * n + 4096, X), X + X)
                region.bytes[8192 * n : 8192 * n + 8192] = 0
    nothing_is_left(server)


@pytest.mark.once
def test_every_type(server: Server, path: Path) -> None:
    """Numbers in place and numbers that are copied: both come back bit for bit."""
    random = np.random.default_rng(9)
    region = Region()
    entry = next(m for m in server.description["models"] if m["name"] == "dtypes")  # type: ignore[attr-defined]
    types = {name: dtype for name, _onnx, dtype in graphs.DTYPES}
    with Wire(path) as connection:
        region.hand_over(connection)
        for rows in (1, 3, 64):
            spans, values = [], []
            for i, tensor in enumerate(entry["inputs"]):
                dtype = np.dtype(types[tensor["datatype"]])
                shape = [rows, *tensor["shape"][1:]]
                bits = random.integers(0, 2 if dtype == "?" else 256, [*shape, dtype.itemsize])
                values.append(bits.astype(np.uint8).view(dtype).reshape(shape))
                spans.append(region.put(8192 * i, values[-1]))
            outputs = [(1 << 19 | 8192 * i, value.nbytes) for i, value in enumerate(values)]
            model = server.models["dtypes"]
            reply = connection.ask(regions.frame([*spans, *outputs], model=model, rows=rows))
            assert (reply.status, reply.rows, reply.payload) == (wire.OK, rows, b""), reply
            for (at, _bytes), value in zip(outputs, values, strict=True):
                assert region.get(at, value).tobytes() == value.tobytes()


@pytest.mark.once
def test_outputs_of_unknown_shape(server: Server, path: Path) -> None:
    region = Region()
    x = np.array([[0, 1, 0, 2, 3, 0]], np.float32)
    model = server.models["nonzero"]
    with Wire(path) as connection:
        plain = connection.ask(wire.frame(x.tobytes(), model=model)).payload
        expected, data = wire.split_shapes(plain)
        sizes = [8 * int(np.prod(expected[0])), 4 * int(np.prod(expected[1]))]
        region.hand_over(connection)
        span = region.put(0, x)
        spans = [span, (4096, 4096), (8192, 4096)]
        reply = connection.ask(regions.frame(spans, model=model))
        assert reply.status == wire.OK, reply
        assert wire.split_shapes(reply.payload) == (expected, b"")
        found = [
            region.bytes[at : at + size].tobytes()
            for at, size in zip((4096, 8192), sizes, strict=True)
        ]
        assert b"".join(found) == data
        small = [span, (4096, sizes[0] - 1), (8192, 4096)]
        refused = connection.ask(regions.frame(small, model=model))
        assert refused.status == wire.INFERENCE_FAILED
        assert f"has {sizes[0]} bytes, its place in the region {sizes[0] - 1}" in refused.text


@pytest.mark.once
def test_pixels_in_a_region(server: Server, path: Path) -> None:
    region = Region()
    pixels = np.random.default_rng(3).integers(0, 256, (2, 5, 7, 3), np.uint8)
    model = server.models["nhwc"]
    with Wire(path) as connection:
        plain = wire.frame(pixels.tobytes(), model=model, encoding=wire.RGB8, rows=2)
        expected = connection.ask(plain).payload
        region.hand_over(connection)
        spans = [region.put(64, pixels), (4096, len(expected))]
        reply = connection.ask(regions.frame(spans, model=model, encoding=wire.RGB8, rows=2))
        assert (reply.status, reply.payload) == (wire.OK, b""), reply
        assert region.bytes[4096 : 4096 + len(expected)].tobytes() == expected


@pytest.mark.once
def test_in_batches(serve: Serve, tmp_path: Path, path: Path) -> None:
    chosen = settings(tmp_path, path, {"batch_size": 8, "batch_delay_us": 20000, "thread_count": 1})
    for model in chosen["models"]:  # type: ignore[attr-defined]
        if model["name"] not in ("double", "dtypes"):
            model["batch_size"] = 1
    server = serve(chosen)
    region = Region()
    with Wire(path) as connection, Wire(path) as other:
        region.hand_over(connection)
        for number in range(10):
            spans = [[region.put(8192 * n, X + n), (8192 * n + 4096, X.nbytes)] for n in range(6)]
            model = server.models["double"]
            connection.send(
                b"".join(regions.frame(s, model=model, id=n) for n, s in enumerate(spans))
            )
            plain = other.ask(wire.frame(X.tobytes(), model=model, id=number))
            assert plain.payload == (X + X).tobytes()
            assert all(reply.status == wire.OK for reply in connection.replies(6).values())
            for n in range(6):
                np.testing.assert_array_equal(region.get(8192 * n + 4096, X), (X + n) * 2)
    assert server.figures().worker["batches"] > 0


def test_another_region_takes_its_place(server: Server, path: Path) -> None:
    """Row F21: The first stays while a worker uses it."""
    first, second = Region(1 << 16), Region(1 << 18)
    slow = regions.frame(
        [first.put(0, np.array([[2000]], np.int64)), (4096, 8)], model=server.models["slow"], id=5
    )
    with Wire(path) as connection:
        first.hand_over(connection)
        connection.send(slow)
        eventually(lambda: server.figures().slots_in_use == 1, "the slow request at work")
        second.hand_over(connection)
        second.bytes[:] = 7
        assert connection.ask(double(server, second, 1 << 17)).status == wire.OK
        np.testing.assert_array_equal(second.get((1 << 17) + 4096, X), X + X)
        reply = connection.reply()
        assert (reply.id, reply.status) == (5, wire.OK), reply
        eventually(lambda: gauges(server) == (1, 1 << 18), "the first one gone")
    nothing_is_left(server)


def test_the_client_leaves_in_the_middle(server: Server, path: Path) -> None:
    """Row F21: The worker still writes to the region; it stays until then."""
    region = Region()
    with Canary(server):
        for _ in range(5):
            with Wire(path) as connection:
                region.hand_over(connection)
                spans = [region.put(0, np.array([[3000]], np.int64)), (4096, 8)]
                connection.send(regions.frame(spans, model=server.models["slow"]))
                eventually(lambda: server.figures().slots_in_use > 0, "at work")
        nothing_is_left(server)


@pytest.mark.once
def test_a_deadline_while_it_runs(server: Server, path: Path) -> None:
    """Row F21: It is answered in its worker's place, which goes on writing."""
    region = Region()
    with Canary(server), Wire(path) as connection:
        region.hand_over(connection)
        spans = [region.put(0, np.array([[60000]], np.int64)), (4096, 8)]
        reply = connection.ask(regions.frame(spans, model=server.models["slow"], timeout_us=1000))
        assert reply.status in (wire.DEADLINE, wire.OK)
    nothing_is_left(server)


# ---- what is refused ----


BAD_SPANS = {
    "input beyond the end": ([(1 << 20, 64), (0, 64)], "within the region"),
    "none: the last bytes": ([((1 << 20) - 64, 64), (0, 64)], None),
    "input one byte over the end": ([((1 << 20) - 64, 65), (0, 64)], "within the region"),
    "offset near 2^64": ([(TOP - 64, 64), (0, 64)], "within the region"),
    "offset and bytes wrap": ([(TOP - 64, TOP - 64), (0, 64)], "within the region"),
    "bytes near 2^64": ([(0, TOP - 1), (0, 64)], "within the region"),
    "unaligned": ([(8, 64), (4096, 64)], "a multiple of 64, found 8"),
    "input too short": ([(0, 60), (4096, 64)], "expected 64 bytes in the region, found 60"),
    "input too long": ([(0, 128), (4096, 64)], "expected 64 bytes in the region, found 128"),
    "output too small": ([(0, 64), (4096, 63)], "expected at least 64 bytes"),
    "output beyond the end": ([(0, 64), (1 << 21, 64)], "output 'y'"),
    "output wraps": ([(0, 64), (TOP - 64, 128)], "output 'y'"),
}


@pytest.mark.once
@pytest.mark.parametrize("case", BAD_SPANS)
def test_places_that_are_none(server: Server, path: Path, case: str) -> None:
    """Row 20: Bounds, alignment and sums that wrap."""
    spans, sentence = BAD_SPANS[case]
    region = Region()
    with Canary(server), Wire(path) as connection:
        region.hand_over(connection)
        reply = connection.ask(regions.frame(spans, model=server.models["double"], id=3))
        if sentence is None:
            assert reply.status == wire.OK
        else:
            assert (reply.status, reply.id) == (wire.BAD_REQUEST, 3)
            assert sentence in reply.text
        assert connection.ask(double(server, region)).status == wire.OK
    nothing_is_left(server)


@pytest.mark.once
def test_overlapping_places(server: Server, path: Path) -> None:
    """Row 20: The client's own numbers alone."""
    region = Region()
    with Canary(server), Wire(path) as connection:
        region.hand_over(connection)
        spans = [region.put(0, X), (0, X.nbytes)]
        assert connection.ask(regions.frame(spans, model=server.models["double"])).status == wire.OK


def test_frames_that_do_not_fit(server: Server, path: Path) -> None:
    """Row 20: No region, TCP, another number of places, strings."""
    region = Region()
    spans = [(0, 64), (4096, 64)]
    with Canary(server), Wire(path) as connection, server.connect() as tcp:
        none = connection.ask(regions.frame(spans, model=server.models["double"]))
        assert (none.status, "handed none over" in none.text) == (wire.BAD_REQUEST, True)
        refused = regions.announce(tcp)
        assert (refused.status, "unix socket" in refused.text) == (wire.BAD_REQUEST, True)
        assert tcp.ask(regions.frame(spans)).status == wire.BAD_REQUEST
        region.hand_over(connection)
        for count in (0, 1, 3):
            many = connection.ask(regions.frame([(0, 64)] * count, model=server.models["double"]))
            assert (many.status, "takes 32 bytes" in many.text) == (wire.BAD_REQUEST, True)
        strings = connection.ask(regions.frame(spans, model=server.models["strings"]))
        assert (strings.status, "has strings" in strings.text) == (wire.BAD_REQUEST, True)
        for kind in (wire.PING, wire.DESCRIBE, regions.REGION):
            flagged = connection.ask(wire.frame(kind=kind, flags=regions.IN_REGION))
            assert flagged.status == wire.BAD_REQUEST
        payload = connection.ask(wire.frame(b"12345678", kind=regions.REGION))
        assert payload.status == wire.BAD_REQUEST
        assert connection.ask(double(server, region)).status == wire.OK


@pytest.mark.once
def test_an_index_that_changes_during_the_run(server: Server, path: Path) -> None:
    """Row 20: Integers are copied first: what the client writes later is not read."""
    region = Region()
    indexes = region.bytes[:64].view("<i8")
    stop = threading.Event()

    def scribble() -> None:
        while not stop.is_set():
            indexes[0] = 1
            indexes[0] = 2**40

    entry = next(m for m in server.description["models"] if m["name"] == "gather")  # type: ignore[attr-defined]
    inputs = [
        int(np.prod([abs(d) for d in t["shape"]])) * (8 if t["datatype"] == "INT64" else 4)
        for t in entry["inputs"]
    ]
    spans = [(4096 * i, size) for i, size in enumerate(inputs)]
    outputs = [(1 << 16 | 4096 * i, 4096) for i in range(len(entry["outputs"]))]
    thread = threading.Thread(target=scribble)
    with Canary(server), Wire(path) as connection:
        region.hand_over(connection)
        thread.start()
        try:
            frame = regions.frame([*spans, *outputs], model=server.models["gather"])
            seen = {connection.ask(frame).status for _ in range(200)}
        finally:
            stop.set()
            thread.join()
        assert seen <= {wire.OK, wire.BAD_REQUEST}


# ---- descriptors ----


def wrong_descriptors(folder: Path) -> dict[str, tuple[int, str]]:
    reading = os.open(__file__, os.O_RDONLY)
    disk = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(disk, 8192)
    read_only = os.open(f"/proc/self/fd/{regions.memfd(8192)}", os.O_RDONLY)
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        shm = os.dup(file.fileno())
        os.ftruncate(shm, 8192)
    pair = socket.socketpair()
    return {
        "a file to read": (reading, "expected a memfd"),
        "a file on disk": (disk, "expected a memfd"),
        "a file of /dev/shm": (shm, "sealed against shrinking"),
        "a pipe": (os.pipe()[0], "expected a memfd"),
        "a folder": (os.open(folder, os.O_RDONLY), "expected a memfd"),
        "a socket": (os.dup(pair[0].fileno()), "expected a memfd"),
        "a device": (os.open("/dev/zero", os.O_RDWR), "expected a memfd"),
        "no seals": (regions.memfd(8192, 0), "sealed against shrinking"),
        "other seals": (regions.memfd(8192, fcntl.F_SEAL_GROW), "sealed against shrinking"),
        "sealed against writes": (
            regions.memfd(8192, regions.SEALS | fcntl.F_SEAL_WRITE), "without F_SEAL_WRITE",
        ),
        "open for reading": (read_only, "open for both"),
        "empty": (regions.memfd(0), "expected bytes"),
        "65 MiB": (regions.memfd(65 << 20), "server.shared_memory_bytes (67108864)"),
        "2^62 bytes": (regions.memfd(2**62), "server.shared_memory_bytes"),
    }  # fmt: skip


def test_wrong_descriptors(server: Server, tmp_path: Path, path: Path) -> None:
    """Row 20: Each is refused and closed."""
    region = Region()
    with Canary(server) as canary, Wire(path) as connection:
        region.hand_over(connection)
        before = open_descriptors(server, canary)
        for what, (fd, sentence) in wrong_descriptors(tmp_path).items():
            reply = regions.hand_over(connection, [fd], 9)
            assert reply.status in (wire.BAD_REQUEST, wire.TOO_LARGE), what
            assert (reply.id, sentence in reply.text) == (9, True), (what, reply.text)
            os.close(fd)
            # The region that was there is there.
            assert connection.ask(double(server, region)).status == wire.OK
        assert server.fds == before
        assert gauges(server) == (1, 1 << 20)
    nothing_is_left(server)


def test_descriptors_in_the_wrong_number_or_place(server: Server, path: Path) -> None:
    """Row 20: None, several, unasked for, too early."""
    region = Region()
    with Canary(server) as canary, Wire(path) as connection:
        assert connection.ask(wire.ping(1)).status == wire.OK
        before = open_descriptors(server, canary)
        for fds, found in (
            ([], "found none"),
            ([region.fd] * 2, "found more"),
            ([region.fd] * 250, "found more"),
        ):
            reply = regions.hand_over(connection, fds)
            assert (reply.status, found in reply.text) == (wire.BAD_REQUEST, True), reply.text
        # Without having asked: with a ping, with an inference, with its first byte.
        for request in (wire.ping(1), wire.frame(X.tobytes(), model=server.models["double"])):
            assert regions.send_descriptors(connection, [region.fd], request).status == wire.OK
        # Before the answer: the kernel has closed it.
        together = wire.frame(kind=regions.REGION, id=4) + b"\0"
        first = regions.send_descriptors(connection, [region.fd], together)
        assert (first.status, first.id) == (wire.OK, 4)
        second = connection.reply()
        assert (second.status, second.id) == (wire.BAD_REQUEST, 4)
        assert "after the answer" in second.text
        assert server.fds == before
        # Requests may follow in one send with the byte.
        assert regions.announce(connection).status == wire.OK
        frames = b"\0" + double(server, region, id=8)
        assert regions.send_descriptors(connection, [region.fd], frames).status == wire.OK
        assert connection.reply().id == 8
        assert server.fds == before
    nothing_is_left(server)


def test_a_client_that_asks_and_says_no_more(serve: Serve, tmp_path: Path, path: Path) -> None:
    """Row 20: It has the time of a header."""
    server = serve(settings(tmp_path, path, {}, header_timeout_ms=300))
    with Canary(server), Wire(path) as silent, Wire(path) as leaves, Wire(path) as half:
        for connection in (silent, leaves, half):
            assert regions.announce(connection).status == wire.OK
        leaves.reset()
        half.finish()
        half.expect_end()
        assert silent.expect_closed() == b""


def test_more_than_there_may_be(serve: Serve, tmp_path: Path, path: Path) -> None:
    """Row 20: Over all I/O threads."""
    server = serve(settings(tmp_path, path, {}, shared_memory_bytes="1MiB", io_threads=2))
    half = Region(1 << 19)
    with Canary(server), Wire(path) as one, Wire(path) as two, Wire(path) as three:
        half.hand_over(one)
        half.hand_over(two)
        reply = regions.hand_over(three, [half.fd])
        assert (reply.status, "beside 1048576" in reply.text) == (wire.TOO_LARGE, True), reply.text
        one.close()
        eventually(lambda: gauges(server)[0] == 1, "one gone")
        half.hand_over(three)
    nothing_is_left(server)


@pytest.mark.once
def test_off_by_default(serve: Serve, tmp_path: Path, path: Path) -> None:
    """Row 20: It says which setting."""
    server = serve(settings(tmp_path, path, {}, shared_memory=False))
    with Canary(server), Wire(path) as connection:
        reply = regions.announce(connection)
        assert (reply.status, "server.shared_memory" in reply.text) == (wire.BAD_REQUEST, True)
        assert connection.ask(wire.ping(3)).status == wire.OK


def test_the_end_with_regions(serve: Serve, tmp_path: Path, path: Path) -> None:
    server = serve(settings(tmp_path, path, {}))
    region = Region()
    with Wire(path) as connection, Wire(path) as asks:
        region.hand_over(connection)
        assert regions.announce(asks).status == wire.OK
        server.terminate()
        server.expect_clean_end()


# ---- the client ----


@pytest.mark.once
def test_a_client_that_shares_memory(server: Server, path: Path) -> None:
    random = np.random.default_rng(4)
    pixels = random.integers(0, 256, (2, 5, 7, 3), np.uint8)
    with Client(f"unix:{path}", shared_memory=True) as client, Client(f"unix:{path}") as plain:
        for rows in (1, 3, 64):
            x = random.standard_normal((rows, 16), np.float32)
            result = client.infer("double", {"x": x})
            np.testing.assert_array_equal(result.outputs["y"], x + x)
            assert result.rows == rows
        assert gauges(server)[0] == 1
        before = server.figures()
        x = random.standard_normal((1, COLUMNS), np.float32)
        first = client.infer("large", {"x": x}).outputs["y"]
        assert server.figures().since(before)["io.bytes_in"] < 1000
        second = client.infer("large", {"x": -x}).outputs["y"]
        np.testing.assert_array_equal(first, x + x)  # the caller's own
        np.testing.assert_array_equal(second, -x - x)
        shared, sent = (c.infer_rgb8("nhwc", pixels).outputs for c in (client, plain))
        assert shared.keys() == sent.keys()
        for name, output in shared.items():
            np.testing.assert_array_equal(output, sent[name])
        picture = Image.new("RGB", (5, 5))  # files go over the socket
        shared, sent = (c.infer_images("nhwc", picture).outputs for c in (client, plain))
        np.testing.assert_array_equal(list(shared.values()), list(sent.values()))
        for shape in ((1, 3), (2, 500), (3, 1)):
            x = random.standard_normal(shape, np.float32)
            before = server.figures()
            np.testing.assert_array_equal(client.infer("free", {"x": x}).outputs["y"], x + x)
            assert server.figures().since(before)["io.bytes_in"] == 32 + 16 + 2 * 16
        # What a region cannot have goes over the socket.
        np.testing.assert_array_equal(
            client.infer("strings", {"x": ["a", "bc"]}).outputs["y"], ["a", "bc"]
        )
        where = client.infer("nonzero", {"x": np.eye(1, 6, dtype=np.float32)}).outputs["where"]
        np.testing.assert_array_equal(where, [[0], [0]])
        # A model that may be writing still keeps its region.
        with pytest.raises(DeadlinePassed):
            client.infer("slow", {"x": [20_000]}, timeout_us=20000)
        np.testing.assert_array_equal(client.infer("double", {"x": X}).outputs["y"], X + X)
    eventually(lambda: gauges(server) == (0, 0), "no region", found=lambda: gauges(server))


def shared_files() -> set[int]:
    """The clients' regions that this process has open, by inode."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:lumen-client" in str(path.readlink()):
                found.add(path.stat().st_ino)
    return found


@pytest.mark.once
def test_a_region_that_a_run_may_still_write_to_is_not_used_again(
    server: Server, path: Path
) -> None:
    """After a deadline the next request has memory of its own, in both clients."""
    with Client(f"unix:{path}", shared_memory=True) as client:
        client.infer("double", {"x": X})
        (before,) = shared_files()
        with pytest.raises(DeadlinePassed):
            client.infer("slow", {"x": [20_000]}, timeout_us=20000)
        assert before not in shared_files()
        np.testing.assert_array_equal(client.infer("double", {"x": X}).outputs["y"], X + X)
        assert len(shared_files()) == 1

    async def main() -> None:
        async with AsyncClient(f"unix:{path}", shared_memory=True) as client:
            await client.infer("double", {"x": X})
            (before,) = shared_files()
            with pytest.raises(DeadlinePassed):
                await client.infer("slow", {"x": [20_000]}, timeout_us=20000)
            assert before not in shared_files()
            result = await client.infer("double", {"x": X})
            np.testing.assert_array_equal(result.outputs["y"], X + X)
            assert len(shared_files()) == 1

    assert shared_files() == set()
    asyncio.run(main())
    eventually(lambda: gauges(server) == (0, 0), "no region", found=lambda: gauges(server))


@pytest.mark.once
def test_many_requests_at_once_share_memory(server: Server, path: Path) -> None:
    """An AsyncClient's requests in flight have a place each, in a region that grows."""
    random = np.random.default_rng(5)
    names = [("double", 16), ("large", COLUMNS), ("free", 0), ("strings", 0)]

    async def one(client: AsyncClient) -> None:
        name, columns = names[random.integers(4)]
        rows = int(random.integers(1, 4)) if name != "large" else 1
        columns = columns or int(random.integers(1, 5000))
        x = random.integers(0, 1000, (rows, columns)).astype(np.float32)
        if name == "strings":
            text = x.reshape(-1).astype(str).tolist()
            assert (await client.infer(name, {"x": text})).outputs["y"].tolist() == text
        else:
            result = await client.infer(name, {"x": x})
            np.testing.assert_array_equal(result.outputs["y"], x + x)

    async def main() -> None:
        async with AsyncClient(f"unix:{path}", shared_memory=True) as client:
            for count in (1, 40, 200):
                await asyncio.gather(*(one(client) for _ in range(count)))
            pixels = random.integers(0, 256, (2, 5, 7, 3), np.uint8)
            shared = (await client.infer_rgb8("nhwc", pixels)).outputs
            with Client(f"unix:{path}") as plain:
                for name, output in plain.infer_rgb8("nhwc", pixels).outputs.items():
                    np.testing.assert_array_equal(shared[name], output)
            before = server.figures()
            x = np.ones((1, COLUMNS), np.float32)
            await asyncio.gather(*(client.infer("large", {"x": x}) for _ in range(10)))
            assert server.figures().since(before)["io.bytes_in"] < 1000

    asyncio.run(main())
    eventually(lambda: gauges(server) == (0, 0), "no region", found=lambda: gauges(server))


@pytest.mark.once
def test_requests_wait_for_room_in_shared_memory(serve: Serve, tmp_path: Path, path: Path) -> None:
    """The server takes a region of 1 MiB; two of these requests fit, one of the last does not."""
    server = serve(settings(tmp_path, path, {}, shared_memory_bytes="2MiB"))
    x = np.ones((1, COLUMNS), np.float32)

    async def main() -> None:
        async with AsyncClient(f"unix:{path}", shared_memory=True) as client:
            for _ in range(3):
                calls = [
                    asyncio.create_task(client.infer("large", {"x": x * n})) for n in range(50)
                ]
                await asyncio.sleep(0)
                for call in calls[10:20]:
                    call.cancel()  # some before they are sent
                done = await asyncio.gather(*calls, return_exceptions=True)
                for n, result in enumerate(done):
                    if n in range(10, 20):
                        assert isinstance(result, asyncio.CancelledError)
                    else:
                        assert not isinstance(result, BaseException), result
                        assert (result.outputs["y"] == 2 * n).all()
            # A model that may be writing still keeps its place.
            first = await client.infer("double", {"x": X})
            with pytest.raises(DeadlinePassed):
                await client.infer("slow", {"x": [20_000]}, timeout_us=20000)
            again = await client.infer("double", {"x": X})
            np.testing.assert_array_equal(again.outputs["y"], first.outputs["y"])
            free = np.ones((4, COLUMNS), np.float32)
            with pytest.raises(TooLarge, match=r"server\.shared_memory_bytes"):
                await client.infer("free", {"x": free})
            np.testing.assert_array_equal(
                (await client.infer("double", {"x": X})).outputs["y"], X + X
            )

    asyncio.run(main())
    eventually(lambda: gauges(server) == (0, 0), "no region", found=lambda: gauges(server))


@pytest.mark.once
def test_a_client_where_memory_is_not_shared(serve: Serve, tmp_path: Path, path: Path) -> None:
    server = serve(settings(tmp_path, path, {}, shared_memory=False))
    with Client(f"unix:{path}", shared_memory=True) as client:
        for _ in range(2):
            with pytest.raises(BadRequest, match=r"server\.shared_memory"):
                client.infer("double", {"x": X})
        assert client.ping() > 0

    async def main() -> None:
        async with AsyncClient(f"unix:{path}", shared_memory=True) as client:
            calls = [client.infer("double", {"x": X}) for _ in range(3)]
            for result in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(result, BadRequest)
                assert "server.shared_memory" in str(result)
            assert await client.ping() > 0

    asyncio.run(main())
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="unix:PATH"):
            kind(port=server.port, shared_memory=True)


@pytest.mark.once
def test_a_call_that_is_never_sent_keeps_no_place(server: Server, path: Path) -> None:
    async def main() -> None:
        async with AsyncClient(f"unix:{path}", shared_memory=True, timeout_s=60) as client:
            assert (await client.infer("double", {"x": X})).rows
            mapped = gauges(server)
            for _ in range(600):
                with pytest.raises(BadRequest):
                    await client.infer("double", {"x": X}, timeout_us=-1)
            assert (await client.infer("double", {"x": X})).rows
            assert gauges(server) == mapped

    asyncio.run(main())


@pytest.mark.once
def test_a_client_after_a_fork(server: Server, path: Path) -> None:
    with Client(f"unix:{path}", shared_memory=True) as client:
        client.infer("double", {"x": X})
        pid = os.fork()
        if pid == 0:
            good = (client.infer("double", {"x": X + 1}).outputs["y"] == 2 * X + 2).all()
            client.close()
            os._exit(0 if good else 1)
        for n in range(200):
            np.testing.assert_array_equal(
                client.infer("double", {"x": X + n}).outputs["y"], 2 * (X + n)
            )
        assert os.waitpid(pid, 0)[1] == 0
