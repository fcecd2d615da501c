"""HTTP costs no malloc either, once the server is ready; test_e2e_allocations.py counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import web
from conftest import Serve
from harness import Server
from test_e2e_allocations import FILES, counted, difference
from test_e2e_allocations import shim as shim_fixture
from web import Http, get, post

pytestmark = pytest.mark.once  # the backends differ in calls of the kernel alone

shim = shim_fixture
X = np.arange(16, dtype="<f4").reshape(1, 16)
GOOD_JSON = web.cut(web.infer("double", {"x": X}, binary=False))[1]


def rows(number: int) -> np.ndarray:
    return np.repeat(X, 1 + number % 3, 0)


def rows_post(target: str, document: dict[str, object]) -> bytes:
    return post(target, json.dumps(document).encode())


MAKERS: dict[str, Callable[[int], bytes]] = {
    "binary": lambda n: web.infer("double", {"x": rows(n)}, id=f"n{n}"),
    "binary, JSON out": lambda n: web.infer("double", {"x": rows(n)}, binary_outputs=False),
    "json": lambda n: web.infer("double", {"x": rows(n)}, binary=False, nested=n % 2 == 0),
    "chunked": lambda n: web.infer("double", {"x": rows(n)}, chunk_bytes=20 + n % 90),
    "raw": lambda n: web.raw("double", X.tobytes()),
    "rgb8": lambda n: web.raw("nhwc", bytes(range(105))),
    "long JSON before the blob": lambda n: web.infer("double", {"x": X}, pad_bytes=9000 + n),
    "pictures": lambda n: web.request("PUT", web.path("nhwc"), FILES[n % len(FILES)]),
    "classes of pictures": lambda n: post(web.path("nhwc") + "?top=3", FILES[n % len(FILES)]),
    "unknown shapes": lambda n: web.infer(
        "nonzero", {"x": np.array([[n % 2, 1, 0, 1, 1, 1]], "<f4")}, binary=n % 2 == 0
    ),
    "classes": lambda n: web.infer(
        "double", {"x": rows(n)},
        outputs=[{"name": "y", "parameters": {"classification": 1 + n % 16}}],
    ),
    "instances": lambda n: rows_post("/v1/models/double:predict", {"instances": rows(n).tolist()}),
    "columns": lambda n: rows_post(
        "/v1/models/double:predict", {"inputs": {"x": rows(n).tolist()}}
    ),
    "a data frame": lambda n: rows_post("/invocations?model=double", {
        "dataframe_split": {"columns": [f"c{i}" for i in range(16)], "data": rows(n).tolist()}}),
    "records": lambda n: rows_post("/invocations?model=double", {
        "dataframe_records": [{f"\u00e9{i}": v for i, v in enumerate(range(16))}] * (1 + n % 3)}),
    "bad rows": lambda n: rows_post("/v1/models/double:predict", {"instances": [[1] * (n % 16)]}),
    "models of v1": lambda n: get(["/v1/models", "/v1/models/double", "/ping"][n % 3]),
    "failing runs": lambda n: web.infer("gather", {"x": np.array([99], "<i8")}),
    "large replies": lambda n: web.infer("large", {"x": np.array([n], "<f4")}, binary=n % 2 == 0),
    "expired": lambda n: web.infer("double", {"x": X}, parameters={"timeout": 1}),
    "health": lambda n: get("/v2/health/ready"),
    "metadata": lambda n: get(["/v2", "/v2/models/double", "/v2/models/double/config"][n % 3]),
    "statistics": lambda n: get(["/v2/models/stats", "/v2/models/double/stats"][n % 2]),
    "the page": lambda n: get("/"),
    "its figures": lambda n: get("/figures"),
    "not found": lambda n: get(f"/v2/{n}"),
    "not there": lambda n: get("/v2/cudasharedmemory/status"),
    "an unknown model": lambda n: post(web.path(f"m{n}"), bytes(n)),
    "no JSON": lambda n: post(web.path("double"), GOOD_JSON[:n]),
    "bad values": lambda n: post(web.path("double"), GOOD_JSON.replace(b"15.0", b'"%d"' % n)),
    "bad blobs": lambda n: web.infer("double", {"x": X[:, : n % 16].copy()}),
    "compressed": lambda n: web.compressed(web.infer("double", {"x": X}, binary=n % 2 == 0),
                                           ["gzip", "deflate"][n % 3 == 0]),
    "not compressed": lambda n: post(web.path("double"), bytes(n), "Content-Encoding: gzip"),
    "a foreign page": lambda n: get("/v2", "Origin: http://evil.example"),
}  # fmt: skip
CLOSING: list[bytes] = [
    get("/v2", version="HTTP/1.7"), get("/v2", host=None), post("/v2", b"x", "Content-Length: 9"),
    post(web.path("double"), b"", length=1 << 40), get("/v2", f"A: {'b' * 9000}"),
    post(web.path("double"), b"zz\r\n", "Transfer-Encoding: chunked", length=None),
    web.infer("double", {"x": X}, headers=["Connection: close"]),
]  # fmt: skip


def send_all(server: Server, make: Callable[[int], bytes], count: int) -> None:
    """One after another, piled up and in pieces, with clients that stay and that leave."""
    with Http(server.port) as http:
        for number in range(count // 2):
            http.query(make(number))
        http.send(b"".join(make(number) for number in range(count // 4)))
        http.answers(count // 4)
        for number in range(count // 10):
            data = make(number)
            for at in range(0, len(data), max(1, len(data) // 7)):
                http.send(data[at : at + max(1, len(data) // 7)])
            http.answer()
    leaver = Http(server.port)
    leaver.send(make(1) * 5)
    leaver.reset()
    server.wait_until_idle()


def send_closing(server: Server, count: int) -> None:
    for number in range(count):
        with Http(server.port) as http:
            http.send(CLOSING[number % len(CLOSING)])
            assert http.answer().closes
    server.wait_until_idle()


@pytest.mark.parametrize("queue", ["mpmc", "inline"])
def test_no_http_request_allocates(
    serve: Serve,
    tmp_path: Path,
    shim: Path,
    queue: str,
) -> None:
    with counted(serve, tmp_path, shim, "lumen_arena", queue) as (server, counts):
        for make in MAKERS.values():  # warm up: ONNX Runtime's own memory, lazily bound symbols
            send_all(server, make, 12)
        send_closing(server, 20)
        for name, make in MAKERS.items():
            before = counts.read()
            send_all(server, make, 40)
            after = counts.read()
            assert difference(after[0], before[0]) == {}, f"{name}: from the library"
            if queue != "inline":  # there ONNX Runtime's own calls are the I/O thread's
                assert difference(after[1], before[1]) == {}, f"{name}: on the I/O thread"
        before = counts.read()
        send_closing(server, 60)
        after = counts.read()
        assert difference(after[0], before[0]) == {}, "from the library"
        if queue != "inline":
            assert difference(after[1], before[1]) == {}, "on the I/O thread"
        assert counts.found, "the counting never saw the library"
