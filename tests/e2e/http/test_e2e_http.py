"""HTTP connections: kept, pipelined, left; both protocols on one port. Answers come in order.

The shared server takes all of it; what only other settings show is in test_e2e_http_modes.py.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import web
import wire
from calls import double, expect, pause, usable
from conftest import ZOO_LARGE_COLUMNS
from harness import Canary, Server, eventually
from web import Http, get, post

LIVE = get("/v2/health/live")
LENGTH = re.compile(rb"((?i:Inference-Header-Content-Length|Content-Length)): (\d+)")


# ---- keep-alive ----


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_many_requests_on_one_connection(zoo: Server, binary: bool) -> None:
    before = zoo.figures()
    with Http(zoo.port) as http:
        for number in range(100):
            request, y = double(number, binary=binary)
            answer = http.query(request)
            expect(answer, number, y)
            assert answer.headers["connection"] == "keep-alive"
    eventually(lambda: zoo.figures().since(before).get("worker.requests_ok") == 100, "100 counted")
    change = zoo.figures().since(before)
    assert change["io.connections_accepted"] == 1
    assert change["io.http_requests"] == change["io.requests"] == 100


@pytest.mark.parametrize("words", ["close", "Close", "keep-alive, close", "foo, CLOSE ,bar"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_client_that_asks_to_close(zoo: Server, words: str, version: str) -> None:
    for request in (
        double(3, version=version, headers=[f"Connection: {words}"])[0],
        get("/v2", f"Connection: {words}", version=version),
        get("/nothing", f"Connection: {words}", version=version),
    ):
        with Http(zoo.port) as http:
            http.send(request + LIVE)  # what comes behind a last request is nobody's
            assert http.answer().closes
            http.expect_end()


def test_http_1_0_ends_by_itself(zoo: Server) -> None:
    for request in (double(3, version="HTTP/1.0")[0], get("/v2", version="HTTP/1.0", host=None)):
        with Http(zoo.port) as http:
            answer = http.query(request)
            assert answer.code == 200
            assert answer.headers.get("connection", "close").lower() == "close"
            http.expect_end()


@pytest.mark.parametrize("words", ["keep-alive", "Keep-Alive", "foo, keep-alive"])
def test_http_1_0_can_ask_to_be_kept(zoo: Server, words: str) -> None:
    with Http(zoo.port) as http:
        for number in range(3):
            for request in (
                double(number, version="HTTP/1.0", headers=[f"Connection: {words}"])[0],
                get("/v2/health/live", f"Connection: {words}", version="HTTP/1.0"),
                get("/nothing", f"Connection: {words}", version="HTTP/1.0"),
            ):
                answer = http.query(request)
                assert answer.headers["connection"].lower() == "keep-alive"


# ---- pipelining ----

Check = Callable[[web.Answer], None]


def code(wanted: int) -> Check:
    def check(answer: web.Answer) -> None:
        assert answer.code == wanted, answer

    return check


def mixed(zoo: Server, number: int) -> tuple[bytes, Check]:
    """One of many kinds of requests, good and bad; all of them leave the connection usable."""
    which = number % 9
    if which in (0, 1):
        request, y = double(number, binary=which == 0)
        return request, lambda answer: expect(answer, number, y)
    if which == 2:
        return post(f"/v2/models/m{number}/infer", LIVE), code(404)
    if which == 3:
        return post(web.path("double"), LIVE), code(400)
    if which == 4:
        body = np.random.default_rng(number).bytes(number * 37 + 1)
        x = np.frombuffer(body, "u1")
        return (
            web.infer("echo", {"x": x}),
            lambda answer: np.testing.assert_array_equal(answer.array("y"), x),
        )
    if which == 5:
        return web.raw("tag", bytes(31)), code(400)
    if which == 6:
        trips = np.array([number], "<i8")
        return (
            web.infer("slow", {"x": trips}, binary=False),
            lambda answer: np.testing.assert_array_equal(answer.array("y"), 2 * trips),
        )
    if which == 7:
        return web.request("DELETE", f"/v2/models/{number}"), code(405)
    request, y = double(number, chunk_bytes=50)
    return request, lambda answer: expect(answer, number, y)


@pytest.mark.parametrize("count", [1, 2, 200])
def test_pipelined_requests_are_answered_in_order(zoo: Server, count: int) -> None:
    made = [mixed(zoo, number) for number in range(count)]
    with Canary(zoo), Http(zoo.port) as http:
        http.send(b"".join(request for request, _check in made))
        for _request, check in made:
            check(http.answer())
        usable(http)


def test_pipelined_requests_through_a_tiny_receive_buffer(zoo: Server) -> None:
    made = [double(number, pad_bytes=number) for number in range(300)]
    with Http(zoo.port, receive_buffer_bytes=4096) as http:
        sender = threading.Thread(
            target=http.send, args=(b"".join(request for request, _y in made),), daemon=True
        )
        sender.start()
        time.sleep(0.05)
        for number, (_request, y) in enumerate(made):
            expect(http.answer(), number, y)
        sender.join()


def test_large_answers_through_a_tiny_receive_buffer(zoo: Server) -> None:
    sent = [(number + 0.25, binary) for number in range(4) for binary in (True, False)]
    with Canary(zoo), Http(zoo.port, receive_buffer_bytes=4096) as http:
        for value, binary in sent:  # answers of 4.7 MB: more than the kernel's 4 MB keep
            x = np.array([value], "<f4")
            http.send(web.infer("large", {"x": x}, binary=binary) + LIVE)
        eventually(lambda: zoo.figures().slots_in_use > 0, "an answer that waits")
        for value, _binary in sent:
            expected = np.full((1, ZOO_LARGE_COLUMNS), value, "<f4")
            np.testing.assert_array_equal(http.answer().array("y"), expected)
            assert http.answer().code == 200


# ---- leaving ----


def close(http: Http) -> None:
    http.close()


def reset(http: Http) -> None:
    http.reset()


def half_close(http: Http) -> None:
    http.finish()
    assert http.expect_closed() == b""
    http.close()


ENDS = pytest.mark.parametrize("end", [close, reset, half_close])


@ENDS
@pytest.mark.parametrize("kind", ["binary", "json", "chunked"])
def test_clients_that_leave_in_the_middle(
    zoo: Server, end: Callable[[Http], None], kind: str
) -> None:
    request, _y = double(7, binary=kind != "json", chunk_bytes=48 if kind == "chunked" else 0)
    size = len(web.cut(request)[0])
    with Canary(zoo):
        for at in (1, 30, size - 1, size, size + 1, size + 30, len(request) - 65, len(request) - 1):
            before = zoo.figures()
            http = Http(zoo.port)
            http.send(request[:at])
            if at >= size:
                eventually(
                    lambda was=before: zoo.figures().since(was).get("io.http_requests") == 1,
                    "the head",
                )
            else:
                pause(zoo, 1 << 62, 0.003)
            end(http)
            if at >= size:  # a head that was read whole is a request, which now has an end
                eventually(
                    lambda was=before: zoo.figures().since(was).get("io.requests_gone") == 1,
                    "one gone",
                    found=lambda was=before: zoo.figures().since(was),
                )


@pytest.mark.parametrize("end", [close, reset])
def test_clients_that_leave_before_their_answers(zoo: Server, end: Callable[[Http], None]) -> None:
    data = b"".join(double(number)[0] for number in range(20))
    with Canary(zoo):
        for _ in range(20):
            http = Http(zoo.port)
            http.send(data)
            end(http)


@pytest.mark.parametrize("end", [close, reset])
def test_clients_that_leave_while_they_are_served(zoo: Server, end: Callable[[Http], None]) -> None:
    before = zoo.figures()
    clients = [Http(zoo.port) for _ in range(6)]  # two run, four wait
    for http in clients:
        http.send(web.infer("slow", {"x": np.array([600], "<i8")}))
    eventually(lambda: zoo.figures().requests >= before.requests + 6, "the load")
    for http in clients:
        end(http)
    with Http(zoo.port) as http:
        usable(http)


@pytest.mark.parametrize("end", [close, reset])
def test_clients_that_leave_with_half_an_answer(zoo: Server, end: Callable[[Http], None]) -> None:
    request = web.infer("large", {"x": np.array([2], "<f4")})
    with Canary(zoo):
        for _ in range(10):
            http = Http(zoo.port, receive_buffer_bytes=4096)
            http.send(request * 3)
            assert len(http.socket.recv(1000)) > 0
            end(http)


# ---- two protocols on one port ----


def test_native_and_http_side_by_side(zoo: Server) -> None:
    """One client of each kind per thread, at once; nobody gets another's answer."""
    failures: list[BaseException] = []

    def act(client: int) -> None:
        try:
            with zoo.connect() as native, Http(zoo.port) as http:
                for lap in range(40):
                    number = 1000 * client + lap
                    request, y = double(number, binary=lap % 2 == 0)
                    frame = wire.frame((y / 2).tobytes(), id=number)
                    http.send(request)
                    assert native.ask(frame).payload == y.tobytes()
                    expect(http.answer(), number, y)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=act, args=(n,), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures


def test_a_connection_keeps_the_protocol_it_began_with(zoo: Server) -> None:
    x = np.arange(16, dtype="<f4")
    with Http(zoo.port) as http:
        usable(http)
        http.send(wire.frame(x.tobytes(), id=666) + LIVE)
        http.expect_refusal(400)
    with Http(zoo.port) as native:
        assert native.ask(wire.frame(x.tobytes(), id=1)).status == wire.OK
        native.send(LIVE + wire.ping(666))
        assert native.reply().status == wire.BAD_REQUEST
        native.expect_end()


# ---- what an editor puts before JSON ----


def test_json_behind_a_byte_order_mark(zoo: Server) -> None:
    """RFC 8259 8.1: a reader may pass over it. As JSON values, and with blobs behind the JSON."""
    mark = b"\xef\xbb\xbf"
    for binary in (True, False):
        request, y = double(5, binary=binary)
        head, body = web.cut(request)
        lengths = {name.lower(): int(value) for name, value in LENGTH.findall(head)}
        for name, value in lengths.items():
            head = re.sub(rb"(?i)(%s: )%d" % (name, value), rb"\g<1>%d" % (value + len(mark)), head)
        with Http(zoo.port) as http:
            expect(http.query(head + mark + body), 5, y)
            answer = http.query(
                post("/v1/models/double:predict", mark + b'{"instances": [[' + b"1," * 15 + b"1]]}")
            )
            assert answer.json() == {"predictions": [[2] * 16]}
