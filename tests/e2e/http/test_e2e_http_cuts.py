"""HTTP requests cut anywhere, in chunks, and by clients who ask before they send."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
import web
from calls import double, expect, pause, usable
from conftest import ZOO_BLOCK_COLUMNS
from harness import Canary, Server
from web import Http, get, post

LIVE = get("/v2/health/live")

# ---- where it is cut ----


@pytest.mark.parametrize("kind", ["binary", "json", "chunked"])
def test_every_split_of_a_request(zoo: Server, kind: str) -> None:
    request, y = double(7, binary=kind != "json", chunk_bytes=48 if kind == "chunked" else 0)
    stream = request + get("/v2/nothing")
    # Every one in the long form; tests/c/test_http_parser.c and the simulation do so always.
    step = 1 if "LUMEN_E2E_SECONDS" in os.environ else 4
    with Http(zoo.port) as http:
        for at in range(1, len(stream), step):
            before = zoo.figures().io["bytes_in"]
            http.send(stream[:at])
            pause(zoo, before + at, 0.002)
            http.send(stream[at:])
            expect(http.answer(), 7, y)
            assert http.answer().error == "Not Found"


@pytest.mark.parametrize("kind", ["binary", "json", "chunked"])
def test_one_byte_per_segment(zoo: Server, kind: str) -> None:
    request, y = double(8, binary=kind != "json", chunk_bytes=33 if kind == "chunked" else 0)
    with Canary(zoo), Http(zoo.port) as http:
        for _ in range(2):
            for at in range(len(request)):
                http.send(request[at : at + 1])
                time.sleep(0.0003)
            expect(http.answer(), 8, y)


@pytest.mark.parametrize("total", [4095, 4096, 4097, 8192, 12288])
def test_heads_around_the_edges_of_the_buffers(zoo: Server, total: int) -> None:
    """A head that ends at, just before and just after a multiple of 4 KiB."""
    x = np.arange(16, dtype="<f4").reshape(1, 16)
    bare = web.raw("double", x.tobytes(), "A: ", "B: ", "C: ")
    missing = total - len(web.cut(bare)[0])
    pads = ["p" * (missing // 3 + (part < missing % 3)) for part in range(3)]
    request = web.raw("double", x.tobytes(), *(f"{n}: {p}" for n, p in zip("ABC", pads)))  # noqa: B905
    head, body = web.cut(request)
    assert len(head) == total
    with Http(zoo.port) as http:
        for first, second in ((request, b""), (head, body), (head[:-1], head[-1:] + body)):
            before = zoo.figures().io["bytes_in"]
            http.send(first)
            pause(zoo, before + len(first))
            http.send(second + LIVE)
            np.testing.assert_array_equal(http.answer().array("y"), x + x)
            assert http.answer().code == 200


@pytest.mark.parametrize("pad", [0, 1, 3900, 4096, 8000, 8192, 20_000, 300_000])
def test_json_of_any_length_before_blobs(zoo: Server, pad: int) -> None:
    with Http(zoo.port) as http:
        for total in (0, 8191, 8192, 8193):
            request, y = double(5)
            size = len(web.cut(request)[1]) - 64
            padded, _y = double(5, pad_bytes=pad if not total else max(0, total - size))
            head, body = web.cut(padded)
            expect(http.query(padded), 5, y)
            http.send(head)
            pause(zoo, 1 << 62)
            http.send(body)
            expect(http.answer(), 5, y)


def test_large_bodies_in_pieces(zoo: Server) -> None:
    """Bodies over 256 KiB are received another way."""
    random = np.random.default_rng(6)
    with Canary(zoo), Http(zoo.port) as http:
        for piece in (1 << 20, 100_000, 4096, 1447):
            x = np.frombuffer(random.bytes(65_536), "u1")
            z = random.standard_normal((1, ZOO_BLOCK_COLUMNS)).astype("<f4")
            for data, name, y in (
                (web.infer("echo", {"x": x}), "y", x),
                (web.raw("block", z.tobytes()), "y", z + z),
                (web.infer("block", {"x": z}, chunk_bytes=9999), "y", z + z),
            ):
                for at in range(0, len(data), piece):
                    http.send(data[at : at + piece])
                np.testing.assert_array_equal(http.answer().array(name), y)


def test_connections_interleaved(zoo: Server) -> None:
    """Sixteen connections, each with a request half sent while the others' halves come."""
    connections = [Http(zoo.port) for _ in range(16)]
    try:
        for lap in range(3):
            made = [
                double(100 * lap + n, binary=n % 2 == 0, chunk_bytes=40 if n % 3 == 0 else 0)
                for n in range(16)
            ]
            for part in range(5):
                for http, (request, _y) in zip(connections, made, strict=True):
                    size = -(-len(request) // 5)
                    http.send(request[part * size : (part + 1) * size])
            for number, (http, (_request, y)) in enumerate(zip(connections, made, strict=True)):
                expect(http.answer(), 100 * lap + number, y)
    finally:
        for http in connections:
            http.close()


# ---- Expect ----

EXPECT = "Expect: 100-continue"


@pytest.mark.parametrize("kind", ["binary", "json", "chunked", "raw"])
def test_a_client_that_waits_for_continue(zoo: Server, kind: str) -> None:
    request, y = double(
        6, binary=kind != "json", headers=[EXPECT], chunk_bytes=64 if kind == "chunked" else 0
    )
    if kind == "raw":
        request = web.raw("double", (y / 2).tobytes(), "expect: 100-Continue")
    head, body = web.cut(request)
    with Http(zoo.port) as http:
        for _ in range(3):
            http.send(head)
            http.expect_continue()
            http.send(body)
            np.testing.assert_array_equal(http.answer().array("y"), y)
        usable(http)


def test_a_client_that_does_not_wait_for_continue(zoo: Server) -> None:
    """The interim answer may come or not; the final one comes once."""
    with Http(zoo.port) as http:
        for number in range(5):
            request, y = double(number, headers=[EXPECT])
            http.send(request)
            http.skip_continue()
            expect(http.answer(), number, y)
        usable(http)


def test_http_1_0_knows_no_continue(zoo: Server) -> None:
    request, y = double(6, headers=[EXPECT, "Connection: keep-alive"], version="HTTP/1.0")
    head, body = web.cut(request)
    with Http(zoo.port) as http:
        http.send(head)
        pause(zoo, 1 << 62, 0.05)
        http.send(body)
        expect(http.answer(), 6, y)


@pytest.mark.parametrize(
    ("target", "lines", "wanted"),
    [
        ("/v2/models/nobody/infer", [], 404),
        ("/v2/models/double/nothing", [], 404),
        ("/v2/models/double", [], 405),
        ("/v2/models/double/infer", ["Content-Encoding: br"], 415),
        ("/v2/models/double/infer", [f"{web.JSON_LENGTH}: 65"], 400),
        ("/v2/models/double/infer", [f"{web.JSON_LENGTH}: -1"], 400),
        ("/v2/models/tag/infer", [f"{web.JSON_LENGTH}: 0"], 400),
    ],
)
def test_a_refused_body_is_not_asked_for(
    zoo: Server, target: str, lines: list[str], wanted: int
) -> None:
    head, _body = web.cut(post(target, bytes(64), EXPECT, *lines))
    with Http(zoo.port) as http:
        http.send(head)
        # Whether the body comes now nobody can know: a connection that went on would be in doubt.
        http.expect_refusal(wanted)


# ---- chunks ----


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1 << 20])
@pytest.mark.parametrize("binary", [True, False], ids=["blob", "json"])
def test_chunks_of_every_size(zoo: Server, size: int, binary: bool) -> None:
    with Http(zoo.port) as http:
        for number in range(3):
            request, y = double(number, binary=binary, chunk_bytes=size)
            expect(http.query(request), number, y)
        usable(http)


def test_what_chunks_may_have(zoo: Server) -> None:
    request, y = double(4, binary=False)
    body = web.cut(request)[1]
    for coding in ("chunked", "Chunked", "CHUNKED"):
        for chunks in (
            web.chunked(body, 60, extension=";name=value"),
            web.chunked(body, 60, extension=';q="a b";x'),
            web.chunked(body, 60, trailers="X-Sum: 1\r\nY: 2\r\n"),
            # Trailers are never merged: this one would end the connection.
            web.chunked(body, 60, trailers="Connection: close\r\n"),
            web.chunked(body, 60, trailers=f"{web.JSON_LENGTH}: 3\r\n"),
            f"{len(body):X}\r\n".encode() + body + b"\r\n0\r\n\r\n",
            f"{len(body):016x}\r\n".encode() + body + b"\r\n0000\r\n\r\n",
        ):
            with Http(zoo.port) as http:
                data = post(web.path("double"), chunks, f"Transfer-Encoding: {coding}", length=None)
                expect(http.query(data), 4, y)
                usable(http)
