"""Reads JSON with strings of hundreds of megabytes, such as files in base64, without copying them.

Called by calls.py on the loader's thread. Python's lock is held for a piece at a time: a library
that takes the whole at once keeps every other thread of the process waiting meanwhile, among them
the one that answers the metrics page.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Final

import orjson

LONG_BYTES: Final = 1 << 16  # a longer string stays where it is
REST_BYTES_MAX: Final = 16 << 20  # of the JSON around those
_PIECE_BYTES: Final = 1 << 18
_ESCAPE_BYTES: Final = 6  # \uXXXX


class LongText:
    """A string of JSON, which lies in the memory it came in.

    Args:
        body: the whole text, for as long as this is used.
        start: of the string, behind its quotation mark.
        end: of it, before the other one.
    """

    def __init__(self, body: memoryview, start: int, end: int) -> None:
        self._body = body
        self._start = start
        self._end = end

    def pieces(self) -> Iterator[bytes]:
        """The string in UTF-8, without JSON's escapes.

        Raises:
            orjson.JSONDecodeError: it is no string of JSON.
        """
        at = self._start
        while at < self._end:
            piece = bytes(self._body[at : min(at + _PIECE_BYTES, self._end)])
            at += len(piece)
            if b"\\" not in piece:
                yield piece
                continue
            if at < self._end:
                whole = _whole(piece)
                at -= len(piece) - whole
                piece = piece[:whole]
            yield orjson.loads(b'"' + piece + b'"').encode("utf-8", "surrogatepass")

    def text(self) -> str:
        """The whole string."""
        return str(orjson.loads(b'"' + bytes(self._body[self._start : self._end]) + b'"'))


def loads(body: memoryview) -> tuple[Any, dict[str, LongText]]:
    """Reads JSON.

    Args:
        body: UTF-8.

    Returns:
        What it holds, with a mark in the place of each long string; and these by their marks, which
        nobody can guess.

    Raises:
        orjson.JSONDecodeError: it is no JSON, or the rest of it is too long.
    """
    mark = secrets.token_hex(16)
    found: dict[str, LongText] = {}
    parts: list[bytes] = []
    kept_bytes = copied = at = 0
    while (start := _find(body, at)) >= 0:
        end = _end_of(body, start + 1)
        if end < 0:
            break
        at = end + 1
        if end - start > LONG_BYTES:
            name = f"{mark}-{len(found)}"
            found[name] = LongText(body, start + 1, end)
            parts += [bytes(body[copied:start]), b'"', name.encode(), b'"']
            kept_bytes += start - copied
            copied = at
    kept_bytes += len(body) - copied
    if kept_bytes > REST_BYTES_MAX:
        said = f"expected at most {REST_BYTES_MAX} bytes around long strings, found {kept_bytes}"
        raise orjson.JSONDecodeError(said, "", 0)
    parts.append(bytes(body[copied:]))
    return orjson.loads(b"".join(parts)), found


def _whole(piece: bytes) -> int:
    """How much of a piece ends with no part of an escape."""
    last = piece.rfind(b"\\", len(piece) - _ESCAPE_BYTES + 1)
    if last < 0:
        return len(piece)
    run = len(piece[: last + 1]) - len(piece[: last + 1].rstrip(b"\\"))
    needed = _ESCAPE_BYTES if piece[last + 1 : last + 2] == b"u" else 2
    return len(piece) if run % 2 == 0 or last + needed <= len(piece) else last


def _find(body: memoryview, at: int) -> int:
    """The next quotation mark from a place on; -1: there is none."""
    while at < len(body):
        place = bytes(body[at : at + _PIECE_BYTES]).find(b'"')
        if place >= 0:
            return at + place
        at += _PIECE_BYTES
    return -1


def _end_of(body: memoryview, start: int) -> int:
    """The quotation mark that ends a string; -1: there is none."""
    at = start
    while (end := _find(body, at)) >= 0:
        run = end
        while run > at and body[run - 1] == ord("\\"):
            run -= 1
        if (end - run) % 2 == 0:
            return end
        at = end + 1
    return -1
