"""HTTP by chance: requests with changes, streams cut anywhere; seeds are fixed and printed.

Whatever a change makes of a request, the client sees whole answers and then an end.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import web
from hostile import GOOD, INFER, PROTOCOL
from hostile_json import BODIES
from town import GOOD_REQUEST, Town, X
from web import Http, get, post


def mutations(random: np.random.Generator, data: bytes) -> bytes:
    """A request with a few places changed, cut out, doubled or swapped."""
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 5))):
        at = int(random.integers(0, len(changed)))
        size = int(random.integers(1, 9))
        match int(random.integers(0, 5)):
            case 0:
                changed[at] ^= 1 << int(random.integers(0, 8))
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size]
            case 3:
                changed[at:at] = random.bytes(size)
            case _:
                token = random.choice(
                    [b"\r\n", b"\r\n\r\n", b":", b"chunked", b"0", b"-1", b"}", b","]
                )
                changed[at : at + size] = bytes(token)
        if not changed:
            break
    return bytes(changed)


SEEDS: dict[str, bytes] = {
    "binary": GOOD_REQUEST,
    "json": post(INFER, GOOD),
    "chunked": web.infer("double", {"x": X}, chunk_bytes=40),
    "get": get("/v2/models/double/config", "Connection: keep-alive"),
    "raw": web.raw("double", X.tobytes(), "Expect: 100-continue"),
}


@pytest.mark.parametrize("kind", SEEDS)
def test_requests_with_changes(town: Town, kind: str) -> None:
    """Whatever a change makes of a request: whole answers, and then an end."""
    seed = int.from_bytes(kind.encode()[:4], "big")
    random = np.random.default_rng(seed)
    for lap in range(120):
        data = mutations(random, SEEDS[kind])
        with Http(town.server.port) as http:
            http.send(data)
            http.finish()
            check_answers(http, f"seed {seed}, lap {lap}: {data!r}")


def check_answers(http: Http, what: str) -> None:
    """Nothing but whole answers; a change of the first byte may have made it native."""
    rest = http.expect_closed()
    if rest.startswith(b"LMR1"):
        return
    http._have += rest.replace(web.CONTINUE, b"")
    try:
        while http._have:
            http.answer()
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


@pytest.mark.parametrize("seed", range(3))
def test_streams_cut_anywhere(town: Town, seed: int) -> None:
    """Good and bad requests in any order, in segments of any size: the answers are the same."""
    random = np.random.default_rng(seed)
    before = town.figures()
    keeping = [case for case in (*BODIES, *PROTOCOL) if case.ends is False]
    small = [case for case in keeping if len(case.data) < 5000]
    cases = [small[int(at)] for at in random.integers(0, len(small), 150)]
    good = [SEEDS["binary"], SEEDS["json"], SEEDS["chunked"], SEEDS["get"]]
    data = b"".join(case.data + good[n % 4] for n, case in enumerate(cases))
    cuts = sorted(int(at) for at in random.integers(0, len(data), 400))
    with Http(town.server.port) as http:
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            http.send(data[start:end])
            if random.integers(0, 8) == 0:
                time.sleep(0.0005)
        for case in cases:
            answer = http.answer()
            assert answer.code in case.codes, (str(case), answer)
            assert http.answer().code == 200, str(case)
    town.settle(before, 2 * len(cases))


def test_every_bit_of_a_head(town: Town) -> None:
    data = web.infer("double", {"x": X}, headers=["Connection: keep-alive"])
    for bit in range(len(web.cut(data)[0]) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << (bit % 8)
        with Http(town.server.port) as http:
            http.send(bytes(changed))
            http.finish()
            check_answers(http, f"bit {bit}")
