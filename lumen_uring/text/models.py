"""The model of a tokenizer.json: WordPiece, Unigram or BPE."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

from lumen_uring.errors import ConfigError

# As in c/src/text/file.h.
WORDPIECE, UNIGRAM, BPE = range(3)
FUSES_UNKNOWN, BYTE_FALLBACK, BYTE_LEVEL, IGNORES_MERGES = 2, 4, 8, 16
_CHARS_MAX: Final = 200  # LM_TEXT_WORD_CHARS
_IDS_MAX: Final = 1 << 22
_UNKNOWN_PENALTY: Final = 10.0  # as the wheel has it


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model, as the file has it."""

    kind: int
    ids: dict[str, int]
    unknown: int | None
    flags: int = 0
    prefix: str = ""  # WordPiece: of a piece that does not begin its word
    word_chars_max: int = 0
    scores: list[float] = field(default_factory=list)  # Unigram, by id
    merges: list[tuple[int, int, int, int]] = field(default_factory=list)  # BPE
    pieces: dict[bytes, int] = field(default_factory=dict)  # as they stand in a text
    bytes_of: list[int | None] = field(default_factory=list)  # the ids of 256 bytes, or none

    @property
    def vocabulary(self) -> int:
        """One more than its greatest id."""
        return max(self.ids.values()) + 1

    @property
    def count(self) -> int:
        """How many pieces it has: where new ids begin."""
        return len(self.ids)

    @property
    def unknown_score(self) -> float:
        """Unigram: of a char that is no piece."""
        return min(self.scores, default=0.0) - _UNKNOWN_PENALTY


def read(document: Any, is_byte_level: bool) -> Model:
    """Reads a model.

    Args:
        document: as in the file.
        is_byte_level: its pre-tokenizer makes bytes of texts.

    Raises:
        ConfigError: it contradicts itself, or needs what is not implemented.
    """
    kind = document.get("type") if isinstance(document, dict) else None
    readers = {"WordPiece": _wordpiece, "Unigram": _unigram, "BPE": _bpe}
    if kind not in readers:
        raise ConfigError(f"model: expected the type {', '.join(readers)}, found {kind or 'none'}")
    if is_byte_level and kind != "BPE":
        raise ConfigError(f"model: expected BPE behind ByteLevel, found {kind}")
    return readers[kind](document, is_byte_level)


def _checked(ids: dict[str, int]) -> dict[str, int]:
    numbers = list(ids.values())
    if not all(type(number) is int and 0 <= number < _IDS_MAX for number in numbers):
        raise ConfigError(f"vocab: expected ids of 0..{_IDS_MAX - 1}")
    if not ids or len(set(numbers)) < len(numbers):
        raise ConfigError("vocab: expected ids, each once")
    if any(not text for text in ids):
        raise ConfigError("vocab: expected no empty piece")
    try:
        "".join(ids).encode()
    except UnicodeEncodeError:
        raise ConfigError("vocab: expected Unicode, found half of a surrogate pair") from None
    return ids


def _wordpiece(document: dict[str, Any], _: bool) -> Model:
    ids = _checked(document["vocab"])
    if sorted(ids.values()) != list(range(len(ids))):
        raise ConfigError(f"vocab: expected the ids 0..{len(ids) - 1}, each once")
    chars = document.get("max_input_chars_per_word", 100)
    if type(chars) is not int or not 0 <= chars <= _CHARS_MAX:
        raise ConfigError(f"max_input_chars_per_word: expected 0..{_CHARS_MAX}, found {chars}")
    if document["unk_token"] not in ids:
        raise ConfigError(f"unk_token: found no {document['unk_token']!r} in the vocabulary")
    prefix = document.get("continuing_subword_prefix", "##")
    if not isinstance(prefix, str):
        raise ConfigError(f"continuing_subword_prefix: expected a text, found {prefix!r}")
    return Model(WORDPIECE, ids, ids[document["unk_token"]], 0, prefix, chars)


def _unigram(document: dict[str, Any], _: bool) -> Model:
    entries = document["vocab"]
    unknown = document.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(entries):
        raise ConfigError(f"unk_id: expected 0..{len(entries) - 1}, found {unknown!r}")
    for text, score in entries:
        if not isinstance(text, str) or type(score) not in (float, int):
            raise ConfigError(f"vocab: expected a piece and a score, found {text!r} and {score!r}")
    scores = [float(score) for _, score in entries]
    if not all(math.isfinite(score) for score in scores):
        raise ConfigError("vocab: expected finite scores")
    ids = {text: number for number, (text, _) in enumerate(entries)}
    if len(ids) < len(entries):
        raise ConfigError("vocab: expected each piece once")
    flags = FUSES_UNKNOWN
    names: list[int | None] = []
    if document.get("byte_fallback"):
        flags |= BYTE_FALLBACK
        names = [ids.get(f"<0x{byte:02X}>") for byte in range(256)]
    pieces = {text.encode(): number for text, number in _checked(ids).items()}
    return Model(UNIGRAM, ids, unknown, flags, scores=scores, pieces=pieces, bytes_of=names)


def _bpe(document: dict[str, Any], is_byte_level: bool) -> Model:
    ids = _checked(document["vocab"])
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if document.get(name):
            raise ConfigError(f"model: {name}: expected none, found {document[name]!r}")
    flags = FUSES_UNKNOWN * bool(document.get("fuse_unk"))
    flags |= IGNORES_MERGES * bool(document.get("ignore_merges"))
    names: list[int | None] = []
    if is_byte_level:
        flags |= BYTE_LEVEL
        names = [ids.get(char) for char in _byte_chars()]
        pieces = _as_bytes(ids)
        if document.get("byte_fallback"):
            raise ConfigError("model: byte_fallback: expected none behind ByteLevel")
    else:
        pieces = {text.encode(): number for text, number in ids.items()}
        if document.get("byte_fallback"):
            flags |= BYTE_FALLBACK
            names = [ids.get(f"<0x{byte:02X}>") for byte in range(256)]
            if None in names:
                raise ConfigError("model: byte_fallback: expected the tokens <0x00> to <0xFF>")
    token = document.get("unk_token")
    if token is not None and token not in ids:
        raise ConfigError(f"unk_token: found no {token!r} in the vocabulary")
    unknown = None if token is None or is_byte_level else ids[token]
    if is_byte_level and token is not None and None in names:
        raise ConfigError("model: unk_token: expected a token for each byte, found some missing")
    merges = _merges(document["merges"], ids)
    return Model(
        BPE, ids, unknown, flags, merges=merges, pieces=pieces, bytes_of=names
    )  # fmt: skip


def _merges(entries: list[Any], ids: dict[str, int]) -> list[tuple[int, int, int, int]]:
    """Left, right, rank and id; of the same two the last counts, as in the wheel."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, entry in enumerate(entries):
        left, right = entry.split(" ") if isinstance(entry, str) else entry
        if left not in ids or right not in ids or left + right not in ids:
            raise ConfigError(
                f"merges: expected pieces of the vocabulary, found {left!r} and {right!r}"
            )
        found[ids[left], ids[right]] = rank, ids[left + right]
    return [(*pair, *what) for pair, what in found.items()]


def _byte_chars() -> list[str]:
    """The char that stands for each byte in byte-level vocabularies (GPT-2's)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def _as_bytes(ids: dict[str, int]) -> dict[bytes, int]:
    """The pieces that are made of such chars, as the bytes that they stand for."""
    byte_of = {char: byte for byte, char in enumerate(_byte_chars())}
    return {
        bytes(byte_of[char] for char in text): number
        for text, number in ids.items()
        if all(char in byte_of for char in text)
    }
