"""Unigram, BPE, their normalizers and pre-tokenizers: ids are those of the wheel `tokenizers`."""

from __future__ import annotations

import base64
import itertools
import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import tokenizers
from mutated_json import mutants
from odd_texts import STRINGS, Texts
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.ring.tokenizer import Tokenizer
from lumen_uring.text.compile import compile_file
from lumen_uring.text.facts import facts

SPECIAL: Final = ["<s>", "<pad>", "</s>", "<unk>"]
MASK: Final = AddedToken("<mask>", lstrip=True, normalized=False, special=True)
SENTENCE: Final = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "people", "build"),
    *("models", "that", "answer", "questions", "about", "documents", "été", "naïve", "straße"),
    *("東京", "日本語", "한국어", "привет", "мир", "12345", "3.14", "don't", "we'll", "I'm"),
]
GPT4: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK: Final = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)


# ---- a Precompiled: NFKC of every char, and of the pairs that are one ----


def charsmap() -> str:
    """A map as SentencePiece writes it: a double array (Darts) of keys, and their strings."""
    nfkc = normalizers.NFKC().normalize_str
    keys: dict[bytes, bytes] = {}
    for point in {*map(int, facts()["nfd"]), *map(int, facts()["nfkd"]), 0xFF41, 0x3000}:
        if (text := nfkc(chr(point))) != chr(point):
            keys[chr(point).encode()] = text.encode()
    for first, second, composite in facts()["compositions"]:
        keys[(chr(first) + chr(second)).encode()] = chr(composite).encode()
    keys |= {bytes([byte]): b"" for byte in (*range(1, 9), 0x7F)} | {b"\t": b" ", b"\n": b" "}
    keys |= {"\u200b".encode(): b" ", b"\r\n": b" ", "\ufeff".encode(): b""}
    strings = bytearray()
    places: dict[bytes, int] = {}
    for text in keys.values():
        if text not in places:
            places[text] = len(strings)
            strings += text + b"\0"
    trie = darts({key: places[text] for key, text in keys.items()})
    return base64.b64encode(struct.pack(f"<I{len(trie)}I", 4 * len(trie), *trie) + strings).decode()


def darts(keys: Mapping[bytes, int]) -> list[int]:
    """A double array: a node's children lie at its base ^ byte, its value at its base."""
    tree: dict[int, Any] = {}
    for key, value in keys.items():
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units: dict[int, int] = {0: 0}
    bases: set[int] = set()  # each of one node, so that a label tells whose child a unit is
    nodes, low = [(0, tree)], 256
    while nodes:
        at, node = nodes.pop()
        base = low
        while base in bases or any(base ^ byte in units for byte in node):
            base += 1
        bases.add(base)
        low = max(low, base - 512)
        relative = at ^ base
        assert relative < 1 << 21
        units[at] |= relative << 10 | (1 << 8 if 0 in node else 0)
        for byte, child in node.items():
            units[base ^ byte] = child | 1 << 31 if byte == 0 else byte
            if byte:
                nodes.append((base ^ byte, child))
    return [units.get(at, 0) for at in range(max(units) + 256)]


@cache
def precompiled() -> Any:
    whole = json.loads(tokenizers.Tokenizer(models.WordLevel({"?": 0}, unk_token="?")).to_str())
    whole["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap()}
    return tokenizers.Tokenizer.from_str(json.dumps(whole)).normalizer


# ---- tokenizers of the wheel ----


@cache
def corpus() -> list[str]:
    chance, odd = random.Random(5), Texts(9, SENTENCE)
    return [f"{' '.join(chance.choices(SENTENCE, k=10))} {odd.one()}" for _ in range(1500)]


def unigram(normalizer: Any, pre: Any, *added: AddedToken) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizer, pre
    trainer = trainers.UnigramTrainer(
        vocab_size=9000, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    made.add_tokens([MASK, *added])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return made


def bpe(normalizer: Any, pre: Any, *added: AddedToken, **settings: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE(**settings))
    made.normalizer, made.pre_tokenizer = normalizer, pre
    trainer = trainers.BpeTrainer(
        vocab_size=2500,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(corpus(), trainer)
    made.add_tokens([MASK, *added])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def wordpiece(*added: AddedToken, post: Any = None) -> tokenizers.Tokenizer:
    """As mpnet has it: special tokens are looked for in the normalised text."""
    pieces = {text: number for number, text in enumerate([*SPECIAL, "the", "##s", "fox", "##es"])}
    for number in range(26):
        for text in (chr(97 + number), f"##{chr(97 + number)}"):
            pieces.setdefault(text, len(pieces))
    made = tokenizers.Tokenizer(models.WordPiece(pieces, unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens([AddedToken(text, normalized=True) for text in SPECIAL])
    made.add_tokens([MASK, *added])
    made.post_processor = post or processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def split(*patterns: str) -> Any:
    parts = [pre_tokenizers.Split(Regex(text), "isolated") for text in patterns]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*parts, level])


N, P = normalizers, pre_tokenizers
CASES: Final[dict[str, Callable[[], tokenizers.Tokenizer]]] = {
    "unigram, Metaspace": lambda: unigram(None, P.Metaspace()),
    "xlm-roberta": lambda: unigram(
        N.Sequence([precompiled(), N.Replace(Regex(" {2,}"), " ")]),
        P.Sequence([P.WhitespaceSplit(), P.Metaspace()]),
    ),
    "deberta": lambda: unigram(
        N.Sequence([N.Strip(), precompiled(), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace()
    ),
    "albert": lambda: unigram(
        N.Sequence(
            [
                N.Replace("``", '"'),
                N.Replace("''", '"'),
                N.NFKD(),
                N.StripAccents(),
                N.Lowercase(),
                precompiled(),
            ]
        ),
        P.Metaspace(),
    ),
    "unigram, first": lambda: unigram(
        N.NFKC(), P.Metaspace(prepend_scheme="first"), AddedToken("fox", single_word=True)
    ),
    "unigram, never": lambda: unigram(
        N.Sequence([N.Nmt(), N.NFD()]), P.Metaspace(prepend_scheme="never")
    ),
    "roberta": lambda: bpe(
        None,
        P.ByteLevel(add_prefix_space=False),
        AddedToken("<x>", normalized=True),
        AddedToken("brown", single_word=True, rstrip=True),
    ),
    "prefix": lambda: bpe(N.NFC(), P.ByteLevel(add_prefix_space=True)),
    "modernbert": lambda: bpe(
        N.NFC(),
        P.ByteLevel(add_prefix_space=False),
        *(AddedToken(" " * count, normalized=True) for count in range(2, 10)),
    ),
    "llama-3": lambda: bpe(None, split(GPT4), ignore_merges=True),
    "qwen": lambda: bpe(N.NFC(), split(GPT4.replace("{1,3}", ""))),
    "gpt-4o": lambda: bpe(None, split(GPT4O)),
    "deepseek": lambda: bpe(
        None, split(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK, r"\s+$")
    ),
    "digits": lambda: bpe(
        N.NFKC(),
        P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]),
    ),
    "whitespace": lambda: bpe(N.Lowercase(), P.Whitespace(), unk_token="<unk>", fuse_unk=True),
    "punctuation": lambda: bpe(
        None, P.Sequence([P.WhitespaceSplit(), P.Punctuation("contiguous")]), unk_token="<unk>"
    ),
    "previous": lambda: bpe(None, P.Split(" ", "merged_with_previous"), unk_token="<unk>"),
    "delimiter": lambda: bpe(None, P.CharDelimiterSplit("e")),
    "llama-2": lambda: bpe(
        N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None, unk_token="<unk>",
        fuse_unk=True,
    ),
    "mpnet": wordpiece,
    "bytes": lambda: with_bytes(),
}  # fmt: skip


def with_bytes() -> tokenizers.Tokenizer:
    """A BPE whose unknown chars are their bytes."""
    whole = json.loads(
        bpe(N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None).to_str()
    )
    vocabulary = whole["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    (mask,) = (token for token in whole["added_tokens"] if token["content"] == "<mask>")
    mask["id"] = len(vocabulary)
    whole["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


@contextmanager
def ours(of: tokenizers.Tokenizer, folder: Path) -> Iterator[Tokenizer]:
    path = folder / "tokenizer.json"
    of.save(str(path))
    with closing(Tokenizer(compile_file(path))) as made:
        yield made


@cache
def made(name: str) -> tokenizers.Tokenizer:
    """Trained once; not to be changed."""
    return CASES[name]()


def pieces_of(wheel: tokenizers.Tokenizer) -> list[str]:
    """Pieces of its vocabulary as they may stand in texts."""
    known = random.Random(3).sample(sorted(wheel.get_vocab()), 40)
    clean = [text.replace("\u0120", " ").replace("\u2581", " ").strip("#") for text in known]
    return [text for text in [*clean, *SENTENCE, *SPECIAL, "<mask>", "<x>", " <mask>"] if text]


@pytest.mark.parametrize("name", CASES)
def test_ids_are_the_wheels(tmp_path: Path, name: str) -> None:
    wheel = made(name)
    texts = Texts(7, pieces_of(wheel), 30)
    with ours(wheel, tmp_path) as mine:
        for number in range(STRINGS // 3):
            first, second = texts.one(), texts.one() if number % 5 == 0 else None
            found = wheel.encode(first, second)
            assert mine.encode(first, second, tokens_max=4096) == (found.ids, found.type_ids), first


@pytest.mark.parametrize(
    "behaviour",
    ["isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"],
)
def test_matches_beside_each_other(tmp_path: Path, behaviour: str) -> None:
    """Of tokens that would reach over the border of two pieces, in all short texts."""
    merges = [(" ", " "), ("a", "a"), ("a", " "), (" ", "a")]
    names = [*SPECIAL, " ", "a", *("".join(pair) for pair in merges)]
    vocabulary = {name: number for number, name in enumerate(names)}
    wheel = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    wheel.pre_tokenizer = P.Split(" ", behaviour)
    wheel.add_special_tokens(SPECIAL)
    wheel.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    with ours(wheel, tmp_path) as mine:
        for length in range(1, 7):
            for letters in itertools.product(" a", repeat=length):
                text = "".join(letters)
                assert mine.encode(text, tokens_max=64)[0] == wheel.encode(text).ids, text


@pytest.mark.parametrize("name", ["xlm-roberta", "roberta", "modernbert", "llama-3", "mpnet"])
def test_long_texts_are_read_in_parts_that_nobody_sees(tmp_path: Path, name: str) -> None:
    """Longer than a window, with runs of blanks at its borders."""
    wheel, chance = made(name), random.Random(2)
    with ours(wheel, tmp_path) as mine:
        for _ in range(4):
            words = chance.choices([*SENTENCE, *SPECIAL, "<mask>", "a" * 200, "!", "1"], k=4000)
            blanks = chance.choices([" ", "  ", "   \n", "\n", "\u3000 ", " " * 300], k=4000)
            text = "".join(a + b for pair in zip(words, blanks, strict=True) for a, b in [pair])
            found = wheel.encode(text)
            assert mine.encode(text, tokens_max=1 << 18)[0] == found.ids
            for direction, cut in (("right", "end"), ("left", "start")):
                wheel.enable_truncation(100, direction=direction)
                assert mine.encode(text, tokens_max=100, cut=cut)[0] == wheel.encode(text).ids
                wheel.no_truncation()


@pytest.mark.parametrize("name", ["xlm-roberta", "roberta", "llama-2", "deepseek"])
def test_texts_that_are_one_word_or_none(tmp_path: Path, name: str) -> None:
    """Of megabytes: each is read in a time that grows as its length does."""
    with ours(made(name), tmp_path) as mine:
        for text in (
            "a" * 1_000_000,
            " " * 1_000_000,
            "\u0301" * 300_000,
            "a \r" * 300_000,
            "1" * 99,
        ):
            ids, _ = mine.encode(text, tokens_max=1 << 21)
            assert len(ids) >= 2
            assert len(mine.encode(text, tokens_max=64)[0]) <= 64


def replace_and_fuse(*more: Any) -> decoders.Decoder:
    """SentencePiece's BPE as Llama's files have it."""
    return decoders.Sequence([decoders.Replace("\u2581", " "), *more])


DECODERS: Final[Mapping[str, Callable[[], decoders.Decoder]]] = {
    "xlm-roberta": lambda: decoders.Metaspace(),
    "roberta": lambda: decoders.ByteLevel(),
    "modernbert": lambda: decoders.ByteLevel(),
    "whitespace": lambda: decoders.Metaspace(prepend_scheme="never"),
    "mpnet": lambda: decoders.WordPiece(),
    "punctuation": lambda: decoders.WordPiece(prefix="e", cleanup=False),
    "llama-2": lambda: replace_and_fuse(decoders.Fuse(), decoders.Strip(" ", 1, 0)),
    "bytes": lambda: replace_and_fuse(
        decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    ),
    "digits": lambda: replace_and_fuse(decoders.ByteFallback(), decoders.Fuse()),
}


@pytest.mark.parametrize("name", [*DECODERS, "previous"])
def test_texts_are_made_of_tokens_as_the_wheel_makes_them(tmp_path: Path, name: str) -> None:
    """Of tokens of texts, and of any."""
    wheel, chance = tokenizers.Tokenizer.from_str(made(name).to_str()), random.Random(4)
    if name in DECODERS:
        wheel.decoder = DECODERS[name]()
    texts, count = Texts(8, pieces_of(wheel), 30), wheel.get_vocab_size()
    special = sorted(wheel.get_added_tokens_decoder())
    with ours(wheel, tmp_path) as mine:
        for number in range(STRINGS // 6):
            ids = wheel.encode(texts.one()).ids
            if number % 2:
                ids = chance.choices([*special, *range(max(0, count - 300), count)], k=12)
            skips = number % 3 > 0
            assert mine.decode(ids, skips_special=skips) == wheel.decode(ids, skips), ids
        with pytest.raises(EngineError, match=f"expected ids below {count}, found {count}"):
            mine.decode([0, count])


def test_a_decoder_that_is_not_known_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    wheel = tokenizers.Tokenizer.from_str(made("roberta").to_str())
    wheel.decoder = decoders.CTC()
    with ours(wheel, tmp_path) as mine:
        assert mine.encode("a fox", tokens_max=9)[0] == wheel.encode("a fox").ids
        with pytest.raises(EngineError, match="decoder is not implemented"):
            mine.decode([1])


def changed(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    path = folder / "tokenizer.json"
    made(name).save(str(path))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def pattern(text: str) -> Callable[[dict[str, Any]], object]:
    split = {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}
    return lambda document: document.update(pre_tokenizer=split)


def replaced(**what: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document.update(normalizer={"type": "Replace", "content": "", **what})


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("roberta", lambda d: d["model"].update(dropout=0.1), "dropout: expected none, found 0.1"),
        ("roberta", lambda d: d["model"].update(end_of_word_suffix="</w>"), "found '</w>'"),
        ("roberta", lambda d: d["model"]["merges"].append(["qq", "zz"]), "found 'qq' and 'zz'"),
        ("roberta", lambda d: d["model"]["vocab"].update({"zz": 5}), "ids, each once"),
        ("roberta", lambda d: d["model"]["vocab"].update({"zz": -5}), "expected ids of 0.."),
        ("roberta", pattern("a(?=b)"), "expected (?:, (?i: or (?!"),
        ("roberta", pattern("(ab)+"), "expected no repeated group"),
        ("roberta", pattern("a*"), "that matches something, found a*"),
        ("roberta", pattern("a|*"), "expected a character or a class"),
        ("roberta", pattern(r"\d+"), "expected a known escape"),
        ("roberta", pattern(r"\p{Greek}"), "expected a known property"),
        ("roberta", pattern("[a&&b]"), "no class within a class"),
        ("roberta", pattern("(" * 40 + "a" + ")" * 40), "groups within each other"),
        ("roberta", pattern("x" * 300), "at most 256 steps"),
        ("roberta", pattern("("), "expected something that matches"),
        ("roberta", replaced(pattern={"Regex": "ab+"}), "one class in a row"),
        ("roberta", replaced(pattern={"String": ""}), "found an empty one"),
        ("roberta", replaced(pattern={"String": "x" * 20}), "at most 16 characters"),
        ("llama-2", lambda d: d["model"].update(byte_fallback=True), "<0x00> to <0xFF>"),
        ("llama-2", lambda d: d["model"].update(unk_token="?!"), "unk_token: found no '?!'"),
        ("xlm-roberta", lambda d: d["model"].update(unk_id=None), "unk_id: expected 0.."),
        ("xlm-roberta", lambda d: d["model"]["vocab"].append(["a", 0.5]), "each piece once"),
        ("xlm-roberta", lambda d: d["model"]["vocab"][5].reverse(), "expected a piece and a score"),
        ("xlm-roberta", lambda d: d["model"]["vocab"][5].__setitem__(1, float("nan")), "finite"),
        (
            "xlm-roberta",
            lambda d: d["normalizer"]["normalizers"][0].update(precompiled_charsmap="?"),
            "expected base64",
        ),
        (
            "xlm-roberta",
            lambda d: d["normalizer"]["normalizers"][0].update(precompiled_charsmap="AAAA/w=="),
            "expected a map and its length",
        ),
        (
            "xlm-roberta",
            lambda d: d["pre_tokenizer"]["pretokenizers"][1].update(replacement="_"),
            "Metaspace: expected the replacement",
        ),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(
    tmp_path: Path, name: str, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    path = changed(tmp_path, name, change)
    with pytest.raises(ConfigError) as error:
        compile_file(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)


def small(name: str) -> dict[str, Any]:
    """A tokenizer of few pieces, so that its other parts change as often."""
    document: dict[str, Any] = json.loads(made(name).to_str())
    model = document["model"]
    if model["type"] == "Unigram":
        model["vocab"] = model["vocab"][:12]
    else:
        model["merges"] = model["merges"][:4]
        used = {text for pair in model["merges"] for text in (*pair, "".join(pair))} | {*SPECIAL}
        model["vocab"] = {text: number for number, text in enumerate(sorted(used))}
    for token in document["added_tokens"]:
        known = (
            [text for text, _ in model["vocab"]] if model["type"] == "Unigram" else model["vocab"]
        )
        token["id"] = (
            list(known).index(token["content"]) if token["content"] in known else len(known)
        )
    document["added_tokens"] = [
        token for token in document["added_tokens"] if token["content"] in (*SPECIAL, "<mask>")
    ]
    return document


@pytest.mark.parametrize("name", ["xlm-roberta", "gpt-4o"])
def test_wrong_types_are_refused_or_harmless(tmp_path: Path, name: str) -> None:
    path, outcomes = tmp_path / "tokenizer.json", set()
    for document in (small(name), *mutants(small(name), 40)):
        path.write_text(json.dumps(document))
        try:
            data = compile_file(path)
        except ConfigError as error:
            assert "expected" in str(error) or "found" in str(error)  # noqa: PT017 -- some are right
            outcomes.add("refused")
            continue
        with closing(Tokenizer(data)) as mine:
            mine.encode("the <mask> quick brown foxes\u0301 12", tokens_max=64)
            outcomes.add("read")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize("name", ["xlm-roberta", "deepseek", "bytes", "mpnet"])
def test_a_damaged_file_is_refused_or_harmless(tmp_path: Path, name: str) -> None:
    """A file with any byte changed is refused, or its ids are those of its vocabulary."""
    wheel, chance, outcomes = made(name), random.Random(3), set()
    with ours(wheel, tmp_path):
        whole = compile_file(tmp_path / "tokenizer.json")
    count = wheel.get_vocab_size() + 1
    for at in [*range(300), *(chance.randrange(len(whole)) for _ in range(100))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        try:
            mine = Tokenizer(bytes(damaged))
        except EngineError as error:
            assert "damaged" in str(error)  # noqa: PT017 -- most are refused, and some may be right
            outcomes.add("refused")
            continue
        with closing(mine):
            ids, _ = mine.encode("the quick <mask> bröwn \u0301 fóx 12 が\r\n", tokens_max=64)
            assert all(0 <= number < count + 256 for number in ids)
            outcomes.add("read")
    assert outcomes == {"read", "refused"}
