"""TLS for the end-to-end tests: certificates, and clients whose bytes the test moves itself.

Every wait is bounded by the socket's timeout.
"""

from __future__ import annotations

import ctypes
import datetime
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
import wire
from harness import Server

from lumen_uring.ring import certificates

_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Files:
    """An authority, and a certificate of it as files."""

    authority: trustme.CA
    ca: str
    cert: str
    key: str

    def settings(self, **rest: object) -> dict[str, object]:
        return {"port": 0, "certificates": [{"cert": self.cert, "key": self.key}], **rest}


def write(
    folder: Path,
    authority: trustme.CA,
    name: str,
    *hosts: str,
    until: datetime.datetime | None = None,
) -> tuple[str, str]:
    """A certificate and its key, as files."""
    folder.mkdir(exist_ok=True)
    issued = authority.issue_cert(*(hosts or _NAMES), not_after=until)
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return str(cert), str(key)


def self_signed(file: Path, *names: str) -> tuple[str, str]:
    """A certificate that is its own authority, with names as OpenSSL writes them, and its key."""
    certificate, key = certificates.make_certificate(names)
    cert_file, key_file = file.with_suffix(".crt"), file.with_suffix(".key")
    cert_file.write_bytes(certificate)
    key_file.write_bytes(key)
    return str(cert_file), str(key_file)


def make(folder: Path, *hosts: str) -> Files:
    authority = trustme.CA()
    folder.mkdir(exist_ok=True)
    ca = folder / "ca.crt"
    authority.cert_pem.write_to_path(str(ca))
    return Files(authority, str(ca), *write(folder, authority, "server", *hosts))


def context(
    files: Files,
    protocols: Sequence[str] = (),
    client: tuple[str, str] | None = None,
    version: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=files.ca)
    if protocols:
        made.set_alpn_protocols(list(protocols))
    if client:
        made.load_cert_chain(*client)
    if version:
        made.minimum_version = made.maximum_version = version
    return made


def server_context(files: Files, client_ca: str | None = None) -> ssl.SSLContext:
    """For a server of the tests' own, which asks its clients for certificates of an authority."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    made.load_cert_chain(files.cert, files.key)
    if client_ca:
        made.verify_mode = ssl.CERT_REQUIRED
    return made


def connect(
    port: int,
    made: ssl.SSLContext,
    name: str = "localhost",
    session: ssl.SSLSession | None = None,
) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        return made.wrap_socket(plain, server_hostname=name, session=session)
    except BaseException:
        plain.close()
        raise


def port_of(server: Server) -> int:
    """The port where it speaks TLS."""
    found = re.search(r"TLS +on \S+:(\d+)", server.output)
    assert found is not None, server.output
    return int(found.group(1))


class Pieces:
    """A client whose records travel in pieces as `cut` says: from bytes to their pieces."""

    def __init__(
        self, port: int, made: ssl.SSLContext, cut: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        self._cut = cut
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = made.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.socket = socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._until(self._tls.do_handshake)

    @property
    def session(self) -> ssl.SSLSession | None:
        return self._tls.session

    def _flush(self) -> None:
        for piece in self._cut(self._outgoing.read()):
            self.socket.sendall(piece)

    def _until(self, step: Callable[[], object]) -> object:
        while True:
            try:
                found = step()
            except ssl.SSLWantReadError:  # noqa: PERF203 -- that is the loop
                self._flush()
                got = self.socket.recv(1 << 16)
                if not got:
                    self._incoming.write_eof()
                self._incoming.write(got)
            else:
                self._flush()
                return found

    def send(self, data: bytes) -> None:
        """Writes records of at most 16 KiB."""
        at = 0
        while at < len(data):
            at += self._tls.write(data[at:])
            self._flush()

    def recv(self, count: int) -> bytes:
        """Bytes; b"" once the server has said that no more follows."""
        try:
            found = self._until(lambda: self._tls.read(count))
        except ssl.SSLZeroReturnError:
            return b""
        assert isinstance(found, bytes)
        return found


def counted(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was counted of handshakes in between, without zeros."""
    names = [name for name in after if name.startswith("tls_")]
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


class Changing:
    """A client of TLS 1.3 that can change its keys and ask for short records, which Python's module
    cannot: on the same library, by ctypes."""

    def __init__(self, port: int, fragment: int = 0) -> None:
        """`fragment`: 1 for records of 512 bytes, to 4 for those of 4,096 (RFC 6066)."""
        self.library = library = ctypes.CDLL("libssl.so.3")
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(library, name).restype = ctypes.c_void_p
        context = ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_client_method())))
        if fragment:
            library.SSL_CTX_set_tlsext_max_fragment_length(context, fragment)
        self.socket = socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S)
        self.socket.settimeout(None)  # what OpenSSL reads blocks
        self._ssl = ctypes.c_void_p(library.SSL_new(context))
        library.SSL_set_fd(self._ssl, self.socket.fileno())
        assert library.SSL_connect(self._ssl) == 1

    def change(self, asks: bool) -> bool:
        """Says that other keys follow, and asks the server for its own; False: it has ended."""
        return bool(
            self.library.SSL_key_update(self._ssl, int(asks)) == 1
            and self.library.SSL_do_handshake(self._ssl) == 1
        )

    def ask(self, data: bytes) -> bytes:
        """Some bytes of an answer; b"" at the connection's end."""
        if data and self.library.SSL_write(self._ssl, data, len(data)) <= 0:
            return b""
        found = ctypes.create_string_buffer(1 << 16)
        count = self.library.SSL_read(self._ssl, found, len(found))
        return found.raw[: max(0, count)]
