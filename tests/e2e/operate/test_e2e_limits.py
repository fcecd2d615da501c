"""Who may ask, how often, and what becomes of more than fits; over both protocols."""

from __future__ import annotations

import asyncio
import hashlib
import math
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import graphs
import needs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Canary, Server, eventually
from web import Answer, Http, get, post

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import Unauthorised

pytestmark = pytest.mark.once  # who may ask is decided by the same code on both backends

X = np.arange(16, dtype="<f4").reshape(1, 16)
INFER = web.infer("double", {"x": X})
UNAUTHORISED, RATE_LIMITED = 6, 7
DECOY = get("/v2/health/live")


def models(folder: Path, **double: object) -> list[dict[str, object]]:
    return [
        {"name": "double", "path": str(graphs.double(folder / "double.onnx")), "max_rows": 16,
         **double},
        {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
        {"name": "tag", "path": str(graphs.tag(folder / "tag.onnx"))},
    ]  # fmt: skip


def settings(folder: Path, **server: object) -> dict[str, object]:
    return {
        "server": {"arena_bytes": "16MiB", "max_request_bytes": "64KiB", **server},
        "engine": {"thread_count": 1},
        "models": models(folder),
    }


def frame(number: int = 1, token: bytes | None = None, **rest: Any) -> bytes:
    """A native request, behind a credential where there is one."""
    flags = 0 if token is None else wire.CREDENTIAL
    credential = b"" if token is None else token.ljust(32, b"\0")
    return wire.frame(credential + X.tobytes(), id=number, flags=flags, **rest)


def retry_after_s(answer: Answer) -> int:
    return int(answer.headers["retry-after"])


def refused_in_between(http: Http, code: int) -> Answer:
    """Asks until a refusal comes; a good answer may come before it, and the connection goes on."""
    for _ in range(200):
        answer = http.query(INFER)
        if answer.code != 200:
            assert answer.code == code, answer
            assert not answer.closes
            return answer
    raise AssertionError("200 requests were let through")


# ---- rates ----


@pytest.mark.parametrize("where", ["server", "model"])
def test_more_than_the_rate_allows(serve: Serve, tmp_path: Path, where: str) -> None:
    """A burst of three, then one each 50 s: the fourth is refused, whatever the clock says."""
    chosen = settings(tmp_path)
    limit = {"rate": 0.02, "burst": 3}
    if where == "server":
        chosen["server"] |= limit  # type: ignore[operator]
    else:
        chosen["models"] = models(tmp_path, **limit)
    server = serve(chosen)
    with Http(server.port) as http, server.connect() as native:
        began = time.monotonic()
        assert http.query(INFER).code == 200
        assert native.ask(frame(2)).status == wire.OK
        assert http.query(web.infer("double", {"x": X}, binary=False)).code == 200
        for request in (
            INFER,
            web.infer("double", {"x": X}, binary=False),
            web.infer("double", {"x": X}, chunk_bytes=50, headers=["Connection: keep-alive"]),
            web.raw("double", X.tobytes()),
        ):
            with Http(server.port) as another:  # the client cannot get round it that way
                answer = another.query(request)
                assert answer.code == 429, answer
                assert "rate" in answer.error
                # Whole seconds, rounded up, until the next of them comes: 50 after the first.
                left_s = began + 50 - time.monotonic()
                assert max(1, math.ceil(left_s)) <= retry_after_s(answer) <= 50
        reply = native.ask(frame(5))
        assert (reply.status, reply.id) == (RATE_LIMITED, 5)
        assert "rate" in reply.text
        # Both connections go on, and what is no inference costs nothing.
        for target in ("/v2/health/live", "/v2/models/double", "/v2/models/double/stats", "/v2"):
            assert http.query(get(target)).code == 200
        assert native.ask(wire.ping(6)).status == wire.OK
        other = web.infer("tag", {"x": np.ones(4, "<i8")})
        assert http.query(other).code == (429 if where == "server" else 200)
    figures = server.figures()
    assert figures.io["requests_limited"] >= 5
    assert figures.io["requests_refused"] >= figures.io["requests_limited"]


def test_a_rate_lets_more_through_later(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, rate=20, burst=2))
    with Http(server.port) as http, Http(server.port) as other:
        for _ in range(3):
            refused_in_between(http, 429)
            assert other.query(DECOY).code == 200
            eventually(lambda: http.query(INFER).code == 200, "a token")


def test_a_refused_body_is_dropped_not_read(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, rate=0.02, burst=1))
    with Http(server.port) as http, server.connect() as native:
        assert http.query(INFER).code == 200
        before = server.figures()
        http.send(post(web.path("double"), DECOY * 100) + get("/v2"))
        assert http.answer().code == 429
        assert http.answer().json()["name"] == "lumen"
        native.send(wire.frame(wire.ping(666) * 2, id=1) + wire.ping(2))
        assert native.reply().status == RATE_LIMITED
        assert native.reply().id == 2
        assert server.figures().since(before)["io.requests"] == 4


# ---- too much at once ----


def busy(server: Server, count: int, trips: int) -> list[Http]:
    """Clients whose requests are being worked on."""
    before = server.figures().requests
    clients = []
    for _ in range(count):
        http = Http(server.port)
        http.send(web.infer("slow", {"x": np.array([trips], "<i8")}))
        clients.append(http)
    eventually(lambda: server.figures().requests >= before + count, "the load")
    return clients


def test_more_than_max_in_flight_is_refused_at_once(serve: Serve, tmp_path: Path) -> None:
    """Row F24."""
    server = serve(settings(tmp_path, max_in_flight=2))
    clients = busy(server, 2, 8000)
    with Http(server.port) as http, server.connect() as native:
        for request in (INFER, web.infer("double", {"x": X}, binary=False),
                        web.raw("double", X.tobytes())):  # fmt: skip
            answer = http.query(request)
            assert answer.code == 503, answer
            assert retry_after_s(answer) >= 1
            assert "max_in_flight" in answer.error
        reply = native.ask(frame(9))
        assert (reply.status, reply.id) == (wire.OVERLOADED, 9)
        # Those who ask for nothing of the workers are answered; the first two still run.
        assert http.query(get("/v2/health/ready")).code == 200
        assert native.ask(wire.ping(3)).status == wire.OK
        assert server.figures().worker["requests_ok"] == 0
        for client in clients:
            assert client.answer().array("y").tolist() == [16_000]
            client.close()
        eventually(lambda: http.query(INFER).code == 200, "room")
        eventually(lambda: native.ask(frame(9)).status == wire.OK, "room")
    assert server.figures().io["requests_refused"] >= 4


def test_more_than_max_in_flight_can_wait(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, max_in_flight=2, overload="wait"))
    clients = busy(server, 2, 60_000)  # a second or two
    with (
        Http(server.port) as http, server.connect() as native, Http(server.port) as late,
        Http(server.port) as soon,
    ):  # fmt: skip
        waits = server.figures().io["slot_waits"]
        http.send(INFER)
        native.send(frame(9))
        late.send(web.infer("double", {"x": X}, binary=False, parameters={"timeout": 1000}))
        soon.send(web.infer("double", {"x": X}, parameters={"timeout": 200_000}))
        eventually(lambda: server.figures().io["slot_waits"] >= waits + 2, "requests that wait")
        http.send(DECOY)  # behind what waits: answered in turn
        np.testing.assert_array_equal(http.answer().array("y"), X + X)
        assert http.answer().json() == {"live": True}
        assert native.reply().payload == (X + X).tobytes()
        answer = late.answer()
        assert answer.code == 503
        assert "deadline" in answer.error
        assert "slot" in soon.answer().error  # told at once, not when it would have its turn
        for client in clients:
            assert client.answer().array("y").tolist() == [120_000]
            client.close()


@pytest.mark.parametrize("overload", ["refuse", "wait"])
def test_many_clients_and_little_room(serve: Serve, tmp_path: Path, overload: str) -> None:
    """Everybody is answered, with the right answer or with a refusal; nobody is forgotten."""
    server = serve(settings(tmp_path, max_in_flight=3, overload=overload))
    clients = [Http(server.port) for _ in range(24)]
    counts = {200: 0, 503: 0}
    for _lap in range(5):
        for number, http in enumerate(clients):
            x = X + np.float32(number)
            http.send(web.infer("double", {"x": x}, binary=number % 2 == 0))
        for number, http in enumerate(clients):
            answer = http.answer()
            counts[answer.code] += 1
            if answer.code == 200:
                np.testing.assert_array_equal(answer.array("y"), 2 * (X + np.float32(number)))
    for http in clients:
        http.close()
    assert counts[200] > 0
    if overload == "wait":
        assert counts[503] == 0


# ---- exactly as much as there may be ----


@pytest.mark.parametrize("more", [0, 1])
def test_a_body_of_exactly_the_most_bytes(serve: Serve, tmp_path: Path, more: int) -> None:
    """And of one more; however it comes, and one after another on one connection."""
    most = 65536
    chosen = settings(tmp_path, max_request_bytes=most)
    chosen["models"] = [
        *models(tmp_path),
        {"name": "echo", "path": str(graphs.echo(tmp_path / "echo"))},
    ]
    server = serve(chosen)

    def padded(**how: Any) -> bytes:
        _head, body = web.cut(web.infer("double", {"x": X}, **how))
        return web.infer("double", {"x": X}, pad_bytes=most + more - len(body), **how)

    requests = {
        "json": padded(binary=False),
        "blobs": padded(),
        "raw": web.raw("echo", bytes(most + more)),
    }
    bytes_ = np.arange(most + more, dtype="<u8").astype("u1")
    with server.connect() as native:
        reply = native.ask(
            wire.frame(bytes_.tobytes(), id=3, rows=most + more, model=server.models["echo"])
        )
        if more:
            assert (reply.status, reply.id) == (wire.TOO_LARGE, 3)
        else:
            assert reply.payload == bytes_.tobytes()
    for name, request in requests.items():
        with Http(server.port) as http:
            answer = http.query(request)
            wanted = 413 if more else 400 if name == "raw" else 200  # one row is one byte
            assert answer.code == wanted, (name, answer)
    for size in (most + more, 1000):
        body = web.cut(padded(binary=False))[1]
        line = "Transfer-Encoding: chunked"
        request = post(web.path("double"), web.chunked(body, size), line, length=None)
        with Http(server.port) as http:
            assert http.query(request).code == (413 if more else 200)


def test_a_connection_has_so_many_requests_in_flight(serve: Serve, tmp_path: Path) -> None:
    """The 65th is read when the first is answered, and nobody else waits for it."""
    server = serve(settings(tmp_path))
    x = np.array([1500], "<i8")
    with Canary(server), server.connect() as native:
        slow = [wire.frame(x.tobytes(), id=n, model=server.models["slow"]) for n in range(90)]
        native.send(b"".join(slow))
        eventually(lambda: server.figures().slots_in_use >= 64, "as many as there may be")
        for _ in slow:
            assert server.figures().slots_in_use <= 64 + 1, "of one connection, and the canary"
            assert native.reply().payload == (2 * x).tobytes()


# ---- keys ----

TOKENS = {"ada": b"adas-token", "bob": b"B" * 32, "root": b"root-token-0123456789"}
ADA, BOB, ROOT = TOKENS.values()


def key(name: str, token: bytes, **rest: object) -> dict[str, object]:
    return {"name": name, "sha256": hashlib.sha256(token).hexdigest(), **rest}


@pytest.fixture(scope="module")
def guarded(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    chosen = settings(
        tmp_path_factory.mktemp("guarded"),
        keys=[
            key("ada", ADA, models=["double"]),
            key("bob", BOB, rate=0.02, burst=2),
            key("root", ROOT, admin=True),
        ],
    )
    with Server(chosen, cache) as server:
        yield server


@pytest.fixture(scope="module")
def unguarded(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without keys."""
    with Server(settings(tmp_path_factory.mktemp("unguarded")), cache) as server:
        yield server


def bearer(token: bytes) -> str:
    return f"Authorization: Bearer {token.decode()}"


def api_key(token: bytes) -> str:
    return f"X-API-Key: {token.decode()}"


BAD_CREDENTIALS = {
    "none": [],
    "unknown": ["Authorization: Bearer nobody"],
    "empty": ["Authorization: Bearer "],
    "no token": ["Authorization: Bearer"],
    "another scheme": [f"Authorization: Basic {ROOT.decode()}"],
    "no scheme": [f"Authorization: {ROOT.decode()}"],
    "a prefix": [bearer(ROOT[:-1])],
    "a longer one": [bearer(ROOT + b"x")],
    "upper case": [bearer(ROOT.upper())],
    "two words": [f"Authorization: Bearer {ROOT.decode()} x"],
    "the hash itself": [bearer(hashlib.sha256(ROOT).hexdigest().encode())],
    "4000 bytes": [bearer(b"x" * 4000)],
    "in the other header's form": [f"X-API-Key: Bearer {ROOT.decode()}"],
    "an empty api key": ["X-API-Key: "],
    "a cookie": [f"Cookie: key={ROOT.decode()}"],
}


@pytest.mark.parametrize("name", BAD_CREDENTIALS)
def test_without_a_key_there_is_health_alone(guarded: Server, name: str) -> None:
    """Row 21."""
    lines = BAD_CREDENTIALS[name]
    before = guarded.figures()
    with Http(guarded.port) as http:
        for request in (
            web.infer("double", {"x": X}, headers=lines),
            web.infer("nobody", {"x": X}, headers=lines),
            post(web.path("double"), DECOY * 9, *lines),
            get("/v2", *lines),
            get("/v2/models/double", *lines),
            get("/v2/models/stats", *lines),
            post("/v2/repository/index", b"", *lines),
            post("/v2/repository/models/double/load", b"", *lines),
        ):
            answer = http.query(request)
            assert answer.code == 401, answer
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert not answer.closes
        for target in ("/v2/health/live", "/v2/health/ready"):
            assert http.query(get(target, *lines)).code == 200
    change = guarded.figures().since(before)
    assert change["io.requests"] == 10
    assert change["io.requests_unauthorised"] == 8
    assert change["io.requests_error"] == 8
    assert change["io.requests_ok"] == 2
    guarded.check_idle()


@pytest.mark.parametrize("how", [bearer, api_key])
@pytest.mark.parametrize("name", ["ada", "root"])
def test_a_key_opens_the_door(guarded: Server, name: str, how: Callable[[bytes], str]) -> None:
    line = how(TOKENS[name])
    with Http(guarded.port) as http:
        for binary in (True, False):
            request = web.infer("double", {"x": X}, binary=binary, headers=[line])
            np.testing.assert_array_equal(http.query(request).array("y"), X + X)
        assert http.query(get("/v2/models/double", line)).code == 200
        assert http.query(get("/v2", line.replace("Bearer", "bEARER"))).code == 200
        # A connection is not let in for good by its first request.
        assert http.query(INFER).code == 401


def test_a_key_may_be_for_some_models(guarded: Server) -> None:
    with Http(guarded.port) as http:
        for line in (bearer(ADA), api_key(ADA)):
            answer = http.query(web.infer("tag", {"x": np.ones(4, "<i8")}, headers=[line]))
            assert answer.code == 403, answer
            assert "tag" in answer.error
        line = bearer(ROOT)
        assert http.query(web.infer("tag", {"x": np.ones(4, "<i8")}, headers=[line])).code == 200


def test_a_key_has_a_rate_of_its_own(guarded: Server) -> None:
    line = bearer(BOB)
    with Http(guarded.port) as http, guarded.connect() as native:
        assert http.query(web.infer("double", {"x": X}, headers=[line])).code == 200
        assert native.ask(frame(1, BOB)).status == wire.OK
        answer = http.query(web.infer("tag", {"x": np.ones(4, "<i8")}, headers=[line]))
        assert answer.code == 429
        assert retry_after_s(answer) >= 1
        assert native.ask(frame(2, BOB)).status == RATE_LIMITED
        # Nobody else is held up by that.
        assert http.query(web.infer("double", {"x": X}, headers=[bearer(ROOT)])).code == 200
        assert native.ask(frame(3, ADA)).status == wire.OK


CONTROL = {
    "/v2/repository/models/double/unload": 501, "/v2/logging": 200, "/v2/trace/setting": 200,
    "/v2/systemsharedmemory/region/r/register": 501,
}  # fmt: skip


@pytest.mark.parametrize("target", CONTROL)
def test_control_is_for_admins(guarded: Server, target: str) -> None:
    """Rows 44 and 45: others are not even told what is not there."""
    with Http(guarded.port) as http:
        assert http.query(post(target, b"{}", bearer(ROOT))).code == CONTROL[target]
        assert http.query(post(target, b"{}", bearer(ADA))).code == 403
        assert http.query(post(target, b"{}")).code == 401


def test_native_credentials(guarded: Server) -> None:
    """Row 21."""
    with guarded.connect() as native:
        for number, (token, status) in enumerate(
            [
                (None, UNAUTHORISED), (ADA, wire.OK), (ROOT, wire.OK),
                (b"", UNAUTHORISED), (b"nobody", UNAUTHORISED), (ROOT[:-1], UNAUTHORISED),
                (ROOT + b"\0x", UNAUTHORISED), (wire.ping(666), UNAUTHORISED), (ROOT, wire.OK),
            ]
        ):  # fmt: skip
            reply = native.ask(frame(number, token))
            assert (reply.status, reply.id) == (status, number), (number, token)
            if status == wire.OK:
                assert reply.payload == (X + X).tobytes()
        # The model's bytes never pass for a credential, nor the other way round.
        reply = native.ask(wire.frame(ROOT.ljust(32, b"\0") + X.tobytes(), id=7))
        assert reply.status in (UNAUTHORISED, wire.BAD_REQUEST)
        reply = native.ask(
            wire.frame(
                ADA.ljust(32, b"\0") + bytes(32), id=8, flags=wire.CREDENTIAL,
                model=guarded.models["tag"],
            )
        )  # fmt: skip
        assert (reply.status, reply.id) == (UNAUTHORISED, 8)
        for number in range(3):
            data = frame(number, ROOT)
            for at in (1, 31, 32, 33, 40, 63, 64, 65, len(data) - 1):
                native.send(data[:at])
                time.sleep(0.0005)
                native.send(data[at:])
                assert native.reply().status == wire.OK


def test_pipelined_credentials(guarded: Server) -> None:
    """Row 21: each request is judged by its own credential, in whatever order they come."""
    order = [ROOT, None, ADA, b"nobody"] * 10
    with guarded.connect() as native:
        native.send(b"".join(frame(number, token) for number, token in enumerate(order)))
        replies = native.replies(len(order))
    for number, token in enumerate(order):
        wanted = wire.OK if token in TOKENS.values() else UNAUTHORISED
        assert replies[number].status == wanted
    with Http(guarded.port) as http:
        lines = [[] if token is None else [bearer(token)] for token in order]
        http.send(b"".join(web.infer("double", {"x": X}, headers=line) for line in lines))
        for token in order:
            assert http.answer().code == (200 if token in TOKENS.values() else 401)


def test_a_token_of_exactly_the_most_bytes(serve: Serve, tmp_path: Path) -> None:
    """256 bytes in a header, 32 in a credential."""
    longest, fits = b"t" * 256, b"n" * 32
    keys = [key("long", longest), key("longer", longest + b"t"), key("native", fits)]
    server = serve(settings(tmp_path, keys=keys))
    with Http(server.port) as http, server.connect() as native:
        for how in (bearer, api_key):
            assert http.query(get("/v2", how(longest))).code == 200
            assert http.query(get("/v2", how(longest[:-1]))).code == 401
            assert http.query(get("/v2", how(longest + b"t"))).code == 401
        assert native.ask(frame(1, fits)).status == wire.OK
        assert native.ask(frame(2, fits[:-1])).status == UNAUTHORISED


def test_a_key_in_an_environment_variable(serve: Serve, tmp_path: Path) -> None:
    chosen = settings(tmp_path, keys=[{"name": "carol", "token_env": "LUMEN_TEST_TOKEN"}])
    server = serve(chosen, extra_environment={"LUMEN_TEST_TOKEN": "carols-token"})
    with Http(server.port) as http:
        assert http.query(INFER).code == 401
        assert http.query(get("/v2", bearer(b"carols-token"))).code == 200


# ---- hosts and pages ----


def test_hosts(serve: Serve, tmp_path: Path) -> None:
    """Row 44."""
    server = serve(settings(tmp_path, hosts=["lumen.example.org", "other"]))
    with Canary(server), Http(server.port) as http:
        for host, code in {
            "localhost": 200, "LOCALHOST:8000": 200, "127.0.0.1": 200, "127.0.0.1:9": 200,
            "[::1]": 200, "[::1]:8000": 200, "10.1.2.3:8000": 200, "lumen.example.org": 200,
            "Lumen.Example.ORG:443": 200, "other": 200, "evil.example": 421,
            "evil.lumen.example.org": 421, "lumen.example.org.evil": 421, "example.org": 421,
            "localhost.evil": 421, "evil:8000": 421, "127.0.0.1.evil": 421, "127.0.0.1x": 421,
            "another": 421, "othe": 421, "localhost.": 200, "Other.:80": 200, "127.0.0.1.": 200,
            "localhost..": 421, ".": 421, "": 421, ":80": 421,
        }.items():  # fmt: skip
            answer = http.query(get("/v2/models/double", host=host))
            assert answer.code == code, (host, answer)
            assert not answer.closes
            answer = http.query(web.post(web.path("double"), DECOY * 3, host=host))
            assert answer.code == (400 if code == 200 else 421)


def test_any_host(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, hosts=["*"]))
    with Http(server.port) as http:
        for host in ("evil.example", "x", "localhost"):
            assert http.query(get("/v2", host=host)).code == 200
        # Names are then a proxy's business; a page of another site still says so itself.
        answer = http.query(get("/v2", "Origin: http://x.example", host="x.example"))
        assert answer.code in (200, 403)


LISTED = "compose_lumen.1"  # as Compose and nginx's upstreams name their servers


def test_origins(serve: Serve, tmp_path: Path) -> None:
    """Row 44: the host and port that were asked, or a listed name; an address alone says nothing,
    since anybody can serve a page at one."""
    server = serve(settings(tmp_path, hosts=["lumen.example.org", LISTED]))
    with Http(server.port) as http:
        for origin, host, code in [
            ("http://localhost:8000", "localhost:8000", 200),
            ("http://LOCALHOST:8000", "localhost:8000", 200),
            ("http://[::1]:8000", "[::1]:8000", 200),
            ("http://localhost", "localhost:80", 200),
            ("https://localhost:443", "localhost", 200),
            ("http://localhost", "localhost:8000", 403),
            ("http://localhost:3000", "localhost:8000", 403),
            ("https://localhost", "localhost:80", 403),
            ("https://127.0.0.1:8443", "127.0.0.1:8000", 403),
            ("http://203.0.113.9", "127.0.0.1:8000", 403),
            ("http://203.0.113.9", "localhost", 403),
            ("https://lumen.example.org", "127.0.0.1", 200),
            ("https://lumen.example.org:8443", "lumen.example.org", 200),
            (f"http://{LISTED}:3000", f"{LISTED}:8000", 200),
            ("https://evil.example", "localhost", 403),
            ("null", "localhost", 403),
            ("http://localhost.evil", "localhost", 403),
            ("https://evil.lumen.example.org", "localhost", 403),
            ("http://localhost@evil", "localhost", 403),
            ("file://", "localhost", 403),
            ("localhost", "localhost", 403),
            ("", "localhost", 403),
        ]:
            for request in (
                get("/v2", f"Origin: {origin}", host=host),
                web.raw("double", X.tobytes(), f"Origin: {origin}", host=host),
                post("/v2/repository/index", b"", f"Origin: {origin}", host=host),
            ):
                answer = http.query(request)
                assert answer.code == code, (origin, host, answer)


FROM_ELSEWHERE = [
    (f"{header}: {value}", word)
    for word, headers in {
        "proxy": {
            "X-Forwarded-For": "203.0.113.5", "x-real-ip": "203.0.113.5", "Via": "1.1 nginx",
            "FORWARDED": "for=203.0.113.5",
        },
        "Sec-Fetch-Site": {"Sec-Fetch-Site": "cross-site", "sec-fetch-site": "same-site"},
    }.items()
    for header, value in headers.items()
]  # fmt: skip


@pytest.mark.parametrize(("header", "word"), FROM_ELSEWHERE)
def test_control_is_not_for_proxies_and_pages(
    unguarded: Server, guarded: Server, header: str, word: str
) -> None:
    """Row 44: who stands behind a proxy of this machine, its socket does not say; a page of another
    site asks with the rights of its reader."""
    with Http(unguarded.port) as http:
        for target in CONTROL:
            answer = http.query(post(target, b"{}", header))
            assert (answer.code, word in answer.error) == (403, True), (target, answer)
        answer = http.query(post("/v2/repository/models/double/unload", b"{}"))
        assert answer.code == 501
        for site in ("none", "same-origin"):
            answer = http.query(
                post("/v2/repository/models/double/unload", b"{}", f"Sec-Fetch-Site: {site}")
            )
            assert answer.code == 501
        answer = http.query(web.infer("double", {"x": X}, headers=[header]))
        np.testing.assert_array_equal(answer.array("y"), X + X)
    # A key says whose request it is, wherever it comes from; but a browser keeps no keys.
    expected = 403 if word == "Sec-Fetch-Site" else 501
    with Http(guarded.port) as http:
        answer = http.query(
            post("/v2/repository/models/double/unload", b"{}", bearer(ROOT), header)
        )
        assert answer.code == expected, answer


# ---- peers on other machines ----


def own_address() -> str:
    """An address of this machine that is not the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # no packet is sent
        except OSError:
            needs.absent("another_address", "no route anywhere")
        address = str(probe.getsockname()[0])
    if address.startswith("127."):
        needs.absent("another_address", address)
    return address


def test_control_is_for_this_machine(serve: Serve, tmp_path: Path) -> None:
    """Row 44."""
    address = own_address()
    server = serve(settings(tmp_path), options=["--port", "0", "--host", "0.0.0.0"])
    with Http(server.port, address) as http:
        x = http.query(web.infer("double", {"x": X}))
        np.testing.assert_array_equal(x.array("y"), X + X)
        for target in CONTROL:
            answer = http.query(post(target, b"{}"))
            assert answer.code == 403, answer
        for target in ("/v2", "/v2/models/double", "/v2/health/live", "/v2/models/stats"):
            assert http.query(get(target)).code == 200
        for kind in ("systemsharedmemory", "cudasharedmemory"):
            assert http.query(post(f"/v2/{kind}/unregister")).code in (200, 403)
    with Http(server.port) as http:
        assert http.query(post("/v2/repository/models/double/unload", b"{}")).code == 501


def test_the_clients_bring_their_token(guarded: Server) -> None:
    with Client("127.0.0.1", guarded.port, token=ADA.decode()) as client:
        assert "double" in client.models()
        answer = client.infer("double", {"x": X})
        np.testing.assert_array_equal(answer.outputs["y"], 2 * X)
    with Client("127.0.0.1", guarded.port) as stranger, pytest.raises(Unauthorised):
        stranger.models()
    with pytest.raises(ValueError, match="32 characters"):
        Client("127.0.0.1", guarded.port, token="x" * 33)

    async def ask() -> None:
        async with AsyncClient("127.0.0.1", guarded.port, token=ADA.decode()) as client:
            answer = await client.infer("double", {"x": X})
            np.testing.assert_array_equal(answer.outputs["y"], 2 * X)

    asyncio.run(ask())
