"""The normalizer of a tokenizer.json as the stages that stages.c sends chars through."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import ConfigError
from lumen_uring.text import sequences
from lumen_uring.text.facts import HANGUL, POINTS, Set, changes, facts, members
from lumen_uring.text.patterns import of_regex
from lumen_uring.text.pools import GOES, SPACED, SYLLABLE, Pools, Table

# As in c/src/text/file.h.
MAP, ORDER, COMPOSE, CLUSTERS, SQUEEZE, REPLACE, PREPEND = range(7)
_STAGES_MAX: Final = 12
_MAY_END: Final = 256
_TEXT_MAX: Final = 16  # chars of what is replaced, and of what comes instead
_CLUSTER_BYTES: Final = 5
_KEYS_MAX: Final = 1 << 20
_JOINER: Final = 0x200D
_CR, _LF = 0x0D, 0x0A

Changes = dict[int, list[int]]


@dataclass(slots=True)
class Stages:
    """Rows of struct lm_text_stage, and what belongs to them."""

    rows: list[list[int]] = field(default_factory=list)
    maps: list[tuple[int, Changes]] = field(default_factory=list)  # by the place of their row
    groups: list[list[int]] = field(default_factory=list)
    composes: bool = False
    strips_left: bool = False
    strips_right: bool = False

    def ascii_text(self, text: str) -> str | None:
        """What an ASCII text becomes; None: that is not known here."""
        chars = [ord(char) for char in text]
        known = dict(self.maps)
        for place, row in enumerate(self.rows):
            if row[0] in (SQUEEZE, REPLACE, PREPEND) or not all(char < 128 for char in chars):
                return None
            if row[0] in (MAP, CLUSTERS):
                chars = [new for char in chars for new in known[place].get(char, [char])]
        return "".join(map(chr, chars))


def read(document: dict[str, Any] | None, pools: Pools, stand_in: str = "") -> Stages:
    """Reads a normalizer.

    Args:
        document: it; None: there is none.
        pools: where its tables go.
        stand_in: the char that Metaspace puts in the place of each blank; "": none.

    Raises:
        ConfigError: it needs what is not implemented.
    """
    reader = _Reader(pools)
    for part in sequences.parts_of(document, "normalizers"):
        reader.take(part)
    if stand_in:
        reader.put_stand_in(stand_in)
    if len(reader.stages.rows) > _STAGES_MAX:
        raise ConfigError(f"normalizer: expected at most {_STAGES_MAX} stages, found more")
    return reader.stages


def bert_switches(document: dict[str, Any]) -> tuple[bool, bool, bool, bool]:
    """Of a BertNormalizer: clean, ideographs, accents, lowercase."""
    lowercase = bool(document.get("lowercase", True))
    accents = document.get("strip_accents")
    return (
        bool(document.get("clean_text", True)),
        bool(document.get("handle_chinese_chars", True)),
        lowercase if accents is None else bool(accents),
        lowercase,
    )


class _Reader:
    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.stages = Stages()
        self._kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "BertNormalizer": self._bert,
            "Lowercase": lambda _: self._map(changes("lower")),
            "StripAccents": lambda _: self._map({}, [(members("accents"), GOES)]),
            "NFD": lambda _: self._decompose(False),
            "NFKD": lambda _: self._decompose(True),
            "NFC": lambda _: self._compose(False),
            "NFKC": lambda _: self._compose(True),
            "Nmt": self._nmt,
            "Strip": self._strip,
            "Prepend": self._prepend,
            "Replace": self._replace,
            "Precompiled": self._precompiled,
        }

    def take(self, part: dict[str, Any]) -> None:
        sequences.take(part, self._kinds, "normalizer")

    def put_stand_in(self, mark: str) -> None:
        """Puts a char in the place of each blank, behind all other stages (Metaspace)."""
        self._map({ord(" "): [ord(mark)]})

    def _add(
        self, what: int, *, table: int = 0, classes: int = 0, mask: int = 0, least: int = 0,
        sought: int = 0, becomes: int = 0,
    ) -> None:  # fmt: skip
        self.stages.rows.append([what, table, classes, mask, least, sought, becomes])

    def _chars(self, what: str, text: str) -> int:
        if not isinstance(text, str) or len(text) > _TEXT_MAX:
            raise ConfigError(
                f"normalizer: {what}: expected at most {_TEXT_MAX} characters, found {text!r}"
            )
        return self._pools.sequence(map(ord, text))

    def _map(self, becomes: Changes, rules: Iterable[tuple[Set, int]] = ()) -> None:
        known = dict(becomes)
        for points, what in rules:
            texts = {GOES: [], self._pools.blank_entry(): [32]}
            known |= {int(p): texts[what] for p in np.flatnonzero(points[:128]) if what in texts}
        table = self._pools.table(self._pools.becoming(becomes, rules))
        self.stages.maps.append((len(self.stages.rows), known))
        self._add(MAP, table=table)

    def _bert(self, document: dict[str, Any]) -> None:
        clean, ideographs, accents, lowercase = bert_switches(document)
        rules = [(members("ideographs"), SPACED)] if ideographs else []
        if clean:
            rules += [(members("dropped"), GOES), (members("spaces"), self._pools.blank_entry())]
        if rules:
            self._map({}, rules)
        last = changes("lower") if lowercase else {}
        if accents:
            self._decompose(False)
            last |= {p: [] for p, becomes in changes("stripped").items() if not becomes}
        if last:
            self._map(last)

    def _nmt(self, _: dict[str, Any]) -> None:
        blank = self._pools.blank_entry()
        self._map({}, [(members("nmt_dropped"), GOES), (members("nmt_spaces"), blank)])

    def _decompose(self, widely: bool) -> None:
        hangul = np.zeros(POINTS, np.bool_)
        hangul[HANGUL.start : HANGUL.stop] = True
        becomes = changes("nfd") | (changes("nfkd") if widely else {})
        self._map(becomes, [(hangul, SYLLABLE)])
        self._add(ORDER, table=self._marks())

    def _compose(self, widely: bool) -> None:
        self._decompose(widely)
        self._add(COMPOSE, table=self._marks())
        self.stages.composes = True

    def _marks(self) -> int:
        """Combining classes, and which chars may be the second of a composition."""
        entries = np.zeros(POINTS, np.uint32)
        for number, ranges in facts()["combining"].items():
            for first, last in ranges:
                entries[first : last + 1] = int(number)
        seconds = {second for _, second, _ in facts()["compositions"]}
        for second in (*seconds, *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)):
            entries[second] |= _MAY_END
        return self._pools.table(entries)

    def _strip(self, document: dict[str, Any]) -> None:
        if self.stages.rows:
            raise ConfigError("normalizer: expected Strip before all others, found it behind one")
        self.stages.strips_left |= bool(document.get("strip_left", True))
        self.stages.strips_right |= bool(document.get("strip_right", True))

    def _prepend(self, document: dict[str, Any]) -> None:
        self._add(PREPEND, becomes=self._chars("Prepend", document["prepend"]))

    def _replace(self, document: dict[str, Any]) -> None:
        pattern, content = document["pattern"], document["content"]
        becomes = self._chars("Replace", content)
        if "Regex" in pattern:
            run = of_regex(pattern["Regex"]).run
            if run is None or run[1] not in (1, 2):
                raise ConfigError(
                    "normalizer: Replace: expected a text or one class in a row, such as ' {2,}', "
                    f"found {pattern['Regex']!r}"
                )
            self._add(SQUEEZE, mask=self._pools.mask(run[0]), least=run[1], becomes=becomes)
            return
        text = pattern["String"]
        if not text:
            raise ConfigError("normalizer: Replace: expected a text, found an empty one")
        if len(text) == 1:
            self._map({ord(text): [ord(char) for char in content]})
        else:
            self._add(REPLACE, sought=self._chars("Replace", text), becomes=becomes)

    def _precompiled(self, document: dict[str, Any]) -> None:
        single, groups = _charsmap(document["precompiled_charsmap"])
        self.stages.maps.append((len(self.stages.rows), single))
        for chars, becomes in sorted(groups.items()):
            row = [*chars, *[0] * (3 - len(chars)), self._pools.sequence(becomes)]
            self.stages.groups.append(row)
        table = self._pools.table(self._pools.becoming(single))
        self._add(CLUSTERS, table=table, classes=self._pools.table(_clusters()))


# ---- Precompiled ----


def _charsmap(text: str) -> tuple[Changes, dict[tuple[int, ...], list[int]]]:
    """What single chars become, and groups of them that no shorter beginning hides."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("normalizer: precompiled_charsmap: expected base64, found none") from None
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size % 4 or size < 4 or 4 + size > len(data):
        raise ConfigError(
            f"normalizer: precompiled_charsmap: expected a map and its length, found {len(data)} "
            f"bytes and {size}"
        )
    trie, strings = np.frombuffer(data, "<u4", size // 4, 4), data[4 + size :]
    single: Changes = {}
    groups: dict[tuple[int, ...], list[int]] = {}
    for key, at in sorted(_keys(trie)):
        try:
            chars = [ord(char) for char in key.decode()]
            becomes = [ord(char) for char in strings[at : strings.index(b"\0", at)].decode()]
        except (UnicodeDecodeError, ValueError):
            raise ConfigError(
                f"normalizer: precompiled_charsmap: expected whole characters, found {key!r}"
            ) from None
        if len(chars) == 1:
            single[chars[0]] = becomes
        elif chars[0] not in single and tuple(chars[:2]) not in groups:
            if len(chars) > 3:
                raise ConfigError(
                    "normalizer: precompiled_charsmap: expected groups of at most 3 characters, "
                    f"found {key.decode()!r}"
                )
            groups[tuple(chars)] = becomes
    return single, groups


def _keys(trie: npt.NDArray[np.uint32]) -> Iterator[tuple[bytes, int]]:
    """The keys of at most 5 bytes of a double array as Darts has it, and their values."""

    def behind(unit: int) -> int:
        return (unit >> 10) << ((unit & 1 << 9) >> 6)

    found, bytes_of = 0, np.arange(1, 256)
    nodes = [(b"", behind(int(trie[0])))]
    while nodes:
        key, node = nodes.pop()
        places = node ^ bytes_of
        inside = places < len(trie)
        units = trie[np.where(inside, places, 0)]
        for byte in bytes_of[inside & (units & 0x800000FF == bytes_of)].tolist():
            unit = int(trie[node ^ byte])
            child = (node ^ byte) ^ behind(unit)
            found += 1
            if child >= len(trie) or found > _KEYS_MAX:
                raise ConfigError(
                    "normalizer: precompiled_charsmap: expected a map, found a damaged one"
                )
            if unit >> 8 & 1:
                yield key + bytes([byte]), int(trie[child]) & 0x7FFFFFFF
            if len(key) + 1 < _CLUSTER_BYTES:
                nodes.append((key + bytes([byte]), child))


def _clusters() -> Table:
    """The classes of enum lm_text_cluster."""
    control, extend, joiner, spacing, prepend = 3, 4, 5, 6, 7
    lead, vowel, tail, two, three = range(8, 13)
    entries = np.zeros(POINTS, np.uint32)
    for name, number in (("control", control), ("extends", extend), ("spacing", spacing)):
        entries[members(f"cluster_{name}")] = number
    entries[members("cluster_prepends")] = prepend
    for first, last, number in (
        (0, 0, control), (_CR, _CR, 1), (_LF, _LF, 2), (_JOINER, _JOINER, joiner),
        (0x1100, 0x115F, lead), (0xA960, 0xA97C, lead), (0x1160, 0x11A7, vowel),
        (0xD7B0, 0xD7C6, vowel), (0x11A8, 0x11FF, tail), (0xD7CB, 0xD7FB, tail),
        (HANGUL.start, HANGUL.stop - 1, three),
    ):  # fmt: skip
        entries[first : last + 1] = number
    entries[HANGUL.start : HANGUL.stop : 28] = two
    for bit, name in enumerate(("pictures", "consonants", "linkers", "between")):
        entries[members(f"cluster_{name}")] |= 256 << bit
    return entries
