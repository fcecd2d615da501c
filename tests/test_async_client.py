"""The asyncio client against a peer on a real socket: pipelining, order, cancelling, failing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from peer import DESCRIPTION, Connection, Peer, Request, answer, behave, reply
from PIL import Image
from test_client_failures import (
    MISBEHAVIOUR,
    answers_once,
    byte_by_byte,
    in_a_child,
    other_server,
)

from lumen_uring import AsyncClient, Client
from lumen_uring.client.async_link import Link
from lumen_uring.errors import (
    BadRequest,
    ConnectionFailed,
    Overloaded,
    ProtocolError,
    RequestTimeout,
)
from lumen_uring.protocol import native
from lumen_uring.protocol.describe import parse_description

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_same_answers_as_the_sync_client() -> None:
    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            assert await client.ping() > 0
            assert await client.describe() == DESCRIPTION
            assert list(await client.models()) == ["sum", "raw", "photo"]
            result = await client.infer("sum", {"x": X})
            np.testing.assert_array_equal(result.outputs["twice"], X * 2)
            image = np.zeros((2, 5, 3), np.uint8)
            assert (await client.infer_rgb8("photo", image)).outputs["mean"].shape == (1, 3)
            doubled = (await client.infer("sum", {"x": X.tolist()})).outputs["twice"]
            np.testing.assert_array_equal(doubled, X * 2)
            picture = Image.new("RGB", (50, 20), (1, 2, 3))
            assert (await client.infer_rgb8("photo", [picture])).outputs["mean"][0, 2] == 3
            with pytest.raises(BadRequest, match="found complex numbers"):
                await client.infer("sum", {"x": X * 1j})

    with Peer() as peer:
        asyncio.run(main(peer.port))
        assert peer.connections == 1


def test_replies_in_any_order_find_their_requests() -> None:
    def backwards(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        requests = [connection.request() for _ in range(100)]
        connection.send(b"".join(answer(request) for request in reversed(requests)))
        connection.socket.recv(1)

    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await client.describe()
            arrays = [np.full((1, 4), number, np.float32) for number in range(100)]
            results = await asyncio.gather(*(client.infer("sum", {"x": x}) for x in arrays))
            assert [int(result.outputs["total"][0]) for result in results] == [
                4 * number for number in range(100)
            ]

    with Peer((backwards,)) as peer:
        asyncio.run(main(peer.port))


def test_concurrent_first_calls_share_connection_and_description() -> None:
    kinds: list[int] = []

    def script(connection: Connection) -> None:
        while True:
            request = connection.request()
            kinds.append(request.kind)
            connection.send(answer(request))

    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await asyncio.gather(*(client.infer("sum", {"x": X}) for _ in range(20)))

    with Peer((script,)) as peer:
        asyncio.run(main(peer.port))
        assert peer.connections == 1
    assert sorted(kinds) == [1] * 20 + [3]


def test_large_and_small_replies_mixed() -> None:
    models = json.loads(json.dumps(DESCRIPTION))
    models["models"][0]["outputs"] = [
        {"name": "y", "datatype": "UINT8", "shape": [-1, 100_000], "shape_known": True}
    ]

    def script(connection: Connection) -> None:
        connection.send(reply(connection.request().id, json.dumps(models).encode()))
        parts = []
        for _ in range(40):
            request = connection.request()
            parts.append(
                reply(request.id, bytes([request.rows]) * 100_000 * request.rows, rows=request.rows)
            )
        connection.send(b"".join(parts))
        connection.socket.recv(1)

    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            results = await asyncio.gather(
                *(
                    client.infer("sum", {"x": np.zeros((n % 3 + 1, 4), np.float32)})
                    for n in range(40)
                )
            )
            for number, result in enumerate(results):
                rows = number % 3 + 1
                assert result.outputs["y"].shape == (rows, 100_000)
                assert (result.outputs["y"] == rows).all()

    with Peer((script,)) as peer:
        asyncio.run(main(peer.port))


def test_byte_by_byte() -> None:
    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await asyncio.gather(*(client.infer("sum", {"x": X}) for _ in range(3)))

    with Peer((byte_by_byte,)) as peer:
        asyncio.run(main(peer.port))


@pytest.mark.parametrize(("script", "error"), MISBEHAVIOUR)
def test_misbehaviour_is_named_and_survived(
    script: Callable[[Connection], None], error: type[Exception]
) -> None:
    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            with pytest.raises(error):
                await client.describe()
            assert (await client.infer("sum", {"x": X})).rows == 2

    with Peer((script, behave)) as peer:
        asyncio.run(main(peer.port))


def test_one_refusal_leaves_the_others_alone() -> None:
    def script(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        while True:
            request = connection.request()
            full = request.rows == 2
            connection.send(reply(request.id, b"full", status=4) if full else answer(request))

    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            good, bad = await asyncio.gather(
                client.infer("sum", {"x": X[:1]}),
                client.infer("sum", {"x": X}),
                return_exceptions=True,
            )
            assert not isinstance(good, BaseException)
            assert isinstance(bad, Overloaded)

    with Peer((script,)) as peer:
        asyncio.run(main(peer.port))
        assert peer.connections == 1


def test_a_late_reply_of_a_request_given_up_is_forgotten() -> None:
    late = threading.Event()

    def script(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        slow: Request = connection.request()
        connection.send(answer(connection.request()))
        late.wait(30)
        connection.send(answer(slow))
        behave(connection)

    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await client.describe()
            slow = asyncio.create_task(client.infer("sum", {"x": X}))
            await asyncio.sleep(0)
            await client.infer("sum", {"x": X[:1]})
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            late.set()
            assert (await client.infer("sum", {"x": X})).rows == 2

    with Peer((script,)) as peer:
        asyncio.run(main(peer.port))
        assert peer.connections == 1


def test_a_silent_server_gives_a_timeout_and_a_fresh_connection() -> None:
    def silent(connection: Connection) -> None:
        connection.request()
        connection.socket.recv(1)

    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port, timeout_s=0.2) as client:
            with pytest.raises(RequestTimeout):
                await client.ping()
            client._timeout_s = 10
            assert (await client.infer("sum", {"x": X})).rows == 2

    with Peer((silent, behave)) as peer:
        asyncio.run(main(peer.port))
        assert peer.connections == 2


def test_nobody_there_and_use_after_close() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        client = AsyncClient("127.0.0.1", port)
        with pytest.raises(ConnectionFailed, match="lumen serve"):
            await client.ping()
        await client.close()
        await client.close()
        with pytest.raises(ValueError, match="closed"):
            await client.ping()

    asyncio.run(main())


def test_a_description_is_forgotten_with_its_connection() -> None:
    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            assert list(await client.models()) == ["sum", "raw", "photo"]
            await client.infer("sum", {"x": X})
            with contextlib.suppress(ConnectionFailed):  # unless the end was seen in time
                await client.infer("sum", {"x": X})
            assert (await client.infer("sum", {"x": X})).rows == 2
            assert list(await client.models()) == ["sum", "photo"]

    with Peer((answers_once, other_server)) as peer:
        asyncio.run(main(peer.port))


def test_close_ends_a_call_that_is_still_connecting() -> None:
    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            # A full queue of connections keeps further ones waiting.
            waiting = [socket.socket() for _ in range(4)]
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex(full.getsockname())
            client = AsyncClient("127.0.0.1", full.getsockname()[1], timeout_s=600)
            calls = [asyncio.create_task(client.ping()) for _ in range(3)]
            await asyncio.sleep(0.05)
            await client.close()
            for call in calls:
                with pytest.raises(ConnectionFailed, match="The client was closed"):
                    await asyncio.wait_for(call, 30)
            for sock in waiting:
                sock.close()

    asyncio.run(main())


def test_close_at_the_moment_a_connection_is_made_leaves_none_open() -> None:
    ended = threading.Event()

    def until_the_end(connection: Connection) -> None:
        while connection.socket.recv(1 << 16):
            pass
        ended.set()

    async def main(port: int) -> None:
        client = AsyncClient("127.0.0.1", port)
        connect = client._connect

        closing: list[asyncio.Task[None]] = []

        async def connect_and_close() -> Link:
            link = await connect()
            # Runs when this is done, before the call that waits for it goes on.
            closing.append(asyncio.create_task(client.close()))
            return link

        client._connect = connect_and_close  # type: ignore[method-assign]
        with pytest.raises(ConnectionFailed, match="The client was closed"):
            await client.ping()

    with Peer((until_the_end,)) as peer:
        asyncio.run(main(peer.port))
        assert ended.wait(30)


def test_one_loop_after_another() -> None:
    async def ask(client: AsyncClient) -> None:
        results = await asyncio.gather(*(client.infer("sum", {"x": X}) for _ in range(3)))
        assert [result.rows for result in results] == [2, 2, 2]

    with Peer() as peer:
        client = AsyncClient("127.0.0.1", peer.port)
        with warnings.catch_warnings():
            # The transport of a loop that is closed complains when it is collected.
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(2):
                asyncio.run(ask(client))
                gc.collect()
        asyncio.run(client.close())
        assert peer.connections == 2


def test_two_loops_at_once_are_refused() -> None:
    with Peer() as peer:
        client = AsyncClient("127.0.0.1", peer.port)
        first = asyncio.new_event_loop()
        first.run_until_complete(client.ping())
        with pytest.raises(RuntimeError, match="give each loop a client of its own"):
            asyncio.run(client.ping())
        first.run_until_complete(client.close())
        first.close()


def test_a_forked_child_opens_a_connection_of_its_own() -> None:
    async def ask(client: AsyncClient, first: float) -> None:
        result = await client.infer("sum", {"x": X + np.float32(first)})
        assert result.outputs["twice"][0, 0] == 2 * first

    with Peer() as peer:
        client = AsyncClient("127.0.0.1", peer.port)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask(client, 0))
        assert in_a_child(lambda: asyncio.run(ask(client, 100))) == 0
        loop.run_until_complete(ask(client, 1))
        assert peer.connections == 2
        loop.run_until_complete(client.close())
        loop.close()


def test_a_call_that_connects_does_not_succeed_on_a_closed_client() -> None:
    async def main(port: int) -> None:
        client = AsyncClient("127.0.0.1", port)
        call = asyncio.create_task(client.ping())
        await asyncio.sleep(0)  # it has begun to connect, which takes more turns of the loop
        await client.close()
        with pytest.raises(ConnectionFailed, match="The client was closed"):
            await call

    with Peer() as peer:
        asyncio.run(main(peer.port))


# ---- one connection by itself ----


class Wire(asyncio.Transport):
    """The bytes that a connection writes, and the questions to its socket."""

    def __init__(self, over: socket.socket | None = None) -> None:
        super().__init__({"socket": over})
        self.written: list[bytes | bytearray | memoryview] = []
        self.aborted = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted += 1


def linked(max_reply_bytes: int = 1 << 20, over: socket.socket | None = None) -> tuple[Link, Wire]:
    """A connection; one that has a unix socket, `over`, shares a region."""
    link, wire = Link("host:1", max_reply_bytes, shares=over is not None), Wire(over)
    link.connection_made(wire)
    return link, wire


def comes(link: Link, data: bytes) -> None:
    """As the event loop gives it: into the link's own memory, as much as fits each time."""
    while data:
        room = link.get_buffer(-1)
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        link.buffer_updated(taken)
        data = data[taken:]


async def soon(work: Awaitable[object]) -> object:
    """The result, or the error; a test that would wait for ever fails instead."""
    return (await asyncio.gather(asyncio.wait_for(work, 30), return_exceptions=True))[0]


async def begun(*work: Coroutine[Any, Any, object]) -> list[asyncio.Task[object]]:
    tasks = [asyncio.create_task(one) for one in work]
    await asyncio.sleep(0)
    return tasks


def test_calls_that_wait_to_write_end_with_the_connection() -> None:
    """The peer reads nothing, so that nothing can be written, and then resets the connection."""

    async def main() -> None:
        link, wire = linked()
        sent = await begun(link.exchange(2))
        link.pause_writing()
        waiting = await begun(*(link.exchange(2) for _ in range(3)), link.describe())
        assert len(wire.written) == 1  # the others wait for room
        link.connection_lost(ConnectionResetError(104, "Connection reset by peer"))
        for task in (*sent, *waiting):
            error = await soon(task)
            assert isinstance(error, ConnectionFailed)
            assert str(error) == (
                "host:1 closed the connection ([Errno 104] Connection reset by peer)."
            )
        assert isinstance(await soon(link.exchange(2)), ConnectionFailed)
        assert (len(wire.written), wire.aborted) == (1, 1)

    asyncio.run(main())


def test_a_call_that_waits_for_room_in_the_region_ends_with_the_connection() -> None:
    """Three calls fill the region, and the server takes no larger one."""
    summing = parse_description(memoryview(json.dumps(DESCRIPTION).encode())).models["sum"]
    rows = memoryview(np.zeros((512, 4), np.float32)).cast("B")

    async def turns() -> None:
        """Every task goes on until it waits for the other side."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def main() -> None:
        own, peer = socket.socketpair()
        with own, peer:
            peer.setblocking(False)
            link, wire = linked(over=own)
            calls = [link.infer(summing, native.ENCODING_TENSORS, [rows], 512, 0) for _ in range(4)]
            tasks = await begun(*calls)
            await turns()
            assert len(wire.written) == 1  # a region is announced
            comes(link, reply(1))
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(peer, 1), 30)
            comes(link, reply(1))
            await turns()
            assert len(wire.written) == 5  # three requests, and a larger region
            comes(link, reply(5, b"no memory", status=Overloaded.status))
            await turns()
            assert not any(task.done() for task in tasks)
            link.connection_lost(None)
            for task in tasks:
                assert str(await soon(task)) == "host:1 closed the connection."

    asyncio.run(main())


def test_writing_goes_on_when_there_is_room_again() -> None:
    async def main() -> None:
        link, wire = linked()
        link.pause_writing()
        tasks = await begun(link.exchange(2), link.exchange(2))
        assert wire.written == []
        link.resume_writing()
        await asyncio.sleep(0)
        assert len(wire.written) == 2
        comes(link, reply(2) + reply(1))
        for number, task in enumerate(tasks, 1):
            header, _payload = await task  # type: ignore[misc]
            assert header.id == number

    asyncio.run(main())


def test_small_payloads_are_joined_and_large_ones_sent_from_where_they_are() -> None:
    async def main() -> None:
        link, wire = linked()
        for size, joined in ((0, True), (64 << 10, True), ((64 << 10) + 1, False)):
            wire.written.clear()
            parts = [memoryview(bytes([at]) * (size // 2 + at * (size % 2))) for at in range(2)]
            (task,) = await begun(link.exchange(1, 0, 0, parts))
            assert b"".join(wire.written)[32:] == b"".join(parts)
            assert len(wire.written) == (1 if joined else 3)
            if not joined:
                assert wire.written[1:] == parts
                assert all(one is part for one, part in zip(wire.written[1:], parts, strict=True))
            task.cancel()

    asyncio.run(main())


def test_the_first_reason_for_an_end_stays() -> None:
    async def main() -> None:
        link, wire = linked()
        (task,) = await begun(link.exchange(2))
        link.end(RequestTimeout("first"))
        link.connection_lost(None)
        assert isinstance(await soon(task), RequestTimeout)
        assert str(link.ended) == "first"
        assert str(await soon(link.exchange(2))) == "first"
        assert wire.aborted == 2

    asyncio.run(main())


def test_a_late_reply_is_forgotten_once() -> None:
    """A second one to the same request is one that was never asked for."""

    async def main() -> None:
        link, _wire = linked()
        (task,) = await begun(link.exchange(2))
        task.cancel()
        assert isinstance(await soon(task), asyncio.CancelledError)
        comes(link, reply(1))
        assert link.ended is None
        comes(link, reply(1))
        assert isinstance(link.ended, ProtocolError)
        assert str(link.ended) == "host:1 answered request 1, never sent."
        # A call that is cancelled after its reply has come leaves nothing to be forgotten.
        link, _wire = linked()
        (task,) = await begun(link.exchange(2))
        comes(link, reply(1))
        task.cancel()
        assert isinstance(await soon(task), asyncio.CancelledError)
        comes(link, reply(1))
        assert isinstance(link.ended, ProtocolError)

    asyncio.run(main())


@pytest.mark.parametrize("step", [1, 7, 47, 48, 49, 100, 1 << 16, 1 << 20])
def test_replies_however_they_come(step: int) -> None:
    """Empty ones, small ones, some that end with a piece and some larger than the buffer."""

    async def main() -> None:
        sizes = [0, 1, 0, 52, 48, (64 << 10) - 48, (64 << 10) - 47, 200_000, 0, 5]
        if step < 40:
            sizes = [size for size in sizes if size < 1000]
        link, _wire = linked()
        tasks = await begun(*(link.exchange(2) for _ in sizes))
        payloads = [bytes([at + 1]) * size for at, size in enumerate(sizes)]
        data = b"".join(reply(at, payload) for at, payload in enumerate(payloads, 1))
        for at in range(0, len(data), step):
            comes(link, data[at : at + step])
        for task, payload in zip(tasks, payloads, strict=True):
            _header, found = await soon(task)  # type: ignore[misc]
            assert bytes(found) == payload

    asyncio.run(main())


def test_a_reply_larger_than_allowed_ends_the_connection() -> None:
    async def main() -> None:
        for size, fits in ((100, True), (101, False)):
            link, _wire = linked(max_reply_bytes=100)
            (task,) = await begun(link.exchange(2))
            comes(link, reply(1, bytes(size)))
            result = await soon(task)
            assert isinstance(result, ProtocolError) is not fits
            if not fits:
                assert str(result) == "The reply claims 101 bytes; max_reply_bytes is 100."

    asyncio.run(main())


def test_a_refusal_without_an_id_is_told_to_all() -> None:
    async def main() -> None:
        link, _wire = linked()
        tasks = await begun(link.exchange(2), link.exchange(2))
        comes(link, reply(0, b"what is this?", status=1))
        for task in tasks:
            error = await soon(task)
            assert isinstance(error, BadRequest)
            assert str(error) == "what is this?"

    asyncio.run(main())


@pytest.mark.parametrize("heard", [True, False])
def test_a_timeout_ends_the_connection_of_a_peer_that_was_silent_all_the_while(
    monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """Where another call's reply has come meanwhile, nothing ends but the call."""
    late = threading.Event()
    wait_for = asyncio.wait_for

    def slow(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        first = connection.request()
        if heard:
            connection.send(answer(connection.request()))
        late.wait(30)
        connection.send(answer(first))
        behave(connection)

    async def main(port: int) -> None:
        over = asyncio.Event()

        async def until_over(work: Coroutine[Any, Any, object], seconds: float) -> object:
            if seconds != 7:
                return await wait_for(work, seconds)
            task = asyncio.create_task(work)
            await over.wait()
            task.cancel()
            raise asyncio.TimeoutError

        monkeypatch.setattr(asyncio, "wait_for", until_over)
        async with AsyncClient("127.0.0.1", port, timeout_s=60) as client:
            await client.describe()
            client._timeout_s = 7
            (call,) = await begun(client.infer("sum", {"x": X}))
            client._timeout_s = 60
            if heard:
                await client.infer("sum", {"x": X[:1]})
            over.set()
            client._timeout_s = 7
            with pytest.raises(
                RequestTimeout, match=rf"127\.0\.0\.1:{port} did not answer within 7 s"
            ):
                await call
            client._timeout_s = 60
            late.set()
            assert (await client.infer("sum", {"x": X})).rows == 2

    with Peer((slow, behave)) as peer:
        asyncio.run(main(peer.port))
        assert peer.connections == (1 if heard else 2)


def test_timeouts_and_rows_of_each_call_reach_the_server() -> None:
    """The same of both clients."""
    seen: list[tuple[int, int, int]] = []
    image = np.zeros((2, 5, 3), np.uint8)

    def script(connection: Connection) -> None:
        while True:
            request = connection.request()
            if request.kind == 1:
                seen.append((request.encoding, request.timeout_us, request.rows))
            connection.send(answer(request))

    async def main(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            await client.infer("sum", {"x": X}, timeout_us=7, rows=2)
            await client.infer_rgb8("photo", image, timeout_us=8, rows=1)
            await client.infer_rgb8("photo", np.stack([image] * 3))
            for rows in (1, 3):
                with pytest.raises(BadRequest, match=f"has 2 rows, expected {rows}"):
                    await client.infer("sum", {"x": X}, rows=rows)
            with pytest.raises(BadRequest, match="expected rows=2"):
                await client.infer_rgb8("photo", image, rows=2)

    with Peer((script,)) as peer:
        asyncio.run(main(peer.port))
        with Client("127.0.0.1", peer.port) as client:
            client.infer("sum", {"x": X}, timeout_us=7, rows=2)
            client.infer_rgb8("photo", image, timeout_us=8, rows=1)
            client.infer_rgb8("photo", np.stack([image] * 3))
            with pytest.raises(BadRequest, match="has 2 rows, expected 1"):
                client.infer("sum", {"x": X}, rows=1)
            with pytest.raises(BadRequest, match="expected rows=2"):
                client.infer_rgb8("photo", image, rows=2)
    assert seen == [(0, 7, 2), (1, 8, 1), (1, 0, 3)] * 2


def test_a_token_comes_before_each_payload_but_a_pings() -> None:
    async def main() -> None:
        link, wire = Link("host:1", 1 << 20, b"k" * 32), Wire()
        link.connection_made(wire)
        tasks = await begun(*(link.exchange(kind, 0, 0, [memoryview(b"p")]) for kind in (1, 2, 3)))
        for data, credential in zip(wire.written, (b"k" * 32, b"", b"k" * 32), strict=True):
            assert data[32:] == credential + b"p"
        for task in tasks:
            task.cancel()

    asyncio.run(main())
    heads: list[bytes] = []

    def script(connection: Connection) -> None:
        heads.append(connection.exactly(32 + 32))
        connection.reset()

    async def ask(port: int) -> None:
        async with AsyncClient("127.0.0.1", port, token="abc") as client:
            with pytest.raises(ConnectionFailed):
                await client.describe()

    with Peer((script,)) as peer:
        asyncio.run(ask(peer.port))
        with Client("127.0.0.1", peer.port, token="abc") as client:
            with pytest.raises(ConnectionFailed):
                client.describe()
    assert [head[32:] for head in heads] == [b"abc".ljust(32, b"\0")] * 2
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="at most 32 characters, found 33"):
            kind(token="x" * 33)
        assert kind(token="x")._credential == b"x".ljust(32, b"\0")
