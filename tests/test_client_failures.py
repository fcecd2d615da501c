"""The sync client against a peer that misbehaves: short writes, lies, silence, early ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peer import DESCRIPTION, Connection, Peer, answer, behave, reply

from lumen_uring import AsyncClient, Client
from lumen_uring.client import client as client_module
from lumen_uring.client import connection as connection_module
from lumen_uring.client.connection import Connection as Connection_
from lumen_uring.client.connection import connect_sentence
from lumen_uring.errors import (
    ConnectionFailed,
    ProtocolError,
    RequestTimeout,
    TooLarge,
)

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def byte_by_byte(connection: Connection) -> None:
    connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        for byte in answer(connection.request()):
            connection.send(bytes([byte]))


def wrong_magic(connection: Connection) -> None:
    connection.request()
    connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 48)
    connection.socket.recv(1)


def closes_in_header(connection: Connection) -> None:
    connection.send(answer(connection.request())[:20])


def closes_in_payload(connection: Connection) -> None:
    connection.send(answer(connection.request())[:-1])


def resets(connection: Connection) -> None:
    connection.request()
    connection.reset()


def wrong_id(connection: Connection) -> None:
    request = connection.request()
    request.id += 1000
    connection.send(answer(request))
    connection.socket.recv(1)


def no_id(connection: Connection) -> None:
    """Only a refusal of what could not be read may have none."""
    request = connection.request()
    request.id = 0
    connection.send(answer(request))
    connection.socket.recv(1)


def refuses_no_id(connection: Connection) -> None:
    connection.request()
    connection.send(reply(0, b"full", status=4))
    connection.socket.recv(1)


def no_json(connection: Connection) -> None:
    connection.send(reply(connection.request().id, b"{"))
    connection.socket.recv(1)


def other_document(connection: Connection) -> None:
    document = b'{"server":{"protocol":1},"models":[{"index":"a"}]}'
    connection.send(reply(connection.request().id, document))
    connection.socket.recv(1)


def other_protocol(connection: Connection) -> None:
    connection.send(reply(connection.request().id, b'{"server":{"protocol":2},"models":[]}'))
    connection.socket.recv(1)


def huge_claim(connection: Connection) -> None:
    head = bytearray(reply(connection.request().id))
    struct.pack_into("<I", head, 16, 2**32 - 1)
    connection.send(bytes(head))
    connection.socket.recv(1)


MISBEHAVIOUR: list[tuple[Callable[[Connection], None], type[Exception]]] = [
    (wrong_magic, ProtocolError),
    (closes_in_header, ConnectionFailed),
    (closes_in_payload, ConnectionFailed),
    (resets, ConnectionFailed),
    (wrong_id, ProtocolError),
    (no_id, ProtocolError),
    (refuses_no_id, ProtocolError),
    (no_json, ProtocolError),
    (other_document, ProtocolError),
    (other_protocol, ProtocolError),
    (huge_claim, ProtocolError),
]


@pytest.mark.parametrize(("script", "error"), MISBEHAVIOUR)
def test_misbehaviour_is_named_and_survived(
    script: Callable[[Connection], None], error: type[Exception]
) -> None:
    with Peer((script, behave)) as peer, Client("127.0.0.1", peer.port) as client:
        with pytest.raises(error):
            client.describe()
        assert client.infer("sum", {"x": X}).rows == 2


@pytest.mark.parametrize("stray", [b"m", b"more", bytes(4000)])
def test_more_than_the_reply_is_refused(stray: bytes) -> None:
    def too_much(connection: Connection) -> None:
        connection.send(answer(connection.request()) + stray)
        connection.socket.recv(1)

    with Peer((too_much, behave)) as peer, Client("127.0.0.1", peer.port) as client:
        # The stray bytes may come with the reply or after it: either way they never reach the
        # next request.
        with contextlib.suppress(ProtocolError):
            client.ping()
        assert client.infer("sum", {"x": X}).rows == 2


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        np.zeros(9, "<f4").tobytes(),
        np.zeros(11, "<f4").tobytes(),
        b"\0",
    ],
)
def test_outputs_of_another_length_are_refused(payload: bytes) -> None:
    def script(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        connection.send(reply(connection.request().id, payload, rows=2))
        connection.socket.recv(1)

    with Peer((script, behave)) as peer, Client("127.0.0.1", peer.port) as client:
        with pytest.raises(ProtocolError):
            client.infer("sum", {"x": X})
        assert client.infer("sum", {"x": X}).rows == 2


def test_short_writes_are_put_together() -> None:
    with Peer((byte_by_byte,)) as peer, Client("127.0.0.1", peer.port) as client:
        np.testing.assert_array_equal(client.infer("sum", {"x": X}).outputs["twice"], X * 2)


def test_reconnects_when_the_server_closed_between_requests() -> None:
    closed = threading.Event()

    def one_request(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        connection.socket.shutdown(socket.SHUT_WR)
        # Returning closes; the event says that the end is on its way.
        closed.set()

    with Peer((one_request, behave)) as peer, Client("127.0.0.1", peer.port) as client:
        client.ping()
        assert closed.wait(10)
        assert client.infer("sum", {"x": X}).rows == 2
        assert peer.connections == 2


def test_never_sends_a_request_twice() -> None:
    requests: list[int] = []

    def swallow(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        requests.append(connection.request().id)

    def count(connection: Connection) -> None:
        while True:
            request = connection.request()
            requests.append(request.id)
            connection.send(answer(request))

    with Peer((swallow, count)) as peer, Client("127.0.0.1", peer.port) as client:
        with pytest.raises(ConnectionFailed):
            client.infer("sum", {"x": X})
    assert len(requests) == 1
    assert peer.connections == 1


LARGE = dict(
    DESCRIPTION["models"][1],
    inputs=[{"name": "x", "datatype": "UINT8", "shape": [64 << 20]}],
)


def describe_large(connection: Connection) -> None:
    document = json.dumps(dict(DESCRIPTION, models=[LARGE])).encode()
    connection.send(reply(connection.request().id, document))


def test_an_early_refusal_is_heard_although_the_body_cannot_be_sent() -> None:
    def refuse(connection: Connection) -> None:
        describe_large(connection)
        connection.exactly(32)
        connection.send(reply(2, b"too large for me", status=3))
        connection.socket.shutdown(socket.SHUT_RD)

    with Peer((refuse,)) as peer, Client("127.0.0.1", peer.port, timeout_s=60) as client:
        # The peer goes away with the body unread, which resets the connection: the reply may be
        # lost with it, but whichever way it ends, it ends with a sentence and at once.
        with pytest.raises((TooLarge, ConnectionFailed)):
            client.infer("raw", {"x": np.zeros(64 << 20, np.uint8)})


def test_a_refusal_while_the_body_is_still_coming() -> None:
    def refuse(connection: Connection) -> None:
        describe_large(connection)
        connection.exactly(32)
        connection.send(reply(2, b"too large for me", status=3))
        connection.exactly(64 << 20)
        behave(connection)

    with Peer((refuse,)) as peer, Client("127.0.0.1", peer.port, timeout_s=60) as client:
        with pytest.raises(TooLarge, match="too large for me"):
            client.infer("raw", {"x": np.zeros(64 << 20, np.uint8)})
        client.ping()
        assert peer.connections == 1


def test_a_silent_server_gives_a_timeout_and_a_fresh_connection() -> None:
    def silent(connection: Connection) -> None:
        connection.request()
        connection.socket.recv(1)

    with Peer((silent, behave)) as peer, Client("127.0.0.1", peer.port, timeout_s=0.2) as client:
        with pytest.raises(RequestTimeout, match=r"did not answer within 0\.2 s"):
            client.ping()
    with Peer((silent, behave)) as peer, Client("127.0.0.1", peer.port, timeout_s=5) as client:
        client._timeout_s = 0.2
        with pytest.raises(RequestTimeout):
            client.ping()
        client._timeout_s = 10
        assert client.infer("sum", {"x": X}).rows == 2
        assert peer.connections == 2


def test_a_server_that_never_reads_gives_a_timeout() -> None:
    release = threading.Event()

    def deaf(connection: Connection) -> None:
        describe_large(connection)
        release.wait(30)

    with Peer((deaf,)) as peer, Client("127.0.0.1", peer.port, timeout_s=5) as client:
        client.describe()
        client._timeout_s = 0.2
        with pytest.raises(RequestTimeout):
            client.infer("raw", {"x": np.zeros(64 << 20, np.uint8)})
        release.set()


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client("127.0.0.1", port) as client, pytest.raises(ConnectionFailed, match="lumen serve"):
        client.ping()


def test_use_after_close_raises_and_close_may_be_repeated() -> None:
    client = Client()
    client.close()
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.ping()


@pytest.mark.parametrize(("port", "timeout_s"), [(0, 1), (65536, 1), (80, 0), (80, float("nan"))])
def test_impossible_arguments(port: int, timeout_s: float) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="expected"):
            kind("127.0.0.1", port, timeout_s=timeout_s)


def test_threads_may_share_a_client() -> None:
    failures: list[BaseException] = []

    def work(client: Client, number: int) -> None:
        try:
            for _ in range(50):
                x = np.full((1, 4), number, np.float32)
                total = client.infer("sum", {"x": x}).outputs["total"]
                assert total[0] == 4 * number
        except BaseException as error:
            failures.append(error)

    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        threads = [threading.Thread(target=work, args=(client, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_unix_socket_where_nobody_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for there in (False, True):
        if there:  # a file is there, but nobody listens
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
                gone.bind(str(path))
        with pytest.raises(ConnectionFailed) as caught:
            Client(f"unix:{path}").ping()
        assert str(caught.value) == (
            f"No server listens on unix:{path}: start one with `lumen serve --unix-socket {path}`."
        )
    with pytest.raises(ConnectionFailed, match="path too long"):
        Client(f"unix:/{'x' * 120}").ping()


def test_why_a_unix_socket_cannot_be_had() -> None:
    for number, part in [(errno.EACCES, "unix_socket_mode"), (errno.EPROTOTYPE, "wrong type")]:
        said = connect_sentence("unix:/run/s", 8000, OSError(number, os.strerror(number)))
        assert said.startswith("No connection to unix:/run/s: ")
        assert part in said


def in_a_child(work: Callable[[], None]) -> int:
    """Forks, runs work in the child, and returns the child's exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        signal.alarm(60)  # a child that hangs is a failure, not a test that hangs
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_opens_a_connection_of_its_own() -> None:
    """Parent and child once shared socket and ids, and got each other's answers."""
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        client.infer("sum", {"x": X})

        def child() -> None:
            assert client.infer("sum", {"x": X + 100}).outputs["twice"][0, 0] == 200
            client.close()

        assert in_a_child(child) == 0
        # The parent's own connection is as it was: nothing was closed or read by the child.
        assert client.infer("sum", {"x": X}).outputs["twice"][0, 0] == 0
        assert peer.connections == 2


def test_a_fork_while_another_thread_has_a_request_in_flight() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        request = connection.request()
        asked.set()
        go_on.wait(30)
        connection.send(answer(request))
        behave(connection)

    with Peer((slow, behave)) as peer, Client("127.0.0.1", peer.port, timeout_s=30) as client:
        client.describe()
        found = []
        thread = threading.Thread(target=lambda: found.append(client.infer("sum", {"x": X})))
        thread.start()
        assert asked.wait(30)

        def child() -> None:
            # The lock was held by a thread that is not here; the answer to come is the parent's.
            assert client.infer("sum", {"x": X + 1}).outputs["twice"][0, 0] == 2

        assert in_a_child(child) == 0
        go_on.set()
        thread.join(30)
        assert found[0].outputs["twice"][0, 0] == 0
        assert peer.connections == 2


def test_close_ends_another_threads_call() -> None:
    asked = threading.Event()

    def silent(connection: Connection) -> None:
        connection.request()
        asked.set()
        connection.socket.recv(1)

    with Peer((silent,)) as peer:
        client = Client("127.0.0.1", peer.port, timeout_s=600)
        caught: list[BaseException] = []

        def ask() -> None:
            try:
                client.ping()
            except ConnectionFailed as error:
                caught.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(30)
        client.close()
        thread.join(30)
        assert len(caught) == 1
        with pytest.raises(ValueError, match="closed"):
            client.ping()


def test_the_deadline_is_of_the_whole_call_not_of_each_wait() -> None:
    """A peer that drips a byte now and then must not keep a call for ever."""
    enough = threading.Event()

    def drip(connection: Connection) -> None:
        for byte in answer(connection.request()):
            connection.send(bytes([byte]))
            if enough.wait(0.1):
                return

    # 48 bytes take 4.8 s at least, each wait a tenth of a second.
    with Peer((drip,)) as peer, Client("127.0.0.1", peer.port, timeout_s=0.5) as client:
        with pytest.raises(RequestTimeout):
            client.ping()
        enough.set()


def test_one_address_that_swallows_packets_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as full, Peer() as peer:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # A full queue of connections swallows further ones, as a firewall would.
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        addresses = [full.getsockname(), ("127.0.0.1", peer.port)]
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda *_args, **_rest: [(socket.AF_INET, 1, 6, "", address) for address in addresses],
        )
        with Client("two.example", 1, timeout_s=3) as client:
            client.ping()
        addresses = addresses[:1]
        with Client("one.example", 1, timeout_s=0.2) as client:
            with pytest.raises(RequestTimeout, match="did not accept a connection"):
                client.ping()
        for sock in waiting:
            sock.close()


OTHER_MODELS = {
    **DESCRIPTION,
    "models": [dict(DESCRIPTION["models"][0], index=7), dict(DESCRIPTION["models"][2], index=0)],
}


def other_server(connection: Connection) -> None:
    """Serves the model "sum" too, under another index."""
    while True:
        request = connection.request()
        if request.kind == 3:
            connection.send(reply(request.id, json.dumps(OTHER_MODELS).encode()))
            continue
        assert request.model == 7
        request.model = 0
        connection.send(answer(request))


def answers_once(connection: Connection) -> None:
    for _ in range(2):
        connection.send(answer(connection.request()))


def test_a_description_is_forgotten_with_its_connection() -> None:
    with Peer((answers_once, other_server)) as peer, Client("127.0.0.1", peer.port) as client:
        assert list(client.models()) == ["sum", "raw", "photo"]
        client.infer("sum", {"x": X})
        with contextlib.suppress(ConnectionFailed):  # unless the end was seen in time
            client.infer("sum", {"x": X})
        assert client.infer("sum", {"x": X}).rows == 2
        assert list(client.models()) == ["sum", "photo"]


def test_a_reply_of_exactly_the_most_bytes() -> None:
    size = len(json.dumps(DESCRIPTION).encode())
    with Peer() as peer:
        with Client("127.0.0.1", peer.port, max_reply_bytes=size) as client:
            assert "sum" in client.models()
        with Client("127.0.0.1", peer.port, max_reply_bytes=size - 1) as client:
            with pytest.raises(ProtocolError, match=f"claims {size} bytes"):
                client.models()


def test_no_wait_is_longer_than_what_is_left_of_the_call() -> None:
    """Also the last one, when all before it have taken most of the time."""
    waits: list[int] = []

    class Poll:
        def poll(self, left_ms: int) -> list[int]:
            waits.append(left_ms)
            return []

    with Peer() as peer:
        deadline = time.monotonic() + 60
        connection = Connection_("127.0.0.1", peer.port, 60, deadline)
        for left_s in (2, 0.5):
            with pytest.raises(RequestTimeout):
                connection._wait(Poll(), time.monotonic() + left_s)  # type: ignore[arg-type]
        with pytest.raises(RequestTimeout):
            connection._wait(Poll(), time.monotonic() - 1)  # type: ignore[arg-type]
        connection.close()
    assert len(waits) == 2
    assert 0 < waits[0] <= 2000
    assert 0 < waits[1] <= 500


@pytest.mark.parametrize("most", [1, 2, 3, 5, 6, 7, 100])
def test_whatever_the_kernel_takes_at_a_time(most: int) -> None:
    """Every buffer is sent once, from its first byte to its last."""
    taken = bytearray()

    class Socket:
        def sendmsg(self, buffers: list[memoryview]) -> int:
            data = b"".join(buffers)[:most]
            taken.extend(data)
            return len(data)

    connection = object.__new__(Connection_)
    connection._socket = Socket()  # type: ignore[assignment]
    parts = [b"abc", b"", b"d", b"efghij", b"kl"]
    connection.send([memoryview(part) for part in parts], time.monotonic() + 60)
    assert bytes(taken) == b"".join(parts)


# ---- at the limits ----


def test_a_call_that_ends_while_its_client_is_closed_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from a signal handler, in the middle of a call of the same thread."""
    monkeypatch.setattr(client_module, "_CLOSE_S", 0.01)
    with Peer() as peer:
        client = Client("127.0.0.1", peer.port)
        receive = client._receive

        def close_and_receive(*given: Any) -> Any:
            found = receive(*given)
            client.close()
            return found

        monkeypatch.setattr(client, "_receive", close_and_receive)
        client.ping()
        assert client._connection is None


def test_a_client_that_is_closed_while_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Connection_] = []

    def connect(*given: Any) -> Connection_:
        made.append(Connection_(*given))
        client._closed = True  # as by another thread
        return made[0]

    monkeypatch.setattr(client_module, "Connection", connect)
    with Peer() as peer:
        client = Client("127.0.0.1", peer.port)
        with pytest.raises(ConnectionFailed, match="The client was closed"):
            client.ping()
        assert made[0]._socket.fileno() == -1


@pytest.mark.parametrize("status", [0, 3])
def test_what_came_before_a_request_could_be_sent(status: int) -> None:
    """A refusal is told; an answer to what was never sent is none."""
    sent = reply(1, b"too large" if status else b"", status=status)

    class Broken:
        closed = False

        def send(self, *_given: object) -> None:
            raise ConnectionFailed("The connection broke.")

        def receive_into(self, target: memoryview, _deadline: float) -> int:
            target[: len(sent)] = sent
            return len(sent)

        def close(self) -> None:
            self.closed = True

    client, broken = Client(), Broken()
    client._connection = broken  # type: ignore[assignment]
    with pytest.raises(TooLarge if status else ConnectionFailed):
        client._exchange(2, time.monotonic() + 60)
    assert broken.closed
    assert client._connection is None


def test_a_caller_may_change_the_models_it_got() -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        client.models().clear()
        assert client.infer("sum", {"x": X}).rows == 2
        connection = client._connection
        assert connection is not None
        # A small request must not wait for the answer to the one before.
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_each_address_has_an_equal_share_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    ends: list[tuple[int, float]] = []

    def connected(_family: int, address: tuple[str, int], deadline: float) -> socket.socket:
        ends.append((address[1], deadline))
        now_s[0] += 4.0
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"refused by {address[1]}")

    found = [(socket.AF_INET, 1, 6, "", ("127.0.0.1", number)) for number in (1, 2, 3)]
    monkeypatch.setattr(connection_module, "_connected", connected)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_rest: found)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with pytest.raises(ConnectionRefusedError, match="refused by 3"):
        connection_module._connect("three.example", 1, 1030.0)
    assert ends == [(1, 1010.0), (2, 1004.0 + 13.0), (3, 1008.0 + 22.0)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_rest: [])
    with pytest.raises(OSError, match="the name has no address"):
        connection_module._connect("none.example", 1, 1030.0)


def test_a_wait_is_in_milliseconds_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    class Poll:
        def poll(self, left_ms: int) -> list[int]:
            waits.append(left_ms)
            return [1]

    connection = object.__new__(Connection_)
    connection._where, connection._timeout_s = "host:1", 1.5
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    for deadline in (1000.0004, 1000.25, 1000.2501, 1e9):
        connection._wait(Poll(), deadline)  # type: ignore[arg-type]
    assert waits == [1, 250, 251, 2**31 - 1]
    for deadline in (1000.0, 999.0):
        with pytest.raises(RequestTimeout, match=r"host:1 did not answer within 1\.5 s"):
            connection._wait(Poll(), deadline)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        connection_module._connected(socket.AF_INET, ("127.0.0.1", 1), 1000.0)


def test_a_socket_whose_connecting_is_interrupted_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[socket.socket] = []

    class Socket(socket.socket):
        def connect(self, _address: object) -> None:
            made.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(socket, "socket", Socket)
    with pytest.raises(KeyboardInterrupt):
        connection_module._connected(socket.AF_INET, ("127.0.0.1", 1), time.monotonic() + 60)
    assert made[0].fileno() == -1


def test_what_the_kernel_takes_at_once_is_bounded() -> None:
    """Linux refuses more than 1024 buffers in one call."""
    most: list[int] = []

    class Socket:
        def sendmsg(self, buffers: list[memoryview]) -> int:
            most.append(len(buffers))
            return sum(map(len, buffers))

    connection = object.__new__(Connection_)
    connection._socket = Socket()  # type: ignore[assignment]
    connection.send([memoryview(b"x")] * 2500, time.monotonic() + 60)
    assert most == [1024, 1024, 452]


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EPIPE])
def test_a_network_that_breaks_is_a_sentence(number: int) -> None:
    """Not only a reset: whatever the kernel says of the socket."""

    class Socket:
        def recv_into(self, _target: memoryview) -> int:
            raise OSError(number, os.strerror(number))

        def sendmsg(self, _buffers: list[memoryview]) -> int:
            raise OSError(number, os.strerror(number))

    class Ready:
        def poll(self, _left_ms: int) -> list[int]:
            return [1]

    connection = object.__new__(Connection_)
    connection._where, connection._timeout_s = "host:1", 1.0
    connection._socket = Socket()  # type: ignore[assignment]
    connection._readable = Ready()  # type: ignore[assignment]
    deadline = time.monotonic() + 60
    for broken in (
        lambda: connection.receive_into(memoryview(bytearray(9)), deadline),
        lambda: connection.send([memoryview(b"x")], deadline),
    ):
        with pytest.raises(ConnectionFailed) as caught:
            broken()
        assert str(caught.value) == f"The connection to host:1 broke: {os.strerror(number)}."
