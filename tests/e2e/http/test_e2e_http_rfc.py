"""The demands of RFC 9110 and RFC 9112 that the other tests of HTTP do not check.

The table in docs/PROTOCOL.md names these tests; their docstrings name the RFC's section
(tests/test_security_rows.py compares). Each test runs in a `town`: afterwards nothing may be left
behind, and its canary must live.
"""

from __future__ import annotations

import asyncio
import email.utils
import importlib
import importlib.util
import json
import subprocess
import time

import numpy as np
import pytest
import web
from hostile import DECOY, GOOD, INFER, VALUES, head
from needs import absent, program
from town import GOOD_REQUEST, Town, X, send_in_pieces, usable
from web import Http, get, post

pytestmark = pytest.mark.once  # what reads requests: the same on both backends

LIVE = "/v2/health/live"
METADATA = "/v2/models/double"


def chunked_request(body: bytes, *lines: str, method: str = "POST", target: str = INFER) -> bytes:
    """A request with exactly this chunked body."""
    lines = ("Transfer-Encoding: chunked", *lines)
    return web.request(method, target, body, lines, length=None)


# ---- targets ----

WHOLE_URIS = [
    # target, the Host header, code
    (f"http://localhost{METADATA}", "localhost", 200),
    (f"HTTP://LocalHost.:8000{METADATA}?a=b", "localhost", 200),
    (f"http://[::1]{METADATA}", "127.0.0.1", 200),
    # The target's host counts, and the header's is ignored: both ways.
    (f"http://localhost{METADATA}", "evil.example", 200),
    (f"http://127.0.0.1:1{METADATA}", "", 200),
    (f"http://evil.example{METADATA}", "localhost", 421),
    (f"http://localhost.evil.example{METADATA}", "localhost", 421),
    # All the same, HTTP/1.1 has exactly one Host, of valid syntax (3.2).
    (f"http://localhost{METADATA}", None, 400),
    (f"http://localhost{METADATA}", "a/b", 400),
    # Schemes for which this connection cannot speak (9110, 7.4 and 15.5.20).
    (f"https://localhost{METADATA}", "localhost", 421),
    ("https://localhost/v2/health/live", "localhost", 421),
    ("ftp://localhost/v2", "localhost", 421),
    # No http URI has no host, and none has a user (9110, 4.2.1 and 4.2.4).
    (f"http://{METADATA}", "localhost", 400),
    (f"http://me@localhost{METADATA}", "localhost", 400),
    (f"http://me:secret@localhost{METADATA}", "localhost", 400),
    ("http://localhost", "localhost", 200),
    ("http://localhost?a", "localhost", 200),
    ("http://localhost/nothing", "localhost", 404),
]


@pytest.mark.parametrize(("target", "host", "code"), WHOLE_URIS)
def test_a_target_that_is_a_whole_uri(town: Town, target: str, host: str | None, code: int) -> None:
    """RFC 9112 3.2.2: absolute-form is accepted, and its host counts."""
    before = town.figures()
    request = get(target, host=host)
    with Http(town.server.port) as http:
        assert http.query(request).code == code
        if code != 400 or host == "localhost":
            usable(http)  # a bad Host ends the connection, a bad target does not
    with Http(town.server.port) as http:
        send_in_pieces(http, request, 30)
        assert http.answer().code == code
    town.settle(before, None)


def test_an_inference_by_a_whole_uri(town: Town) -> None:
    """RFC 9112 3.2.2: also with a body, and where it is pipelined."""
    request = GOOD_REQUEST.replace(INFER.encode(), b"http://localhost" + INFER.encode(), 1)
    with Http(town.server.port) as http:
        http.send(request * 3)
        for _ in range(3):
            np.testing.assert_array_equal(http.answer().array("y"), X + X)


@pytest.mark.parametrize("target", ["*", "http://localhost"])
def test_options_of_the_whole_server(town: Town, target: str) -> None:
    """RFC 9112 3.2.4 and RFC 9110 15.5.6: a URI without a path means "*"; 405 has Allow."""
    with Http(town.server.port) as http:
        answer = http.query(web.request("OPTIONS", target))
        assert (answer.code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
        usable(http)


def test_connect_is_for_proxies(town: Town) -> None:
    """RFC 9110 15.6.2: a method that no resource here can have is 501."""
    with Http(town.server.port) as http:
        assert http.query(web.request("CONNECT", "localhost:8000")).code == 501
        usable(http)


# ---- methods ----


@pytest.mark.parametrize(
    "method",
    ["LINK", "LOCK", "L", "LM", "LMN", "LMN2", "LMN-1", "lmn1", "-x", "!", "0", "get", "~"],
)
@pytest.mark.parametrize("pieces", [1, 1000])
def test_any_token_is_a_method(town: Town, method: str, pieces: int) -> None:
    """RFC 9110 15.6.2: what is not the four bytes LMN1 is HTTP, and is answered as such."""
    before = town.figures()
    with Http(town.server.port) as http:
        send_in_pieces(http, web.request(method, METADATA), pieces)
        answer = http.answer()
        assert answer.code == 501
        assert "GET, HEAD, POST or PUT" in answer.error
        usable(http)
    town.settle(before, 2)


def test_the_native_protocol_needs_its_four_bytes(town: Town) -> None:
    """A byte at a time, whichever way the first ones go."""
    import wire

    with town.server.connect() as connection:
        for byte in wire.ping(7):
            connection.send(bytes([byte]))
        assert connection.reply().id == 7
    with town.server.connect() as connection:  # and then says nothing: nobody can be answered
        connection.send(b"LMN")
        connection.finish()
        assert connection.expect_closed() == b""


# ---- fields ----


def test_bytes_beyond_ascii_in_a_value(town: Town) -> None:
    """RFC 9110 5.5: obs-text is opaque data, in any field and in any alphabet."""
    before = town.figures()
    with Http(town.server.port) as http:
        for value in ("caf\xe9", "\x80\xff", "\xe6\x97\xa5\xe6\x9c\xac", "\xff" * 4000):
            for name in ("User-Agent", "X-Any", "Authorization", "X-API-Key", "Connection"):
                answer = http.query(get(METADATA, f"{name}: {value}"))
                assert answer.code == 200, (name, value)
        extension = b'5;q="\xe9"\r\n' + GOOD[:5] + b"\r\n"
        rest = b"%x\r\n" % (len(GOOD) - 5) + GOOD[5:] + b"\r\n0\r\nT: \xe9\r\n\r\n"
        assert http.query(chunked_request(extension + rest)).code == 200
    town.settle(before, 21)


@pytest.mark.parametrize("zeros", [1, 2, 30, 4000])
def test_a_length_with_leading_zeros(town: Town, zeros: int) -> None:
    """RFC 9110 8.6: Content-Length is 1*DIGIT."""
    before = town.figures()
    with Http(town.server.port) as http:
        for body in (GOOD, b""):
            http.send(head(f"Content-Length: {'0' * zeros}{len(body)}") + body)
            assert http.answer().code == (200 if body else 400)
        usable(http)
    town.settle(before, 3)


@pytest.mark.parametrize(
    "host",
    [
        "", ":80", "evil.example", "a,b", "!$&'()*+,;=", "%6c", "%6cocalhost", "a%2fb", "[v1.x]",
        "localhost.evil", "xn--bcher-kva.example", "_", "1.2.3", "0x7f.1", "a..b",
    ],
)  # fmt: skip
def test_a_host_of_any_name(town: Town, host: str) -> None:
    """RFC 9110 15.5.20: a valid Host that is not this server's is 421, and costs nothing more."""
    before = town.figures()
    with Http(town.server.port) as http:
        assert http.query(post(INFER, GOOD, host=host)).code == 421
        assert http.query(get(LIVE, host=host)).code == 200, "health may be called what they like"
        usable(http)
    town.settle(before, 3)


@pytest.mark.parametrize("host", ["localhost.", "localhost.:8000", "LOCALHOST", "127.0.0.1.",
                                  "localhost:", "localhost:0080", "localhost:123456"])  # fmt: skip
def test_a_host_of_this_server_however_it_is_written(town: Town, host: str) -> None:
    """RFC 9110 7.2: uri-host, and maybe a port of any digits; a whole name ends with a dot."""
    with Http(town.server.port) as http:
        assert http.query(get(METADATA, host=host)).code == 200
        usable(http)


# ---- chunks ----

SIZE = b"%x" % len(GOOD)


@pytest.mark.parametrize(
    "body",
    [
        SIZE + b"\r\n" + GOOD + b"\r\n000\r\n\r\n",
        b"0" * 40 + SIZE + b"\r\n" + GOOD + b"\r\n" + b"0" * 40 + b"\r\n\r\n",
        SIZE.upper() + b"\r\n" + GOOD + b"\r\n0\r\n\r\n",
    ],
    ids=["three zeros", "forty zeros", "capitals"],
)
def test_sizes_of_chunks(town: Town, body: bytes) -> None:
    """RFC 9112 7.1: a size is 1*HEXDIG, the last one 1*"0"."""
    with Http(town.server.port) as http:
        assert http.query(chunked_request(body)).code == 200
        usable(http)


def test_extensions_of_chunks_are_passed_over(town: Town) -> None:
    """RFC 9112 7.1.1: also after bad white space."""
    body = SIZE + b' \t; a = "b;\\"c" ;d\r\n' + GOOD + b"\r\n0 ;e\r\n\r\n"
    with Http(town.server.port) as http:
        assert http.query(chunked_request(body)).code == 200
        usable(http)


BAD_CHUNKS = {
    "no size": b"xyz\r\n",
    "a bad size behind a good chunk": b"5\r\nhello\r\nxyz\r\n",
    "data that is longer": b"5\r\nhello!\r\n0\r\n\r\n",
    "a line feed alone": b"5\nhello\n0\n\n",
    "a size of 2^63": b"8000000000000000\r\n",
    "a bad end": b"5\r\nhello\r\n0\r\nX\r\n\r\n",
    "a trailer that frames": b"0\r\nContent-Length: 5\r\n\r\n",
}
NEEDS_NO_BODY = [("GET", METADATA), ("GET", LIVE), ("HEAD", LIVE), ("GET", "/"),
                 ("GET", "/v2/models/stats")]  # fmt: skip


@pytest.mark.parametrize("lines", [[], ["Connection: close"]], ids=["kept", "close"])
@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_malformed_chunks_are_never_a_success(town: Town, name: str, lines: list[str]) -> None:
    """RFC 9112 7.1: also where the connection ends anyway, or the route needs no body."""
    before, requests = town.figures(), 0
    for method, target in [*NEEDS_NO_BODY, ("POST", INFER)]:
        data = chunked_request(BAD_CHUNKS[name], *lines, method=method, target=target)
        for pieces in (1, 40):
            with Http(town.server.port) as http:
                send_in_pieces(http, data + DECOY, pieces)
                answer = http.answer(to=method)
                assert (answer.code, answer.closes) == (400, True), (method, target, answer)
                assert http.expect_closed() == b""
            requests += 1
    town.settle(before, requests)


def test_chunks_that_a_route_does_not_need(town: Town) -> None:
    """RFC 9112 9.3: a body that is read to its end leaves the connection as it was."""
    before = town.figures()
    good = web.chunked(DECOY * 3, 50, trailers="A: b\r\n")
    with Http(town.server.port) as http:
        for pieces in (1, 60):
            for method, target in NEEDS_NO_BODY:
                send_in_pieces(http, chunked_request(good, method=method, target=target), pieces)
                answer = http.answer(to=method)
                assert (answer.code, answer.closes) == (200, False), (method, target)
        http.send(chunked_request(good, "Connection: close", method="GET", target=METADATA) + DECOY)
        assert http.answer().closes
        assert http.expect_closed() == b""
    town.settle(before, 2 * len(NEEDS_NO_BODY) + 1)


def test_a_chunked_body_that_a_route_does_not_need_has_an_end(town: Town) -> None:
    """Row 34: it counts against server.max_request_bytes; a client that goes is counted."""
    with Http(town.server.port) as http:
        flood = web.chunked(bytes(1 << 20) + b"x", 60_000)
        send_in_pieces(http, chunked_request(flood, method="GET", target=METADATA), 1)
        http.expect_refusal(413)
    before = town.figures()
    with Http(town.server.port) as http:
        http.send(chunked_request(b"5\r\nhel", method="GET", target=METADATA))
        http.finish()
        assert http.expect_closed() == b""
    town.settle(before, 1)
    assert town.figures().since(before)["io.requests_gone"] == 1


def test_continue_before_chunks_that_are_not_needed(town: Town) -> None:
    """RFC 9110 10.1.1: whoever waits for 100 gets it, or a final answer."""
    with Http(town.server.port) as http:
        data = chunked_request(b"", "Expect: 100-continue", method="GET", target=METADATA)
        http.send(data)
        http.expect_continue()
        http.send(web.chunked(b"hello", 2))
        assert http.answer().code == 200
        usable(http)


# ---- answers ----


def test_one_refusal_for_one_request(town: Town) -> None:
    """RFC 9112 9.3: HTTP/2's preface behind a request gets one answer, wherever it is cut."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000") * 20
    before, requests = town.figures(), 0
    for cut in range(1, 40):
        with Http(town.server.port) as http:
            http.send(GOOD_REQUEST + preface[:cut])
            http.send(preface[cut:])
            assert http.answer().code == 200
            http.expect_refusal(505)
        requests += 2
    town.settle(before, requests)


def test_every_answer_has_a_date(town: Town) -> None:
    """RFC 9110 6.6.1: a server with a clock sends the Date; web.py looks at its form each time."""
    requests = [
        get(LIVE), get("/v2"), get("/v2/models/stats"), get("/nothing"), GOOD_REQUEST,
        post(INFER, GOOD), post(INFER, b"{}"), web.request("PUT", "/v2"), get("/v2", "no colon"),
    ]  # fmt: skip
    with Http(town.server.port) as http:
        for request in requests:
            before = time.time()
            answer = http.query(request)
            after = time.time()
            said = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()
            # Whole seconds, by a clock that ticks a few hundred times in each.
            assert before - 1.1 < said <= after, answer


# ---- what is not in the RFCs: other people's clients ----


def curl(*arguments: str) -> tuple[int, str]:
    """The output of curl, and the status of its answer."""
    done = subprocess.run(
        [program("curl"), "-s", "-w", "\\n%{http_code}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    body, _newline, code = done.stdout.rpartition("\n")
    return int(code), body


def test_curl_in_its_shortest_form(town: Town) -> None:
    """Without a Content-Type curl says that it sends a form: that is nobody's business."""
    url = f"http://127.0.0.1:{town.server.port}{INFER}"
    code, body = curl("-d", GOOD.decode(), url)
    assert code == 200
    assert json.loads(body)["outputs"][0]["data"] == [2 * value for value in VALUES]
    code, body = curl("-d", json.dumps({"inputs": [VALUES]}), url)
    assert code == 400
    assert (
        'inputs[0]: expected {"inputs":[{"name":"x","datatype":"FP32","shape":[1,16],'
        '"data":[...]}]}, found an array' in json.loads(body)["error"]
    )
    code, body = curl("-X", "POST", "-H", f"{web.JSON_LENGTH}: 0", url)
    assert code == 400
    assert "takes 64 bytes of FP32, found 0: send them with curl --data-binary @FILE" in body


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_kserves_client(town: Town, over: str) -> None:
    """KServe's own clients, where they are installed.

    What it reads of a body is also in test_e2e_http_routes.py. It is no dependency of the tests: it
    brings some 400 MB of others along.
    """
    if importlib.util.find_spec("kserve") is None:
        absent("kserve")
    kserve = importlib.import_module("kserve")
    url = f"127.0.0.1:{town.server.port}"
    base = [f"http://{url}"] if over == "http" else []  # a gRPC client has it from the beginning

    async def ask() -> list[object]:
        client = (
            kserve.InferenceGRPCClient(url)
            if over == "grpc"
            else kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
        )
        tensor = kserve.InferInput("x", [1, 16], "FP32")
        found: list[object] = [
            await client.is_server_live(*base),
            await client.is_server_ready(*base),
            await client.is_model_ready(*base, "double"),
        ]
        for binary in (True, False):
            tensor.set_data_from_numpy(X, binary_data=binary)
            request = kserve.InferRequest("double", [tensor])
            named = {"model_name": "double"} if over == "http" else {}
            answer = await client.infer(*base, request, **named)
            found.append((answer.outputs[0].as_numpy() == X + X).all())
        await client.close()
        return found

    assert asyncio.run(ask()) == [True] * 5
