"""A tokenizer.json as the file that the C library maps: tables and tries, nothing left to parse.

Used by loading/tokenizer.py where the cache has no such file, and by tests. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.text import VERSION
from lumen_uring.text.actions import of_bert
from lumen_uring.text.tokenizer_json import FIRST, SECOND, Item, WordPiece, read

# As in c/src/text/file.h.
_MAGIC: Final = b"LMNTEXT\0"
_SPANS: Final = 7
_HEADER_BYTES: Final = 8 + 2 * 4 + 8 + 7 * 4 + 8 * 4 + _SPANS * 8 + 4
_HASH: Final = 0x9E3779B1
_U32: Final = 0xFFFFFFFF


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


def lay_out(tokenizer: WordPiece) -> bytes:
    """The file of a tokenizer.

    Args:
        tokenizer: as read.
    """
    trie = _Trie()
    root, rest, added = trie.node(), trie.node(), trie.node()
    for text, number in tokenizer.vocabulary.items():
        if text.startswith(tokenizer.prefix) and text != tokenizer.prefix:
            trie.add(rest, text.removeprefix(tokenizer.prefix), number)
        trie.add(root, text, number)
    for text, number in tokenizer.added.items():
        trie.add(added, text, number)
    bits, children = _hashed(trie.steps)
    actions = of_bert(tokenizer.bert)
    parts: list[tuple[int, bytes]] = [
        (len(actions.blocks), actions.blocks.astype("<u2").tobytes()),
        (actions.actions.size, actions.actions.astype("<u4").tobytes()),
        (len(actions.pool), actions.pool),
        (len(children), children.astype("<u4").tobytes()),
        (len(trie.values), np.array(trie.values, "<u4").tobytes()),
        (len(tokenizer.single), _items(tokenizer.single)),
        (len(tokenizer.pair), _items(tokenizer.pair)),
    ]
    spans: list[int] = []
    body = bytearray()
    for count, data in parts:
        body += bytes(-(_HEADER_BYTES + len(body)) % 8)
        spans += [_HEADER_BYTES + len(body), count]
        body += data
    words = [
        len(tokenizer.vocabulary),
        tokenizer.vocabulary[tokenizer.unknown],
        tokenizer.word_chars_max,
        root,
        rest,
        added,
        bits,
        *_first_bytes(tokenizer.added),
        *spans,
        0,
    ]
    head = _MAGIC + np.array([VERSION, _HEADER_BYTES], "<u4").tobytes()
    head += np.array([_HEADER_BYTES + len(body)], "<u8").tobytes()
    return head + np.array(words, "<u4").tobytes() + bytes(body)


class _Trie:
    """Nodes by bytes of texts; node 0 is none, so that no step leads to it."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}
        self.values = [0]

    def node(self) -> int:
        self.values.append(0)
        return len(self.values) - 1

    def add(self, root: int, text: str, number: int) -> None:
        node = root
        for byte in text.encode():
            key = node << 8 | byte
            node = self.steps.get(key, 0)
            if not node:
                node = self.steps[key] = self.node()
        self.values[node] = number + 1


def _hashed(steps: Mapping[int, int]) -> tuple[int, npt.NDArray[np.uint32]]:
    """The steps in a table of at least twice as many places, each at its hash or behind it."""
    bits = max((2 * len(steps)).bit_length(), 8)
    mask = (1 << bits) - 1
    table = np.zeros((1 << bits, 2), np.uint32)
    taken = bytearray(1 << bits)
    for key, child in steps.items():
        at = (key * _HASH & _U32) >> (32 - bits)
        while taken[at]:
            at = (at + 1) & mask
        taken[at] = 1
        table[at] = key, child
    return bits, table


def _first_bytes(texts: Iterable[str]) -> list[int]:
    words = [0] * 8
    for text in texts:
        byte = text.encode()[0]
        words[byte // 32] |= 1 << byte % 32
    return words


def _items(items: Iterable[Item]) -> bytes:
    kinds = {FIRST: 1, SECOND: 2}
    rows = [
        (0, item.what, item.type_id)
        if isinstance(item.what, int)
        else (kinds[item.what], 0, item.type_id)
        for item in items
    ]
    return np.array(rows, "<u4").tobytes()
