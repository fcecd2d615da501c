"""A tokenizer.json as the file that the C library maps: tables and tries, nothing left to parse.

Used by loading/tokenizer.py where the cache has no such file, and by tests. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from lumen_uring.text import VERSION, models
from lumen_uring.text.actions import of_bert
from lumen_uring.text.facts import facts
from lumen_uring.text.models import Model
from lumen_uring.text.tokenizer_json import FIRST, LSTRIPS, SECOND, Item, Tokenizer, read
from lumen_uring.text.tries import merge_table, tries

# As in c/src/text/file.h.
_MAGIC: Final = b"LMNTEXT\0"
_DIRECT, _STRIPS_LEFT, _STRIPS_RIGHT, _LOOKS_AHEAD, _TRIMS = 1, 32, 64, 128, 2048
_WORDS: Final = 16 + 16
_SPANS: Final = 20
_HEADER_BYTES: Final = 8 + 2 * 4 + 8 + 8 + _WORDS * 4 + _SPANS * 8
_NONE: Final = 0xFFFFFFFF
_WINDOW, _WHOLE = 8192, 65536  # bytes that are looked at together, and where they must be


def compile_file(path: Path) -> bytes:
    """Reads a tokenizer.json and lays it out.

    Args:
        path: of the file.

    Returns:
        The bytes of that file, for lumen_tokenizer_open.

    Raises:
        ConfigError: as of tokenizer_json.read.

    Source:
        c/src/text/file.h
    """
    return lay_out(read(path))


def lay_out(tokenizer: Tokenizer) -> bytes:
    """The file of a tokenizer.

    Args:
        tokenizer: as read.
    """
    model, pools = tokenizer.model, tokenizer.pools
    tokens, raw, normalised = _added(tokenizer)
    whole, going_on = _pieces(model)
    trie = tries([whole, going_on, raw, normalised])
    merge_bits, merges = merge_table(np.array(model.merges, np.uint32).reshape(-1, 4))
    direct, table = _direct(tokenizer)
    classes = pools.classes()
    words = [
        model.kind,
        model.flags | _flags(tokenizer) | tokenizer.decoder.flags,
        tokenizer.vocabulary,
        _NONE if model.unknown is None else model.unknown,
        model.word_chars_max,
        _WINDOW if tokenizer.splits.may_cut else _WHOLE,
        classes,
        table,
        1, 2, 3,
        4 if normalised else 0,
        trie.bits,
        merge_bits,
        tokenizer.decoder.kind,
        tokenizer.decoder.mark_word,
        *_first_bytes(raw),
        *_first_bytes(normalised),
    ]  # fmt: skip
    scores = np.zeros(tokenizer.vocabulary if model.scores else 0)
    scores[: len(model.scores)] = model.scores
    parts: list[tuple[int, bytes]] = [
        (len(pools.tables), b"".join(table.astype("<u2").tobytes() for table in pools.tables)),
        (len(pools.blocks), b"".join(pools.blocks)),
        (len(direct), direct),
        (len(pools.chars), np.array(pools.chars, "<u4").tobytes()),
        (len(trie.children), trie.children.astype("<u4").tobytes()),
        (len(trie.values), trie.values.astype("<u4").tobytes()),
        _rows(tokens),
        (len(scores), scores.astype("<f8").tobytes()),
        _rows(merges.tolist()) if model.kind == models.BPE else (0, b""),
        (len(model.bytes_of), _rows([[_NONE if n is None else n] for n in model.bytes_of])[1]),
        _rows(tokenizer.stages.rows),
        _rows(tokenizer.splits.rows),
        _rows(tokenizer.splits.ops),
        _rows(tokenizer.stages.groups),
        _rows(sorted(facts()["compositions"]) if tokenizer.stages.composes else []),
        _items(tokenizer.single),
        _items(tokenizer.pair),
        *_names(tokenizer),
        _special(tokenizer),
    ]
    return _file(model.unknown_score, words, parts)


def _file(unknown_score: float, words: list[int], parts: list[tuple[int, bytes]]) -> bytes:
    spans: list[int] = []
    body = bytearray()
    for count, data in parts:
        body += bytes(-(_HEADER_BYTES + len(body)) % 8)
        spans += [_HEADER_BYTES + len(body), count]
        body += data
    head = _MAGIC + np.array([VERSION, _HEADER_BYTES], "<u4").tobytes()
    head += np.array([_HEADER_BYTES + len(body)], "<u8").tobytes()
    head += np.array([unknown_score], "<f8").tobytes()
    return head + np.array([*words, *spans], "<u4").tobytes() + bytes(body)


def _flags(tokenizer: Tokenizer) -> int:
    stages = tokenizer.stages
    flags = _DIRECT * (tokenizer.bert is not None)
    flags |= _STRIPS_LEFT * stages.strips_left | _STRIPS_RIGHT * stages.strips_right
    flags |= _TRIMS * tokenizer.trims
    if any(token.flags & LSTRIPS and not token.is_normalised for token in tokenizer.added.values()):
        flags |= _LOOKS_AHEAD
    return flags


def _direct(tokenizer: Tokenizer) -> tuple[bytes, int]:
    """The pool of WordPiece in one look-up, and its table."""
    if tokenizer.bert is None:
        return b"", 0
    actions = of_bert(tokenizer.bert)
    return actions.pool, tokenizer.pools.table(actions.entries)


def _pieces(model: Model) -> tuple[Mapping[bytes, int], Mapping[bytes, int]]:
    """The pieces of the vocabulary, and those that go on with a word."""
    if model.kind != models.WORDPIECE:
        return model.pieces, {}
    whole = {text.encode(): number for text, number in model.ids.items()}
    going_on = {
        text.removeprefix(model.prefix).encode(): number
        for text, number in model.ids.items()
        if text.startswith(model.prefix) and text != model.prefix
    }
    return whole, going_on


def _added(tokenizer: Tokenizer) -> tuple[list[list[int]], dict[bytes, int], dict[bytes, int]]:
    """The added tokens, and the places of those of the raw and of the normalised text."""
    tokens = [[token.id, token.flags] for token in tokenizer.added.values()]
    places: tuple[dict[bytes, int], dict[bytes, int]] = {}, {}
    for place, (text, token) in enumerate(tokenizer.added.items()):
        places[token.is_normalised][text.encode()] = place
    return tokens, *places


def _names(tokenizer: Tokenizer) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    """What each token is called, and where each name ends."""
    names = [b""] * tokenizer.vocabulary
    for text, number in tokenizer.model.ids.items():
        names[number] = text.encode()
    for token in tokenizer.added.values():
        names[token.id] = names[token.id] or token.name.encode()
    ends = np.cumsum([len(name) for name in names]).astype("<u4")
    whole = b"".join(names)
    return (len(whole), whole), (len(ends), ends.tobytes())


def _special(tokenizer: Tokenizer) -> tuple[int, bytes]:
    """A bit for each id: whether its token is special."""
    is_special = np.zeros(-(-tokenizer.vocabulary // 32) * 32, np.bool_)
    is_special[[token.id for token in tokenizer.added.values() if token.is_special]] = True
    bits = np.packbits(is_special, bitorder="little")
    return len(bits) // 4, bits.tobytes()


def _first_bytes(texts: Iterable[bytes]) -> list[int]:
    words = [0] * 8
    for text in texts:
        words[text[0] // 32] |= 1 << text[0] % 32
    return words


def _rows(rows: list[list[int]]) -> tuple[int, bytes]:
    return len(rows), np.array(rows, "<u4").tobytes()


def _items(items: Iterable[Item]) -> tuple[int, bytes]:
    kinds = {FIRST: 1, SECOND: 2}
    return _rows(
        [
            [0, item.what, item.type_id]
            if isinstance(item.what, int)
            else [kinds[item.what], 0, item.type_id]
            for item in items
        ]
    )
