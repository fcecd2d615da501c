"""Lumen's HTTP parser beside h11 and httptools (llhttp), on requests good, odd and broken.

What Lumen accepts, h11 accepts, and reads in the same way: method, target, where the body ends and
what is in it. What Lumen alone refuses is in http_stricter.py, with the reason and an example. What
it alone accepts, or reads differently from one of the two, is said where it is let through below.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h11
import httptools
import pytest
from http_stricter import GET, STRICTER, Reason
from hypothesis import given, settings
from hypothesis import strategies as st

FUZZ = Path(__file__).parent / "fuzz"
DONE = 2  # LM_HTTP_CHUNKS_DONE


@dataclass(frozen=True)
class Answer:
    """How a parser reads the first request of some bytes."""

    verdict: str  # accepted, incomplete, refused
    method: bytes = b""
    target: bytes = b""
    minor: int = 0
    keep_alive: bool = False
    body: bytes = b""
    body_done: bool = False
    rest: bytes | None = None  # what follows the request, where the parser tells
    why: str = ""


class Lumen:
    """tests/fuzz/http_answers.c in a process of its own."""

    def __init__(self) -> None:
        subprocess.run(["make", "-s", "-C", str(FUZZ), "answers"], check=True)
        self.process = subprocess.Popen(
            [FUZZ / "build" / "http_answers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def read(self, data: bytes) -> Answer:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "http_answers ended: a sanitizer's report is above"
        fields = line.rstrip(b"\n").split(b"\t")
        assert len(fields) == 11, line
        verdict, why = int(fields[0]), fields[10].decode()
        if verdict <= 0:
            return Answer("refused" if verdict else "incomplete", why=why)
        rest = data[verdict:]
        length = max(int(fields[5]), 0)
        body, body_done, used = rest[:length], len(rest) >= length, length
        if fields[6] == b"1":
            state, used = int(fields[7]), int(fields[8])
            body, body_done = bytes.fromhex(fields[9].decode()), state == DONE
            if state < 0:
                return Answer("refused", fields[1], fields[2], body=body, why=why)
        return Answer(
            "accepted",
            fields[1],
            fields[2],
            int(fields[3]),
            fields[4] == b"1",
            body,
            body_done,
            rest[used:] if body_done else None,
        )

    def close(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0


@pytest.fixture(scope="module")
def lumen() -> Iterator[Lumen]:
    parser = Lumen()
    yield parser
    parser.close()


def read_with_h11(data: bytes) -> Answer:
    connection = h11.Connection(h11.SERVER)
    # An empty line before a request is skipped (RFC 9112, 2.2), which h11 does not do.
    connection.receive_data(data.removeprefix(b"\r\n"))
    request, body, done = None, b"", False
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                done = isinstance(event, h11.EndOfMessage)
                break
    except h11.RemoteProtocolError as error:
        return Answer("refused", body=body, why=str(error))
    if request is None:
        return Answer("incomplete")
    words = [
        word.strip()
        for name, value in request.headers
        if name == b"connection"
        for word in value.lower().split(b",")
    ]
    minor = int(request.http_version[2:])
    # h11 closes every HTTP/1.0 connection; Lumen keeps it when it is asked to.
    keep_alive = b"close" not in words and (minor > 0 or b"keep-alive" in words)
    rest = connection.trailing_data[0] if done else None
    return Answer("accepted", request.method, request.target, minor, keep_alive, body, done, rest)


class Callbacks:
    """What httptools tells about the first request."""

    def __init__(self) -> None:
        self.target = self.body = b""
        self.heads = self.ends = 0
        self.method, self.minor, self.keep_alive = b"", 0, False
        self.parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        if not self.heads:
            self.target += url

    def on_headers_complete(self) -> None:
        if not self.heads:
            self.method = self.parser.get_method()
            self.minor = int(self.parser.get_http_version()[2:])
            self.keep_alive = self.parser.should_keep_alive()
        self.heads += 1

    def on_body(self, body: bytes) -> None:
        if not self.ends:
            self.body += body

    def on_message_complete(self) -> None:
        self.ends += 1


def read_with_httptools(data: bytes) -> Answer:
    told = Callbacks()
    upgrade = False
    why = ""
    try:
        told.parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        upgrade = True  # Lumen ignores Upgrade; llhttp leaves what follows to another protocol
    except httptools.HttpParserError as error:
        why = str(error)
    if why and not told.ends:
        return Answer("refused", body=told.body, why=why)
    if not told.heads:
        return Answer("incomplete")
    answer = (told.method, told.target, told.minor, told.keep_alive, told.body, told.ends > 0)
    return Answer("upgrade" if upgrade else "accepted", *answer)


def check(lumen: Lumen, data: bytes) -> None:
    ours, theirs, others = lumen.read(data), read_with_h11(data), read_with_httptools(data)
    if ours.verdict == "accepted":
        check_same(ours, theirs)
        check_same_as_httptools(ours, others)
    elif ours.verdict == "incomplete":
        assert theirs.verdict != "accepted"
        assert others.verdict not in ("accepted", "upgrade")
    elif accepts_more(theirs, ours) or accepts_more(others, ours):
        assert any(re.search(reason.sentence, ours.why) for reason in STRICTER), ours.why


def accepts_more(theirs: Answer, ours: Answer) -> bool:
    """Whether theirs takes what ours refuses; of a body, to its end: h11 waits for whole lines."""
    in_the_body = ours.method != b""
    return theirs.verdict == "accepted" and (theirs.body_done or not in_the_body)


# Where Lumen follows the RFCs and h11 refuses: more digits than it counts (RFC 9110 8.6 and
# RFC 9112 7.1 set no bound), and white space before a chunk's extension (7.1.1).
STRICTER_H11 = (
    r"illegal chunk header: bytearray\(b'(0{17,}|[0-9A-Fa-f]+(\\t| )+;)|^bad Content-Length"
)


def check_same(ours: Answer, theirs: Answer) -> None:
    if theirs.verdict == "refused" and re.search(STRICTER_H11, theirs.why):
        return
    assert theirs.verdict == "accepted", theirs.why
    assert (ours.method, ours.target, ours.minor) == (theirs.method, theirs.target, theirs.minor)
    assert (ours.body, ours.body_done) == (theirs.body, theirs.body_done)
    assert ours.keep_alive == theirs.keep_alive
    assert ours.rest == theirs.rest


def check_same_as_httptools(ours: Answer, theirs: Answer) -> None:
    if theirs.verdict == "upgrade":
        assert (ours.method, ours.target) == (theirs.method, theirs.target)
    elif theirs.verdict == "accepted":
        assert (ours.method, ours.target) == (theirs.method, theirs.target)
        assert (ours.minor, ours.body, ours.body_done) == (
            theirs.minor,
            theirs.body,
            theirs.body_done,
        )
        # HTTP/1.0 with both words: llhttp goes on, Lumen closes.
        assert ours.keep_alive == theirs.keep_alive or (ours.minor == 0 and not ours.keep_alive)
    else:
        # llhttp knows a list of methods and four forms of a target, checks extensions and quoted
        # strings inside chunks, and reads on into the next request.
        assert re.search(NARROWER, theirs.why), theirs.why


NARROWER = r"(?i)method|url|CONNECT|chunk extension|quoted|character in chunk size"


@pytest.mark.parametrize("reason", STRICTER, ids=lambda reason: reason.sentence)
def test_every_reason_has_an_example_that_another_accepts(lumen: Lumen, reason: Reason) -> None:
    ours = lumen.read(reason.example)
    theirs, others = read_with_h11(reason.example), read_with_httptools(reason.example)
    assert re.search(reason.sentence, ours.why), ours.why
    assert accepts_more(theirs, ours) or accepts_more(others, ours)


# Requests of parts that are mostly right, then changed in a few places.
METHODS = st.sampled_from([b"GET", b"POST", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"get", b"X-Y"])
TARGETS = st.sampled_from(
    [
        b"/",
        b"/v2/models/m/infer",
        b"/v2?x=y",
        b"*",
        b"http://h/v2",
        b"/%2e%2e/%00",
        b"//",
        b"/a;b#c",
    ]
)
VERSIONS = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0"] * 2 + [b"HTTP/1.2", b"HTTP/2.0", b""])
HEADERS = st.sampled_from(
    [
        b"Content-Length: 0",
        b"Content-Length: 5",
        b"content-length:\t5 ",
        b"Content-Length: 5, 5",
        b"Content-Length: 05",
        b"Content-Length: 00000000000000000000000000005",
        b"Content-Length: +5",
        b"Content-Length: 9223372036854775808",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: CHUNKED",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity",
        b"Connection: close",
        b"Connection: Keep-Alive",
        b"Connection: close, keep-alive",
        b"Connection: x,,y",
        b"Upgrade: h2c",
        b"Expect: 100-continue",
        b"Expect: tea",
        b"Inference-Header-Content-Length: 3",
        b"Authorization: Bearer x",
        b"Accept-Encoding: gzip",
        b"Empty:",
        b'Quoted: "a\\"b"',
        b" folded: x",
        b"Space : x",
        b"8-bit: \xe9",
        b"Host: other:1",
        b"Host: [::1]:80",
        b"Host:",
        b"Host: a,b!%6c:0123456",
        b"Host: a%",
    ]
)
BODIES = st.lists(
    st.sampled_from(
        [
            b"hello",
            b"5\r\nhello\r\n",
            b"a;x=y\r\n0123456789\r\n",
            b"001\r\nx\r\n",
            b"0\r\n\r\n",
            b"0\r\nExpires: x\r\n\r\n",
            b"0\r\nContent-Length: 1\r\n\r\n",
            b"5 \r\nhello\r\n",
            b"5 ;x=y\r\nhello\r\n",
            b"0000000000000000000000005\r\nhello\r\n",
            b"000\r\n\r\n",
            b"\r\n",
            GET + b"\r\n",
        ]
    ),
    max_size=4,
).map(b"".join)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    lines = [draw(METHODS) + b" " + draw(TARGETS) + b" " + draw(VERSIONS)]
    if draw(st.integers(0, 9)):
        lines.append(b"Host: h")
    lines += draw(st.lists(HEADERS, max_size=4))
    start = draw(st.sampled_from([b"", b"", b"", b"\r\n", b"\r\n\r\n"]))
    end = draw(st.sampled_from([b"\r\n"] * 9 + [b"\n"]))
    return start + end.join(lines) + end + end + draw(BODIES)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(requests()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        count = draw(st.integers(0, 3))
        piece = draw(
            st.sampled_from([b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b",", b";", b"\0", b"\xff"])
            | st.binary(max_size=3)
        )
        data[at : at + count] = piece
    return bytes(data)


@given(requests())
@settings(max_examples=1500)
def test_requests_are_read_as_others_read_them(lumen: Lumen, data: bytes) -> None:
    check(lumen, data)


@given(mutated())
@settings(max_examples=1500)
def test_broken_requests_are_refused_or_read_as_others_read_them(lumen: Lumen, data: bytes) -> None:
    check(lumen, data)


@pytest.mark.parametrize(
    "path", sorted((FUZZ / "corpus" / "http_parser").iterdir()), ids=lambda path: path.name
)
def test_the_fuzz_corpus(lumen: Lumen, path: Path) -> None:
    check(lumen, path.read_bytes())
