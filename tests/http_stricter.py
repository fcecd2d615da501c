"""Where Lumen's HTTP parser is stricter than h11 or httptools, for test_http_differential.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Where Lumen is stricter: its sentence, an example, and why it is right to be."""

    sentence: str
    example: bytes
    because: str


HOST = b"Host: h\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LINE = b"A: " + b"a" * 8190 + b"\r\n"

STRICTER = [
    Reason(
        r"found '\\x0a'$",
        b"GET / HTTP/1.1\nHost: h\n\n",
        "A lone LF ends a line for h11 and, in places, for llhttp: two readers, two ends.",
    ),
    Reason(
        r"expected text or CR LF in a header's value, found '\\x(0[1-9b-f]|1.|7f)'",
        GET + b"A: \x01\r\n\r\n",
        "Control characters are no text (RFC 9110, 5.5); h11 lets all but NUL and blanks through.",
    ),
    Reason(
        r"its colon|a header's name or an empty line, found '( |\\x09)'",
        GET + b"A: b\r\n folded\r\n\r\n",
        "Folded lines are obsolete (RFC 9112, 5.2) and a known way to smuggle a header.",
    ),
    Reason(
        r"^version: ",
        b"GET / HTTP/1.2\r\n" + HOST + b"\r\n",
        "Versions that do not exist are answered 505, rather than read as if they were 1.1.",
    ),
    Reason(
        r"^content-length: expected it once",
        POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "Two equal lengths may be taken for one (RFC 9110, 8.6) but no client needs it.",
    ),
    Reason(
        r"^content-length: expected one decimal number below 2\^63, found '\d+(, ?\d+)*'(\.\.\.)?$",
        POST + b"Content-Length: 0,0\r\n\r\n",
        "Lists of equal lengths, which RFC 9110, 8.6 lets a server refuse; lengths from 2^63 on.",
    ),
    Reason(
        r"^content-length: expected one decimal number below 2\^63, found '\d+(, *| +,)",
        POST + b"Content-Length: 0 , 0\r\n\r\n",
        "The same with spaces.",
    ),
    Reason(
        r"^expected content-length or transfer-encoding, found both",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "h11 goes by the chunks, as RFC 9112, 6.3 allows; it is how requests are smuggled.",
    ),
    Reason(
        r"^transfer-encoding: expected none with HTTP/1.0",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "RFC 9112, 6.1: the framing of such a message is faulty.",
    ),
    Reason(
        r"^transfer-encoding: expected chunked, found '",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Nothing here undoes another coding (501), and a list is a way to hide one.",
    ),
    Reason(
        r"^host: expected one with HTTP/1.1, found none",
        b"GET / HTTP/1.1\r\n\r\n",
        "RFC 9112, 3.2; llhttp leaves it to its caller.",
    ),
    Reason(
        r"^host: expected it once",
        GET + HOST + b"\r\n",
        "RFC 9112, 3.2; llhttp leaves it to its caller.",
    ),
    Reason(
        r"^host: expected a name or an address",
        b"GET / HTTP/1.1\r\nHost: user@evil/\r\n\r\n",
        "RFC 9112, 3.2; llhttp leaves it to its caller.",
    ),
    Reason(
        r"^(authorization|x-api-key|origin|content-encoding): expected it once",
        GET + b"Authorization: a\r\nAuthorization: b\r\n\r\n",
        "Which of the two counts decides who someone is, where from, or what the body is.",
    ),
    Reason(
        r"^expect: expected 100-continue",
        POST + b"Expect: tea\r\n\r\n",
        "RFC 9110, 10.1.1 lets a server answer 417; the others leave it to their callers.",
    ),
    Reason(
        r"^method: expected at most",
        b"M" * 25 + b" / HTTP/1.1\r\n" + HOST + b"\r\n",
        "Longer than all there are.",
    ),
    Reason(
        r"^target: expected at most",
        b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        "limits.h",
    ),
    Reason(r"^header at byte", GET + LINE + b"\r\n", "limits.h"),
    Reason(r"^expected at most 100 headers", GET + b"A:\r\n" * 100 + b"\r\n", "limits.h"),
    Reason(
        r"^head: expected at most", GET + (b"A: " + b"a" * 8000 + b"\r\n") * 3 + b"\r\n", "limits.h"
    ),
    Reason(
        r"byte \d+: expected (HTTP/1.0 or HTTP/1.1 after the target|CR LF after the version)",
        b"GET / RTSP/1.0\r\n\r\n",
        "The request line is to the byte; llhttp takes other protocols and more spaces.",
    ),
    Reason(
        r"byte \d+: expected a target after one space",
        b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
        "One space; llhttp takes several.",
    ),
    Reason(
        r"byte \d+: expected a method",
        b"\r\n\r\n" + GET + b"\r\n",
        "One empty line before a request is enough; llhttp takes any number.",
    ),
    Reason(
        r"after chunk \d+: expected ';' after a blank behind a size",
        CHUNKED + b"0 \r\n\r\n",
        "A blank may be there before an extension only (RFC 9112, 7.1.1); h11 lets it through.",
    ),
    Reason(
        r"after chunk \d+: expected text or CR LF in a chunk's extension",
        CHUNKED + b"0;\x01\r\n\r\n",
        "As in a header's value.",
    ),
    Reason(r"^bytes of chunk extensions", CHUNKED + b"0;" + b"e" * 5000 + b"\r\n\r\n", "limits.h"),
    Reason(r"^bytes of trailers", CHUNKED + b"0\r\nA:" + b"t" * 5000 + b"\r\n\r\n", "limits.h"),
    Reason(r"^chunks of one body", CHUNKED + b"1\r\nx\r\n" * 65537 + b"0\r\n\r\n", "limits.h"),
    Reason(
        r"^trailers: expected none that frames or routes",
        CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
        "RFC 9110, 6.5.1: must not be there.",
    ),
    Reason(
        r"after chunk \d+: expected (a trailer's name|text or CR LF in a trailer's value)",
        CHUNKED + b"0\r\nA: \x01\r\n\r\n",
        "Trailers go by the rules of headers.",
    ),
    Reason(
        r"^byte 1: expected LF after CR",
        b"\rGET / HTTP/1.1\r\n" + HOST + b"\r\n",
        "A lone CR before a request; llhttp skips it.",
    ),
    Reason(
        r"expected visible ASCII in the target, then a space, found '\\x0d'",
        b"GET /\r\n\r\n",
        "HTTP/0.9, to llhttp.",
    ),
]
