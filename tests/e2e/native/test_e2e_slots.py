"""Full slots: what cannot be taken in yet waits in its sender's socket, or until its deadline."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import graphs
import needs
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Server, eventually

COLUMNS = 16384  # 64 KiB in and 64 KiB out: a slot of 128 KiB
SLOW_TRIPS = 4000


def tight(folder: Path, **server: object) -> dict[str, object]:
    """Settings under which the model "wide" has four slots, and no others are large enough."""
    return {
        "server": {"max_request_bytes": "96KiB", "arena_bytes": "780KiB", **server},
        "engine": {"thread_count": 2, "queue_capacity": 4},
        "models": [
            {"name": "wide", "path": str(graphs.double(folder / "wide.onnx", COLUMNS, rows=1))},
        ],
    }


def body(number: int) -> np.ndarray:
    return np.arange(COLUMNS, dtype="<f4") + np.float32(number)


def clients(count: int, act: Callable[[int], None]) -> None:
    """Runs `act` on `count` threads at once; the first failure is raised."""
    failures: list[BaseException] = []

    def main(number: int) -> None:
        try:
            act(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=main, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a client still waits"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("allocator", ["lumen_arena", "standard"])
def test_many_clients_and_four_slots(serve: Serve, tmp_path: Path, allocator: str) -> None:
    settings = tight(tmp_path)
    # What the I/O thread runs itself may have its slot back before the next body is here.
    settings["engine"] |= {"allocator_type": allocator, "queue_type": "mpmc"}  # type: ignore[operator]
    server = serve(settings)

    def act(client: int) -> None:
        with server.connect() as connection:
            for lap in range(2):
                numbers = [1000 * client + 10 * lap + n for n in range(9)]
                for number in numbers:
                    connection.send(wire.frame(body(number).tobytes(), id=number))
                replies = connection.replies(9)
                for number in numbers:
                    assert replies[number].status == wire.OK, replies[number].text
                    assert replies[number].payload == (2 * body(number)).tobytes()

    clients(32, act)
    figures = server.figures()
    assert figures.io["slot_waits"] > 0, "the test did not fill the slots"
    assert figures.worker["requests_ok"] == 32 * 2 * 9


def hold_slots(server: Server) -> list[wire.Wire]:
    """Takes all slots of "wide" that are to be had for bodies of which a byte is missing."""
    holders = []
    while not (server.figures().io["slot_waits"] or server.figures().io["body_waits"]):
        connection = server.connect()
        before = server.figures().requests
        connection.send(wire.frame(body(0).tobytes(), id=1)[:-1])
        eventually(lambda was=before: server.figures().requests > was, "a header")
        holders.append(connection)
        assert len(holders) < 200
    return holders


def test_a_request_waits_for_a_slot_until_its_deadline(serve: Serve, tmp_path: Path) -> None:
    server = serve(tight(tmp_path))
    holders = hold_slots(server)
    with server.connect() as connection:
        data = wire.frame(body(3).tobytes(), id=3, timeout_us=20_000)
        reply = connection.ask(data[:-1])  # a whole one would have the slot kept for such
        assert (reply.status, reply.id) == (wire.DEADLINE, 3)
        assert "slot" in reply.text
        # The refused body is skipped, and what needs no slot is answered meanwhile.
        assert connection.ask(data[-1:] + wire.ping(4)).id == 4
        connection.send(wire.frame(body(5).tobytes(), id=5))
        reply = connection.reply()
        assert (reply.id, reply.payload) == (5, (2 * body(5)).tobytes())
    for holder in holders:
        with suppress(ConnectionError):
            holder.send(body(0).tobytes()[-1:])
        reply = holder.reply()
        assert reply.status == wire.OVERLOADED or reply.payload == (2 * body(0)).tobytes()
        holder.close()


def test_the_servers_own_deadline(serve: Serve, tmp_path: Path) -> None:
    server = serve(tight(tmp_path, default_timeout_ms=20))
    # Bodies in slots are not timed; the one behind them is.
    holders = hold_slots(server)
    with server.connect() as connection:
        reply = connection.ask(wire.frame(body(3).tobytes(), id=3)[:-1])
        assert (reply.status, reply.id) == (wire.DEADLINE, 3)
    for holder in holders:
        holder.close()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_holders_that_leave_make_room(serve: Serve, tmp_path: Path, how: str) -> None:
    server = serve(tight(tmp_path))
    holders = hold_slots(server)
    with server.connect() as connection:
        connection.send(wire.frame(body(5).tobytes(), id=5))
        for holder in holders:
            getattr(holder, how)()
        reply = connection.reply()
        assert (reply.id, reply.payload) == (5, (2 * body(5)).tobytes())


def test_a_client_that_leaves_while_it_waits(serve: Serve, tmp_path: Path) -> None:
    """Row 18."""
    server = serve(tight(tmp_path, body_bytes_per_second=0))  # who holds a slot keeps it
    holders = hold_slots(server)
    for _ in range(5):
        waits = server.figures().io["body_waits"]
        connection = server.connect()
        connection.send(wire.frame(body(5).tobytes(), id=5)[:-1])
        eventually(lambda was=waits: server.figures().io["body_waits"] > was, "the wait")
        connection.reset()
    for holder in holders:
        holder.close()
    with server.connect() as connection:
        assert (
            connection.ask(wire.frame(body(6).tobytes(), id=6)).payload == (2 * body(6)).tobytes()
        )


def test_deadlines_under_load_lose_nothing(serve: Serve, tmp_path: Path) -> None:
    """Row 15."""
    settings = tight(tmp_path)
    settings["models"].append(  # type: ignore[attr-defined]
        {"name": "slow", "path": str(graphs.slow(tmp_path / "slow.onnx"))}
    )
    settings["server"]["arena_bytes"] = "1MiB"  # type: ignore[index]
    server = serve(settings)
    counts = {wire.OK: 0, wire.DEADLINE: 0, wire.OVERLOADED: 0}
    lock = threading.Lock()

    def act(client: int) -> None:
        with server.connect() as connection:
            for lap in range(5):
                number = 100 * client + lap
                if client % 4 == 0:
                    x = np.array([SLOW_TRIPS // 8], "<i8")
                    request = wire.frame(x.tobytes(), id=number, model=server.models["slow"])
                    answer = (2 * x).tobytes()
                else:
                    request = wire.frame(body(number).tobytes(), id=number, timeout_us=3000)
                    answer = (2 * body(number)).tobytes()
                reply = connection.ask(request)
                assert reply.id == number
                with lock:
                    counts[reply.status] += 1
                if reply.status == wire.OK:
                    assert reply.payload == answer

    clients(32, act)
    assert sum(counts.values()) == 32 * 5
    assert counts[wire.OK] >= 8 * 5  # the slow ones have no deadline


# How long a client may hold a slot by doing nothing is the server's choice; below it is what these
# tests wait before they call it for ever. Where there is a setting for it, `tight` should lower it.
PATIENCE_S = 5


def test_silent_bodies_cannot_keep_every_slot(serve: Serve, tmp_path: Path) -> None:
    """Row 4: clients that send half a body and fall silent must not stop a server for good."""
    server = serve(tight(tmp_path, drain_seconds=0))
    holders = hold_slots(server)
    with server.connect() as connection:
        connection.socket.settimeout(PATIENCE_S)
        reply = connection.ask(wire.frame(body(3).tobytes(), id=3))
        assert (reply.id, reply.payload) == (3, (2 * body(3)).tobytes())
    for holder in holders:
        holder.close()


def test_clients_that_never_read_cannot_keep_every_slot(serve: Serve, tmp_path: Path) -> None:
    """Row 16: a reply that nobody takes must not hold its slot for good."""
    columns = 4 << 20  # a reply of 16 MiB: no socket takes it whole
    path = graphs.large(tmp_path / "large.onnx", columns)
    server = serve(
        {
            "server": {"arena_bytes": "80MiB", "drain_seconds": 0},
            "engine": {"thread_count": 2, "queue_capacity": 4},
            "models": [{"name": "large", "path": str(path)}],
        }
    )
    holders = []
    while server.figures().io["slot_waits"] == 0:
        holder = server.connect(receive_buffer_bytes=4096)
        before = server.figures().requests
        holder.send(wire.frame(np.float32(1).tobytes(), id=1))
        eventually(lambda was=before: server.figures().requests > was, "a request")
        holders.append(holder)
        assert len(holders) < 20
    with server.connect() as connection:
        connection.socket.settimeout(PATIENCE_S)
        reply = connection.ask(wire.frame(np.float32(2).tobytes(), id=2))
        assert (reply.status, len(reply.payload)) == (wire.OK, 4 * columns)
    for holder in holders:
        holder.close()


def talkative(folder: Path, count: int = 50) -> list[dict[str, object]]:
    """Models that make the description long: a request of 32 bytes, a reply of 10 KB."""
    path = str(graphs.tag(folder / "tag.onnx"))
    return [{"name": f"{'m' * 55}{number}", "path": path} for number in range(count)]


@pytest.mark.once
def test_who_waited_for_a_slot_may_then_use_it(serve: Serve, tmp_path: Path) -> None:
    """Making room must not hit those who waited: their time starts with their slot."""
    path = graphs.slow_and_large(tmp_path / "slow.onnx", 1 << 20)
    server = serve(
        {
            "server": {"arena_bytes": "20MiB"},
            "engine": {"thread_count": 2, "queue_capacity": 4},
            "models": [{"name": "slow", "path": str(path)}],
        }
    )

    def act(client: int) -> None:
        pad = np.full(1 << 20, client, "<f4")
        data = wire.frame(np.array([SLOW_TRIPS * 6], "<i8").tobytes() + pad.tobytes(), id=client)
        # A machine so busy that this thread has no quarter of a second makes its client one that
        # does not move, and is cut off. Again and again would be another thing.
        for _ in range(3):
            with suppress(ConnectionError, wire.Closed), server.connect() as connection:
                # A network of 100 Mbit/s: 4 MiB take a third of a second, once they are let in.
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
                for at in range(0, len(data), 1 << 16):
                    connection.send(data[at : at + (1 << 16)])
                    time.sleep(0.005)
                reply = connection.reply()
                if reply.status != wire.OK and "too slowly" in reply.text:
                    continue
                assert (reply.status, reply.id) == (wire.OK, client)
                assert reply.payload[-4:] == np.float32(client).tobytes()
                return
        raise AssertionError(f"client {client} was cut off three times")

    clients(8, act)
    assert server.figures().io["slot_waits"] > 0, "the test did not fill the slots"


def test_a_reader_who_keeps_reading_is_not_cut_off_to_make_room(
    serve: Serve, tmp_path: Path
) -> None:
    """The server's own replies (descriptions) have no inference whose end could start a clock."""
    settings = tight(tmp_path, drain_seconds=0)
    settings["models"].extend(talkative(tmp_path))  # type: ignore[attr-defined]
    settings["server"]["arena_bytes"] = "984KiB"  # type: ignore[index]
    server = serve(settings)
    holders = hold_slots(server)  # the last one waits: there is somebody to make room for
    with server.connect(receive_buffer_bytes=4096) as connection:
        connection.send(wire.frame(kind=wire.DESCRIBE, id=1) * 300)
        for _ in range(300):
            assert connection.reply().status == wire.OK
            time.sleep(0.002)
    for holder in holders:
        holder.close()


@pytest.mark.once
def test_clients_that_never_read_cannot_keep_every_header_buffer(
    serve: Serve, tmp_path: Path
) -> None:
    """Rows 16 and F8: more clients than header buffers (1024), each with a stuck reply."""
    available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    if available is None or int(available.group(1)) < 6 << 20:
        needs.absent("memory")  # the kernel holds about 1 GiB of unread replies
    server = serve(
        {
            "server": {"drain_seconds": 0},
            "engine": {"queue_capacity": 4096},
            "models": talkative(tmp_path),
        }
    )
    guests = [server.connect(receive_buffer_bytes=2048) for _ in range(1100)]
    try:
        # As many as no socket takes the answers of, even while others' are small.
        for guest in guests:
            guest.send(wire.frame(kind=wire.DESCRIBE, id=1) * 300)
        eventually(
            lambda: (
                server.figures().slots_in_use >= 1024
                or server.figures().io["header_buffers_starved"] > 0
                or server.figures().io["connections_closed"] > 1
            ),
            "stuck replies",
            60,  # about 1 GiB has to go into sockets
            found=server.figures,
        )
        with server.connect() as connection:
            connection.socket.settimeout(PATIENCE_S)
            assert connection.ask(wire.ping(1)).id == 1
    finally:
        for guest in guests:
            guest.close()


def test_too_little_memory_is_a_sentence(cache: Path, tmp_path: Path) -> None:
    import harness

    model = graphs.double(tmp_path / "wide.onnx", COLUMNS, rows=1)
    done = harness.run(
        [
            "--port", "0", "--model", f"wide={model}", "--set", "server.arena_bytes=256KiB",
            "--set", "server.max_request_bytes=96KiB",
        ],
        cache,
    )  # fmt: skip
    assert done.returncode > 0
    (line,) = done.stderr.strip().splitlines()
    assert "server.arena_bytes" in line
    assert "262144" in line
