"""After `ready` our code calls neither malloc nor free on the path of a request: they are counted.

count_allocations.c, loaded before everything else, counts the calls that come from within
liblumen_uring.so, and all calls of the I/O threads. The same requests with `allocator_type:
standard` must be seen to allocate, or the counting itself would be broken.
"""

from __future__ import annotations

import io
import mmap
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import graphs
import harness
import needs
import numpy as np
import pytest
import regions
import wire
from conftest import Serve
from harness import Server
from PIL import Image
from regions import Region
from wire import Wire

pytestmark = pytest.mark.once  # the backends differ in calls of the kernel alone

KINDS = ("malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "memalign")
# As in the C file: armed, found, in_library[8], in_io_threads[8], io_tids[16].
LAYOUT = struct.Struct("<II8Q8Q16I")
X = np.arange(16, dtype="<f4")
PIXELS = np.arange(105, dtype=np.uint8)


def _picture(kind: str, mode: str, **how: object) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(
        np.arange(90 * 120 * 3, dtype=np.uint32).astype("u1").reshape(90, 120, 3)
    )
    image.convert(mode).save(file, kind, **how)
    return file.getvalue()


_WHOLE = [
    _picture("JPEG", "RGB"),
    _picture("JPEG", "CMYK", progressive=True),
    _picture("PNG", "RGB"),
    _picture("PNG", "P"),
    _picture("PNG", "RGBA"),
]
FILES = [*_WHOLE, *(file[: len(file) // 2] for file in _WHOLE), b"\xff\xd8\xff"]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if harness.sanitized():
        needs.absent("unsanitized")
    library = tmp_path_factory.mktemp("shim") / "count_allocations.so"
    source = Path(__file__).parents[1].joinpath("count_allocations.c")
    # No tail calls: the return address must be the caller's own.
    subprocess.run(
        ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-fPIC",
         "-fno-optimize-sibling-calls", "-shared", "-o", library, source],
        check=True, timeout=60,
    )  # fmt: skip
    return library


class Counts:
    """The counting, seen from outside the server."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def arm(self, server: Server) -> None:
        from lumen_uring.ring.stats import read

        tids = [thread.tid for thread in read(server.stats_path).threads if thread.role == "io"]
        assert tids
        struct.pack_into(f"<{len(tids)}I", self._memory, LAYOUT.size - 64, *tids)
        struct.pack_into("<I", self._memory, 0, 1)

    def read(self) -> tuple[dict[str, int], dict[str, int]]:
        """Calls from within the library, and calls of the I/O threads, by function."""
        values = LAYOUT.unpack_from(self._memory)
        return dict(zip(KINDS, values[2:], strict=False)), dict(
            zip(KINDS, values[10:], strict=False)
        )

    @property
    def found(self) -> bool:
        return bool(LAYOUT.unpack_from(self._memory)[1])


def settings(
    folder: Path, allocator: str, queue: str = "mpmc", **server: object
) -> dict[str, object]:
    threads = "auto" if queue == "inline" else 2
    return {
        "server": {"arena_bytes": "32MiB", "max_request_bytes": "256KiB", **server},
        "engine": {"allocator_type": allocator, "queue_type": queue, "thread_count": threads},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx")), "max_rows": 64},
            {
                "name": "nhwc",
                "path": str(graphs.image(folder / "nhwc.onnx", graphs.FLOAT, ["n", 5, 7, 3])),
                "max_rows": 4,
                "image": {},
            },
            {"name": "gather", "path": str(graphs.gather(folder / "gather.onnx"))},
            {"name": "nonzero", "path": str(graphs.nonzero(folder / "nonzero.onnx", 6))},
            {
                "name": "large",
                "path": str(graphs.large(folder / "large.onnx", 200_000)),
            },
        ],
    }


def tensors(server: Server, number: int) -> bytes:
    rows = 1 + number % 3
    return wire.frame(np.tile(X, rows).tobytes(), id=number, rows=rows)


def rgb8(server: Server, number: int) -> bytes:
    return wire.frame(PIXELS.tobytes(), id=number, encoding=wire.RGB8, model=server.models["nhwc"])


def image_files(server: Server, number: int) -> bytes:
    files = [FILES[(number + n) % len(FILES)] for n in range(1 + number % 2)]
    payload = b"".join(struct.pack("<I", len(file)) + file for file in files)
    model = server.models["nhwc"]
    return wire.frame(payload, id=number, encoding=2, model=model, rows=len(files))


def pings(server: Server, number: int) -> bytes:
    return wire.ping(number)


def describes(server: Server, number: int) -> bytes:
    return wire.frame(kind=wire.DESCRIBE, id=number)


def bad_requests(server: Server, number: int) -> bytes:
    return wire.frame(b"x" * (number % 70), id=number, model=number % 2 * 99, flags=number % 3 * 4)


def wrong_shapes(server: Server, number: int) -> bytes:
    block = wire.shape_block([(1, 17)])
    return wire.frame(block + X.tobytes(), id=number, flags=wire.SHAPES)


def failing_runs(server: Server, number: int) -> bytes:
    return wire.frame(np.array([99], "<i8").tobytes(), id=number, model=server.models["gather"])


def unknown_shapes(server: Server, number: int) -> bytes:
    x = np.array([number % 2, 1, 0, 1, 1, 1], "<f4")
    return wire.frame(x.tobytes(), id=number, model=server.models["nonzero"])


def expired(server: Server, number: int) -> bytes:
    return wire.frame(X.tobytes(), id=number, timeout_us=1)


def large_replies(server: Server, number: int) -> bytes:
    return wire.frame(np.float32(number).tobytes(), id=number, model=server.models["large"])


MAKERS = (
    tensors, rgb8, image_files, pings, describes, bad_requests, wrong_shapes, failing_runs,
    unknown_shapes, expired, large_replies,
)  # fmt: skip


@contextmanager
def counted(
    serve: Serve,
    tmp_path: Path,
    shim: Path,
    allocator: str,
    queue: str = "mpmc",
    **server_too: object,
) -> Iterator[tuple[Server, Counts]]:
    counts = Counts(tmp_path / "counts")
    server = serve(
        settings(tmp_path, allocator, queue, **server_too),
        extra_environment={"LD_PRELOAD": str(shim), "LUMEN_COUNTS": str(tmp_path / "counts")},
    )
    counts.arm(server)
    yield server, counts
    server.terminate()
    server.expect_clean_end()


def send_all(server: Server, make: object, count: int) -> None:
    """One after another and piled up, with clients that stay and that leave."""
    with server.connect() as connection:
        for number in range(count // 2):
            connection.send(make(server, number))  # type: ignore[operator]
            connection.reply()
        connection.send(b"".join(make(server, n) for n in range(count // 2)))  # type: ignore[operator]
        connection.replies(count // 2)
    leaver = server.connect()
    leaver.send(make(server, 1) * 5)  # type: ignore[operator]
    leaver.reset()
    server.wait_until_idle()


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def test_no_request_allocates(serve: Serve, tmp_path: Path, shim: Path) -> None:
    with counted(serve, tmp_path, shim, "lumen_arena") as (server, counts):
        for make in MAKERS:  # warm up: ONNX Runtime's own memory, lazily bound symbols
            send_all(server, make, 40)
        for make in MAKERS:
            before = counts.read()
            send_all(server, make, 200)
            after = counts.read()
            assert difference(after[0], before[0]) == {}, f"{make.__name__}: from the library"
            assert difference(after[1], before[1]) == {}, f"{make.__name__}: on the I/O thread"
        assert counts.found, "the counting never saw the library"


def test_no_request_in_shared_memory_allocates(serve: Serve, tmp_path: Path, shim: Path) -> None:
    """Of ours: ONNX Runtime makes its values for a region's tensors anew for each Run."""
    region = Region()
    with (
        tempfile.TemporaryDirectory(prefix="lumen-") as folder,
        counted(
            serve, tmp_path, shim, "lumen_arena",
            unix_socket=f"{folder}/s", shared_memory=True,
        ) as (server, counts),
        Wire(Path(folder) / "s") as connection,
    ):  # fmt: skip
        region.hand_over(connection)
        spans = [region.put(0, X), (4096, X.nbytes)]
        frames = [regions.frame(spans), regions.frame(spans[:1])]  # the second is refused
        for count in (40, 200):
            before = counts.read()
            for frame in frames * (count // 2):
                connection.ask(frame)
            after = counts.read()
        assert difference(after[0], before[0]) == {}, "from the library"
        assert difference(after[1], before[1]) == {}, "on the I/O thread"
        connection.close()
        server.wait_until_idle()


def test_the_standard_allocator_is_seen_to_allocate(
    serve: Serve, tmp_path: Path, shim: Path
) -> None:
    with counted(serve, tmp_path, shim, "standard") as (server, counts):
        send_all(server, tensors, 40)
        before = counts.read()
        send_all(server, tensors, 200)
        after = counts.read()
        in_library, in_io_threads = (difference(after[n], before[n]) for n in (0, 1))
        assert in_library.get("aligned_alloc", 0) >= 200, in_library
        assert in_io_threads.get("aligned_alloc", 0) >= 200, in_io_threads
        assert in_io_threads.get("free", 0) >= 200, in_io_threads
