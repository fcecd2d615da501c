"""TLS: every protocol over it answers as without it, certificates are chosen and exchanged, clients
are known by theirs, and those that break the protocol hurt nobody."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import graphs
import grpc
import needs
import numpy as np
import pytest
import tls
import tritonclient.grpc as triton
import tritonclient.http as triton_http
import tritons
import web
import wire
from conftest import Serve
from harness import Canary, Server, eventually, run
from http2 import PREFACE, Http2

X: Final = np.arange(32, dtype="<f4").reshape(2, 16)
BLOCK: Final = np.random.default_rng(1).random((1, 70000), np.float32)
LIVE: Final = web.get("/v2/health/live")
SLOW_TRIPS: Final = 4000
NO_TIME: Final = {"header_timeout_ms": 300}


def models(folder: Path) -> list[dict[str, object]]:
    files = {
        "double": graphs.double(folder / "double.onnx"),
        "block": graphs.double(folder / "block.onnx", BLOCK.size, rows=1),
        "large": graphs.large(folder / "large.onnx", 3 << 19),  # 6 MiB: the kernel keeps 4
        "slow": graphs.slow(folder / "slow.onnx"),
    }
    return [{"name": name, "path": str(path)} for name, path in files.items()]


@pytest.fixture(scope="module")
def server(
    cache: Path, files: tls.Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    settings: dict[str, object] = {
        "server": {"arena_bytes": "128MiB", "tls": files.settings()},
        "engine": {"thread_count": 2},
        "models": models(tmp_path_factory.mktemp("models")),
    }
    with Server(settings, cache) as running:
        yield running


@pytest.fixture
def port(server: Server) -> Iterator[int]:
    yield tls.port_of(server)
    server.wait_until_idle()


class Secure(web.Http):
    """web.Http whose bytes travel in records."""

    def __init__(self, port: int, context: ssl.SSLContext, **how: Any) -> None:
        self.socket = tls.connect(port, context, **how)  # type: ignore[assignment]
        self.tally, self._have = wire.Tally(), bytearray()


def answer(stream: ssl.SSLSocket | tls.Pieces, request: bytes) -> bytes:
    """The body of an answer of HTTP/1.1."""
    getattr(stream, "sendall", getattr(stream, "send", None))(request)
    found = b""
    while b"\r\n\r\n" not in found:
        got = stream.recv(1 << 16)
        assert got, found
        found += got
    head, _, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
    assert length is not None, head
    while len(body) < int(length.group(1)):
        got = stream.recv(1 << 16)
        assert got, (len(body), head)
        body += got
    assert head.startswith(b"HTTP/1.1 200"), head + body
    return body


# ---- protocols ----


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_http_answers_as_without_it(
    server: Server, port: int, files: tls.Files, version: ssl.TLSVersion
) -> None:
    """To the bit; bodies and answers of many records, small ones in turn on one connection."""
    before = server.figures().io
    requests = [
        web.infer("double", {"x": X}),
        web.infer("block", {"x": BLOCK}),
        web.infer("large", {"x": np.array([0.5], "<f4")}),
        web.infer("double", {"x": X}, binary=False),
    ]
    with tls.connect(port, tls.context(files, version=version)) as stream:
        assert stream.version() == version.name.replace("_", ".")
        for request in requests * 2:
            with web.Http(server.port) as plain:
                assert answer(stream, request) == plain.query(request, "POST").body
    assert tls.counted(before, server.figures().io) == {"tls_full": 1}


def test_native_requests(server: Server, port: int, files: tls.Files) -> None:
    """Several at a time: their answers come as they are ready."""
    with tls.connect(port, tls.context(files, ["lumen/1"])) as stream:
        assert stream.selected_alpn_protocol() == "lumen/1"
        frames = [
            wire.frame((X + n).tobytes(), model=server.models["double"], id=n, rows=2)
            for n in range(50)
        ]
        stream.sendall(b"".join(frames))
        found = b""
        size = len(X.tobytes()) + wire.REPLY.size
        while len(found) < size * len(frames):
            found += stream.recv(1 << 16)
        bodies = {found[at + wire.REPLY.size : at + size] for at in range(0, len(found), size)}
        assert bodies == {((X + n) * 2).tobytes() for n in range(50)}


def test_http2(server: Server, port: int, files: tls.Files) -> None:
    """ALPN chooses it; streams with bodies and answers of many frames beside small ones."""
    stream = tls.connect(port, tls.context(files, ["h2", "http/1.1"]))
    assert stream.selected_alpn_protocol() == "h2"
    requests = [web.infer("block", {"x": BLOCK}), web.infer("double", {"x": X}), LIVE] * 4
    with Http2(stream) as client, Http2(server.port) as plain:
        answers = client.wait([client.send(request) for request in requests])
        expected = plain.wait([plain.send(request) for request in requests])
        assert [one.body for one in answers] == [one.body for one in expected]
        assert {one.code for one in answers} == {200}


def test_tritons_clients(server: Server, port: int, files: tls.Files) -> None:
    """gRPC and HTTP, unmodified."""
    certificates = Path(files.ca).read_bytes()
    credentials = grpc.ssl_channel_credentials(certificates)
    with triton.InferenceServerClient(f"localhost:{port}", ssl=True, creds=credentials) as client:
        assert client.is_server_ready()
        asked = tritons.inputs_of(triton, {"x": X})
        assert (client.infer("double", asked).as_numpy("y") == 2 * X).all()
        assert (
            client.infer("block", tritons.inputs_of(triton, {"x": BLOCK})).as_numpy("y")
            == 2 * BLOCK
        ).all()
    with triton_http.InferenceServerClient(
        f"localhost:{port}", ssl=True, ssl_options={"ca_certs": files.ca}
    ) as client:
        asked = tritons.inputs_of(triton_http, {"x": X})
        assert (client.infer("double", asked).as_numpy("y") == 2 * X).all()


@pytest.mark.parametrize("flags", [["--http1.1"], ["--http2"], ["--http2-prior-knowledge"]])
def test_curl(port: int, files: tls.Files, flags: list[str]) -> None:
    needs.program("curl")
    url = f"https://localhost:{port}/v2/health/ready"
    done = subprocess.run(
        ["curl", "-s", "-m", "20", *flags, "--cacert", files.ca, url],
        capture_output=True,
        check=False,
    )
    assert done.stdout == b'{"ready":true}', done


def test_records_in_pieces(port: int, files: tls.Files) -> None:
    """Row 50. Byte by byte, and cut anywhere: ClientHello, head, body."""
    draws = random.Random(7)

    def cut(data: bytes) -> list[bytes]:
        most = 1 if len(data) < 2000 else 5000
        found = []
        while data:
            size = draws.randint(1, most)
            found.append(data[:size])
            data = data[size:]
        return found

    for _ in range(4):
        client = tls.Pieces(port, tls.context(files), cut)
        got = answer(client, web.infer("block", {"x": BLOCK}))
        assert got.endswith((2 * BLOCK).tobytes())
        assert answer(client, LIVE)
        client.socket.close()


@pytest.mark.parametrize("fragment", [1, 4])
def test_short_records(port: int, fragment: int) -> None:
    """Of a client that asks for them, as small devices do: a long answer comes in many."""
    client = tls.Changing(port, fragment)
    found = client.ask(web.infer("block", {"x": BLOCK}))
    while not found.endswith((2 * BLOCK).tobytes()):
        more = client.ask(b"")
        assert more, len(found)
        found += more
    client.socket.close()


def test_the_end_is_said(port: int, files: tls.Files) -> None:
    """Row 50. With close_notify, behind a last answer, so that nobody takes a cut one for whole."""
    with tls.connect(port, tls.context(files)) as stream:
        stream.sendall(web.get("/v2/health/live", "Connection: close"))
        stream.suppress_ragged_eofs = False  # else Python takes any end
        found = b""
        while got := stream.recv(1 << 16):
            found += got
        assert found.startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read(serve: Serve, files: tls.Files, tmp_path: Path) -> None:
    """Row 50. Its answer waits in the server, for reply_timeout_ms alone; others have theirs."""
    own = {"reply_timeout_ms": 300, "tls": files.settings()}
    server = serve({"server": own, "models": models(tmp_path)})
    with Canary(server):
        for request in (web.infer("large", {"x": np.array([1], "<f4")}), LIVE * 60_000):
            before = server.figures().io["connections_timed_out"]
            stream = tls.connect(tls.port_of(server), tls.context(files))
            with contextlib.suppress(OSError):  # its requests wait, too
                stream.sendall(request)
            eventually(
                lambda was=before: server.figures().io["connections_timed_out"] > was, "its end"
            )
            stream.close()
    server.wait_until_idle()


def test_answers_in_flight_are_sent_at_the_end(
    serve: Serve, files: tls.Files, tmp_path: Path
) -> None:
    server = serve({"server": {"tls": files.settings()}, "models": models(tmp_path)})
    port = tls.port_of(server)
    context = tls.context(files)
    with tls.connect(port, context) as idle, tls.connect(port, context) as busy:
        assert answer(idle, LIVE)
        trips = np.array([SLOW_TRIPS], "<i8")
        busy.sendall(web.infer("slow", {"x": trips}))
        eventually(lambda: server.figures().slots_in_use, "its request")
        os.kill(server.pid, signal.SIGTERM)
        assert answer(busy, b"").endswith((2 * trips).tobytes())
        idle.suppress_ragged_eofs = False
        assert idle.recv(1) == b""
    server.process.wait(20)


# ---- certificates ----


def shown(port: int, files: tls.Files, name: str) -> list[str]:
    """The names in the certificate that a client is shown which asks for this host."""
    context = tls.context(files)
    context.check_hostname = False
    with tls.connect(port, context, name) as stream:
        names = stream.getpeercert()["subjectAltName"]  # type: ignore[index]
        return sorted(str(value) for _kind, value in names)


@pytest.mark.once
def test_hosts_have_their_certificates(serve: Serve, tmp_path: Path) -> None:
    """By what the certificates say, and by `hosts`; the first is for all others."""
    files = tls.make(tmp_path / "pki", "first.example.org", "localhost")
    second = tls.write(tmp_path / "pki", files.authority, "second", "*.example.net")
    third = tls.write(tmp_path / "pki", files.authority, "third", "third.example.org")
    certificates = [
        {"cert": files.cert, "key": files.key},
        {"cert": second[0], "key": second[1]},
        {"cert": third[0], "key": third[1], "hosts": ["*.third.test", "other.test"]},
    ]
    settings = files.settings(certificates=certificates)
    server = serve({"server": {"tls": settings}, "models": models(tmp_path)})
    port = tls.port_of(server)
    first, last = ["first.example.org", "localhost"], ["third.example.org"]
    assert shown(port, files, "first.example.org") == first
    assert shown(port, files, "unknown.test") == first
    assert shown(port, files, "a.example.net") == ["*.example.net"]
    assert shown(port, files, "a.third.test") == shown(port, files, "OTHER.test") == last
    assert shown(port, files, "a.b.third.test") == first
    assert shown(port, files, "third.example.org") == first


@pytest.mark.once
def test_tickets(serve: Serve, files: tls.Files, tmp_path: Path) -> None:
    """Who comes back has a shorter handshake, until the certificates are read again."""
    server = serve({"server": {"tls": files.settings()}, "models": models(tmp_path)})
    port = tls.port_of(server)
    for reloads, version in enumerate((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)):
        context = tls.context(files, version=version)
        session = None
        for is_reused in (False, True, True):
            with tls.connect(port, context, session=session) as stream:
                assert answer(stream, LIVE)
                assert stream.session_reused == is_reused
                session = stream.session
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda n=reloads: server.errors.count("Reloaded:") > n, "the reload")
        with tls.connect(port, context, session=session) as stream:
            assert answer(stream, LIVE)
            assert not stream.session_reused


@pytest.mark.once
def test_a_ticket_is_good_for_what_was_proved(
    serve: Serve, files: tls.Files, tmp_path: Path
) -> None:
    """Row 50. Not when the client's certificate has expired since, and not when the handshake began
    before the certificates were read again."""
    lasting = tls.write(tmp_path / "clients", files.authority, "lasting", "ci.test")
    own = {"tls": files.settings(clients="certified", client_ca=files.ca)}
    server = serve({"server": own, "models": models(tmp_path)})
    port = tls.port_of(server)
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3)
    short = tls.write(tmp_path / "clients", files.authority, "short", "ci.test", until=until)
    context = tls.context(files, client=short)
    with tls.connect(port, context) as stream:
        assert answer(stream, LIVE)
        session = stream.session
    time.sleep(
        max(0.0, (until - datetime.datetime.now(datetime.timezone.utc)).total_seconds()) + 1.1
    )
    with contextlib.suppress(OSError), tls.connect(port, context, session=session) as stream:
        stream.sendall(LIVE)
        assert not stream.recv(1)
    eventually(lambda: server.figures().io["tls_unknown_clients"] == 1, "its refusal")
    flights = 0

    def reload_between(data: bytes) -> list[bytes]:
        nonlocal flights
        flights += 1
        if flights == 2:  # behind ClientHello
            os.kill(server.pid, signal.SIGHUP)
            eventually(lambda: "Reloaded:" in server.errors, "the reload")
            fresh = tls.context(files, client=lasting)
            with tls.connect(port, fresh) as other:
                assert answer(other, LIVE)  # the other certificates are in force
        return [data]

    context = tls.context(files, client=lasting)
    client = tls.Pieces(port, context, reload_between)
    assert answer(client, LIVE)
    with tls.connect(port, context, session=client.session) as stream:
        assert answer(stream, LIVE)
        assert not stream.session_reused


@pytest.mark.once
def test_certificates_are_exchanged_under_load(
    serve: Serve, files: tls.Files, tmp_path: Path
) -> None:
    """Row 50. As Kubernetes does it: a link leads to another folder. No handshake fails, each
    client sees the old one or the new one; a pair that does not fit changes nothing."""
    folder = tmp_path / "mounted"
    for number in range(4):
        tls.write(tmp_path / f"v{number}", files.authority, "tls", "localhost", f"v{number}.test")
    folder.symlink_to(tmp_path / "v0")
    pair = {"cert": str(folder / "tls.crt"), "key": str(folder / "tls.key")}
    own = {"tls": files.settings(certificates=[pair])}
    server = serve({"server": own, "models": models(tmp_path)})
    port = tls.port_of(server)
    over = threading.Event()
    seen: set[str] = set()
    wrong: list[BaseException] = []

    def come_and_go() -> None:
        context = tls.context(files)
        while not over.is_set():
            try:
                with tls.connect(port, context) as stream:
                    names = stream.getpeercert()["subjectAltName"]  # type: ignore[index]
                    seen.add(str(names[1][1]))
                    assert answer(stream, LIVE)
            except BaseException as error:  # noqa: PERF203 -- it ends the loop
                wrong.append(error)
                return

    def lead_to(number: int) -> None:
        (tmp_path / "next").symlink_to(tmp_path / f"v{number}")
        (tmp_path / "next").replace(folder)

    clients = [threading.Thread(target=come_and_go) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        eventually(lambda: "v0.test" in seen, "clients")
        shutil.copy(tmp_path / "v2" / "tls.key", tmp_path / "v3" / "tls.key")
        for number, name in ((1, "v1.test"), (3, ""), (2, "v2.test")):
            lead_to(number)
            if name:
                eventually(lambda name=name: name in seen or wrong, f"{name} to be shown")
            else:
                eventually(lambda: "stay as they were" in server.output + server.errors, "no")
    finally:
        over.set()
        for client in clients:
            client.join()
    assert not wrong
    assert seen == {"v0.test", "v1.test", "v2.test"}


@pytest.mark.once
def test_clients_are_known_by_their_certificates(
    serve: Serve, files: tls.Files, tmp_path: Path
) -> None:
    """Row 50. A key of a name: its rights, over every protocol; a token comes first; strangers are
    sent away in the handshake, and a name is no token."""
    name = "spiffe://example.org/ci"
    known, stranger = (
        tls.self_signed(tmp_path / file, "DNS:ci.example.org", f"URI:{name}")
        for file in ("known", "no")
    )
    other = tls.write(tmp_path / "clients", files.authority, "other", "other.example.org")
    authorities = tmp_path / "authorities.crt"
    authorities.write_bytes(Path(files.ca).read_bytes() + Path(known[0]).read_bytes())
    own = {
        "tls": files.settings(clients="certified", client_ca=str(authorities)),
        "keys": [
            {"name": "ci", "subject": name, "models": ["double"]},
            {"name": "other", "token_env": "LUMEN_TEST_TOKEN", "models": ["large"]},
        ],
    }
    server = serve(
        {"server": own, "models": models(tmp_path)},
        extra_environment={"LUMEN_TEST_TOKEN": "a-token-of-a-client"},
    )
    port = tls.port_of(server)
    infer = web.infer("double", {"x": X})
    with Secure(port, tls.context(files, client=known)) as http:
        assert http.query(infer, "POST").code == 200
        assert http.query(web.infer("large", {"x": np.array([1], "<f4")}), "POST").code == 403
        bearer = ["Authorization: Bearer a-token-of-a-client"]
        assert http.query(web.infer("double", {"x": X}, headers=bearer), "POST").code == 403
    with tls.connect(port, tls.context(files, ["h2"], client=known)) as stream:
        assert Http2(stream).query(infer).code == 200
    with tls.connect(port, tls.context(files, client=known)) as stream:
        stream.sendall(wire.frame(X.tobytes(), model=server.models["double"], id=1, rows=2))
        assert stream.recv(1 << 16).endswith((2 * X).tobytes())
    with Secure(port, tls.context(files, client=other)) as http:
        assert http.query(infer, "POST").code == 401
    with web.Http(server.port) as http:
        bearer = [f"Authorization: Bearer {name}"]
        assert http.query(web.infer("double", {"x": X}, headers=bearer), "POST").code == 401
    before = server.figures().io
    for context in (tls.context(files, client=stranger), tls.context(files)):
        with pytest.raises(OSError), tls.connect(port, context) as stream:  # noqa: PT011
            answer(stream, infer)
    eventually(
        lambda: tls.counted(before, server.figures().io) == {"tls_unknown_clients": 2},
        "their refusals",
        found=lambda: tls.counted(before, server.figures().io),
    )


@pytest.mark.once
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("ECDHE+AES256+AESGCM:ECDHE+AES128+AESGCM", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("ECDHE+AES256+AESGCM", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("ECDHE+CHACHA20:ECDHE+AESGCM", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("ECDHE+AESGCM:ECDHE+CHACHA20", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ],
)
def test_the_fastest_cipher_is_chosen(
    port: int, files: tls.Files, offered: str, chosen: str
) -> None:
    """For a client with instructions for AES, and for one without, which asks for another first."""
    made = tls.context(files, version=ssl.TLSVersion.TLSv1_2)
    made.set_ciphers(offered)
    with tls.connect(port, made) as stream:
        assert (stream.cipher() or ("",))[0] == chosen
    with tls.connect(port, tls.context(files)) as stream:
        assert (stream.cipher() or ("",))[0] == "TLS_AES_128_GCM_SHA256"


# ---- clients that break the protocol ----


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_protocols_are_refused(port: int, files: tls.Files) -> None:
    """Row 50."""
    made = tls.context(files)
    made.minimum_version = ssl.TLSVersion.TLSv1
    made.maximum_version = ssl.TLSVersion.TLSv1_1
    made.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError):  # noqa: PT011
        tls.connect(port, made)
    with pytest.raises(OSError):  # noqa: PT011 -- nothing in common
        tls.connect(port, tls.context(files, ["spdy/3"]))


def test_plain_clients_are_told(server: Server, port: int) -> None:
    """Row 50. On the port of TLS; and TLS on the plain one ends."""
    before = server.figures().io
    with web.Http(port) as http:
        http.send(LIVE)
        assert "speaks TLS" in http.expect_closed().decode()
    assert tls.counted(before, server.figures().io) == {"tls_plain": 1}
    for first in (PREFACE, b"LMN1", b"\x00" * 100, b"SSH-2.0-x\r\n"):
        with socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S) as raw:
            raw.sendall(first)
            while raw.recv(1 << 16):
                pass
    with socket.create_connection(("127.0.0.1", server.port), wire.TIMEOUT_S) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
        while raw.recv(1 << 16):
            pass


def test_broken_handshakes(server: Server, port: int, files: tls.Files) -> None:
    """Row 50. Records of every type in the place of ClientHello, cut and damaged ones, and too many
    bytes of one; each ends alone."""
    bio_in, bio_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.context(files).wrap_bio(bio_in, bio_out, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = bio_out.read()
    draws = random.Random(3)
    cases = [bytes([kind]) + hello[1:] for kind in range(20, 26)]
    cases += [hello[:cut] for cut in range(1, len(hello), 37)]
    for _ in range(60):
        damaged = bytearray(hello)
        for _ in range(draws.randint(1, 6)):
            damaged[draws.randrange(1, len(damaged))] = draws.randrange(256)
        cases.append(bytes(damaged))
    part = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + bytes(16380)
    cases += [
        hello * 50,
        part * 40,
        b"\x16\x03\x01\x00\x00" * 2000,
        b"\x15\x03\x01\x00\x02\x02\x28",
    ]
    with Canary(server):
        for case in cases:
            raw = socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S)
            try:
                raw.sendall(case)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(1 << 16):
                    pass
            except OSError:
                pass
            raw.close()
        with tls.connect(port, tls.context(files)) as stream:
            assert answer(stream, LIVE)


def test_half_open_handshakes(serve: Serve, files: tls.Files, tmp_path: Path) -> None:
    """Row 50. More than may be under way, and slow ones: they end, and a client comes in
    meanwhile."""
    own = {**NO_TIME, "tls": files.settings()}
    server = serve({"server": own, "models": models(tmp_path)})
    port = tls.port_of(server)
    crowd = []
    with Canary(server):
        for number in range(1500):
            raw = socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S)
            raw.sendall(b"\x16\x03\x01\x02\x00\x01"[: 1 + number % 6])
            crowd.append(raw)
        with tls.connect(port, tls.context(files)) as stream:
            assert answer(stream, LIVE)
        eventually(lambda: server.figures().io["tls_late"] == len(crowd), "their ends")
    for raw in crowd:
        raw.close()


@pytest.mark.parametrize("asks", [False, True])
def test_changes_of_keys(server: Server, port: int, asks: bool) -> None:
    """Row 50. A few are followed; a client that does nothing else is sent away."""
    client = tls.Changing(port)
    assert all(client.change(asks) for _ in range(5))
    assert client.ask(LIVE).startswith(b"HTTP/1.1 200")
    client.socket.close()
    with Canary(server):
        client = tls.Changing(port)
        assert not (all(client.change(asks) for _ in range(3000)) and client.ask(LIVE))
        client.socket.close()


def test_a_cut_connection_is_a_client_that_left(
    server: Server, port: int, files: tls.Files
) -> None:
    """Row 50. Without close_notify a body that misses its end is not taken for whole."""
    before = server.figures().io["requests_gone"]
    stream = tls.connect(port, tls.context(files))
    stream.sendall(web.infer("block", {"x": BLOCK})[:-4])
    eventually(lambda: server.figures().slots_in_use, "its slot")
    os.close(stream.detach())
    eventually(lambda: server.figures().io["requests_gone"] > before, "its end")


@pytest.mark.once
def test_commands(server: Server, port: int, files: tls.Files, cache: Path) -> None:
    """`lumen health` asks whether it lives; `lumen predict` trusts what the system trusts."""
    assert (
        run(["health", "--ready", "--server", f"https://localhost:{port}"], cache).returncode == 0
    )
    wrong = run(["health", "--server", f"https://localhost:{server.port}"], cache)
    assert wrong.returncode == 1
    assert "expected HTTP 200" in wrong.stderr
    ask = ["predict", "--model", "double", "--input", json.dumps(X.tolist()), "--server"]
    trusting = {"SSL_CERT_FILE": files.ca}
    done = run([*ask, f"https://localhost:{port}"], cache, extra_environment=trusting)
    assert done.returncode == 0, done.stderr
    refused = run([*ask, f"https://localhost:{port}"], cache)
    assert refused.returncode == 1
    assert "expected a certificate for localhost" in refused.stderr
    stats = run(["stats", "--server", f"https://localhost:{port}"], cache)
    assert "expected the port for plain clients" in stats.stderr


class OnlyTls(Server):
    """A server that answers no plain client."""

    def _look(self, settings: dict[str, object]) -> None:
        self.port = tls.port_of(self)


def test_only_tls(cache: Path, files: tls.Files, tmp_path: Path) -> None:
    """Nobody listens for plain text."""
    own = {"tls": files.settings(only=True)}
    server = OnlyTls({"server": own, "models": models(tmp_path)}, cache)
    try:
        assert f"serves on 127.0.0.1:{server.port} " in server.output
        with tls.connect(server.port, tls.context(files)) as stream:
            assert answer(stream, LIVE)
        os.kill(server.pid, signal.SIGTERM)
        assert server.process.wait(20) == 0
    finally:
        server.kill()
