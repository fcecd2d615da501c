"""How the tokens of a tokenizer.json become a text again.

Used by compile.py. A decoder that is not implemented is no reason to refuse a tokenizer, which
nobody may want to decode with: the C library refuses what asks for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lumen_uring.text import sequences

# As in c/src/text/decoder.h and file.h.
JOINED, WORDPIECE, BYTE_LEVEL, METASPACE, PARTS, NONE = range(6)
CLEANS, KEEPS_FIRST, JOINS_BYTES = 256, 512, 1024
_MARK_BYTES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder: its kind, its flags, and the text that goes on with a word or is a blank."""

    kind: int
    flags: int = 0
    mark: str = ""

    @property
    def mark_word(self) -> int:
        """The mark's bytes, the first in the lowest."""
        return int.from_bytes(self.mark.encode(), "little")


def read(document: dict[str, Any] | None) -> Decoder:
    """Reads the field `decoder`.

    Args:
        document: the field, or None.

    Returns:
        NONE of what is not implemented.
    """
    parts = list(sequences.parts_of(document, "decoders"))
    decoder = _read(parts)
    fits = len(decoder.mark.encode()) <= _MARK_BYTES_MAX and "\0" not in decoder.mark
    return decoder if fits else Decoder(NONE)


def _read(parts: list[dict[str, Any]]) -> Decoder:
    if not parts:
        return Decoder(JOINED)
    first, kind = parts[0], parts[0].get("type")
    if len(parts) > 1 or kind in ("Replace", "ByteFallback"):
        return _of_parts(parts)
    if kind == "WordPiece":
        return Decoder(WORDPIECE, CLEANS * bool(first.get("cleanup")), first["prefix"])
    if kind == "ByteLevel":
        return Decoder(BYTE_LEVEL)
    if kind == "Metaspace":
        scheme = first.get("prepend_scheme", "always" if first.get("add_prefix_space") else "never")
        return Decoder(METASPACE, KEEPS_FIRST * (scheme == "never"), first["replacement"])
    return Decoder(NONE)


def _of_parts(parts: list[dict[str, Any]]) -> Decoder:
    """SentencePiece's BPE: Replace, ByteFallback, Fuse and Strip, as far as they are there."""
    flags, mark, order = KEEPS_FIRST, "", []
    for part in parts:
        kind = part.get("type")
        order.append(kind)
        if kind == "Replace" and part["content"] == " " and set(part["pattern"]) == {"String"}:
            mark = part["pattern"]["String"]
        elif kind == "ByteFallback":
            flags |= JOINS_BYTES
        elif kind == "Strip" and (part["content"], part["start"], part["stop"]) == (" ", 1, 0):
            flags &= ~KEEPS_FIRST
        elif kind != "Fuse":
            return Decoder(NONE)
    known = [kind for kind in ("Replace", "ByteFallback", "Fuse", "Strip") if kind in order]
    if order != known or ("Strip" in order and "Fuse" not in order):
        return Decoder(NONE)
    return Decoder(PARTS, flags, mark)
