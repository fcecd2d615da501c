"""Reads a tokenizer.json of Hugging Face as far as Lumen does exactly what it says.

Used by compile.py. What is not implemented is refused by name. The file's `truncation` and
`padding` are ignored, as sentence-transformers and TEI ignore them: they are of the last program
that wrote it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lumen_uring.errors import ConfigError
from lumen_uring.text.actions import Bert

FIRST, SECOND = "A", "B"
_BYTES_MAX: Final = 64 << 20
_CHARS_MAX: Final = 200  # LM_TEXT_WORD_CHARS
_ITEMS_MAX: Final = 16
_TYPES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Item:
    """What a template puts somewhere: a special token by its id, or the tokens of text A or B."""

    what: int | str
    type_id: int


@dataclass(frozen=True, slots=True)
class WordPiece:
    """A tokenizer: its vocabulary, and what comes before and after it.

    `added` are cut out of a text before everything else, by content.
    """

    vocabulary: dict[str, int]
    unknown: str
    prefix: str  # of a piece that does not begin its word
    word_chars_max: int
    bert: Bert
    added: dict[str, int]
    single: tuple[Item, ...]
    pair: tuple[Item, ...]


def read(path: Path) -> WordPiece:
    """Reads a file.

    Args:
        path: of a tokenizer.json.

    Raises:
        ConfigError: it cannot be read, contradicts itself, or needs what is not implemented.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > _BYTES_MAX:
            raise ConfigError(f"{path}: expected at most {_BYTES_MAX} bytes, found {len(raw)}.")
        document = json.loads(raw)
        return _Reader(path).read(document)
    except OSError as error:
        raise ConfigError(f"{path}: expected a readable file, found: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON, found: {error}.") from None
    except KeyError as error:
        raise ConfigError(f"{path}: expected a tokenizer, found no {error}.") from None
    except (TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: expected a tokenizer, found: {error}.") from None


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, document: dict[str, Any]) -> WordPiece:
        model = self._of(document, "model", "WordPiece")
        bert = self._bert(self._of(document, "normalizer", "BertNormalizer"))
        self._of(document, "pre_tokenizer", "BertPreTokenizer")
        vocabulary = self._vocabulary(model["vocab"])
        added = self._added(document.get("added_tokens") or [], vocabulary)
        chars = model.get("max_input_chars_per_word", 100)
        if type(chars) is not int or not 0 <= chars <= _CHARS_MAX:
            raise self._error(f"max_input_chars_per_word: expected 0..{_CHARS_MAX}, found {chars}")
        if model["unk_token"] not in vocabulary:
            raise self._error(f"unk_token: found no {model['unk_token']!r} in the vocabulary")
        single, pair = self._around(document.get("post_processor"), {**vocabulary, **added})
        prefix = model.get("continuing_subword_prefix", "##")
        if not isinstance(prefix, str):
            raise self._error(f"continuing_subword_prefix: expected a text, found {prefix!r}")
        return WordPiece(vocabulary, model["unk_token"], prefix, chars, bert, added, single, pair)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"{self._path}: {what}.")

    def _of(self, document: dict[str, Any], part: str, kind: str) -> dict[str, Any]:
        found = document.get(part)
        name = found.get("type") if isinstance(found, dict) else None
        if name != kind:
            raise self._error(f"{part}: expected the type {kind}, found {name or 'none'}")
        assert isinstance(found, dict)
        return found

    def _vocabulary(self, vocabulary: dict[str, int]) -> dict[str, int]:
        count = len(vocabulary)
        numbers = vocabulary.values()
        is_whole = all(type(number) is int for number in numbers)
        if not is_whole or sorted(numbers) != list(range(count)) or not count:
            raise self._error(f"vocab: expected the ids 0..{count - 1}, each once")
        if any(not text for text in vocabulary):
            raise self._error("vocab: expected no empty piece")
        try:
            "".join(vocabulary).encode()
        except UnicodeEncodeError:
            raise self._error("vocab: expected Unicode, found half of a surrogate pair") from None
        return vocabulary

    def _bert(self, normalizer: dict[str, Any]) -> Bert:
        lowercase = bool(normalizer.get("lowercase", True))
        accents = normalizer.get("strip_accents")
        return Bert(
            bool(normalizer.get("clean_text", True)),
            bool(normalizer.get("handle_chinese_chars", True)),
            lowercase if accents is None else bool(accents),
            lowercase,
        )

    def _added(self, entries: list[dict[str, Any]], vocabulary: dict[str, int]) -> dict[str, int]:
        added: dict[str, int] = {}
        for entry in entries:
            content, number = entry["content"], entry["id"]
            where = f"added_tokens: {content!r}"
            if entry.get("normalized") or entry.get("single_word"):
                raise self._error(f"{where}: expected neither normalized nor single_word")
            if vocabulary.get(content) != number:
                raise self._error(
                    f"{where}: expected its id in vocab, {vocabulary.get(content)}, found {number}"
                )
            if content:
                added[content] = number
        return added

    def _around(
        self, post: dict[str, Any] | None, ids: dict[str, int]
    ) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        if post is None:
            return (Item(FIRST, 0),), (Item(FIRST, 0), Item(SECOND, 0))
        kind = post.get("type")
        if kind == "BertProcessing":
            begin, end = Item(post["cls"][1], 0), post["sep"][1]
            single = (begin, Item(FIRST, 0), Item(end, 0))
            pair = (*single, Item(SECOND, 1), Item(end, 1))
            return self._checked(single, [FIRST], ids), self._checked(pair, [FIRST, SECOND], ids)
        if kind != "TemplateProcessing":
            raise self._error(
                "post_processor: expected the type TemplateProcessing or BertProcessing, found "
                f"{kind}"
            )
        special = post["special_tokens"]
        return (
            self._template(post["single"], special, [FIRST], ids),
            self._template(post["pair"], special, [FIRST, SECOND], ids),
        )

    def _template(
        self,
        pieces: list[dict[str, Any]],
        special: dict[str, Any],
        texts: list[str],
        ids: dict[str, int],
    ) -> tuple[Item, ...]:
        items: list[Item] = []
        for piece in pieces:
            ((kind, told),) = piece.items()
            if kind == "Sequence":
                items.append(Item(told["id"], told["type_id"]))
                continue
            items += [Item(number, told["type_id"]) for number in special[told["id"]]["ids"]]
        return self._checked(tuple(items), texts, ids)

    def _checked(
        self, items: tuple[Item, ...], texts: list[str], ids: dict[str, int]
    ) -> tuple[Item, ...]:
        found = [item.what for item in items if item.what in (FIRST, SECOND)]
        numbers = [item.what for item in items if item.what not in (FIRST, SECOND)]
        if found != texts or len(items) > _ITEMS_MAX:
            raise self._error(f"post_processor: expected the texts {texts}, found {found}")
        for what, value, count in (
            *(("a special token's id", number, len(ids)) for number in numbers),
            *(("a type_id", item.type_id, _TYPES_MAX) for item in items),
        ):
            if type(value) is not int or not 0 <= value < count:
                raise self._error(
                    f"post_processor: expected {what} of 0..{count - 1}, found {value!r}"
                )
        return items
