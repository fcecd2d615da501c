"""Bad HTTP, as tables: each case costs at most its own connection, and leaves nothing behind.

The cases run against one server, beside a canary on a connection of its own whose answers must stay
right. After each of them connections, slots and descriptors must be as before, every request must
have an end, and no byte of a refused body may have become one.
"""

from __future__ import annotations

import pytest
from hostile import DECOY, PROTOCOL, Case
from hostile_json import BODIES
from town import GOOD_REQUEST, Town, send_in_pieces, usable
from web import Http

pytestmark = pytest.mark.once  # what reads heads and bodies is the same on both backends


def attack(town: Town, case: Case, pieces: int, after_a_good_one: bool) -> int:
    """Sends it and looks at what comes back; returns how many requests that were."""
    requests = 1
    with Http(town.server.port) as http:
        if after_a_good_one:
            usable(http)
            requests += 1
        data = case.data
        if case.ends and case.follows:
            data += DECOY * 3
        send_in_pieces(http, data, pieces)
        answer = http.answer()
        assert answer.code in case.codes, answer
        assert case.ends is None or answer.closes == case.ends, answer
        if answer.closes:
            assert http.expect_closed() == b"", "an answer too many"
        else:
            usable(http)
            requests += 1
    return requests


@pytest.mark.parametrize("case", PROTOCOL, ids=str)
def test_what_is_no_http(town: Town, case: Case) -> None:
    before = town.figures()
    requests = attack(town, case, pieces=1, after_a_good_one=True)
    requests += attack(town, case, pieces=60, after_a_good_one=False)
    town.settle(before, requests)


@pytest.mark.parametrize("case", BODIES, ids=str)
def test_what_is_no_inference(town: Town, case: Case) -> None:
    before = town.figures()
    town.settle(before, attack(town, case, pieces=1, after_a_good_one=True))


def test_bodies_one_after_another_on_one_connection(town: Town) -> None:
    """Row 36: all bad bodies, pipelined: each gets its own answer, in order."""
    before = town.figures()
    small = [case for case in BODIES if len(case.data) < 20_000]
    with Http(town.server.port) as http:
        for at in range(0, len(small), 20):
            some = small[at : at + 20]
            http.send(b"".join(case.data + GOOD_REQUEST for case in some))
            for case in some:
                answer = http.answer()
                assert answer.code in case.codes, (str(case), answer)
                assert http.answer().document["id"] == "good"
    town.settle(before, 2 * len(small))


@pytest.mark.parametrize("line", [" GET / HTTP/1.1", "\nGET /", "\0", "LMN\n", "LMN2\0"])
def test_a_first_byte_that_no_method_begins_with(town: Town, line: str) -> None:
    """Row 1: what is not LMN1 is refused as HTTP."""
    with Http(town.server.port) as http:
        http.send(line.encode() + b"\r\nHost: localhost\r\n\r\n" + DECOY)
        http.expect_refusal(400)
