"""Reads a tokenizer.json of Hugging Face as far as Lumen does exactly what it says.

Used by compile.py. What is not implemented is refused by name. The file's `truncation` and
`padding` are ignored, as sentence-transformers and TEI ignore them: they are of the last program
that wrote it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from lumen_uring.errors import ConfigError
from lumen_uring.files import take
from lumen_uring.text import decoders, models, normalizers, pretokenizers, sequences
from lumen_uring.text.actions import Bert
from lumen_uring.text.decoders import NONE, Decoder
from lumen_uring.text.facts import members
from lumen_uring.text.models import Model
from lumen_uring.text.normalizers import Stages
from lumen_uring.text.pools import Pools
from lumen_uring.text.pretokenizers import Splits

FIRST, SECOND = "A", "B"
LSTRIPS, RSTRIPS, SINGLE_WORD = 1, 2, 4
_BYTES_MAX: Final = 64 << 20
_ITEMS_MAX: Final = 16
_TYPES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Item:
    """What a template puts somewhere: a special token by its id, or the tokens of text A or B."""

    what: int | str
    type_id: int


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is cut out of a text before everything else, or out of the normalised text."""

    id: int
    name: str
    flags: int
    is_normalised: bool
    is_special: bool


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer: its model, and what comes before and after it."""

    model: Model
    bert: Bert | None  # WordPiece in one look-up a code point
    stages: Stages
    splits: Splits
    pools: Pools
    added: dict[str, Added] = field(default_factory=dict)
    single: tuple[Item, ...] = ()
    pair: tuple[Item, ...] = ()
    trims: bool = False  # places of tokens leave blanks out
    decoder: Decoder = field(default_factory=lambda: Decoder(NONE))

    @property
    def vocabulary(self) -> int:
        """How many ids there are."""
        return max([self.model.vocabulary - 1, *(token.id for token in self.added.values())]) + 1


def read(path: Path) -> Tokenizer:
    """Reads a file.

    Args:
        path: of a tokenizer.json.

    Raises:
        ConfigError: it cannot be read, contradicts itself, or needs what is not implemented.
    """
    raw = take(path, _BYTES_MAX)
    try:
        return _read(json.loads(raw))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON, found: {error}.") from None
    except KeyError as error:
        raise ConfigError(f"{path}: expected a tokenizer, found no {error}.") from None
    except (TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ConfigError(f"{path}: expected a tokenizer, found: {error}.") from None


def _read(document: dict[str, Any]) -> Tokenizer:
    pools = Pools()
    normalizer, pre = document.get("normalizer"), document.get("pre_tokenizer")
    splits = pretokenizers.read(pre, pools)
    stages = normalizers.read(normalizer, pools, splits.stand_in)
    model = models.read(document.get("model"), splits.is_byte_level)
    added = _added(document.get("added_tokens") or [], model, stages, splits)
    ids = {**model.ids, **{content: token.id for content, token in added.items()}}
    single, pair = _around(document.get("post_processor"), ids)
    is_direct = (
        model.kind == models.WORDPIECE
        and (normalizer or {}).get("type") == "BertNormalizer"
        and (pre or {}).get("type") == "BertPreTokenizer"
        and not any(token.is_normalised or token.flags & LSTRIPS for token in added.values())
    )
    bert = Bert(*normalizers.bert_switches(normalizer)) if is_direct and normalizer else None
    decoder = decoders.read(document.get("decoder"))
    trims = _trims(document.get("post_processor"))
    return Tokenizer(model, bert, stages, splits, pools, added, single, pair, trims, decoder)


# ---- added tokens ----


def _added(
    entries: list[dict[str, Any]], model: Model, stages: Stages, splits: Splits
) -> dict[str, Added]:
    added: dict[str, Added] = {}
    most = -1
    for entry in entries:
        content, number = entry["content"], entry["id"]
        where = f"added_tokens: {content!r}"
        expected = model.ids.get(content)
        if expected is None:
            expected = max(most + 1, model.count)
        if type(number) is not int or number != expected:
            raise ConfigError(f"{where}: expected the id {expected}, found {number}")
        most = max(most, number)
        flags = LSTRIPS * bool(entry.get("lstrip")) | RSTRIPS * bool(entry.get("rstrip"))
        flags |= SINGLE_WORD * bool(entry.get("single_word"))
        if not content:
            continue
        if entry.get("normalized"):
            content = _normalised(content, where, stages)
            if content:
                _look_at_blanks(content, flags, where, splits)
        if content:
            added[content] = Added(
                number,
                entry["content"],
                flags,
                bool(entry.get("normalized")),
                bool(entry.get("special")),
            )
    return added


def _normalised(content: str, where: str, stages: Stages) -> str:
    """What is looked for in the normalised text."""
    found = stages.ascii_text(content) if content.isascii() and stages.rows else content
    if found is None or (stages.rows and not content.isascii()):
        raise ConfigError(
            f"{where}: expected ASCII and no Replace or Prepend where it is normalized"
        )
    return found


def _look_at_blanks(content: str, flags: int, where: str, splits: Splits) -> None:
    """A token that may go on behind a word's end needs the whole text at once."""
    blank = members("blank")
    if splits.stand_in and (" " in content or splits.stand_in in content):
        raise ConfigError(f"{where}: expected no blank in it where there is a Metaspace")
    goes_on = any(after == " " and not blank[ord(before)] for before, after in pairwise(content))
    if goes_on or flags & RSTRIPS:
        splits.may_cut = False


# ---- what is put around texts ----


def _around(
    post: dict[str, Any] | None, ids: dict[str, int]
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    parts = sequences.parts_of(post, "processors")
    found = [part for part in parts if part.get("type") != "ByteLevel"]
    if not found:
        return (Item(FIRST, 0),), (Item(FIRST, 0), Item(SECOND, 1))
    if len(found) > 1:
        raise ConfigError("post_processor: expected one that adds tokens, found several")
    (post,) = found
    kind = post.get("type")
    if kind in ("BertProcessing", "RobertaProcessing"):
        is_bert = kind == "BertProcessing"
        begin, end = Item(post["cls"][1], 0), Item(post["sep"][1], 0)
        single = (begin, Item(FIRST, 0), end)
        second = (Item(SECOND, int(is_bert)), Item(post["sep"][1], int(is_bert)))
        pair = (*single, *(() if is_bert else (end,)), *second)
        return _checked(single, [FIRST], ids), _checked(pair, [FIRST, SECOND], ids)
    if kind != "TemplateProcessing":
        raise ConfigError(
            "post_processor: expected the type TemplateProcessing, BertProcessing, "
            f"RobertaProcessing, ByteLevel or a Sequence of them, found {kind}"
        )
    special = post["special_tokens"]
    return (
        _template(post["single"], special, [FIRST], ids),
        _template(post["pair"], special, [FIRST, SECOND], ids),
    )


def _trims(post: dict[str, Any] | None) -> bool:
    parts = sequences.parts_of(post, "processors")
    kinds = ("RobertaProcessing", "ByteLevel")
    return any(part.get("type") in kinds and part.get("trim_offsets", True) for part in parts)


def _template(
    pieces: list[dict[str, Any]], special: dict[str, Any], texts: list[str], ids: dict[str, int]
) -> tuple[Item, ...]:
    items: list[Item] = []
    for piece in pieces:
        ((kind, told),) = piece.items()
        if kind == "Sequence":
            items.append(Item(told["id"], told["type_id"]))
            continue
        items += [Item(number, told["type_id"]) for number in special[told["id"]]["ids"]]
    return _checked(tuple(items), texts, ids)


def _checked(items: tuple[Item, ...], texts: list[str], ids: dict[str, int]) -> tuple[Item, ...]:
    found = [item.what for item in items if item.what in (FIRST, SECOND)]
    numbers = [item.what for item in items if item.what not in (FIRST, SECOND)]
    if found != texts or len(items) > _ITEMS_MAX:
        raise ConfigError(f"post_processor: expected the texts {texts}, found {found}")
    count = max(ids.values(), default=-1) + 1
    for what, value, limit in (
        *(("a special token's id", number, count) for number in numbers),
        *(("a type_id", item.type_id, _TYPES_MAX) for item in items),
    ):
        if type(value) is not int or not 0 <= value < limit:
            raise ConfigError(f"post_processor: expected {what} of 0..{limit - 1}, found {value!r}")
    return items
