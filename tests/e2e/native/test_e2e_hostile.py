"""Bad input: each case costs only its own connection, and leaves nothing behind.

Every test runs beside a canary on a connection of its own, whose answers must stay right during and
after the case. Afterwards the `zoo` fixture looks for the same process, no open connection, no slot
in use, the file descriptors of before and an account that balances.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import wire
from conftest import ZOO_LARGE_COLUMNS, Serve
from harness import Canary, Server, eventually
from web import Http

X = np.arange(16, dtype="<f4")
ANSWER = (X + X).tobytes()
MAX_REQUEST_BYTES = 1 << 20
TLS_HELLO = (
    bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + b"\x20" + bytes(range(32))
    + bytes.fromhex("0004130113020100") + bytes(120)
)  # fmt: skip

NOT_THIS_PROTOCOL = {
    "tls": TLS_HELLO,
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "next version": b"LMN2" + bytes(60),
    "a reply": b"LMR1" + bytes(60),
    "lower case": b"lmn1" + bytes(60),
    "shifted by one": b"\0" + wire.ping(1) + bytes(31),
}
NOT_EVEN_HTTP = {
    "ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
    "a long letter": b"All work and no play makes Jack a dull boy\n" * 1000,
    "http 0.9": b"GET /\r\n",
    "no host": b"POST /v2/models/double/infer HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}\n",
}
# Shorter than a request: their first bytes must be enough to refuse these.
SHORT = {
    "newline": b"\n\n\n\n",
    "tls alert": bytes.fromhex("15030100020228"),
}


@pytest.fixture(autouse=True)
def canary(zoo: Server) -> Iterator[Canary]:
    with Canary(zoo) as running:
        yield running


def usable(connection: wire.Wire, number: int = 900) -> None:
    """The connection is as good as new."""
    assert connection.ask(wire.ping(number)).id == number
    reply = connection.ask(wire.frame(X.tobytes(), id=number + 1))
    assert (reply.status, reply.id, reply.payload) == (wire.OK, number + 1, ANSWER)


def expect_refused_for_good(connection: wire.Wire, status: int, number: int) -> wire.Reply:
    reply = connection.reply()
    assert (reply.status, reply.id) == (status, number)
    connection.expect_end()
    return reply


@pytest.mark.parametrize("name", NOT_THIS_PROTOCOL)
def test_another_protocol_is_refused_and_the_connection_ends(zoo: Server, name: str) -> None:
    """Row 1: what does not begin with LMN1 is refused as HTTP."""
    with Http(zoo.port) as connection:
        connection.send(NOT_THIS_PROTOCOL[name])
        assert connection.answer().code == 400
        # Half-closed: what the client still says is dropped, none of it is taken for a request.
        connection.expect_end()
        connection.send(wire.ping(666))
        connection.finish()


@pytest.mark.parametrize("name", NOT_EVEN_HTTP)
def test_bad_http_is_refused_in_its_own_words(zoo: Server, name: str) -> None:
    """Row 1."""
    with zoo.connect() as connection:
        connection.send(NOT_EVEN_HTTP[name])
        connection.finish()
        said = connection.expect_closed()
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 ")), said
    assert b"\r\nConnection: close\r\n" in said
    assert b'{"error":"' in said


@pytest.mark.parametrize("name", SHORT)
def test_a_short_greeting_of_another_protocol_is_answered_too(zoo: Server, name: str) -> None:
    """Row 1."""
    with Http(zoo.port) as connection:
        connection.send(SHORT[name])
        connection.expect_refusal(400)


def test_wrong_magic_after_good_frames(zoo: Server) -> None:
    """Row 5: a length smaller than the content: what follows is no header."""
    slow = np.array([300], "<i8").tobytes()
    with zoo.connect() as connection:
        connection.send(
            wire.frame(slow, model=zoo.models["slow"], id=1)
            + wire.frame(X.tobytes(), id=2)
            + b"trailing bytes that nobody announced"
        )
        replies = connection.replies(3)
        assert {number: reply.status for number, reply in replies.items()} == {
            0: wire.BAD_REQUEST, 1: wire.OK, 2: wire.OK,
        }  # fmt: skip
        connection.expect_end()


# Payloads are made of pings: a byte of a refused body that is read as a request shows as reply 666.
DECOY = wire.ping(666)

BAD_FRAMES: dict[str, tuple[int, Callable[[Server], bytes]]] = {
    "kind 0": (1, lambda zoo: wire.frame(DECOY, kind=0, id=40)),
    "kind 4": (1, lambda zoo: wire.frame(DECOY, kind=4, id=40)),
    "kind 255, no payload": (1, lambda zoo: wire.frame(kind=255, id=40)),
    "kind 4, large": (1, lambda zoo: wire.frame(DECOY * 8000, kind=4, id=40)),
    "encoding 2": (1, lambda zoo: wire.frame(DECOY * 2, encoding=2, id=40)),
    "encoding 255": (1, lambda zoo: wire.frame(DECOY * 2, encoding=255, id=40)),
    "flag 2": (1, lambda zoo: wire.frame(DECOY * 2, flags=4, id=40)),
    "flag 15": (1, lambda zoo: wire.frame(DECOY * 2, flags=0x8000, id=40)),
    "all flags": (1, lambda zoo: wire.frame(DECOY * 2, flags=0xFFFF, id=40)),
    "reserved": (1, lambda zoo: wire.frame(DECOY * 2, reserved=1, id=40)),
    "ping with payload": (1, lambda zoo: wire.frame(DECOY, kind=wire.PING, id=40)),
    "ping with shapes": (1, lambda zoo: wire.frame(DECOY, kind=wire.PING, flags=2, id=40)),
    "describe with payload": (1, lambda zoo: wire.frame(b"x", kind=wire.DESCRIBE, id=40)),
    "ping, credential not there": (
        1, lambda zoo: wire.frame(kind=wire.PING, flags=wire.CREDENTIAL, id=40),
    ),
    "model one too high": (
        2, lambda zoo: wire.frame(DECOY * 2, model=len(zoo.models), id=40),
    ),
    "model 65535": (2, lambda zoo: wire.frame(DECOY * 2, model=65535, id=40)),
    "model 65535, no payload": (2, lambda zoo: wire.frame(model=65535, id=40)),
    "no payload": (1, lambda zoo: wire.frame(id=40)),
    "one byte": (1, lambda zoo: wire.frame(b"L", id=40)),
    "a byte short": (1, lambda zoo: wire.frame((DECOY * 2)[:63], id=40)),
    "a byte more": (1, lambda zoo: wire.frame(DECOY * 2 + b"L", id=40)),
    "as large as allowed": (1, lambda zoo: wire.frame(bytes(MAX_REQUEST_BYTES), id=40)),
    "two rows said, one sent": (1, lambda zoo: wire.frame(DECOY * 2, rows=2, id=40)),
    "one row said, two sent": (1, lambda zoo: wire.frame(DECOY * 4, rows=1, id=40)),
    "2^32-1 rows": (1, lambda zoo: wire.frame(DECOY * 2, rows=2**32 - 1, id=40)),
    "rows that overflow to 64 bytes": (1, lambda zoo: wire.frame(DECOY * 2, rows=2**26 + 1, id=40)),
    "rows of a model without": (
        1, lambda zoo: wire.frame(DECOY * 2, model=zoo.models["tag"], rows=2, id=40),
    ),
    "rgb8 for no picture": (1, lambda zoo: wire.frame(DECOY * 2, encoding=wire.RGB8, id=40)),
    "rgb8 of another size": (
        1,
        lambda zoo: wire.frame(DECOY * 2, encoding=wire.RGB8, model=zoo.models["nhwc"], id=40),
    ),
    "rgb8 with a tensor's bytes": (
        1,
        lambda zoo: wire.frame(
            bytes(5 * 7 * 3 * 4), encoding=wire.RGB8, model=zoo.models["nhwc"], id=40
        ),
    ),
    "credential not there": (
        1, lambda zoo: wire.frame(DECOY * 2, flags=wire.CREDENTIAL, id=40),
    ),
    "shapes not there": (1, lambda zoo: wire.frame(DECOY * 2, flags=wire.SHAPES, id=40)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FRAMES)
@pytest.mark.parametrize("cut", [None, 32, 40], ids=["whole", "after header", "in the payload"])
def test_a_bad_request_in_a_good_frame_costs_nothing_else(
    zoo: Server, name: str, cut: int | None
) -> None:
    """Rows 2, 3, 9, 10 and 12."""
    status, make = BAD_FRAMES[name]
    bad = make(zoo)
    before = zoo.figures()
    with zoo.connect() as connection:
        connection.send(wire.frame(X.tobytes(), id=30))
        if cut is not None and cut < len(bad):
            connection.send(bad[:cut])
            eventually(
                lambda: zoo.figures().io["requests"] > before.io["requests"] + 1, "the header"
            )
            bad = bad[cut:]
        connection.send(bad + wire.frame(X.tobytes(), id=50))
        replies = connection.replies(3)
        assert {number: reply.status for number, reply in replies.items()} == {
            30: wire.OK, 40: status, 50: wire.OK,
        }  # fmt: skip
        usable(connection)
        connection.finish()
        connection.expect_end()


SHAPE_BLOCKS = {
    "no tensors": (0, 2, 1, 16),
    "two tensors": (2, 2, 1, 16),
    "2^32-1 tensors": (2**32 - 1, 2, 1, 16),
    "rank 1": (1, 1, 1, 16),
    "rank 2^32-1": (1, 2**32 - 1, 1, 16),
    "other rows": (1, 2, 2, 16),
    "rows 0": (1, 2, 0, 16),
    "other columns": (1, 2, 1, 15),
    "columns that wrap": (1, 2, 1, 2**32 - 16),
    "swapped": (1, 2, 16, 1),
}


@pytest.mark.parametrize("name", SHAPE_BLOCKS)
def test_a_shape_block_that_says_something_else(zoo: Server, name: str) -> None:
    """Rows 8 and 9."""
    block = struct.pack("<4I", *SHAPE_BLOCKS[name])
    with zoo.connect() as connection:
        reply = connection.ask(wire.frame(block + X.tobytes(), flags=wire.SHAPES, id=40))
        assert (reply.status, reply.id) == (wire.BAD_REQUEST, 40)
        assert "shape" in reply.text
        usable(connection)


def test_shape_blocks_of_models_with_several_inputs(zoo: Server) -> None:
    """Row 8."""
    body = bytes(16 + 12 + 8)
    with zoo.connect() as connection:
        for shapes, status in (
            ([(1, 4), (3,), (1,)], wire.OK),
            ([(1, 4), (3,), (2,)], wire.BAD_REQUEST),
            ([(3,), (1, 4), (1,)], wire.BAD_REQUEST),
            ([(1, 4), (3,), (1,)], wire.OK),
        ):
            reply = connection.ask(
                wire.frame(
                    wire.shape_block(shapes) + body,
                    model=zoo.models["several"],
                    flags=wire.SHAPES,
                    id=3,
                )
            )
            assert (reply.status, reply.id) == (status, 3)


@pytest.mark.parametrize("length", [MAX_REQUEST_BYTES + 1, 2**31 - 1, 2**31, 2**32 - 32, 2**32 - 1])
@pytest.mark.parametrize("kind", [wire.INFER, wire.PING, 9])
def test_a_payload_larger_than_allowed(zoo: Server, length: int, kind: int) -> None:
    """Row 3."""
    before = zoo.rss_bytes
    with zoo.connect() as connection:
        # Of the body only some pings come, none of which may be answered.
        connection.send(wire.frame(DECOY * 20, kind=kind, id=40, length=length))
        status = wire.TOO_LARGE if kind == wire.INFER else wire.BAD_REQUEST
        expect_refused_for_good(connection, status, 40)
    assert zoo.rss_bytes < before + (8 << 20)


def test_a_client_that_goes_on_sending_after_a_refusal(zoo: Server) -> None:
    """Row 3: the server drops a little more, then ends the connection for good."""
    with zoo.connect() as connection:
        connection.send(wire.frame(id=40, length=2**31))
        assert connection.reply().status == wire.TOO_LARGE
        with pytest.raises(ConnectionError):
            connection.send(bytes(400 << 20))


def test_a_refusal_reaches_a_client_that_is_still_sending(zoo: Server) -> None:
    """Row 3: a connection closed at once would take its own answer along."""
    for _attempt in range(100):
        began = time.monotonic()
        with zoo.connect() as connection:
            connection.send(wire.frame(id=40, length=2**31))
            for _ in range(20):
                time.sleep(0.01)
                connection.send(bytes(100))
            if time.monotonic() - began < 0.7:  # the server waits for a second
                assert connection.reply().status == wire.TOO_LARGE
                return
    raise AssertionError("not once in 100 times could 2 KB be sent within 0.7 s")


def close(connection: wire.Wire) -> None:
    connection.close()


def reset(connection: wire.Wire) -> None:
    connection.reset()


def half_close(connection: wire.Wire) -> None:
    connection.finish()
    assert connection.expect_closed() == b""
    connection.close()


ENDS = pytest.mark.parametrize("end", [close, reset, half_close])


@ENDS
@pytest.mark.parametrize("count", [0, 1, 3, 4, 31])
def test_the_end_in_the_middle_of_a_header(
    zoo: Server, end: Callable[[wire.Wire], None], count: int
) -> None:
    """Row 4."""
    before = zoo.figures().io["bytes_in"]
    connection = zoo.connect()
    connection.send(wire.ping(1)[:count])
    eventually(lambda: zoo.figures().io["bytes_in"] >= before + count, "what was sent")
    end(connection)


@ENDS
def test_the_end_in_the_middle_of_a_header_after_a_request(
    zoo: Server, end: Callable[[wire.Wire], None]
) -> None:
    """Row 4."""
    connection = zoo.connect()
    connection.send(wire.frame(X.tobytes(), id=1) + wire.ping(2)[:20])
    assert connection.reply().payload == ANSWER
    end(connection)


@ENDS
@pytest.mark.parametrize("count", [32, 33, 95])
def test_the_end_in_the_middle_of_a_body(
    zoo: Server, end: Callable[[wire.Wire], None], count: int
) -> None:
    """Rows 4 and F11."""
    before = zoo.figures()
    connection = zoo.connect()
    connection.send(wire.frame(X.tobytes(), id=1)[:count])
    eventually(
        lambda: zoo.figures().slots_in_use > 0 and zoo.figures().requests > before.requests,
        "the slot of a body that is coming",
    )
    end(connection)
    eventually(lambda: zoo.figures().since(before).get("io.requests_gone") == 1, "one gone")


@ENDS
def test_the_end_in_the_middle_of_a_large_body(
    zoo: Server, end: Callable[[wire.Wire], None]
) -> None:
    """Row 4."""
    data = wire.frame(bytes(280_000), model=zoo.models["block"], id=1)
    before = zoo.figures()
    connection = zoo.connect()
    connection.send(data[:150_000])
    eventually(lambda: zoo.figures().slots_in_use > 0, "the slot of a body that is coming")
    end(connection)
    eventually(lambda: zoo.figures().since(before).get("io.requests_gone") == 1, "one gone")


@ENDS
def test_the_end_in_the_middle_of_a_body_that_is_dropped(
    zoo: Server, end: Callable[[wire.Wire], None]
) -> None:
    """Row 4."""
    connection = zoo.connect()
    connection.send(wire.frame(DECOY * 2, model=65535, id=4, length=100_000))
    assert connection.reply().status == wire.UNKNOWN_MODEL
    end(connection)


@pytest.mark.parametrize("end", [close, reset])
@pytest.mark.parametrize("count", [1, 10, 200])
def test_clients_that_leave_before_their_answers(
    zoo: Server, end: Callable[[wire.Wire], None], count: int
) -> None:
    """Row 18."""
    data = b"".join(wire.frame(X.tobytes(), id=number) for number in range(count))
    for _ in range(20):
        connection = zoo.connect()
        connection.send(data)
        end(connection)


@pytest.mark.parametrize("end", [close, reset])
def test_clients_that_leave_while_queued_and_while_running(
    zoo: Server, end: Callable[[wire.Wire], None]
) -> None:
    """Row 18."""
    before = zoo.figures()
    x = np.array([800], "<i8").tobytes()
    data = b"".join(
        wire.frame(x, model=zoo.models["slow"], id=number) for number in range(8)
    )  # two run, six wait
    connection = zoo.connect()
    connection.send(data)
    eventually(lambda: zoo.figures().requests >= before.requests + 8, "the load")
    end(connection)
    with zoo.connect() as other:
        usable(other)
    if end is reset:  # nobody to answer: what was still queued is not run
        eventually(lambda: zoo.figures().slots_in_use <= 1, "the slots")


@pytest.mark.parametrize("end", [close, reset])
def test_clients_that_leave_with_half_a_reply(
    zoo: Server, end: Callable[[wire.Wire], None]
) -> None:
    """Row 18."""
    request = wire.frame(np.float32(2).tobytes(), model=zoo.models["large"], id=1)
    for _ in range(10):
        connection = zoo.connect(receive_buffer_bytes=4096)
        connection.send(request * 12)
        assert len(connection.socket.recv(1000)) > 0
        end(connection)


def test_a_slow_reader_of_large_replies(zoo: Server) -> None:
    """Rows 16 and F14: its replies wait in the server, large and small; none mixes with another."""
    large = zoo.models["large"]
    with zoo.connect(receive_buffer_bytes=4096) as connection:
        connection.send(
            b"".join(
                wire.frame(np.float32(number).tobytes(), model=large, id=number)
                + wire.ping(100 + number)
                for number in range(16)
            )
        )
        eventually(lambda: zoo.figures().slots_in_use > 0, "replies that wait")
        replies = connection.replies(32)
    for number in range(16):
        expected = np.full(ZOO_LARGE_COLUMNS, number, "<f4").tobytes()
        assert replies[number].payload == expected
        assert (replies[100 + number].status, replies[100 + number].payload) == (wire.OK, b"")


@pytest.mark.parametrize("end", [close, reset])
@pytest.mark.parametrize(
    "request_bytes",
    [wire.ping(1), wire.frame(kind=wire.DESCRIBE, id=1), wire.frame(id=1), wire.frame(X.tobytes())],
    ids=["pings", "describes", "bad requests", "tensors"],
)
def test_a_client_that_never_reads(
    zoo: Server, request_bytes: bytes, end: Callable[[wire.Wire], None]
) -> None:
    """Row 16."""
    before = zoo.rss_bytes
    connection = zoo.connect(receive_buffer_bytes=4096)
    connection.send_until_blocked(request_bytes * 500, 10_000 * len(request_bytes))
    with zoo.connect() as other:
        usable(other)
    assert zoo.rss_bytes < before + (8 << 20)
    end(connection)


def test_many_clients_that_never_read(zoo: Server) -> None:
    """Row 16: more of them than there are slots for single replies."""
    before = zoo.rss_bytes
    data = wire.frame(kind=wire.DESCRIBE, id=1) * 2000
    connections = [zoo.connect(receive_buffer_bytes=4096) for _ in range(300)]
    try:
        for connection in connections:
            connection.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.socket.send(data)
        with zoo.connect() as other:
            usable(other)
        assert zoo.rss_bytes < before + (16 << 20)
    finally:
        for connection in connections:
            connection.close()


def test_connections_that_say_nothing(zoo: Server) -> None:
    """Rows 19 and F24."""
    connections = [zoo.connect() for _ in range(500)]
    try:
        eventually(lambda: zoo.figures().connections_open >= 501, "500 guests and the canary")
        assert zoo.figures().slots_in_use <= 1
        usable(connections[250])
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("end", [close, reset])
def test_a_storm_of_connections(zoo: Server, end: Callable[[wire.Wire], None]) -> None:
    """Row 19."""
    for number in range(1000):
        connection = zoo.connect()
        if number % 3 == 0:
            connection.send(wire.ping(number))
        end(connection)


def test_random_bytes(zoo: Server) -> None:
    """Row 22."""
    random = np.random.default_rng(11)
    for _ in range(200):
        with zoo.connect() as connection:
            connection.send(random.bytes(int(random.integers(0, 300))))
            connection.finish()
            connection.expect_closed()


def test_frames_with_flipped_bits(zoo: Server) -> None:
    """Row 22: whatever a bit of a header turns into, the connection ends or goes on."""
    good = wire.frame(X.tobytes(), id=0)
    for bit in range(32 * 8):
        data = bytearray(good)
        data[bit // 8] ^= 1 << (bit % 8)
        with zoo.connect() as connection:
            connection.send(bytes(data) + wire.ping(5))
            connection.finish()
            rest = connection.expect_closed()
        assert len(rest) == 0 or rest[:4] in (b"LMR1", b"HTTP")


def test_more_clients_than_descriptors(serve: Serve, zoo: Server) -> None:
    """Rows 19 and F10: those who are in are served, the others when somebody leaves."""
    server = serve(
        {"models": [{"name": "digits", "path": "builtin:digits"}]},
        prefix=[
            sys.executable,
            "-c",
            "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96)); "
            "os.execv(sys.argv[1], sys.argv[1:])",
        ],
    )
    x = np.zeros(64, "<f4").tobytes()
    first = server.connect()
    assert first.ask(wire.frame(x, id=1)).status == wire.OK
    crowd = [server.connect() for _ in range(150)]  # the kernel takes them in; the server cannot
    for number in range(20):
        assert first.ask(wire.frame(x, id=number)).status == wire.OK
    for connection in crowd:
        connection.close()
    with server.connect() as late:
        assert late.ask(wire.ping(3)).id == 3
    first.close()


def test_more_clients_than_max_connections(serve: Serve, zoo: Server) -> None:
    """Row 19."""
    server = serve(
        {
            "server": {"max_connections": 8},
            "models": [{"name": "digits", "path": "builtin:digits"}],
        }
    )
    guests = [server.connect() for _ in range(8)]
    for number, guest in enumerate(guests):
        assert guest.ask(wire.ping(number)).id == number
    for _ in range(5):
        with server.connect() as ninth:
            assert ninth.expect_closed() == b""
    assert server.figures().io["connections_refused"] == 5
    guests.pop().close()
    eventually(lambda: server.figures().connections_open == 7, "a free place")
    with server.connect() as late:
        assert late.ask(wire.ping(3)).id == 3
    for guest in guests:
        guest.close()
