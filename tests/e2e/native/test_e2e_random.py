"""Good and bad clients at random, for a while; then everything must be as it was.

The seed is printed with a failure. LUMEN_E2E_SEED replays one (each thread's choices, not their
timing), LUMEN_E2E_SECONDS sets the time for a longer soak.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter

import numpy as np
import wire
from conftest import ZOO_LARGE_COLUMNS
from harness import Canary, Server

SEED = int(os.environ.get("LUMEN_E2E_SEED", time.time_ns() % 2**32))
SECONDS = float(os.environ.get("LUMEN_E2E_SECONDS", "3"))
THREADS = 8


class Actor:
    """One thread's clients; whatever it does, right answers to its good requests are checked."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._random = np.random.default_rng(seed)
        self._number = 0
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None

    def main(self, until: float) -> None:
        actions = [
            self.well_behaved,
            self.well_behaved,
            self.well_behaved,
            self.cut_in_pieces,
            self.leaves,
            self.resets,
            self.half_body,
            self.half_header,
            self.garbage,
            self.too_large,
            self.never_reads,
            self.reads_slowly,
            self.half_closes,
            self.flipped_bit,
            self.says_nothing,
        ]
        try:
            while time.monotonic() < until:
                action = actions[self._below(len(actions))]
                action()
                self.done[action.__name__] += 1
        except BaseException as error:
            self.error = error

    def _below(self, most: int) -> int:
        return int(self._random.integers(0, most))

    def _request(self) -> tuple[int, bytes, int, bytes | None]:
        """id, bytes, status to come, payload to come (None: any)."""
        self._number += 1
        number, models, random = self._number, self._server.models, self._random
        kind = self._below(12)
        if kind == 0:
            return number, wire.ping(number), wire.OK, b""
        if kind == 1:
            return number, wire.frame(kind=wire.DESCRIBE, id=number), wire.OK, None
        if kind == 2:
            body = random.bytes(1 + self._below(30000))
            data = wire.frame(body, id=number, rows=len(body), model=models["echo"])
            return number, data, wire.OK, body
        if kind == 3:
            x = np.array([self._below(400)], "<i8")
            data = wire.frame(x.tobytes(), id=number, model=models["slow"])
            return number, data, wire.OK, (2 * x).tobytes()
        if kind == 4:
            s = np.float32(self._below(1000))
            data = wire.frame(s.tobytes(), id=number, model=models["large"])
            return number, data, wire.OK, np.full(ZOO_LARGE_COLUMNS, s, "<f4").tobytes()
        if kind == 5:
            x = np.array([99], "<i8")
            data = wire.frame(x.tobytes(), id=number, model=models["gather"])
            return number, data, wire.BAD_REQUEST, None
        if kind == 6:
            body = random.bytes(self._below(5000))
            data = wire.frame(body, id=number, model=60000, flags=self._below(4))
            return number, data, wire.UNKNOWN_MODEL, None
        if kind == 7:
            data = wire.frame(random.bytes(65), id=number, kind=self._below(2) * 200)
            return number, data, wire.BAD_REQUEST, None
        if kind == 8:
            data = wire.frame(bytes(64), id=number, timeout_us=1)
            return number, data, wire.DEADLINE, None
        if kind == 9:
            x = random.integers(0, 2, (1, 6)).astype("<f4")
            where = np.array(np.nonzero(x), "<i8")
            data = wire.frame(x.tobytes(), id=number, model=models["nonzero"])
            block = wire.shape_block([where.shape, (1, 6)])
            return number, data, wire.OK, block + where.tobytes() + (x + x).tobytes()
        rows = 1 + self._below(20)
        x = random.standard_normal((rows, 16)).astype("<f4")
        data = wire.frame(x.tobytes(), id=number, rows=rows)
        return number, data, wire.OK, (x + x).tobytes()

    def _check(
        self, connection: wire.Wire, made: list[tuple[int, bytes, int, bytes | None]]
    ) -> None:
        replies = connection.replies(len(made))
        for number, _data, status, payload in made:
            reply = replies[number]
            assert reply.status == status, (number, status, reply.status, reply.payload[:200])
            assert payload is None or reply.payload == payload, (number, "another payload")

    def _batch(self, most: int) -> list[tuple[int, bytes, int, bytes | None]]:
        return [self._request() for _ in range(1 + self._below(most))]

    def well_behaved(self) -> None:
        with self._server.connect() as connection:
            for _ in range(1 + self._below(4)):
                made = self._batch(40)
                connection.send(b"".join(data for _n, data, _s, _p in made))
                self._check(connection, made)

    def cut_in_pieces(self) -> None:
        made = self._batch(6)
        data = b"".join(part for _n, part, _s, _p in made)
        with self._server.connect() as connection:
            at = 0
            while at < len(data):
                count = 1 + self._below(200 if self._below(2) else 9000)
                connection.send(data[at : at + count])
                at += count
            self._check(connection, made)

    def half_closes(self) -> None:
        made = self._batch(100)
        with self._server.connect() as connection:
            connection.send(b"".join(data for _n, data, _s, _p in made))
            connection.finish()
            self._check(connection, made)
            connection.expect_end()

    def leaves(self) -> None:
        with self._server.connect() as connection:
            connection.send(b"".join(data for _n, data, _s, _p in self._batch(60)))

    def resets(self) -> None:
        connection = self._server.connect()
        connection.send(b"".join(data for _n, data, _s, _p in self._batch(60)))
        connection.reset()

    def half_body(self) -> None:
        _number, data, _status, _payload = self._request()
        with self._server.connect() as connection:
            connection.send(data[: self._below(len(data))])
            time.sleep(self._below(3) / 1000)
            if self._below(2):
                connection.reset()

    def half_header(self) -> None:
        with self._server.connect() as connection:
            connection.send(wire.ping(1)[: self._below(32)])
            time.sleep(self._below(3) / 1000)

    def garbage(self) -> None:
        with self._server.connect() as connection:
            # Behind a good frame, or it would be answered as HTTP.
            assert connection.ask(wire.ping(1)).id == 1
            connection.send(b"\x80" + self._random.bytes(32 + self._below(3000)))
            reply = connection.reply()
            assert (reply.status, reply.id) == (wire.BAD_REQUEST, 0)
            connection.expect_end()

    def too_large(self) -> None:
        with self._server.connect() as connection:
            connection.send(wire.frame(b"L" * 100, id=9, length=(1 << 20) + 1 + self._below(2**31)))
            reply = connection.reply()
            assert (reply.status, reply.id) == (wire.TOO_LARGE, 9)
            connection.expect_end()

    def never_reads(self) -> None:
        with self._server.connect(receive_buffer_bytes=4096) as connection:
            data = b"".join(part for _n, part, _s, _p in self._batch(30))
            connection.send_until_blocked(data, 1 << 21, quiet_s=0.02)
            if self._below(2):
                connection.reset()

    def reads_slowly(self) -> None:
        made = self._batch(12)
        with self._server.connect(receive_buffer_bytes=4096) as connection:
            connection.send(b"".join(data for _n, data, _s, _p in made))
            time.sleep(self._below(20) / 1000)
            self._check(connection, made)

    def flipped_bit(self) -> None:
        data = bytearray(wire.frame(bytes(64), id=0))
        bit = self._below(256)
        data[bit // 8] ^= 1 << bit % 8
        with self._server.connect() as connection:
            connection.send(bytes(data))
            connection.finish()
            connection.expect_closed()

    def says_nothing(self) -> None:
        with self._server.connect():
            time.sleep(self._below(5) / 1000)


def test_everybody_at_once(zoo: Server) -> None:
    """Row 22."""
    rss_before = zoo.rss_bytes
    actors = [Actor(zoo, SEED + index) for index in range(THREADS)]
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=actor.main, args=(until,), daemon=True) for actor in actors]
    seed = f"LUMEN_E2E_SEED={SEED}"
    print(seed)
    with Canary(zoo) as canary:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS + 3 * wire.TIMEOUT_S)
            assert not thread.is_alive(), f"{seed}: a client still waits"
        for index, actor in enumerate(actors):
            if actor.error is not None:
                raise AssertionError(f"{seed}: client {index}: {actor.error!r}") from actor.error
    done = sum((actor.done for actor in actors), Counter[str]())
    print(dict(done), canary.answers, "answers for the canary")
    assert all(done[name] for name in ("well_behaved", "never_reads", "half_body")), done
    assert zoo.rss_bytes < rss_before + (64 << 20), seed
