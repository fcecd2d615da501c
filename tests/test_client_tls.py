"""Both clients over TLS: against a real server, and against a peer that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest
import trustme
import yaml
from onnx import TensorProto, helper
from peer import Connection, Peer, answer, behave, reply
from test_client_failures import (
    MISBEHAVIOUR,
    byte_by_byte,
    describe_large,
    in_a_child,
)

from lumen_uring import AsyncClient, Client
from lumen_uring.client import tls as tls_module
from lumen_uring.client.tls import TlsConnection, _records, context_of
from lumen_uring.errors import ClientError, ConnectionFailed, RequestTimeout, TooLarge
from lumen_uring.protocol.native import InferResult
from lumen_uring.ring.certificates import make_certificate

X: Final = np.arange(8, dtype=np.float32).reshape(2, 4)
HOST: Final = "127.0.0.1"
KINDS: Final = [Client, AsyncClient]
COLUMNS: Final = 1024
Kind = type[Client] | type[AsyncClient]


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


AUTHORITY: Final = trustme.CA()
TRUSTING: Final = trusting(AUTHORITY)


@dataclass
class TlsPeer(Peer):
    """A peer whose connections begin with a handshake."""

    context: ssl.SSLContext = field(default_factory=lambda: server_context(AUTHORITY, HOST))

    def _serve(self, sock: socket.socket, script: Callable[[Connection], None]) -> None:
        try:
            secure = self.context.wrap_socket(sock, server_side=True)
        except OSError:
            return  # the client refused it
        self._sockets.append(secure)
        super()._serve(secure, script)


def infers(
    kind: Kind, port: int, model: str, *inputs: np.ndarray, **options: object
) -> list[InferResult]:
    """Results of requests on one connection, one after the other."""
    given: dict[str, object] = {"timeout_s": 60, **options}
    if kind is Client:
        with Client(HOST, port, **given) as client:  # type: ignore[arg-type]
            return [client.infer(model, {"x": x}) for x in inputs]

    async def main() -> list[InferResult]:
        async with AsyncClient(HOST, port, **given) as client:  # type: ignore[arg-type]
            return [await client.infer(model, {"x": x}) for x in inputs]

    return asyncio.run(main())


def failure(kind: Kind, port: int, tls: ssl.SSLContext | bool, **options: object) -> str:
    """What a first call says; it is a sentence of ours."""
    with pytest.raises(ConnectionFailed) as caught:
        infers(kind, port, "sum", X, tls=tls, **options)
    said = str(caught.value)
    assert said.startswith(f"No connection to {HOST}:{port}: expected "), said
    assert "_ssl.c" not in said
    assert caught.value.__suppress_context__
    return said


# ---- a real server ----


@dataclass(frozen=True)
class Ports:
    plain: int
    tls: int


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory, c_library: None) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("server")
    issued = AUTHORITY.issue_cert(HOST)
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    shape = ["n", COLUMNS]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, str(folder / "double.onnx"))
    pem = str(folder / "server.pem")
    settings = {
        "server": {
            "port": 0,
            "metrics_port": 0,
            "unready_seconds": 0,
            "tls": {"port": 0, "certificates": [{"cert": pem, "key": pem}]},
        },
        "models": [{"name": "double", "path": str(folder / "double.onnx")}],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "lumen_uring", "--config", str(folder / "config.yaml")]
    variables = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as server:
        try:
            assert server.stdout is not None
            banner = ""
            for line in server.stdout:
                banner += line
                if line.startswith("  ready"):
                    break
            plain = re.search(r"serves on \S+:(\d+)", banner)
            tls = re.search(r"TLS +on \S+:(\d+)", banner)
            assert plain, banner
            assert tls, banner
            yield Ports(int(plain[1]), int(tls[1]))
        finally:
            server.terminate()
            server.communicate(timeout=60)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 100, 2000])
def test_answers_as_without_it(ports: Ports, kind: Kind, rows: int) -> None:
    """To the bit, around the size of a record and with many of them."""
    draws = np.random.default_rng(rows)
    inputs = [draws.random((rows, COLUMNS), np.float32) for _ in range(3)]
    plain = infers(kind, ports.plain, "double", *inputs)
    secure = infers(kind, ports.tls, "double", *inputs, tls=TRUSTING)
    for x, one, other in zip(inputs, plain, secure, strict=True):
        np.testing.assert_array_equal(one.outputs["y"], 2 * x)
        np.testing.assert_array_equal(other.outputs["y"], 2 * x)


def test_large_and_small_requests_in_flight_together(ports: Ports) -> None:
    draws = np.random.default_rng(7)
    inputs = [draws.random((rows, COLUMNS), np.float32) for rows in (1500, 1, 700, 2, 2000, 1) * 2]

    async def main() -> None:
        async with AsyncClient(HOST, ports.tls, tls=TRUSTING, timeout_s=60) as client:
            found = await asyncio.gather(*(client.infer("double", {"x": x}) for x in inputs))
            for x, one in zip(inputs, found, strict=True):
                np.testing.assert_array_equal(one.outputs["y"], 2 * x)

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_and_our_protocol(ports: Ports, kind: Kind, version: ssl.TLSVersion) -> None:
    context = trusting(AUTHORITY)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["lumen/1"])
    x = np.ones((5, COLUMNS), np.float32)
    (found,) = infers(kind, ports.tls, "double", x, tls=context)
    np.testing.assert_array_equal(found.outputs["y"], 2 * x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_port_without_tls(ports: Ports, kind: Kind) -> None:
    said = failure(kind, ports.plain, TRUSTING)
    assert "expected TLS, as on the port of `server.tls`, found: " in said


@pytest.mark.parametrize("kind", KINDS)
def test_the_authorities_of_the_system(
    ports: Ports, kind: Kind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With True they decide: they do not know ours, unless they are told."""
    said = failure(kind, ports.tls, True)
    assert "unable to get local issuer certificate. Give the client its authority: tls=" in said
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    x = np.ones((1, COLUMNS), np.float32)
    assert infers(kind, ports.tls, "double", x, tls=True)[0].rows == 1


# ---- whom the clients trust ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["other.example"], "IP address mismatch, certificate is not valid for '127.0.0.1'."),
        (None, "self-signed certificate. Give the client its authority: "),
    ],
)
def test_other_certificates_are_refused(
    kind: Kind, names: list[str] | None, says: str, tmp_path: Path
) -> None:
    if names is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name, data in zip("ck", make_certificate([f"IP:{HOST}"]), strict=True):
            (tmp_path / name).write_bytes(data)
        context.load_cert_chain(tmp_path / "c", tmp_path / "k")
    else:
        context = server_context(AUTHORITY, *names)
    with TlsPeer(context=context) as peer:
        said = failure(kind, peer.port, TRUSTING)
        assert f"expected a certificate for {HOST} by an authority" in said
        assert says in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_is_taken_as_it_is(kind: Kind) -> None:
    """One that checks nothing; the protocol that it asks for, or none, is its own business."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    chosen: list[str | None] = []

    def script(connection: Connection) -> None:
        assert isinstance(connection.socket, ssl.SSLSocket)
        chosen.append(connection.socket.selected_alpn_protocol())
        behave(connection)

    other = server_context(trustme.CA(), "other.example")
    other.set_alpn_protocols(["h2", "lumen/1"])
    with TlsPeer((script,), context=other) as peer:
        assert infers(kind, peer.port, "sum", X, tls=context)[0].rows == 2
        made = context_of(True, HOST)
        assert made is not None
        assert made.check_hostname
        assert made.verify_mode is ssl.CERT_REQUIRED
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        assert infers(kind, peer.port, "sum", X, tls=made)[0].rows == 2
    assert chosen == [None, "lumen/1"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_wants_a_certificate(kind: Kind) -> None:
    """With TLS 1.3 it says so after the handshake."""
    context = server_context(AUTHORITY, HOST)
    context.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(context)
    with TlsPeer(context=context) as peer:
        with pytest.raises(ConnectionFailed) as caught:
            infers(kind, peer.port, "sum", X, tls=TRUSTING)
        assert "_ssl.c" not in str(caught.value)
        mine = trusting(AUTHORITY)
        AUTHORITY.issue_cert("client@example.org").configure_cert(mine)
        assert infers(kind, peer.port, "sum", X, tls=mine)[0].rows == 2


@pytest.mark.parametrize("kind", KINDS)
def test_impossible_arguments(kind: Kind) -> None:
    for shares in (False, True):
        with pytest.raises(ValueError, match="expected a host with a port, found 'unix:/s'"):
            kind("unix:/s", tls=True, shared_memory=shares)
    with pytest.raises(ValueError, match=r"expected True, False or an ssl\.SSLContext, found 'ca'"):
        kind(tls="ca")  # type: ignore[arg-type]


# ---- peers that end, wait, lie ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"LMR1" + bytes(44), b""])
def test_peers_without_tls(kind: Kind, first: bytes) -> None:
    def script(connection: Connection) -> None:
        connection.send(first)
        if first:
            connection.socket.recv(1 << 16)

    with Peer((script,)) as peer:
        assert "expected TLS, as on the port of" in failure(kind, peer.port, TRUSTING)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_there(kind: Kind) -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed) as caught:
        infers(kind, port, "sum", X, tls=TRUSTING)
    assert str(caught.value) == (
        f"No server listens on {HOST}:{port}: expected the port of `server.tls`."
    )
    with pytest.raises(ConnectionFailed, match=r"No connection to no\.such\.host\.invalid:8000: "):
        Client("no.such.host.invalid", tls=TRUSTING).ping()


def mute(connection: Connection) -> None:
    while connection.socket.recv(1 << 16):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_handshake_has_the_time_of_the_call(kind: Kind) -> None:
    with Peer((mute,)) as peer:
        with pytest.raises(RequestTimeout, match=r"did not answer within 0\.3 s"):
            infers(kind, peer.port, "sum", X, tls=TRUSTING, timeout_s=0.3)


def test_close_ends_a_handshake() -> None:
    async def main(port: int) -> None:
        client = AsyncClient(HOST, port, tls=TRUSTING, timeout_s=600)
        call = asyncio.create_task(client.ping())
        while not peer.connections:
            await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(ConnectionFailed, match="The client was closed"):
            await asyncio.wait_for(call, 30)

    with Peer((mute,)) as peer:
        asyncio.run(main(peer.port))


def test_an_interrupted_handshake_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLSocket] = []

    def interrupted(self: ssl.SSLSocket) -> None:
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", interrupted)
    with Peer((mute,)) as peer:
        with pytest.raises(KeyboardInterrupt):
            TlsConnection(HOST, peer.port, 60, time.monotonic() + 60, TRUSTING)
    assert made[0].fileno() == -1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("script", "error"), MISBEHAVIOUR)
def test_misbehaviour_is_named_and_survived(
    kind: Kind, script: Callable[[Connection], None], error: type[Exception]
) -> None:
    async def main(port: int) -> None:
        async with AsyncClient(HOST, port, tls=TRUSTING) as client:
            with pytest.raises(error):
                await client.describe()
            assert (await client.infer("sum", {"x": X})).rows == 2

    with TlsPeer((script, behave)) as peer:
        if kind is AsyncClient:
            asyncio.run(main(peer.port))
            return
        with Client(HOST, peer.port, tls=TRUSTING) as client:
            with pytest.raises(error):
                client.describe()
            assert client.infer("sum", {"x": X}).rows == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_for_each_byte(kind: Kind) -> None:
    with TlsPeer((byte_by_byte,)) as peer:
        (found,) = infers(kind, peer.port, "sum", X, tls=TRUSTING)
        np.testing.assert_array_equal(found.outputs["twice"], X * 2)


@pytest.mark.parametrize("stray", [b"m", bytes(60_000)])
def test_more_than_the_reply_never_reaches_the_next_request(stray: bytes) -> None:
    """Also where it came in the reply's last record, which is not in the socket any more."""

    def too_much(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        connection.send(reply(connection.request().id, bytes(24 * 512) + stray, rows=0))
        connection.socket.recv(1)

    with TlsPeer((too_much, behave)) as peer, Client(HOST, peer.port, tls=TRUSTING) as client:
        with contextlib.suppress(ClientError):
            client.infer("sum", {"x": X})
        assert client.infer("sum", {"x": X}).rows == 2
        assert peer.connections == 2


def test_bytes_and_ends_between_requests_are_noticed_and_tickets_are_none() -> None:
    go_on = threading.Event()

    def script(connection: Connection) -> None:
        go_on.wait(30)
        connection.send(b"x")
        connection.socket.recv(1)

    with TlsPeer((script, lambda _connection: None)) as peer:
        connection = TlsConnection(HOST, peer.port, 60, time.monotonic() + 60, TRUSTING)
        assert connection._readable.poll(30_000)  # tickets: Python's server sends two
        assert connection.is_quiet()
        assert not connection._readable.poll(0)
        assert connection.is_quiet()
        go_on.set()
        assert connection._readable.poll(30_000)
        assert not connection.is_quiet()
        connection.close()
        connection = TlsConnection(HOST, peer.port, 60, time.monotonic() + 60, TRUSTING)
        deadline = time.monotonic() + 30
        while connection.is_quiet():
            assert time.monotonic() < deadline
            connection._readable.poll(100)
        connection.close()


def test_requests_share_a_connection_and_a_closed_one_is_replaced() -> None:
    closed = threading.Event()

    def three(connection: Connection) -> None:
        for _ in range(3):
            connection.send(answer(connection.request()))
        assert isinstance(connection.socket, ssl.SSLSocket)
        with contextlib.suppress(OSError):
            connection.socket.settimeout(0.1)
            connection.socket.unwrap()
        closed.set()

    with TlsPeer((three, behave)) as peer, Client(HOST, peer.port, tls=TRUSTING) as client:
        for _ in range(3):
            client.ping()
        assert peer.connections == 1
        assert closed.wait(30)
        assert client.infer("sum", {"x": X}).rows == 2
        assert peer.connections == 2


def test_a_server_that_never_reads_gives_a_timeout() -> None:
    release = threading.Event()

    def deaf(connection: Connection) -> None:
        describe_large(connection)
        release.wait(30)

    with TlsPeer((deaf,)) as peer, Client(HOST, peer.port, tls=TRUSTING) as client:
        client.describe()
        client._timeout_s = 0.2
        with pytest.raises(RequestTimeout):
            client.infer("raw", {"x": np.zeros(64 << 20, np.uint8)})
        release.set()


def test_a_refusal_while_the_body_is_still_coming() -> None:
    def refuse(connection: Connection) -> None:
        describe_large(connection)
        connection.exactly(32)
        connection.send(reply(2, b"too large for me", status=3))
        connection.exactly(64 << 20)
        behave(connection)

    with TlsPeer((refuse,)) as peer, Client(HOST, peer.port, tls=TRUSTING, timeout_s=60) as client:
        with pytest.raises(TooLarge, match="too large for me"):
            client.infer("raw", {"x": np.zeros(64 << 20, np.uint8)})
        client.ping()
        assert peer.connections == 1


def test_the_deadline_is_of_the_whole_call_not_of_each_wait() -> None:
    enough = threading.Event()

    def drip(connection: Connection) -> None:
        for byte in answer(connection.request()):
            connection.send(bytes([byte]))
            if enough.wait(0.1):
                return

    # 48 bytes take 4.8 s at least, each wait a tenth of a second.
    with TlsPeer((drip,)) as peer, Client(HOST, peer.port, tls=TRUSTING) as client:
        client._begin()  # the handshake has more time
        client._timeout_s = 0.5
        with pytest.raises(RequestTimeout):
            client.ping()
        enough.set()


def test_close_ends_another_threads_call() -> None:
    asked = threading.Event()

    def silent(connection: Connection) -> None:
        connection.request()
        asked.set()
        connection.socket.recv(1)

    with TlsPeer((silent,)) as peer:
        client = Client(HOST, peer.port, tls=TRUSTING, timeout_s=600)
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


def test_a_forked_child_opens_a_connection_of_its_own() -> None:
    with TlsPeer() as peer, Client(HOST, peer.port, tls=TRUSTING) as client:
        client.infer("sum", {"x": X})

        def child() -> None:
            assert client.infer("sum", {"x": X + 100}).outputs["twice"][0, 0] == 200
            client.close()

        assert in_a_child(child) == 0
        assert client.infer("sum", {"x": X}).outputs["twice"][0, 0] == 0
        assert peer.connections == 2


def test_a_forked_child_of_a_loop_and_one_loop_after_another() -> None:
    async def ask(client: AsyncClient, first: float) -> None:
        result = await client.infer("sum", {"x": X + np.float32(first)})
        assert result.outputs["twice"][0, 0] == 2 * first

    with TlsPeer() as peer:
        client = AsyncClient(HOST, peer.port, tls=TRUSTING)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask(client, 0))
        assert in_a_child(lambda: asyncio.run(ask(client, 100))) == 0
        loop.run_until_complete(ask(client, 1))
        assert peer.connections == 2
        loop.close()
        asyncio.run(ask(client, 2))
        asyncio.run(client.close())
        assert peer.connections == 3


# ---- what is sent ----


@pytest.mark.parametrize("sizes", [[], [0, 0], [1, 2], [32, 16 << 10, 5], [9000] * 4, [1 << 20, 1]])
def test_small_buffers_are_joined_and_large_ones_are_not_copied(sizes: list[int]) -> None:
    most = tls_module._RECORD_BYTES
    buffers = [memoryview(bytes([at]) * size) for at, size in enumerate(sizes)]
    parts = list(_records(buffers))
    assert b"".join(parts) == b"".join(buffers)
    large = [part for part in parts if len(part) > most]
    given = [buffer for buffer in buffers if len(buffer) > most]
    assert all(part is buffer for part, buffer in zip(large, given, strict=True))
    for part, following in itertools.pairwise(parts):
        assert len(part) + len(following) > most


def test_a_step_waits_in_the_direction_that_it_asks_for() -> None:
    waits: list[str] = []

    class Poll:
        def __init__(self, name: str) -> None:
            self.name = name

        def poll(self, _left_ms: int) -> list[int]:
            waits.append(self.name)
            return [1]

    connection = object.__new__(TlsConnection)
    connection._readable, connection._writable = Poll("in"), Poll("out")  # type: ignore[assignment]
    outcomes: list[Exception | int] = [ssl.SSLWantWriteError(), ssl.SSLWantReadError(), 7]

    def step() -> int:
        found = outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert connection._until(step, time.monotonic() + 60) == 7
    assert waits == ["out", "in"]
