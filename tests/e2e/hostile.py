"""Bad HTTP requests, as tables: what is sent, and what it gets.

Used by test_e2e_http_hostile.py. Each case carries the number of its row in the list of hostile
inputs that the project keeps (23 to 44). Bodies are made of whole requests for health: one byte of
a refused body that is read as a request shows as an answer too many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import web
from web import JSON_LENGTH, get, post

DECOY = get("/v2/health/live")
INFER = web.path("double")
VALUES = list(range(16))
INPUT: dict[str, Any] = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": VALUES}
GOOD = json.dumps({"inputs": [INPUT]}).encode()


@dataclass(frozen=True)
class Case:
    """What one bad request gets.

    Attributes:
        row: in the list.
        name: within the row.
        data: the request.
        codes: any of these.
        ends: whether the connection must end with the answer; None leaves it to the server.
        follows: whether decoys may follow: not where they would belong to the request.
    """

    row: int
    name: str
    data: bytes
    codes: tuple[int, ...] = (400,)
    ends: bool | None = True
    follows: bool = True

    def __str__(self) -> str:
        return f"{self.row}-{self.name}"


def head(*lines: str | bytes, target: str = INFER, host: str | None = "Host: localhost") -> bytes:
    """A POST's head with exactly these lines."""
    start = [f"POST {target} HTTP/1.1", *([host] if host else [])]
    return b"\r\n".join(
        line.encode("latin-1") if isinstance(line, str) else line for line in [*start, *lines]
    ) + b"\r\n\r\n"  # fmt: skip


def lengths() -> Iterator[Case]:
    """Row 23: what Content-Length must not be."""
    size = len(GOOD)
    for name, lines in {
        "twice, equal": [f"Content-Length: {size}"] * 2,
        "twice, different": [f"Content-Length: {size}", "Content-Length: 5"],
        "twice, spelt differently": [f"Content-Length: {size}", f"CONTENT-LENGTH: {size}"],
        "far apart": [f"Content-Length: {size}", *("A: b",) * 20, "content-length: 0"],
    }.items():
        yield Case(23, name, head(*lines) + GOOD)
    for value in (
        "5, 5", "5,5", "+5", "-1", "-0", "0x5", "5_0", "1e1", "5 5", "", " ", "5.0", "5;", "5\t5",
        "9223372036854775808", "18446744073709551616", "18446744073709551621", "9" * 30,
        "\u00a05", "5\u00a0", "\u00855", "five", "\u0665", "''", "5,", ",5",
        "1" + "0" * 4000,
    ):  # fmt: skip
        raw = value.encode("utf-8" if "\u0665" in value else "latin-1")
        yield Case(23, repr(value)[:24], head(b"Content-Length: " + raw) + DECOY)


def codings() -> Iterator[Case]:
    """Row 24: two ways to frame a body, or a coding that is not known."""
    chunks = web.chunked(GOOD, 50)
    size = f"Content-Length: {len(chunks)}"
    for name, lines in {
        "length, then chunked": [size, "Transfer-Encoding: chunked"],
        "chunked, then length": ["Transfer-Encoding: chunked", size],
        "length 0, then chunked": ["Content-Length: 0", "transfer-encoding: Chunked"],
        "two codings": ["Transfer-Encoding: chunked"] * 2,
        "two codings, one unknown": ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    }.items():
        yield Case(24, name, head(*lines) + chunks, (400, 501))
    for value in (
        "identity", "gzip", "chunked, chunked", "chunked, gzip", "gzip, chunked", ",chunked",
        "chunked,", "xchunked", "chunkedx", "chunked;q=1", '"chunked"', "chun ked", "", "deflate",
        "chunked\x0b", "\x0bchunked", "chunked\x00", "chunked\x85", "c\u0127unked",
    ):  # fmt: skip
        raw = value.encode("latin-1", "replace")
        line = b"Transfer-Encoding: " + raw
        yield Case(24, repr(value), head(line) + chunks, (400, 501))
        yield Case(24, f"{value!r} and a length", head(line, size) + chunks, (400, 501))
    yield Case(
        24, "chunked in HTTP/1.0",
        head("Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0") + chunks,
    )  # fmt: skip
    for name in (" Transfer-Encoding", "Transfer-Encoding ", "Transfer_Encoding\x00"):
        yield Case(24, f"the name {name!r}", head(f"{name}: chunked", size) + chunks)


def chunks() -> Iterator[Case]:
    """Row 25: what a chunked body must not be."""
    start = head("Transfer-Encoding: chunked")
    size = b"%x" % len(GOOD)
    end = b"\r\n0\r\n\r\n"
    for name, body in {
        "no size": b"\r\n" + GOOD + end,
        "size 0x": b"0x%x\r\n" % len(GOOD) + GOOD + end,
        "size with _": size[:1] + b"_" + size[1:] + b"\r\n" + GOOD + end,
        "size -1": b"-1\r\n" + GOOD + end,
        "size +": b"+" + size + b"\r\n" + GOOD + end,
        "17 digits": b"1" + size.rjust(16, b"0") + b"\r\n" + GOOD + end,
        "2^64-1": b"ffffffffffffffff\r\n" + GOOD + end,
        "2^63": b"8000000000000000\r\n" + GOOD + end,
        "size that wraps": b"10000000000000000" + size + b"\r\n" + GOOD + end,
        "ten thousand zeros": b"0" * 10_000 + size + b"\r\n" + GOOD + end,
        "space before": b" " + size + b"\r\n" + GOOD + end,
        "space after": size + b" \r\n" + GOOD + end,
        "tab after": size + b"\t\r\n" + GOOD + end,
        "no digit": b"g\r\n" + GOOD + end,
        "bare LF": size + b"\n" + GOOD + end,
        "CR CR": size + b"\r\r" + GOOD + end,
        "CR CR LF": size + b"\r\r\n" + GOOD + end,
        "extension with LF": size + b";a\nb\r\n" + GOOD + end,
        "extension with NUL": size + b";a\0b\r\n" + GOOD + end,
        "extension of 5000 bytes": size + b";" + b"a" * 5000 + b"\r\n" + GOOD + end,
        "extensions of 5000 bytes": (b"1;" + b"a" * 50 + b"\r\nx\r\n") * 100 + end[2:],
        "no CR LF after the data": size + b"\r\n" + GOOD + b"0\r\n\r\n",
        "LF after the data": size + b"\r\n" + GOOD + b"\n0\r\n\r\n",
        "data longer": b"%x\r\n" % (len(GOOD) - 1) + GOOD + end,
        "data shorter": b"%x\r\n" % (len(GOOD) + 1) + GOOD + end + b"XY",
        "LF at the end": size + b"\r\n" + GOOD + b"\r\n0\n\n",
        "no CR at the end": size + b"\r\n" + GOOD + b"\r\n0\r\n\n",
        "a size of two lines": b"\r\n" + size + b"\r\n" + GOOD + end,
    }.items():
        yield Case(25, name, start + body)


def trailers() -> Iterator[Case]:
    """Row 26: what may not come behind the last chunk."""
    for name, text in {
        "Content-Length": "Content-Length: 5\r\n",
        "Transfer-Encoding": "transfer-encoding: chunked\r\n",
        "Host": "HOST: localhost\r\n",
        "giant": f"A: {'b' * 9000}\r\n",
        "many": "A: b\r\n" * 2000,
        "no name": ": b\r\n",
        "no colon": "abc\r\n",
        "space in the name": "a b: c\r\n",
        "folded": "A: b\r\n c\r\n",
        "NUL": "A: b\0\r\n",
        "bare LF": "A: b\n",
    }.items():
        body = web.chunked(GOOD, 99, trailers=text)
        yield Case(26, name, head("Transfer-Encoding: chunked") + body)


def fields() -> Iterator[Case]:
    """Rows 27 and 28: what a head's lines must not be."""
    size = f"Content-Length: {len(GOOD)}"
    for name, lines in {
        "folded": ["A: b", " c", size],
        "folded with a tab": ["A: b", "\tc", size],
        "space before the colon": [f"Content-Length : {len(GOOD)}"],
        "tab before the colon": [f"Content-Length\t: {len(GOOD)}"],
        "no colon": ["abc", size],
        "empty name": [": abc", size],
        "a colon alone": [":", size],
        "a folded Transfer-Encoding": ["Transfer-", " Encoding: chunked", size],
        "a cut Transfer-Encoding": ["Transfer-", "Encoding: chunked", size],
        "8 bits in the name": ["\xe4: b", size],
        "slash in the name": ["a/b: c", size],
        "braces in the name": ["{a}: c", size],
    }.items():
        yield Case(27, name, head(*lines) + GOOD)
    leading = head(size).replace(b"\r\nHost", b"\r\n Host")
    yield Case(27, "space before the first header", leading + GOOD)
    for byte in (*range(0x20), 0x7F):
        if byte == 0x09:
            continue  # a tab is white space
        line = b"A: b" + bytes([byte]) + b"c"
        yield Case(27, f"byte {byte:#04x} in a value", head(line, size) + GOOD)
        if byte not in (0x0A, 0x0D):
            name = b"A" + bytes([byte]) + b": c"
            yield Case(27, f"byte {byte:#04x} in a name", head(name, size) + GOOD)
    whole = head(size, "A: b")
    for name, data in {
        "LF alone": whole.replace(b"\r\n", b"\n"),
        "LF after the request line": whole.replace(b"\r\n", b"\n", 1),
        "LF at the end": whole[:-2] + b"\n",
        "LF LF inside": whole.replace(b"A: b", b"A: b\n\nC: d"),
        "CR alone": whole.replace(b"\r\n", b"\r"),
        "CR inside": whole.replace(b"A: b", b"A: b\rContent-Length: 0"),
        "CR CR LF": whole.replace(b"\r\n", b"\r\r\n"),
        "LF CR": whole.replace(b"\r\n", b"\n\r"),
        "two empty lines before": b"\r\n\r\n" + whole,
        "LF before": b"\n" + whole,
        "a space before": b" " + whole,
    }.items():
        yield Case(28, name, data + GOOD)


def hosts() -> Iterator[Case]:
    """Row 29: what Host must not be."""
    size = f"Content-Length: {len(GOOD)}"
    yield Case(29, "none", head(size, host=None) + GOOD)
    yield Case(29, "two", head("Host: localhost", size) + GOOD)
    yield Case(29, "two that differ", head("hOST: 127.0.0.1", size) + GOOD)
    for value in (
        "a@localhost", "localhost/", "localhost/a", "a\0b", "a b", "a" * 256, "localhost:80:80",
        "localhost:x", "localhost:-1", "[::1", "::1]", "[]", "[localhost]", "http://localhost",
        "localhost#", "localhost?", "a\\b", "%", "%6", "%6g", "caf\xe9", "[::1%25lo]", "[::g]",
    ):  # fmt: skip
        yield Case(29, repr(value)[:24], head(size, host=f"Host: {value}") + GOOD)


def versions() -> Iterator[Case]:
    """Row 30: what the version must not be."""
    for version in (
        "HTTP/0.9", "HTTP/1.2", "HTTP/1.10", "HTTP/2.0", "HTTP/2", "HTTP/9.9", "HTTP/01.1",
        "HTTP/4294967297.1", "HTTP/1.4294967297", "http/1.1", "HTTP/1,1", "HTTP/1.", "HTTP/.1",
        "HTTP/1", "HTTP/", "HTTP", "ICE/1.0", "RTSP/1.0", "", " HTTP/1.1", "HTTP/1.1 ",
        "HTTP/1.1 x", "HTTP /1.1", "HTTP/1.1\t", "HTTP/\uff11.1", "HTTP/-1.1", "HTTP/1.1.1",
    ):  # fmt: skip
        line = f"POST {INFER} {version}".encode("latin-1", "replace")
        data = head(f"Content-Length: {len(GOOD)}").split(b"\r\n", 1)[1]
        yield Case(30, repr(version), line + b"\r\n" + data + GOOD, (400, 505))
    yield Case(30, "none", f"POST {INFER}\r\nHost: localhost\r\n\r\n".encode())


def methods() -> Iterator[Case]:
    """Row 31: verbs; those that are well-formed keep the connection."""
    rest = f" {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(DECOY)}\r\n\r\n".encode()
    for verb in ("CONNECT", "TRACE", "PUT", "OPTIONS", "DELETE", "PATCH"):
        yield Case(31, verb, verb.encode() + rest + DECOY, (400, 405, 501), None)
    for verb in ("POSTS", "POS", "G", "BREW", "PRINT", "SEARCH", "VERSION-CONTROL", "LOCK"):
        yield Case(31, verb, verb.encode() + rest + DECOY, (400, 405, 501), None)
    for verb in ("post", "Post", "get"):
        yield Case(31, verb, verb.encode() + rest + DECOY, (400, 405, 501), None)
    for name, verb in {
        "NUL": b"P\0ST", "DEL": b"P\x7fST", "8 bits": b"P\xd6ST", "tab": b"POST\t",
        "two spaces": b"POST ", "colon": b"PO:ST", "empty": b"",
    }.items():  # fmt: skip
        yield Case(31, name, verb + rest + DECOY)
    yield Case(31, "16 KiB", b"G" * 16384 + rest + DECOY, (400, 414, 431, 501))
    yield Case(31, "OPTIONS *", web.request("OPTIONS", "*"), (400, 405, 501), None)
    for verb in ("GET", "POST"):
        yield Case(31, f"{verb} *", web.request(verb, "*"), (400, 404, 405), None)
    with_body = web.request("GET", "/v2/nothing", DECOY * 3)
    yield Case(31, "GET with a body", with_body, (400, 404), None)
    in_chunks = web.request(
        "GET",
        "/v2/nothing",
        web.chunked(DECOY * 3, 50),
        ["Transfer-Encoding: chunked"],
        length=None,
    )
    yield Case(31, "GET with chunks", in_chunks, (400, 404), None)


def targets() -> Iterator[Case]:
    """Rows 12 and 32: paths. Nothing is normalised; a name is looked up, never a path."""
    for target in (
        "localhost:8000", "v2/health/live", "http:/v2", "http:///v2", "http://a@localhost/v2",
        "http://localhost:x/v2", "://localhost/v2", "http://localhost/v2/models/%",
        "//v2/health/live", "/v2//health/live", "/v2/./health/live",
        "/v2/models/../health/live", "/../v2", "/v2/%2e%2e/v2", "/v2/models/%2e%2e%2fetc/ready",
        "/v2/models/..%2f..%2fetc%2fpasswd/infer", "/%76%32", "/v2%2fhealth%2flive",
        "/v2/models/%00/ready", "/v2/models/double%00/ready", "/v2/models/%/ready",
        "/v2/models/%zz/ready", "/v2/models/%4/ready", "/v2/models/%ff/ready",
        "/v2/models/%c0%af/ready", "/v2/models/%ed%a0%80/ready", "/v2/models/%0d%0aX:y/ready",
        "/v2/models/double;v=1/ready", "/v2/models/double#/ready", "/v2/health/live#",
        "/v2/models/" + "a" * 4000 + "/ready", "/v2/models/%2f/ready",
        "/v2/models/\\..\\/ready", "/v2/models/double/versions/1%20/ready", "/v2/health/live%20",
        "/v2/models/double/versions/" + "9" * 500 + "/ready",
    ):  # fmt: skip
        yield Case(32, target[:40], get(target), (400, 404, 405), None)
    yield Case(32, "a query of 9000 bytes", get("/v2?" + "a" * 9000), (414,))
    yield Case(32, "a query of 64 KiB", get("/v2?" + "a" * 65536), (414,), follows=False)
    for name, target in {
        "a space": b"/v2/mod els", "two spaces": b" /v2", "a tab": b"/v2\t", "a NUL": b"/v2\0",
        "8 bits": "/v2/models/日本".encode(), "DEL": b"/v2\x7f", "CR": b"/v2\r", "empty": b"",
    }.items():  # fmt: skip
        yield Case(32, name, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")


def sizes() -> Iterator[Case]:
    """Rows 33 and 34: more than there is room for. Bodies are refused before they are read."""
    yield Case(33, "a header of 9000 bytes", get("/v2", f"A: {'b' * 9000}"), (431,))
    yield Case(33, "a name of 9000 bytes", get("/v2", f"{'A' * 9000}: b"), (400, 431))
    yield Case(33, "101 headers", get("/v2", *("A: b",) * 101), (431,))
    yield Case(33, "1000 headers", get("/v2", *("A: b",) * 1000), (431,))
    yield Case(33, "a head of 70 KiB", get("/v2", *(f"A: {'b' * 5000}",) * 14), (431,), True, False)
    for size in (1 << 20 | 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1):
        for lines in ([], [f"{JSON_LENGTH}: 0"], [f"{JSON_LENGTH}: 50"]):
            data = post(INFER, DECOY * 20, *lines, length=size)
            yield Case(34, f"{size} bytes {' '.join(lines)}", data, (413,))
    yield Case(34, "to a route without a body", post("/v2/repository/index", DECOY, length=1 << 40),
               (413,))  # fmt: skip
    yield Case(34, "behind Expect", cut_head(post(INFER, b"", "Expect: 100-continue",
                                                  length=1 << 30)), (413,))  # fmt: skip
    body = web.chunked(b" " * (1 << 20) + GOOD, 60_000)
    data = post(INFER, body, "Transfer-Encoding: chunked", length=None)
    yield Case(34, "chunks beyond the limit", data, (413,), follows=False)


def cut_head(data: bytes) -> bytes:
    return web.cut(data)[0]


def expectations() -> Iterator[Case]:
    """Row 35: expectations that are none."""
    for value in ("200-ok", "100-continue, x", "x", "100", "100-continued", '"100-continue"', ""):
        data = cut_head(post(INFER, DECOY, f"Expect: {value}"))
        yield Case(35, repr(value), data, (400, 417))
    for target, lines in (
        ("/v2/models/nobody/infer", []),
        ("/v2/nothing", []),
        (INFER, ["Content-Encoding: br"]),
        (INFER, [f"{JSON_LENGTH}: 9999"]),
    ):
        # The body comes although nobody said Continue: it must not become a request.
        data = post(target, DECOY * 3, "Expect: 100-continue", *lines)
        yield Case(35, f"refused, with its body: {target} {lines}", data, (400, 404, 415), None)
    twice = cut_head(post(INFER, DECOY, "Expect: 100-continue", "Expect: 42"))
    yield Case(35, "a good one and a bad one", twice, (400, 417))


def coded() -> Iterator[Case]:
    """Row 39: bodies that are compressed wrongly, too well, or in a way that is not taken."""
    import gzip
    import zlib

    bomb = gzip.compress(bytes(1 << 22))
    for name, body, coding, codes in (
        ("a bomb", bomb, "gzip", (413,)),
        ("truncated", gzip.compress(GOOD)[:-5], "GZIP", (400,)),
        ("bytes behind its end", gzip.compress(GOOD) + DECOY, "gzip", (400,)),
        ("none", DECOY * 10, "gzip", (400,)),
        ("empty", b"", "deflate", (400,)),
        ("gzip under another name", gzip.compress(GOOD), "deflate", (400,)),
        ("without zlib's frame", zlib.compress(GOOD)[2:-4], "deflate", (400,)),
        ("nested", gzip.compress(bomb), "gzip, gzip", (415,)),
        ("br", DECOY, "br", (415,)),
        ("zstd", DECOY, "zstd", (415,)),
        ("unknown", DECOY, "x-nothing", (415,)),
        ("identity and more", DECOY, "identity, gzip", (415,)),
    ):
        yield Case(39, name, post(INFER, body, f"Content-Encoding: {coding}"), codes, False)
    for name, lines, codes in (
        ("raw", [f"{JSON_LENGTH}: 0"], (400,)),
        ("more JSON than bytes", [f"{JSON_LENGTH}: 99999"], (400,)),
    ):
        data = post(INFER, gzip.compress(GOOD), "Content-Encoding: gzip", *lines)
        yield Case(39, name, data, codes, False)
    data = post("/v2/systemsharedmemory/region/x/register", gzip.compress(b"{}"),
                "Content-Encoding: gzip")  # fmt: skip
    yield Case(39, "to a route of small bodies", data, (415,), None)


PROTOCOL = [
    *lengths(), *codings(), *chunks(), *trailers(), *fields(), *hosts(), *versions(), *methods(),
    *targets(), *sizes(), *expectations(), *coded(),
]  # fmt: skip
