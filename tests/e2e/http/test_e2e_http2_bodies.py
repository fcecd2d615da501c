"""Bodies over HTTP/2: they lie aside while their request waits, are received where they belong once
it has its slot, and hold nobody else, whatever becomes of them."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import graphs
import numpy as np
import pytest
import tls
import web
from conftest import ZOO_BLOCK_COLUMNS, Serve, zoo_settings
from harness import Canary, Server, eventually, processes_of_models, stand_still
from http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    SETTINGS,
    WINDOW,
    Http2,
    Raw,
    fields_of,
    frame,
    literal,
)
from test_e2e_http2 import LIVE, REFUSED_STREAM, WHOLE, X
from web import Http, get

BLOCK: Final = np.random.default_rng(1).random((1, ZOO_BLOCK_COLUMNS), np.float32)
WINDOW_BYTES: Final = 128 << 10  # that a stream has before its request has a place


@contextlib.contextmanager
def no_place(serve: Serve, folder: Any) -> Iterator[tuple[Server, Callable[[], None]]]:
    """A server whose requests wait until the function beside it is called."""
    settings = zoo_settings(folder)
    apart = {"name": "apart", "path": str(graphs.double(folder / "apart.onnx"))}
    settings["models"].append(apart | {"isolation": "process"})  # type: ignore[attr-defined]
    settings["server"] |= {  # type: ignore[operator]
        "max_in_flight": 1, "overload": "wait", "hang_seconds": 600,
    }  # fmt: skip
    server = serve(settings)
    [child] = processes_of_models(server.pid)
    with Http(server.port) as holder:
        stand_still(child)
        holder.send(web.infer("apart", {"x": X}))
        eventually(lambda: server.figures().slots_in_use == 1, "a request in flight")
        yield server, lambda: os.kill(child, signal.SIGCONT)
        assert holder.answer().code == 200


def test_a_stream_that_waits_holds_no_other(serve: Serve, tmp_path: Any) -> None:
    """Its body lies aside, as far as its window goes, and the connection is read on."""
    fields, body = fields_of(web.infer("block", {"x": BLOCK}))
    with no_place(serve, tmp_path) as (server, free), Http2(server.port) as link:
        link.query(get("/v2/health/live"))  # its settings are here
        small = [link.send(web.infer("double", {"x": X + number})) for number in range(9)]
        large = link.begin(fields)
        link.body(large, body[:100_000], ends=False)
        assert link.query(get("/v2/health/live")).code == 200
        assert not link.answers.keys() & {*small, large}
        free()
        link.body(large, body[100_000:])
        for number, answer in enumerate(link.wait(small)):
            np.testing.assert_array_equal(answer.array("y"), 2 * (X + number))
        np.testing.assert_array_equal(link.wait([large])[0].array("y"), 2 * BLOCK)


@pytest.mark.parametrize("has_length", [True, False])
def test_a_window_is_credit_for_a_place(serve: Serve, tmp_path: Any, has_length: bool) -> None:
    """Who waits may send what its shelf holds, and the rest when its request has its slot."""
    fields, body = fields_of(web.infer("block", {"x": BLOCK}))
    if not has_length:
        fields = [field for field in fields if field[0] != "content-length"]
    with no_place(serve, tmp_path) as (server, free), Http2(server.port) as link:
        link.query(get("/v2/health/live"))
        large = link.begin(fields)
        link.body(large, body[:WINDOW_BYTES], ends=False)
        assert link.query(get("/v2/health/live")).code == 200
        assert link.state.local_flow_control_window(large) == 0
        free()
        link.body(large, body[WINDOW_BYTES:])
        np.testing.assert_array_equal(link.wait([large])[0].array("y"), 2 * BLOCK)


def test_many_streams_wait(serve: Serve, tmp_path: Path) -> None:
    """As many as there may be, on several connections; none is lost."""
    with contextlib.ExitStack() as stack:
        server, free = stack.enter_context(no_place(serve, tmp_path))
        links = [stack.enter_context(Http2(server.port)) for _ in range(6)]
        asked = []
        for number, link in enumerate(links[:5]):
            of = [link.send(web.infer("double", {"x": X + number})) for _ in range(60)]
            asked.append((link, number, of))
        late = links[5].send(web.infer("double", {"x": X}))
        assert links[5].query(get("/v2/health/live")).code == 200
        free()
        for link, number, of in asked:
            for answer in link.wait(of):
                np.testing.assert_array_equal(answer.array("y"), 2 * (X + number))
        np.testing.assert_array_equal(links[5].wait([late])[0].array("y"), 2 * X)


def test_more_waits_than_there_is_room_for(serve: Serve, tmp_path: Path) -> None:
    """Row 48. What is too much is refused, on connections that have much; others have room."""
    fields, body = fields_of(web.infer("block", {"x": BLOCK}))
    with contextlib.ExitStack() as stack:
        server, free = stack.enter_context(no_place(serve, tmp_path))
        links = []
        while not any(REFUSED_STREAM in link.resets.values() for link in links):
            links.append(link := stack.enter_context(Http2(server.port)))
            assert link.query(get("/v2/health/live")).code == 200
            for _ in range(60):
                link.body(link.begin(fields), body[:WINDOW_BYTES], ends=False)
            assert link.query(get("/v2/health/live")).code == 200
        refused = links[-1].resets
        assert set(refused.values()) == {REFUSED_STREAM}
        assert len(refused) < 60  # and not all
        late = stack.enter_context(Http2(server.port))
        waits = late.send(web.infer("double", {"x": X}))
        assert late.query(get("/v2/health/live")).code == 200
        for link in links:
            link.__exit__(None, None, None)
        free()
        np.testing.assert_array_equal(late.wait([waits])[0].array("y"), 2 * X)
    server.wait_until_idle()


@pytest.mark.parametrize("size", [200, 16_000])
def test_padding_is_credited(zoo: Server, size: int) -> None:
    """A body of more padding than a window holds goes on all the same; of frames that are received
    where they belong none of it is the body's."""
    fields, body = fields_of(web.infer("block", {"x": BLOCK}))
    with Http2(zoo.port) as link:
        stream = link.begin(fields)
        for at in range(0, len(body), size):
            while link.state.local_flow_control_window(stream) < size + 300:
                link.read()
            last = at + size >= len(body)
            link.state.send_data(stream, body[at : at + size], end_stream=last, pad_length=255)
            link.flush()
        assert size > 200 or len(body) // size * 256 > 2 * WINDOW_BYTES
        np.testing.assert_array_equal(link.wait([stream])[0].array("y"), 2 * BLOCK)


# ---- where they belong ----


@pytest.fixture(params=["plain", "tls"])
def dial(
    serve: Serve, tmp_path: Path, request: pytest.FixtureRequest
) -> tuple[Server, Callable[[], Raw]]:
    """A server that waits for half a second for bodies, and what connects to it."""
    files = tls.make(tmp_path / "tls")
    settings = zoo_settings(tmp_path)
    settings["server"] |= {  # type: ignore[operator]
        "tls": files.settings(), "header_timeout_ms": 500, "body_bytes_per_second": "1GiB",
    }  # fmt: skip
    server = serve(settings)
    if request.param == "plain":
        return server, lambda: Raw(server.port)
    port, made = tls.port_of(server), tls.context(files, ["h2"])
    return server, lambda: Raw(tls.connect(port, made))


def post_block(stream: int) -> tuple[bytes, bytes]:
    """A head with the stream's number, and its body."""
    fields, body = fields_of(web.infer("block", {"x": BLOCK}))
    return frame(HEADERS, stream, literal(*fields), END_HEADERS), body


def test_a_body_that_stalls_lets_go_of_its_slot(dial: tuple[Server, Callable[[], Raw]]) -> None:
    """Row 48. In the middle of a frame that is received to the slot: the stream alone ends, and
    what is left of the frame is dropped."""
    server, connect = dial
    head, body = post_block(3)
    with connect() as link:
        link.send(frame(HEADERS, 1, LIVE, WHOLE))
        link.until(DATA, 1)
        part = frame(DATA, 3, body[:100_000])
        link.send(head + part[:40_000])
        eventually(lambda: server.figures().slots_in_use == 1, "a body on its way")
        assert b"408" in link.until(HEADERS, 3)
        eventually(lambda: server.figures().slots_in_use == 0, "its slot")
        link.send(part[40_000:] + frame(HEADERS, 5, LIVE, WHOLE))
        assert link.until(DATA, 5) == b'{"live":true}'
    server.wait_until_idle()


def test_a_client_that_leaves_in_the_middle(dial: tuple[Server, Callable[[], Raw]]) -> None:
    server, connect = dial
    for _ in range(20):
        with connect() as link:
            head, body = post_block(1)
            link.send(head + frame(DATA, 1, body[:100_000])[:40_000])
    server.wait_until_idle()


@pytest.mark.parametrize("most", [4096, 5000, 16384, 70_000, 1 << 20])
def test_bodies_that_come_together(dial: tuple[Server, Callable[[], Raw]], most: int) -> None:
    """Of three streams, frame after frame in turn, with others between them."""
    server, connect = dial
    with Canary(server), connect() as link:
        heads = [post_block(stream)[0] for stream in (1, 3, 5)]
        body = post_block(1)[1]
        link.send(b"".join(heads))
        sent, room = [0, 0, 0], [128 << 10] * 3
        frames = iter(link.frames())

        def send(number: int) -> None:
            count = min(most, room[number], len(body) - sent[number])
            last = sent[number] + count == len(body)
            piece = body[sent[number] : sent[number] + count]
            flags = END_STREAM if last else 0
            if piece:
                link.send(frame(DATA, 2 * number + 1, piece, flags) + frame(PING, 0, bytes(8)))
            sent[number] += count
            room[number] -= count

        answers: dict[int, bytearray] = {1: bytearray(), 3: bytearray(), 5: bytearray()}
        left = {1, 3, 5}
        while left:
            for number in range(3):
                send(number)
            if all(at == len(body) or not more for at, more in zip(sent, room, strict=True)):
                kind, flags, of, payload = next(frames)
                if kind == WINDOW and of:
                    room[of // 2] += struct.unpack(">I", payload)[0]
                if kind == DATA:
                    answers[of] += payload
                    link.send(
                        b"".join(
                            frame(WINDOW, to, struct.pack(">I", 1 << 20))
                            for to in (0, of)
                            if payload
                        )
                    )
                    left -= {of} if flags & END_STREAM else set()
        for answer in answers.values():
            assert answer.endswith((2 * BLOCK).tobytes())


def test_who_takes_no_reply_is_ended_alone(serve: Serve, tmp_path: Path) -> None:
    """Row 48. Its windows are wide, and its socket is full: the reply's time is up."""
    settings = zoo_settings(tmp_path)
    settings["server"] |= {"reply_timeout_ms": 300, "arena_bytes": "256MiB"}  # type: ignore[operator]
    server = serve(settings)
    fields, body = fields_of(web.infer("large", {"x": np.ones(1, "<f4")}))
    wide = frame(SETTINGS, 0, struct.pack(">HI", 4, (1 << 31) - 1))
    with Canary(server), Http(server.port) as other, contextlib.ExitStack() as stack:
        for _ in range(3):
            link = stack.enter_context(Raw(server.port))
            link.send(wide + frame(WINDOW, 0, struct.pack(">I", 1 << 30)))
            for stream in range(1, 20, 2):
                link.send(frame(HEADERS, stream, literal(*fields), END_HEADERS))
                link.send(frame(DATA, stream, body, END_STREAM))
        eventually(lambda: server.figures().io["connections_timed_out"] >= 3, "their ends")
        assert other.query(get("/v2/health/live")).code == 200
    server.wait_until_idle()
