"""Full slots and slow peers over HTTP: what cannot be taken in yet waits; nobody holds it up."""

from __future__ import annotations

import time
from pathlib import Path

import graphs
import numpy as np
import pytest
import tls
import web
from conftest import Serve
from harness import Server, eventually
from test_e2e_tls import Secure
from web import Http, get

COLUMNS = 16384  # 64 KiB in and 64 KiB out
LIVE = get("/v2/health/live")
# As in test_e2e_slots.py: how long a client may hold a slot by doing nothing is the server's
# choice; below it is what these tests wait before they call it for ever.
PATIENCE_S = 5


def tight(folder: Path, **server: object) -> dict[str, object]:
    """Settings under which the model "wide" has few slots."""
    return {
        "server": {"max_request_bytes": "96KiB", "arena_bytes": "2MiB", **server},
        "engine": {"queue_type": "mpmc", "thread_count": 2, "queue_capacity": 4},
        "models": [
            {"name": "wide", "path": str(graphs.double(folder / "wide.onnx", COLUMNS, rows=1))},
        ],
    }


def body(number: int) -> np.ndarray:
    return np.arange(COLUMNS, dtype="<f4").reshape(1, -1) + np.float32(number)


def small(number: int) -> np.ndarray:
    """So few digits that the whole tensor fits 96 KiB of JSON."""
    return np.full((1, COLUMNS), number % 10, "<i4").astype("<f4")


def request(number: int, kind: str) -> tuple[bytes, np.ndarray]:
    """One request in each of the ways a body can come, and its answer."""
    if kind == "json":
        x = small(number)
        return web.infer("wide", {"x": x}, binary=False, binary_outputs=True), x + x
    x = body(number)
    if kind == "raw":
        return web.raw("wide", x.tobytes()), x + x
    return web.infer("wide", {"x": x}, chunk_bytes=9000 if kind == "chunked" else 0), x + x


KINDS = ["binary", "raw", "json", "chunked"]


def hold_slots(server: Server, kind: str) -> list[Http]:
    """Takes all slots, with bodies of which the last byte is missing."""
    holders = []
    while not (server.figures().io["slot_waits"] or server.figures().io["body_waits"]):
        http = Http(server.port)
        before = server.figures().requests
        http.send(request(0, kind)[0][:-1])
        eventually(lambda was=before: server.figures().requests > was, "a head")
        holders.append(http)
        time.sleep(0.005)
        assert len(holders) < 200
    return holders


@pytest.mark.parametrize("allocator", ["lumen_arena", "standard"])
def test_many_clients_and_few_slots(serve: Serve, tmp_path: Path, allocator: str) -> None:
    settings = tight(tmp_path)
    settings["engine"]["allocator_type"] = allocator  # type: ignore[index]
    server = serve(settings)
    clients = [Http(server.port) for _ in range(24)]
    for lap in range(3):
        made = [request(100 * lap + n, KINDS[n % 4]) for n in range(24)]
        for part in range(4):
            for http, (data, _y) in zip(clients, made, strict=True):
                size = -(-len(data) // 4)
                http.send(data[part * size : (part + 1) * size])
        for http, (_data, y) in zip(clients, made, strict=True):
            np.testing.assert_array_equal(http.answer().array("y"), y)
    for http in clients:
        http.close()
    assert server.figures().io["slot_waits"] > 0, "the test did not fill the slots"


@pytest.mark.parametrize("kind", ["binary", "raw"])
def test_a_request_waits_for_a_slot_until_its_deadline(
    serve: Serve, tmp_path: Path, kind: str
) -> None:
    server = serve(tight(tmp_path, default_timeout_ms=30))
    holders = hold_slots(server, kind)
    with Http(server.port) as http:
        data = request(3, kind)[0]
        http.send(data[:-1])  # a whole one would have a slot kept for such
        answer = http.answer()
        assert answer.code == 503, answer
        http.send(data[-1:] + LIVE)
        assert "slot" in answer.error
        assert "retry-after" in answer.headers
        # The refused body is skipped, and what is behind it is answered.
        assert http.answer().code == 200
    for holder in holders:
        holder.close()


def test_bytes_that_openssl_has_count_as_here(
    serve: Serve, files: tls.Files, tmp_path: Path
) -> None:
    """Row 50. A request waits for a place until its bytes are here: of its first record the server
    has read a part, and OpenSSL holds the rest."""
    own = {"tls": files.settings(), "max_in_flight": 1, "overload": "wait"}
    server = serve(tight(tmp_path, **own))
    (first, _), (second, y) = request(0, "raw"), request(3, "raw")
    with Http(server.port) as http, Secure(tls.port_of(server), tls.context(files)) as secure:
        http.send(first[:-1])
        eventually(lambda: server.figures().slots_in_use, "a slot")
        secure.send(second[:12000])
        eventually(lambda: server.figures().io["body_waits"], "a request without a place")
        secure.send(second[12000:])
        http.send(first[-1:])
        np.testing.assert_array_equal(secure.answer("POST").array("y"), y)


@pytest.mark.parametrize("kind", ["binary", "chunked"])
def test_silent_bodies_cannot_keep_every_slot(serve: Serve, tmp_path: Path, kind: str) -> None:
    """Row 34: clients that send half a body and fall silent must not stop a server for good."""
    server = serve(tight(tmp_path, drain_seconds=0))
    holders = hold_slots(server, kind)
    data, y = request(3, kind)
    with Http(server.port) as http, Http(server.port) as other:
        assert other.query(LIVE).code == 200
        http.socket.settimeout(PATIENCE_S)
        np.testing.assert_array_equal(http.query(data).array("y"), y)
    for holder in holders:
        holder.close()


def test_clients_that_never_read_cannot_keep_every_slot(serve: Serve, tmp_path: Path) -> None:
    """Row 37: an answer that nobody takes must not hold its slot for good."""
    columns = 4 << 20  # an answer of 16 MiB: no socket takes it whole
    path = graphs.large(tmp_path / "large.onnx", columns)
    server = serve(
        {
            "server": {"arena_bytes": "80MiB", "drain_seconds": 0, "max_request_bytes": "1KiB"},
            "engine": {"thread_count": 2, "queue_capacity": 4},
            "models": [{"name": "large", "path": str(path)}],
        }
    )
    ask = web.raw("large", np.float32(1).tobytes())
    holders = []
    while server.figures().io["slot_waits"] == 0:
        holder = Http(server.port, receive_buffer_bytes=4096)
        before = server.figures().requests
        holder.send(ask)
        eventually(lambda was=before: server.figures().requests > was, "a request")
        holders.append(holder)
        assert len(holders) < 20
    with Http(server.port) as http:
        http.socket.settimeout(PATIENCE_S)
        assert len(http.query(ask).outputs["y"].data) == columns
    for holder in holders:
        holder.close()


@pytest.mark.once
def test_a_worker_that_does_not_come_back_in_time(serve: Serve, tmp_path: Path) -> None:
    """Row F22: its clients are answered in its place, once; what is behind them goes on."""
    server = serve(
        {
            "engine": {"thread_count": 2},
            "models": [
                {"name": "slow", "path": str(graphs.slow(tmp_path / "slow.onnx"))},
                {"name": "tag", "path": str(graphs.tag(tmp_path / "tag.onnx"))},
            ],
        }
    )
    t = np.ones(4, "<i8")
    trips = np.array([40_000], "<i8")  # 0.4 s or more: some looks of the watchdog
    late = {"parameters": {"timeout": 50_000}}
    with Http(server.port) as first, Http(server.port) as other:
        # Half of the requests have nothing in them before their worker has read their JSON.
        for http, binary in ((first, True), (other, False)):
            http.send(web.infer("slow", {"x": trips}, binary=binary, **late) + LIVE)
        for http in (first, other):
            answer = http.answer()
            assert answer.code == 503, answer
            assert "deadline" in answer.error
            assert http.answer().code == 200
        # Both workers are busy: these wait for one, and nothing of the past comes in between.
        for http in (first, other):
            assert http.query(web.infer("tag", {"x": t})).array("y").tolist() == [4] * 4
        assert server.figures().worker["runs"] >= 2


def test_a_last_answer_is_sent_whole(serve: Serve, tmp_path: Path) -> None:
    """To clients that read nothing for longer than the server lingers behind its last word."""
    path = graphs.large(tmp_path / "large.onnx", 1 << 20)
    models = [{"name": "large", "path": str(path)}]
    server = serve({"server": {"half_close": True}, "models": models})
    x = np.array([0.5], "<f4")
    clients = []
    close = ["Connection: close"]
    for data in (
        web.infer("large", {"x": x}, headers=close),
        web.infer("large", {"x": x}, headers=close, binary=False),
        web.infer("large", {"x": x}, version="HTTP/1.0"),
    ):
        http = Http(server.port, receive_buffer_bytes=4096)
        http.send(data + LIVE)
        clients.append(http)
    http = Http(server.port, receive_buffer_bytes=4096)
    http.send(web.infer("large", {"x": x}))
    http.finish()
    clients.append(http)
    time.sleep(1.5)
    for http in clients:
        answer = http.answer()
        assert answer.closes == (http is not clients[-1])
        assert set(answer.outputs["y"].data.tolist()) == {0.5}
        assert http.expect_closed() == b""
        http.close()


def test_a_batchs_answers_to_slow_readers(serve: Serve, tmp_path: Path) -> None:
    """The worker's batch is used again long before these have read what came of it."""
    settings = tight(tmp_path, arena_bytes="32MiB")
    path = graphs.double_and_negative(tmp_path / "rows.onnx", COLUMNS)
    settings["models"] = [{"name": "wide", "path": str(path)}]
    settings["engine"] = {"thread_count": 1, "batch_size": 4, "batch_delay_us": 2000}
    server = serve(settings)
    slow = [Http(server.port, receive_buffer_bytes=4096) for _ in range(12)]
    for number, http in enumerate(slow):
        # More answers than a socket holds wait behind each other.
        http.send(b"".join(request(100 * number + lap, "binary")[0] for lap in range(3)))
    with Http(server.port) as http:
        for number in range(20):
            data, y = request(number, KINDS[number % 4])
            np.testing.assert_array_equal(http.query(data).array("y"), y)
    for number, http in enumerate(slow):
        for lap in range(3):
            x = body(100 * number + lap)
            answer = http.answer()
            np.testing.assert_array_equal(answer.array("y"), 2 * x)
            np.testing.assert_array_equal(answer.array("z"), -x)
        http.close()
    assert server.figures().worker["batches"] > 0


def test_the_oldest_half_head_makes_room(serve: Serve, tmp_path: Path) -> None:
    """Heads in pieces have 1024 places. Who has collected one the longest is told so, nobody else,
    also where a place that is older has been given to somebody new."""
    server = serve(tight(tmp_path, header_timeout_ms=0, max_connections=2048))
    first, rest = LIVE[:10], LIVE[10:]
    said = server.figures().io["bytes_in"]

    def begin() -> Http:
        """One more that has a place."""
        nonlocal said
        http = Http(server.port)
        http.send(first)
        said += len(first)
        eventually(lambda: server.figures().io["bytes_in"] >= said, "half a head")
        return http

    guest, oldest = begin(), begin()
    guest.send(rest)
    said += len(rest)
    assert guest.answer().code == 200
    younger = begin()  # in the guest's place
    others = [Http(server.port) for _ in range(1022)]
    for http in others:
        http.send(first)
    said += 1022 * len(first)
    eventually(lambda: server.figures().io["bytes_in"] >= said, "as many as there are places")
    assert server.figures().io["connections_evicted"] == 0
    last = begin()
    assert oldest.expect_refusal(408).code == 408
    for http in (younger, *others, last):
        http.send(rest)
        assert http.answer().code == 200
    assert server.figures().io["connections_evicted"] == 1
    for http in (guest, oldest, younger, *others, last):
        http.close()


def test_more_who_wait_than_there_is_room_for(serve: Serve, tmp_path: Path) -> None:
    """Everybody is answered, some with a refusal; their connections are none the worse."""
    server = serve(
        {
            "server": {"arena_bytes": "16MiB", "max_request_bytes": "64KiB", "max_in_flight": 1,
                       "overload": "wait"},
            "engine": {"thread_count": 1},
            "models": [
                {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))},
                {"name": "slow", "path": str(graphs.slow(tmp_path / "slow.onnx"))},
            ],
        }
    )  # fmt: skip
    busy = Http(server.port)
    before = server.figures().requests
    busy.send(web.infer("slow", {"x": np.array([9000], "<i8")}))
    eventually(lambda: server.figures().requests > before, "the load")
    clients = [Http(server.port) for _ in range(700)]
    for number, http in enumerate(clients):
        x = np.full((1, 16), number, "<f4")
        http.send(web.infer("double", {"x": x}, binary=number % 3 > 0))
    codes = []
    for number, http in enumerate(clients):
        answer = http.answer()
        codes.append(answer.code)
        if answer.code == 200:
            assert set(answer.outputs["y"].data.tolist()) == {2 * number}
        else:
            assert answer.code == 503
            assert "retry-after" in answer.headers
            assert not answer.closes
    assert codes.count(200) >= 256
    for http in clients[:20]:
        assert http.query(LIVE).code == 200
    assert busy.answer().code == 200
    for http in (busy, *clients):
        http.close()
