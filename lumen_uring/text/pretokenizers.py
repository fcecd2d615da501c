"""The pre-tokenizer of a tokenizer.json as the splits that splits.c cuts pieces with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lumen_uring.errors import ConfigError
from lumen_uring.text import sequences
from lumen_uring.text.facts import members
from lumen_uring.text.patterns import Pattern, either, of_class, of_regex, of_text, one
from lumen_uring.text.pools import Pools

# As in c/src/text/file.h.
_PREFIX, _PATTERN = range(2)
_BEHAVIOURS: Final = {
    "Isolated": 0, "Removed": 1, "Contiguous": 2, "MergedWithPrevious": 3, "MergedWithNext": 4,
}  # fmt: skip
_ISOLATED, _REMOVED, _NEXT = 0, 1, 4
_SPLITS_MAX: Final = 8
_OPS_MAX: Final = 256
_PREFIX_BYTES_MAX: Final = 4
_GPT2: Final = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # ByteLevel's
)


@dataclass(slots=True)
class Splits:
    """Rows of struct lm_text_split and struct lm_text_op, and what the model has to know."""

    rows: list[list[int]] = field(default_factory=list)
    ops: list[list[int]] = field(default_factory=list)
    is_byte_level: bool = False
    stand_in: str = ""  # for a blank, which a normalizer puts there
    # A text may be cut before a blank behind a word: every piece ends there anyway.
    may_cut: bool = False


def read(document: dict[str, Any] | None, pools: Pools) -> Splits:
    """Reads a pre-tokenizer.

    Args:
        document: it; None: there is none.
        pools: where its classes go.

    Raises:
        ConfigError: it needs what is not implemented.
    """
    reader = _Reader(pools)
    for part in sequences.parts_of(document, "pretokenizers"):
        reader.take(part)
    splits = reader.splits
    if len(splits.rows) > _SPLITS_MAX or len(splits.ops) > _OPS_MAX:
        raise ConfigError(
            f"pre_tokenizer: expected at most {_SPLITS_MAX} splits of {_OPS_MAX} steps, found more"
        )
    splits.may_cut = reader.has_border and not reader.crosses
    return splits


class _Reader:
    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.splits = Splits()
        self.has_border = self.crosses = False
        self._has_blanks = True
        self._prefix_bytes = 0
        self._kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "BertPreTokenizer": self._bert,
            "ByteLevel": self._byte_level,
            "CharDelimiterSplit": lambda d: self._pattern(of_text(d["delimiter"]), _REMOVED),
            "Digits": self._digits,
            "Metaspace": self._metaspace,
            "Punctuation": self._punctuation,
            "Split": self._split,
            "Whitespace": self._whitespace,
            "WhitespaceSplit": lambda _: self._blanks(),
        }

    def take(self, part: dict[str, Any]) -> None:
        if self.splits.is_byte_level:
            found = part.get("type")
            raise ConfigError(f"pre_tokenizer: expected nothing behind ByteLevel, found {found}")
        sequences.take(part, self._kinds, "pre_tokenizer")

    def _pattern(
        self, pattern: Pattern, behaviour: int, *, inverted: bool = False, border: bool = False
    ) -> None:
        blank = one(self.splits.stand_in or " ")
        self.splits.rows.append([_PATTERN, behaviour, int(inverted), len(self.splits.ops), 0, 0])
        self.splits.ops += pattern.rows(self._pools, len(self.splits.ops))
        joins = behaviour not in (_ISOLATED, _REMOVED) and not border
        self.crosses = self.crosses or joins or pattern.crosses(blank)
        self.has_border = self.has_border or border or pattern.begins_at(blank)

    def _prefix(self, prefix: str, first_only: bool) -> None:
        self._prefix_bytes += len(prefix.encode())
        if self._prefix_bytes > _PREFIX_BYTES_MAX:
            raise ConfigError("pre_tokenizer: expected at most one Metaspace, found several")
        number = int.from_bytes(prefix.encode(), "little")
        self.splits.rows.append([_PREFIX, 0, 0, 0, number, int(first_only)])

    def _blanks(self) -> None:
        self._pattern(of_class(members("blank"), many=True), _REMOVED)
        self._has_blanks = False

    def _bert(self, _: dict[str, Any]) -> None:
        self._blanks()
        self._pattern(of_class(members("punctuation")), _ISOLATED)

    def _whitespace(self, _: dict[str, Any]) -> None:
        word, blank = members("word"), members("blank")
        pattern = either(of_class(word, many=True), of_class(~(word | blank), many=True))
        self._pattern(pattern, _REMOVED, inverted=True)
        self.has_border = True  # no blank is in a match, and all else is
        self._has_blanks = False

    def _digits(self, document: dict[str, Any]) -> None:
        alone = bool(document.get("individual_digits", False))
        self._pattern(of_class(members("digits"), many=not alone), _ISOLATED)

    def _punctuation(self, document: dict[str, Any]) -> None:
        behaviour = self._behaviour(document.get("behavior", "Isolated"))
        self._pattern(of_class(members("punctuation")), behaviour)

    def _behaviour(self, name: str) -> int:
        if name not in _BEHAVIOURS:
            raise ConfigError(
                f"pre_tokenizer: behavior: expected one of {', '.join(_BEHAVIOURS)}, found {name}"
            )
        return _BEHAVIOURS[name]

    def _split(self, document: dict[str, Any]) -> None:
        pattern = document["pattern"]
        if not pattern.get("Regex", pattern.get("String")):
            raise ConfigError("pre_tokenizer: Split: expected a pattern, found none")
        made = of_regex(pattern["Regex"]) if "Regex" in pattern else of_text(pattern["String"])
        behaviour = self._behaviour(document["behavior"])
        self._pattern(made, behaviour, inverted=bool(document.get("invert")))

    def _byte_level(self, document: dict[str, Any]) -> None:
        if document.get("add_prefix_space", True):
            self._prefix(" ", False)
        if document.get("use_regex", True):
            self._pattern(of_regex(_GPT2), _ISOLATED)
        self.splits.is_byte_level = True

    def _metaspace(self, document: dict[str, Any]) -> None:
        mark, scheme = (
            document.get("replacement", "\u2581"),
            document.get("prepend_scheme", "always"),
        )
        if mark != "\u2581" or scheme not in ("always", "first", "never"):
            raise ConfigError(
                "pre_tokenizer: Metaspace: expected the replacement '\u2581' and the "
                f"prepend_scheme always, first or never, found {mark!r} and {scheme!r}"
            )
        if document.get("add_prefix_space") is False:
            scheme = "never"
        if self._has_blanks and self.splits.rows:
            raise ConfigError(
                "pre_tokenizer: Metaspace: expected it first, or behind WhitespaceSplit"
            )
        if self._has_blanks:
            self.splits.stand_in = mark
        if scheme != "never":
            self._prefix(mark, scheme == "first")
        if document.get("split", True):
            self._pattern(of_text(mark), _NEXT, border=True)
