"""The stream of bytes: however it is cut, interleaved or piled up, every frame gets its answer."""

from __future__ import annotations

import time

import numpy as np
import pytest
import wire
from conftest import ZOO_BLOCK_COLUMNS
from harness import Canary, Server, eventually

X = np.arange(16, dtype="<f4")


def double(number: int, **rest: int) -> tuple[bytes, bytes]:
    """A request whose payload depends on its id, and its answer."""
    x = np.arange(16, dtype="<f4") + np.float32(number)
    return wire.frame(x.tobytes(), id=number, **rest), (x + x).tobytes()


def stream_of_three(zoo: Server) -> tuple[bytes, dict[int, bytes]]:
    """ping + infer + infer, and the answers by id."""
    first, first_answer = double(2**63 + 5, model=zoo.models["double"])
    t = np.array([1, -2, 3, 2**40], "<i8")
    second = wire.frame(t.tobytes(), id=3, model=zoo.models["tag"])
    answers = {1: b"", 2**63 + 5: first_answer, 3: (3 * t + 1).tobytes()}
    return wire.ping(1) + first + second, answers


def has_read(zoo: Server, count: int) -> None:
    """Gives the server the chance to read what was sent before more comes.

    What it receives straight into a tensor is counted only when that is whole, so the wait has an
    end; the test is right either way, only less sharp.
    """
    until = time.monotonic() + 0.02
    while zoo.figures().io["bytes_in"] < count and time.monotonic() < until:
        pass


def test_every_split_of_a_stream(zoo: Server) -> None:
    """Row 6."""
    stream, answers = stream_of_three(zoo)
    for at in range(1, len(stream)):
        with zoo.connect() as connection:
            before = zoo.figures().io["bytes_in"]
            connection.send(stream[:at])
            has_read(zoo, before + at)
            connection.send(stream[at:])
            replies = connection.replies(3)
        assert {number: reply.payload for number, reply in replies.items()} == answers, at


def test_one_byte_per_segment(zoo: Server) -> None:
    """Row 6."""
    stream, answers = stream_of_three(zoo)
    with Canary(zoo), zoo.connect() as connection:
        for at in range(len(stream)):
            connection.send(stream[at : at + 1])
            time.sleep(0.0005)
        replies = connection.replies(3)
    assert {number: reply.payload for number, reply in replies.items()} == answers


@pytest.mark.parametrize("tail", [0, 1, 31, 32, 33])
def test_frames_around_the_edges_of_the_buffers(zoo: Server, tail: int) -> None:
    """Row 6: frames that end around 4 KiB, each followed by part of the next."""
    random = np.random.default_rng(tail)
    model = zoo.models["echo"]
    with zoo.connect() as connection:
        for total in (4095, 4096, 4097, 4096 + 31, 4096 + 32, 4096 + 33, 8191, 8192, 8193, 40000):
            payload = random.bytes(total - 32)
            whole = wire.frame(payload, model=model, id=total, rows=len(payload)) + wire.ping(9)
            cut = total + tail
            connection.send(whole[:cut])
            has_read(zoo, 1 << 62)
            connection.send(whole[cut:])
            replies = connection.replies(2)
            assert replies[total].payload == payload
            assert replies[9].payload == b""


def test_every_size_of_body(zoo: Server) -> None:
    """Row 6."""
    random = np.random.default_rng(5)
    sizes = [*range(1, 140), 511, 512, 513, 4064, 16384, 16385, 65535, 65536]
    bodies = {size: random.bytes(size) for size in sizes}
    with zoo.connect() as connection:
        for size, body in bodies.items():
            connection.send(wire.frame(body, model=zoo.models["echo"], id=size, rows=size))
            reply = connection.reply()
            assert (reply.status, reply.id, reply.rows) == (wire.OK, size, size)
            assert reply.payload == body


def test_large_bodies_in_pieces(zoo: Server) -> None:
    """Row 6."""
    random = np.random.default_rng(6)
    model = zoo.models["block"]
    with zoo.connect() as connection:
        for piece in (1 << 20, 100_000, 4096, 1447):
            x = random.standard_normal(ZOO_BLOCK_COLUMNS).astype("<f4")
            data = wire.frame(x.tobytes(), model=model, id=piece) + wire.ping(1)
            for at in range(0, len(data), piece):
                connection.send(data[at : at + piece])
            replies = connection.replies(2)
            assert replies[piece].payload == (x + x).tobytes()


def test_a_thousand_frames_in_one_send(zoo: Server) -> None:
    """Row 6."""
    requests, answers = zip(
        *(double(number, model=zoo.models["double"]) for number in range(1000)), strict=True
    )
    with Canary(zoo), zoo.connect() as connection:
        connection.send(b"".join(requests))
        replies = connection.replies(1000)
    for number, answer in enumerate(answers):
        assert (replies[number].status, replies[number].payload) == (wire.OK, answer)


def test_ten_thousand_pings_read_late(zoo: Server) -> None:
    """Row 16."""
    with Canary(zoo), zoo.connect(receive_buffer_bytes=4096) as connection:
        connection.send(b"".join(wire.ping(number) for number in range(10_000)))
        replies = connection.replies(10_000)
    assert all(reply.status == wire.OK and not reply.payload for reply in replies.values())


def test_models_interleaved_on_one_connection(zoo: Server) -> None:
    """Row 14."""
    random = np.random.default_rng(7)
    data = bytearray()
    answers: dict[int, bytes] = {}
    for number in range(600):
        which = random.integers(0, 6)
        if which == 0:
            request, answers[number] = double(number, model=zoo.models["double"])
        elif which == 1:
            t = random.integers(-(10**9), 10**9, 4).astype("<i8")
            request = wire.frame(t.tobytes(), id=number, model=zoo.models["tag"])
            answers[number] = (3 * t + 1).tobytes()
        elif which == 2:
            body = random.bytes(int(random.integers(1, 6000)))
            request = wire.frame(body, id=number, model=zoo.models["echo"], rows=len(body))
            answers[number] = body
        elif which == 3:
            s = np.float32(random.standard_normal())
            request = wire.frame(s.tobytes(), id=number, model=zoo.models["scalar"])
            answers[number] = wire.shape_block([()]) + (s * s).tobytes()
        elif which == 4:
            request, answers[number] = wire.ping(number), b""
        else:
            x = np.array([random.integers(0, 60)], "<i8")
            request = wire.frame(x.tobytes(), id=number, model=zoo.models["slow"])
            answers[number] = (2 * x).tobytes()
        data += request
    with zoo.connect() as connection:
        connection.send(bytes(data))
        replies = connection.replies(600)
    assert {number: reply.payload for number, reply in replies.items()} == answers


def test_connections_interleaved(zoo: Server) -> None:
    """Row 22: sixteen connections, each with one frame half sent while the others' halves come."""
    connections = [zoo.connect() for _ in range(16)]
    try:
        for lap in range(5):
            made = [double(100 * lap + number, model=zoo.models["double"]) for number in range(16)]
            for cut in ((0, 20), (20, 50), (50, 96)):
                for connection, (request, _answer) in zip(connections, made, strict=True):
                    connection.send(request[cut[0] : cut[1]])
            for number, (connection, (_request, answer)) in enumerate(
                zip(connections, made, strict=True)
            ):
                reply = connection.reply()
                assert (reply.id, reply.payload) == (100 * lap + number, answer)
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("kind", [wire.PING, wire.DESCRIBE, wire.INFER])
def test_a_credential_is_skipped(zoo: Server, kind: int) -> None:
    credential = wire.ping(666)  # 32 bytes that must not be taken for a request
    body = X.tobytes() if kind == wire.INFER else b""
    with zoo.connect() as connection:
        reply = connection.ask(
            wire.frame(credential + body, kind=kind, id=8, flags=wire.CREDENTIAL)
        )
        assert (reply.status, reply.id) == (wire.OK, 8)
        if kind == wire.INFER:
            assert reply.payload == (X + X).tobytes()
        assert connection.ask(wire.ping(9)).id == 9


def test_a_shape_block_that_agrees(zoo: Server) -> None:
    for rows in (1, 3):
        x = np.arange(16 * rows, dtype="<f4")
        block = wire.shape_block([(rows, 16)])
        for flags, prefix in (
            (wire.SHAPES, block),
            (wire.SHAPES | wire.CREDENTIAL, wire.ping(666) + block),
        ):
            with zoo.connect() as connection:
                reply = connection.ask(wire.frame(prefix + x.tobytes(), flags=flags, rows=rows))
                assert (reply.status, reply.flags) == (wire.OK, 0)
                assert reply.payload == (x + x).tobytes()
    a, k, b = np.ones((2, 4), "<f4"), np.ones(3, "<f4"), np.ones(2, "<i8")
    block = wire.shape_block([(2, 4), (3,), (2,)])
    with zoo.connect() as connection:
        reply = connection.ask(
            wire.frame(
                block + a.tobytes() + k.tobytes() + b.tobytes(),
                flags=wire.SHAPES,
                rows=2,
                model=zoo.models["several"],
            )
        )
        assert reply.status == wire.OK


def test_a_timeout_that_passes_in_the_queue(zoo: Server) -> None:
    """Row 15."""
    slow, double_model = zoo.models["slow"], zoo.models["double"]
    before = zoo.figures()
    with Canary(zoo), zoo.connect() as busy, zoo.connect() as hurried:
        for number in range(4):  # both workers, twice
            busy.send(wire.frame(np.array([3000], "<i8").tobytes(), model=slow, id=number))
        eventually(lambda: zoo.figures().requests >= before.requests + 4, "the load")
        for number in range(50):
            hurried.send(double(number, model=double_model, timeout_us=1)[0])
        replies = hurried.replies(50)
        assert all(reply.status == wire.DEADLINE for reply in replies.values())
        assert all("deadline" in reply.text for reply in replies.values())
        # The connection is as good as before, and nobody else was hurt.
        request, answer = double(99, model=double_model, timeout_us=60_000_000)
        assert hurried.ask(request).payload == answer
        assert all(reply.status == wire.OK for reply in busy.replies(4).values())
    # Refused at once, or in the queue where nothing was known yet of what the model takes.
    since = zoo.figures().since(before)
    assert since.get("worker.requests_expired", 0) + since.get("io.requests_refused", 0) == 50


def test_a_timeout_far_away_never_passes(zoo: Server) -> None:
    """Row 15: the longest that a header can say, beside requests that have none."""
    with zoo.connect() as connection:
        for number, timeout_us in enumerate((0, 2**31 - 1, 2**31, 2**32 - 1)):
            request, answer = double(number, model=zoo.models["double"], timeout_us=timeout_us)
            reply = connection.ask(request)
            assert (reply.status, reply.payload) == (wire.OK, answer)


def test_ids_are_echoed_whatever_they_are(zoo: Server) -> None:
    """Row 14."""
    with zoo.connect() as connection:
        for number in (0, 1, 2**32, 2**63, 2**64 - 1):
            assert connection.ask(wire.ping(number)).id == number
        # The same id twice in flight is the client's business: two answers.
        connection.send(wire.ping(5) * 2)
        assert [connection.reply().id for _ in range(2)] == [5, 5]


def test_a_half_closed_connection_gets_all_its_answers(zoo: Server) -> None:
    """Row 17."""
    for count in (1, 64, 65, 300):
        made = [double(number, model=zoo.models["double"]) for number in range(count)]
        with zoo.connect() as connection:
            connection.send(b"".join(request for request, _answer in made))
            connection.finish()
            replies = connection.replies(count)
            connection.expect_end()
        assert [replies[number].payload for number in range(count)] == [
            made[n][1] for n in range(count)
        ]


def test_a_half_closed_connection_waits_for_slow_answers(zoo: Server) -> None:
    """Row 17."""
    with Canary(zoo), zoo.connect() as connection:
        for number in range(6):
            x = np.array([500 + number], "<i8")
            connection.send(wire.frame(x.tobytes(), model=zoo.models["slow"], id=number))
        connection.finish()
        replies = connection.replies(6)
        connection.expect_end()
    for number, reply in replies.items():
        assert reply.payload == np.array([2 * (500 + number)], "<i8").tobytes()


def test_the_times_in_a_reply_add_up_to_the_servers_view(zoo: Server) -> None:
    """test_e2e_metrics.py compares each stage with the trace and with the figures."""
    from lumen_uring.ring.snapshot import delta
    from lumen_uring.ring.stats import read

    before = read(zoo.stats_path)
    with zoo.connect() as connection:
        x = np.array([1000], "<i8").tobytes()
        started_s = time.monotonic()
        reply = connection.ask(wire.frame(x, model=zoo.models["slow"]))
        elapsed_us = (time.monotonic() - started_s) * 1e6
    zoo.wait_until_idle()
    of_slow = delta(read(zoo.stats_path), before).models["slow"]
    told = dict(zip(("receive", "queue", "preprocess", "infer"), reply.times_us, strict=True))
    for stage in ("queue", "preprocess", "infer"):
        assert abs(told[stage] - of_slow[f"{stage}_ns"] / 1000) <= 1, stage
    # Each is rounded by itself; only the sending comes after the reply's head is written.
    total_us = (of_slow["ok_ns"] - of_slow["send_ns"]) / 1000
    assert abs(sum(told.values()) - total_us) <= len(told)
    assert told["infer"] == max(reply.times_us)
    assert sum(told.values()) <= elapsed_us
