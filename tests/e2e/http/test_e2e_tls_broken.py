"""TLS: clients that break one rule of a handshake are told by the alert that the RFC names, each is
counted, and other clients are served."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import graphs
import pytest
import tls
import wire
from conftest import Serve
from harness import Canary, Server, eventually
from test_e2e_tls import LIVE, answer
from tlslite.errors import TLSRemoteAlert
from tlslite.handshakesettings import HandshakeSettings
from tlslite.messages import ChangeCipherSpec, ClientKeyExchange, Finished, Message
from tlslite.tlsconnection import TLSConnection

CONNECTIONS = 16
HANDSHAKE, ALERT = 22, 21
SERVER_HELLO: Final = 2
# Descriptions of alerts (RFC 8446, section 6).
UNEXPECTED, BAD_MAC, OVERFLOW, FAILURE = 10, 20, 22, 40
ILLEGAL, DECODE, DECRYPT, VERSION, FALLBACK = 47, 50, 51, 70, 86
NO_RENEGOTIATION, MISSING, NO_NAME, NO_PROTOCOL = 100, 109, 112, 120
# Extensions (RFC 8446, section 4.2).
NAME, GROUPS, ALGORITHMS, PROTOCOLS, PSK, VERSIONS, MODES, SHARE = 0, 10, 13, 16, 41, 43, 45, 51


def block(data: bytes, width: int = 2) -> bytes:
    """Bytes behind their count, which takes `width` bytes."""
    return len(data).to_bytes(width, "big") + data


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}H", *values)


def share(group: int, key: bytes) -> bytes:
    return block(words(group) + block(key))


GOOD: Final = {
    NAME: block(b"\0" + block(b"localhost")),
    GROUPS: block(words(29, 23)),
    ALGORITHMS: block(words(0x0403, 0x0804, 0x0401)),
    VERSIONS: block(words(0x0304, 0x0303), 1),
    MODES: block(b"\1", 1),
    SHARE: share(29, b"\x09" + bytes(31)),
}
CIPHERS: Final = words(0x1301, 0x1302, 0xC02B, 0xC02F)
# One identity of a ticket, and its binder.
TICKET: Final = block(block(b"t" * 40) + bytes(4)) + block(block(bytes(32), 1))


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + block(body, 3)


def record(body: bytes, kind: int = HANDSHAKE, version: int = 0x0301) -> bytes:
    return bytes([kind]) + words(version) + block(body)


def hello(
    changes: dict[int, bytes | None] | None = None,
    *,
    version: int = 0x0303,
    session: bytes = b"",
    ciphers: bytes = CIPHERS,
    compressions: bytes = b"\0",
    twice: bytes = b"",
    tail: bytes = b"",
) -> bytes:
    """A ClientHello in its record. `changes` replaces extensions, None leaves one out; `twice`
    follows the extensions, and `tail` follows all."""
    chosen = {**GOOD, **(changes or {})}
    listed = [words(kind) + block(data) for kind, data in chosen.items() if data is not None]
    body = words(version) + bytes(range(32)) + block(session, 1) + block(ciphers)
    body += block(compressions, 1) + block(b"".join(listed) + twice) + tail
    return record(message(1, body))


OLD: Final[dict[int, bytes | None]] = {VERSIONS: None, MODES: None, SHARE: None}
ZERO_POINT: Final = b"\4" + bytes(64)
# Each case: what is sent, and the alert that answers it.
HELLOS: Final[dict[str, tuple[bytes, int]]] = {
    "no cipher in common": (hello(OLD, ciphers=words(0x002F, 0x0035)), FAILURE),
    "no cipher at all": (hello(ciphers=b""), ILLEGAL),
    "half a cipher": (hello(ciphers=CIPHERS[:-1]), DECODE),
    "no group in common": (hello({GROUPS: block(words(30)), SHARE: share(30, bytes(56))}), FAILURE),
    "no signature in common": (hello({ALGORITHMS: block(words(0x0201))}), FAILURE),
    "no signature algorithms": (hello({ALGORITHMS: None}), MISSING),
    "no groups": (hello({GROUPS: None}), MISSING),
    "SSL 3": (hello(OLD, version=0x0300), FAILURE),  # it has no alert for versions
    "TLS 1.1": (hello(OLD, version=0x0302), VERSION),
    "only unknown versions": (hello({VERSIONS: block(words(0x0A0A, 0x7F1C), 1)}), VERSION),
    "a needless fallback": (hello(OLD, ciphers=words(0xC02B, 0x5600)), FALLBACK),
    "no compression method": (hello(compressions=b""), DECODE),
    "compression alone": (hello(OLD, compressions=b"\1"), DECODE),
    "compression with TLS 1.3": (hello(compressions=b"\1\0"), ILLEGAL),
    "an extension twice": (hello(twice=words(GROUPS) + block(GOOD[GROUPS])), ILLEGAL),
    "an extension beyond the end": (hello(twice=words(0xFF) + b"\xff\xff"), DECODE),
    "bytes behind the extensions": (hello(tail=b"\0"), DECODE),
    "a long session": (hello(session=bytes(33)), DECODE),
    "a name with a zero": (hello({NAME: block(b"\0" + block(b"local\0host"))}), NO_NAME),
    "an empty protocol": (hello({PROTOCOLS: block(b"\0")}), DECODE),
    "no protocol in common": (hello({PROTOCOLS: block(block(b"spdy/3", 1))}), NO_PROTOCOL),
    "a ticket before others": (hello({PSK: TICKET, 0xFF: b""}), ILLEGAL),
    "a ticket without modes": (hello({MODES: None, PSK: TICKET}), MISSING),
    "a key of another group": (hello({SHARE: share(24, bytes(97))}), ILLEGAL),
    "a short key": (hello({SHARE: share(29, bytes(31))}), ILLEGAL),
    "a key of zeros": (hello({SHARE: share(29, bytes(32))}), ILLEGAL),
    "a point beside the curve": (hello({SHARE: share(23, ZERO_POINT)}), ILLEGAL),
    "ServerHello": (record(message(SERVER_HELLO, hello()[9:])), UNEXPECTED),
    "Finished": (record(message(20, bytes(12))), UNEXPECTED),
    "empty records": (record(b"") * 33, UNEXPECTED),
    # All of it is sent: a server that closed without reading on would take its alert back.
    "a long record": (record(bytes(0xFFFF)), OVERFLOW),
    "data in the clear": (hello(OLD) + record(b"GET / HTTP/1.1", 23, 0x0303), UNEXPECTED),
    "a cipher change too early": (hello(OLD) + record(b"\1", 20, 0x0303), UNEXPECTED),
    "a wrong cipher change": (hello(OLD) + record(b"\2", 20, 0x0303), UNEXPECTED),
}


@pytest.fixture(scope="module")
def server(
    cache: Path, files: tls.Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    double = graphs.double(tmp_path_factory.mktemp("models") / "double.onnx")
    settings: dict[str, object] = {
        "server": {"tls": files.settings(), "max_connections": CONNECTIONS},
        "models": [{"name": "double", "path": str(double)}],
    }
    with Server(settings, cache) as running:
        yield running


@pytest.fixture
def port(server: Server) -> Iterator[int]:
    yield tls.port_of(server)
    server.wait_until_idle()


def records(port: int, sent: bytes, leaves: bool = False) -> list[tuple[int, bytes]]:
    """The kind and the content of each record that answers; `leaves`: no bytes follow."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S) as raw:
        raw.sendall(sent)
        if leaves:
            raw.shutdown(socket.SHUT_WR)
        while got := raw.recv(1 << 16):
            found += got
    parts = []
    while found:
        size = int.from_bytes(found[3:5], "big")
        assert len(found) >= 5 + size, "the last record is cut"
        parts.append((found[0], found[5 : 5 + size]))
        found = found[5 + size :]
    return parts


def expect(server: Server, files: tls.Files, before: dict[str, int], counter: str) -> None:
    """One handshake more is counted, by this counter alone; a client with good manners is next."""
    eventually(
        lambda: tls.counted(before, server.figures().io) == {counter: 1},
        counter,
        found=lambda: tls.counted(before, server.figures().io),
    )
    with tls.connect(tls.port_of(server), tls.context(files)) as stream:
        assert answer(stream, LIVE) == b'{"live":true}'


@pytest.mark.parametrize("case", HELLOS)
def test_a_broken_hello(server: Server, port: int, files: tls.Files, case: str) -> None:
    """Row 50. The last record is the alert."""
    sent, alert = HELLOS[case]
    before = server.figures().io
    with Canary(server):
        found = records(port, sent)
        assert found, "no alert"
        assert (found[-1][0], list(found[-1][1])) == (ALERT, [2, alert])
        expect(server, files, before, "tls_failed")


def test_a_client_that_asks_in_bytes(port: int, files: tls.Files) -> None:
    """Row 50. Each read that finds no whole record gives back the page that it was to fill; there
    are as many as there may be connections."""
    client = tls.Pieces(port, tls.context(files), lambda data: [bytes([one]) for one in data])
    for _ in range(3 * CONNECTIONS):
        assert b"live" in answer(client, LIVE)
    client.socket.close()


def test_a_good_hello_is_answered(server: Server, port: int, files: tls.Files) -> None:
    """Row 50. What the broken ones are made from; a client that leaves then is counted as such."""
    before = server.figures().io
    found = records(port, hello(), leaves=True)
    assert (found[0][0], found[0][1][0]) == (HANDSHAKE, SERVER_HELLO)
    expect(server, files, before, "tls_left")


@pytest.mark.parametrize("sends", [False, True])
def test_a_client_that_stays(serve: Serve, files: tls.Files, tmp_path: Path, sends: bool) -> None:
    """Row 50. After it was told, saying nothing or without end: it is closed, and counted once."""
    double = graphs.double(tmp_path / "double.onnx")
    own = {"tls": files.settings(), "header_timeout_ms": 300}
    server = serve({"server": own, "models": [{"name": "double", "path": str(double)}]})
    before = server.figures().io
    with socket.create_connection(("127.0.0.1", tls.port_of(server)), wire.TIMEOUT_S) as raw:
        raw.sendall(hello(ciphers=b""))
        assert raw.recv(1 << 16)[:1] == bytes([ALERT])
        assert raw.recv(1) == b""

        def is_closed() -> bool:
            try:
                raw.sendall(bytes(1 << 16 if sends else 1))
            except OSError:
                return True
            return False

        eventually(is_closed, "an end")
    expect(server, files, before, "tls_failed")


@pytest.mark.parametrize("alert", [FAILURE, 42, 48, 80])
def test_a_client_that_refuses(server: Server, port: int, files: tls.Files, alert: int) -> None:
    """Row 50. By a fatal alert in the clear, after the server's first flight."""
    before = server.figures().io
    with Canary(server):
        records(port, hello(OLD) + record(bytes([2, alert]), ALERT, 0x0303))
        expect(server, files, before, "tls_refused")


# ---- later messages ----


class Broken(TLSConnection):  # type: ignore[misc] -- it has no types
    """A client of tlslite that exchanges one of its messages for others: `fault` names them."""

    def __init__(self, port: int, fault: str) -> None:
        self.plain = socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S)
        super().__init__(self.plain)
        self.fault_name, self.done = fault, False

    def shake_hands(self, version: Any) -> None:
        """Raises: TLSRemoteAlert by what the server says."""
        self.handshakeClientCert(settings=settings(version), serverName="localhost")
        self.read(1, 1)  # with TLS 1.3 the client is done before the server

    def _sendMsg(self, msg: Any, *rest: Any, **more: Any) -> Iterator[int]:  # noqa: N802
        for one in [msg] if self.done else self._exchanged(msg):
            yield from super()._sendMsg(one, *rest, **more)

    def _exchanged(self, msg: Any) -> list[Any]:
        kind, wanted = FAULTS[self.fault_name][1:3]
        if not isinstance(msg, wanted):
            return [msg]
        self.done = True
        return list(kind(msg))


def wrong_proof(msg: Any) -> list[Any]:
    msg.verify_data[0] ^= 1
    return [msg]


def short_proof(msg: Any) -> list[Any]:
    del msg.verify_data[-1]
    return [msg]


def wrong_point(msg: Any) -> list[Any]:
    msg.ecdh_Yc = bytearray(len(msg.ecdh_Yc))
    return [msg]


def short_point(msg: Any) -> list[Any]:
    msg.ecdh_Yc = msg.ecdh_Yc[:-1]
    return [msg]


def data_first(msg: Any) -> list[Any]:
    return [Message(23, bytearray(b"GET / HTTP/1.1")), msg]


def certificate_first(msg: Any) -> list[Any]:
    """One that nobody asked for, with no certificate in it."""
    return [Message(HANDSHAKE, bytearray(message(11, bytes(3)))), msg]


def hello_again(msg: Any) -> list[Any]:
    return [Message(HANDSHAKE, bytearray(hello()[5:])), msg]


def clear_after(msg: Any) -> list[Any]:
    """A record in the clear where the server decrypts: long enough to hold a tag."""
    return [msg, Message(HANDSHAKE, bytearray(40))]


def left_out(_msg: Any) -> list[Any]:
    return []


def twice(msg: Any) -> list[Any]:
    return [msg, msg]


TLS12, TLS13 = (3, 3), (3, 4)
# Each fault: the version, what is sent instead, of which message, and the alert that answers it.
FAULTS: Final[dict[str, tuple[Any, Any, Any, int]]] = {
    "a wrong proof": (TLS12, wrong_proof, Finished, DECRYPT),
    "a wrong proof (1.3)": (TLS13, wrong_proof, Finished, DECRYPT),
    "a short proof": (TLS12, short_proof, Finished, DECODE),
    "a short proof (1.3)": (TLS13, short_proof, Finished, DECODE),
    "a wrong point": (TLS12, wrong_point, ClientKeyExchange, ILLEGAL),
    "a short point": (TLS12, short_point, ClientKeyExchange, ILLEGAL),
    "no key exchange": (TLS12, left_out, ClientKeyExchange, UNEXPECTED),
    "two key exchanges": (TLS12, twice, ClientKeyExchange, UNEXPECTED),
    "no cipher change": (TLS12, left_out, ChangeCipherSpec, UNEXPECTED),
    "clear after a cipher change": (TLS12, clear_after, ChangeCipherSpec, BAD_MAC),
    "data before the proof": (TLS12, data_first, Finished, UNEXPECTED),
    "data before the proof (1.3)": (TLS13, data_first, Finished, UNEXPECTED),
    "a certificate unasked": (TLS12, certificate_first, ClientKeyExchange, UNEXPECTED),
    "a certificate unasked (1.3)": (TLS13, certificate_first, Finished, UNEXPECTED),
    "a second hello": (TLS12, hello_again, ClientKeyExchange, UNEXPECTED),
    "a second hello (1.3)": (TLS13, hello_again, Finished, UNEXPECTED),
}


def settings(version: Any) -> HandshakeSettings:
    made = HandshakeSettings()
    made.minVersion = made.maxVersion = version
    return made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_message(server: Server, port: int, files: tls.Files, fault: str) -> None:
    """Row 50. In the place of a later message, in the keys of its time."""
    version, _kind, _wanted, alert = FAULTS[fault]
    before = server.figures().io
    with Canary(server):
        client = Broken(port, fault)
        with client.plain:
            with pytest.raises(TLSRemoteAlert) as told:
                client.shake_hands(version)
        assert client.done
        assert (told.value.level, told.value.description) == (2, alert)
        expect(server, files, before, "tls_failed")


# ---- renegotiation ----


def renegotiate(client: TLSConnection) -> None:
    """Sends a ClientHello in the keys of a connection that is greeted."""
    for _ in client._sendMsg(Message(HANDSHAKE, bytearray(hello()[5:]))):
        pass


def test_renegotiation_is_refused(server: Server, port: int) -> None:
    """Row 50. By a warning; a client that does nothing else is sent away."""
    with socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S) as plain:
        client = TLSConnection(plain)
        client.handshakeClientCert(settings=settings(TLS12), serverName="localhost")
        renegotiate(client)
        with pytest.raises(TLSRemoteAlert) as told:
            client.read(1, 1)
        assert (told.value.level, told.value.description) == (1, NO_RENEGOTIATION)
    with Canary(server), socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S) as plain:
        client = TLSConnection(plain)
        client.handshakeClientCert(settings=settings(TLS12), serverName="localhost")
        with pytest.raises((OSError, TLSRemoteAlert)):  # noqa: PT012 -- whichever it meets first
            for _ in range(100_000):
                renegotiate(client)
