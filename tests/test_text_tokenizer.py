"""Tokenizers of BERT's kind: every text has the ids that the wheel `tokenizers` gives it."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import tokenizers
from mutated_json import mutants
from odd_texts import MARKS, ODD, STRINGS, Texts
from tokenizers import models, normalizers, pre_tokenizers, processors

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.ring.tokenizer import Tokenizer
from lumen_uring.text import compile as compiling
from lumen_uring.text.facts import facts

ROOT: Final = Path(__file__).resolve().parents[1]
FACTS: Final = facts()
SPECIAL: Final = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MOST: Final = 4096
WORDS: Final = [*SPECIAL, "[sep]", "[", "]", " ", "##", "é", "ÅÄ"]


def other(
    switches: dict[str, bool | None], chars_max: int = 20, template: Any = None
) -> tokenizers.Tokenizer:
    """A tokenizer of the wheel that knows every odd char, alone and within a word."""
    normal = normalizers.BertNormalizer(**switches)
    pieces: dict[str, int] = {text: number for number, text in enumerate(SPECIAL)}
    chars = {
        char
        for point in (*ODD, *MARKS, *range(32, 127))
        for char in normal.normalize_str(chr(point))
    }
    for char in sorted(chars):
        for text in (char, f"##{char}", f"##{char}{char}"):
            if text.strip():
                pieces.setdefault(text, len(pieces))
    made = tokenizers.Tokenizer(
        models.WordPiece(pieces, unk_token="[UNK]", max_input_chars_per_word=chars_max)
    )
    made.normalizer = normal
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(SPECIAL)
    made.post_processor = template or processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


def ours(of: tokenizers.Tokenizer, folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    of.save(str(path))
    return Tokenizer(compiling.compile_file(path))


SWITCHES: Final = [
    {"clean_text": a, "handle_chinese_chars": b, "strip_accents": c, "lowercase": d}
    for a, b, c, d in itertools.product(
        [True, False], [True, False], [None, True, False], [True, False]
    )
]


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "".join(str(v)[0] for v in s.values()))
def test_ids_are_the_wheels(tmp_path: Path, switches: dict[str, bool | None]) -> None:
    wheel, texts = other(switches), Texts(7, WORDS)
    with closing(ours(wheel, tmp_path)) as mine:
        for number in range(STRINGS // 4):
            first, second = texts.one(), texts.one() if number % 3 == 0 else None
            found = wheel.encode(first, second)
            assert mine.encode(first, second, tokens_max=MOST) == (found.ids, found.type_ids), first


def test_each_code_point_is_as_the_wheel_has_it(tmp_path: Path) -> None:
    """All that a table names, between two letters and behind a mark."""
    wheel = other({"clean_text": True, "handle_chinese_chars": True, "lowercase": True})
    with closing(ours(wheel, tmp_path)) as mine:
        for point in sorted({*ODD, *MARKS}):
            text = f"a{chr(point)}b \u0315{chr(point)}\u0300"
            assert mine.encode(text, tokens_max=64)[0] == wheel.encode(text).ids, hex(point)


def test_texts_are_cut_as_the_wheel_cuts_them(tmp_path: Path) -> None:
    wheel, texts = other(SWITCHES[0]), Texts(11, WORDS)
    with closing(ours(wheel, tmp_path)) as mine:
        for number in range(STRINGS):
            first, second = texts.one(), texts.one() if number % 2 else None
            most = 3 + number % 20 + (number % 2)
            for direction, cut in (("right", "end"), ("left", "start")):
                wheel.enable_truncation(most, direction=direction)
                found = wheel.encode(first, second)
                made = mine.encode(first, second, tokens_max=most, cut=cut)
                assert made == (found.ids, found.type_ids), (first, second, cut)
                wheel.no_truncation()
            whole = len(wheel.encode(first, second).ids)
            if whole > most:
                with pytest.raises(
                    EngineError, match=f"expected at most {most} tokens, found more"
                ):
                    mine.encode(first, second, tokens_max=most, cut="nothing")


@pytest.mark.parametrize(
    "template",
    [
        processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
        processors.TemplateProcessing(
            single="[CLS]:1 [MASK] $A:2",
            pair="$A [SEP] $B:3 [SEP] [SEP]:4",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)],
        ),
    ],
)
def test_what_is_put_around_texts(tmp_path: Path, template: Any) -> None:
    wheel = other(SWITCHES[0], template=template)
    with closing(ours(wheel, tmp_path)) as mine:
        for first, second in (("a b", None), ("", None), ("a", "b c"), ("", "")):
            found = wheel.encode(first, second)
            assert mine.encode(first, second, tokens_max=64) == (found.ids, found.type_ids)


def test_edges(tmp_path: Path) -> None:
    with closing(ours(other(SWITCHES[0]), tmp_path)) as mine:
        assert mine.encode("", tokens_max=3) == ([2, 3], [0, 0])
        assert mine.encode(" \t\n\u3000\u0085\ufffd", tokens_max=3)[0] == [2, 3]
        assert mine.encode("a" * 20, tokens_max=64)[0].count(1) == 0
        assert mine.encode("a" * 21, tokens_max=64)[0] == [2, 1, 3]
        assert mine.encode("a" * 10_000_000, tokens_max=64)[0] == [2, 1, 3]
        assert len(mine.encode("a " * 1_000_000, tokens_max=64)[0]) == 64
        assert mine.encode("x[SEP]y\0", tokens_max=64)[0].count(3) == 2
        for few in (1, 2):
            with pytest.raises(EngineError, match="no more than the special ones"):
                mine.encode("a", tokens_max=few)
        with pytest.raises(UnicodeEncodeError):
            mine.encode("\ud800", tokens_max=8)


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    path = folder / "tokenizer.json"
    other(SWITCHES[0]).save(str(path))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda d: d["model"].update(type="WordLevel"),
            "model: expected the type WordPiece, Unigram, BPE, found WordLevel",
        ),
        (lambda d: d["normalizer"].update(type="ByteLevel"), "found ByteLevel"),
        (lambda d: d["pre_tokenizer"].update(type="UnicodeScripts"), "found UnicodeScripts"),
        (lambda d: d["post_processor"].update(type="Other"), "found Other"),
        (lambda d: d["added_tokens"][1].update(id=7), "'[UNK]': expected the id 1, found 7"),
        (lambda d: d["model"]["vocab"].update({"a": 4}), "each once"),
        (
            lambda d: d["model"]["vocab"].update({"\ud800": len(d["model"]["vocab"])}),
            "half of a surrogate pair",
        ),
        (lambda d: d["model"].update(continuing_subword_prefix=1), "expected a text, found 1"),
        (lambda d: d["post_processor"]["single"][1]["Sequence"].update(type_id=-1), "found -1"),
        (lambda d: d["model"].update(unk_token="[?]"), "unk_token: found no '[?]'"),
        (lambda d: d["model"].update(max_input_chars_per_word=201), "expected 0..200, found 201"),
        (lambda d: d["post_processor"]["single"].pop(1), "expected the texts ['A'], found []"),
        (lambda d: d.pop("model"), "model: expected the type WordPiece, Unigram, BPE, found none"),
        (lambda d: d["model"].pop("vocab"), "expected a tokenizer, found no 'vocab'"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    path = changed(tmp_path, change)
    with pytest.raises(ConfigError) as error:
        compiling.compile_file(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)


def test_wrong_types_are_refused_or_harmless(tmp_path: Path) -> None:
    def cut(document: dict[str, Any]) -> None:
        """A vocabulary of a few pieces, so that other places change as often."""
        pieces = document["model"]["vocab"].items()
        document["model"]["vocab"] = {text: number for text, number in pieces if number < 12}

    path = changed(tmp_path, cut)
    outcomes = set()
    for document in mutants(json.loads(path.read_bytes()), 30):
        path.write_text(json.dumps(document))
        try:
            data = compiling.compile_file(path)
        except ConfigError as error:
            assert "expected" in str(error) or "found" in str(error)  # noqa: PT017 -- some are right
            outcomes.add("refused")
            continue
        with closing(Tokenizer(data)):
            outcomes.add("read")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"model": 1}', "[" * 100_000])
def test_what_is_no_tokenizer(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ConfigError, match=r"tokenizer\.json: (model: )?expected"):
        compiling.compile_file(tmp_path / "tokenizer.json")


def test_limits_of_the_last_program_that_wrote_it_are_ignored(tmp_path: Path) -> None:
    wheel = other(SWITCHES[0])
    expected = wheel.encode("a b c d e").ids
    wheel.enable_truncation(3)
    wheel.enable_padding(length=128)
    with closing(ours(wheel, tmp_path)) as mine:
        assert mine.encode("a b c d e", tokens_max=64)[0] == expected


def test_a_damaged_file_is_refused_or_harmless(tmp_path: Path) -> None:
    """A file with any byte changed is refused, or its ids are those of its vocabulary."""
    wheel = tokenizers.Tokenizer(
        models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")
    )
    wheel.normalizer = normalizers.BertNormalizer(False, False, False, False)
    wheel.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    with closing(ours(wheel, tmp_path)):
        whole = compiling.compile_file(tmp_path / "tokenizer.json")
    chance, refused = random.Random(3), 0
    for at in [*range(160), *(chance.randrange(len(whole)) for _ in range(400))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        try:
            mine = Tokenizer(bytes(damaged))
        except EngineError as error:
            assert "damaged" in str(error)  # noqa: PT017 -- most are refused, and some may be right
            refused += 1
            continue
        with closing(mine):
            assert set(mine.encode("ab a é [UNK]", tokens_max=64)[0]) <= {0, 1, 2}
    assert refused > 80
    for end in (0, 7, 8, 100, len(whole) - 1):
        with pytest.raises(EngineError, match="damaged"):
            Tokenizer(whole[:end])


def test_the_tables_are_the_wheels() -> None:
    """By its version; with a million strings, all of them again, by the tool that writes them."""
    assert FACTS["tokenizers"] == tokenizers.__version__
    if STRINGS < 1_000_000:
        return
    code = "import tools.unicode_tables as t, json; print(json.dumps(t.tables()))"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(said.stdout) == FACTS
