"""Text Embeddings Inference's routes around the tokens: /tokenize, /decode, /embed_all, /info, and
texts that lose their start. What they answer is what the wheel `tokenizers` and numpy make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import text_folders
import tokenizers
from harness import Server
from json_http import ask, refused
from operating import bulk_ns

pytestmark = pytest.mark.once  # what runs models: the same on both backends

KINDS: Final = (text_folders.tokenizer, text_folders.unigram, text_folders.byte_level)
TEXTS: Final = (
    "a cat sits on the mat.",
    "",
    "dogs runs fast,  the \u00e9 cat \U0001f600 runs slowly!",
    "[SEP] </s> cat",
    'the "dog" \\ \u3000 at\u0001\n',
    "the dog runs at a cat. " * 20 + "slow mat",
)
MEAN: Final = {"pooling_mode": "mean"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tokens")
    for kind in KINDS:
        text_folders.write(root / kind.__name__, text_folders.sentence_files(MEAN), kind=kind)
    prompted = text_folders.sentence_files(MEAN, normalises=False)
    prompted["config_sentence_transformers.json"] = {
        "prompts": {"query": "query: "},
        "default_prompt_name": "query",
    }
    text_folders.write(root / "prompted", prompted)
    long = text_folders.sentence_files(MEAN)
    long["sentence_bert_config.json"]["max_seq_length"] = 64
    text_folders.write(root / "long", long)
    text_folders.write(root / "ner", text_folders.entities_files(), is_entities=True)
    text_folders.write(root / "pairs", text_folders.scores_files(), is_scores=True)
    return root


@pytest.fixture(scope="module")
def served(models: Path, cache: Path) -> Iterator[Server]:
    with Server({"repository": {"paths": [str(models)]}, "models": []}, cache) as server:
        yield server


def tokens_of(wheel: tokenizers.Tokenizer, text: str, is_whole: bool = True) -> list[Any]:
    """A text's tokens in Text Embeddings Inference's form: places are bytes."""
    found, tokens = wheel.encode(text, add_special_tokens=is_whole), []
    for at, (number, (start, end)) in enumerate(zip(found.ids, found.offsets, strict=True)):
        one = {"id": number, "text": wheel.id_to_token(number), "special": True}
        one |= {"start": None, "stop": None}
        if not found.special_tokens_mask[at]:
            one |= {"text": text[start:end], "special": False}
            one |= {"start": len(text[:start].encode()), "stop": len(text[:end].encode())}
        tokens.append(one)
    return tokens


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_the_wheels(served: Server, kind: Callable[[], tokenizers.Tokenizer]) -> None:
    wheel, model = kind(), kind.__name__
    # The wheel shifts the places behind bytes that its tokenizer does not have.
    texts = ("a cat.", "", "the sun is at a dog ") if kind is text_folders.byte_level else TEXTS
    whole = [tokens_of(wheel, text) for text in texts]
    assert ask(served, "/tokenize", {"model": model, "inputs": texts}) == whole
    for text, tokens in zip(texts, whole, strict=True):
        assert ask(served, "/tokenize", {"model": model, "inputs": text}) == [tokens]
        bare = {"model": model, "inputs": text, "add_special_tokens": False}
        assert ask(served, "/tokenize", bare) == [tokens_of(wheel, text, is_whole=False)]


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_made_of_ids(served: Server, kind: Callable[[], tokenizers.Tokenizer]) -> None:
    wheel, model = kind(), kind.__name__
    ids = [wheel.encode(text).ids for text in TEXTS]
    for skips in (True, False):
        body = {"model": model, "ids": ids, "skip_special_tokens": skips}
        assert ask(served, "/decode", body) == wheel.decode_batch(ids, skips)
    assert ask(served, "/decode", {"model": model, "ids": ids[0]}) == [wheel.decode(ids[0])]
    assert ask(served, "/decode", {"model": model, "ids": [[], ids[0]]})[0] == ""


@pytest.mark.parametrize("model", ["ner", "pairs"])
def test_every_model_of_texts_has_tokens(served: Server, model: str) -> None:
    wheel = text_folders.tokenizer()
    expected = [tokens_of(wheel, text) for text in TEXTS]
    assert ask(served, "/tokenize", {"model": model, "inputs": TEXTS}) == expected
    many = ask(served, "/tokenize", {"model": model, "inputs": ["a cat"] * 100})
    assert many == [tokens_of(wheel, "a cat")] * 100
    ids = wheel.encode(TEXTS[0]).ids
    assert ask(served, "/decode", {"model": model, "ids": ids}) == [wheel.decode(ids)]


def test_a_prompt_stands_before_the_tokens(served: Server) -> None:
    found = ask(served, "/tokenize", {"model": "prompted", "inputs": "a cat"})
    assert found == [tokens_of(text_folders.tokenizer(), "query: a cat")]


@pytest.mark.parametrize("model", ["prompted", "tokenizer"])
def test_a_vector_for_each_token(served: Server, model: str) -> None:
    """As the graph has them, whatever the model does to whole texts."""
    prompt = "query: " if model == "prompted" else ""
    found = ask(served, "/embed_all", {"model": model, "inputs": TEXTS})
    for text, one in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(one, text_folders.vectors(prompt + text), rtol=1e-6)
    alone = ask(served, "/embed_all", {"model": model, "inputs": TEXTS[0]})
    assert alone == [found[0]]
    whole = ask(served, "/embed", {"model": model, "inputs": TEXTS[0], "normalize": True})
    mean = np.mean(found[0], axis=0)
    np.testing.assert_allclose(whole[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_vectors_of_many_texts_give_way(served: Server) -> None:
    """One thread of those for many texts runs all of them, and no worker."""
    alone = ask(served, "/embed_all", {"model": "tokenizer", "inputs": TEXTS})
    before = bulk_ns(served)
    many = ask(served, "/embed_all", {"model": "tokenizer", "inputs": TEXTS * 20})
    assert bulk_ns(served) > before
    assert many == alone * 20
    before = bulk_ns(served)
    assert ask(served, "/embed_all", {"model": "tokenizer", "inputs": TEXTS}) == alone
    assert bulk_ns(served) == before


def test_vectors_of_too_many_tokens_are_refused(served: Server) -> None:
    """Before there is memory for them, whatever a body holds."""
    texts = ["a " * 50] * 60_000
    code, answer = refused(served, "/embed_all", {"model": "long", "inputs": texts})
    assert code == 422
    assert "at most 2796202 tokens in all texts together, found 3120000" in answer["error"]


def test_a_text_may_lose_its_start(served: Server) -> None:
    body = {"model": "tokenizer", "inputs": TEXTS, "truncation_direction": "Left"}
    found = ask(served, "/embed_all", body)
    for text, one in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(one, text_folders.vectors(text, direction="left"), rtol=1e-6)
    assert found[-1] != ask(served, "/embed_all", {**body, "truncation_direction": "Right"})[-1]
    kept = {**body, "truncate": False}
    code, answer = refused(served, "/embed_all", kept)
    assert code == 422
    assert "text 5: expected at most 16 tokens" in answer["error"]


def test_what_the_server_says_of_its_model(models: Path, cache: Path) -> None:
    kinds = {
        "tokenizer": {"embedding": {"pooling": "mean"}},
        "ner": {"token_classifier": None},
        "pairs": {"classifier": None},
    }
    for name, kind in kinds.items():
        served = {"name": name, "path": str(models / name)}
        with Server({"models": [served]}, cache) as server:
            info = ask(server, "/info")
        assert info["model_id"] == info["served_model_name"] == name
        assert (info["max_input_length"], info["auto_truncate"]) == (16, True)
        ((word, rest),) = info["model_type"].items()
        assert [word] == list(kind)
        if word == "embedding":
            assert info["model_type"] == kind
        else:
            labels = text_folders.ENTITIES if name == "ner" else text_folders.LABELS.values()
            assert rest["id2label"] == {str(at): label for at, label in enumerate(labels)}
            assert rest["label2id"] == {label: at for at, label in enumerate(labels)}


REFUSED: Final = (
    ("/tokenize", {"model": "ner"}, 'field "inputs" is missing'),
    ("/tokenize", {"model": "ner", "inputs": []}, "at least one text"),
    ("/tokenize", {"model": "ner", "inputs": [1]}, "inputs[0]: expected a text"),
    ("/tokenize", {"model": "ner", "inputs": "a", "add_special_tokens": 1}, "add_special_tokens"),
    ("/decode", {"model": "ner"}, 'field "ids" is missing'),
    ("/decode", {"model": "ner", "ids": []}, "ids: expected a list of ids"),
    ("/decode", {"model": "ner", "ids": "a"}, "found a string"),
    ("/decode", {"model": "ner", "ids": [1, 24]}, "ids[1]: expected an id below 24, found 24"),
    ("/decode", {"model": "ner", "ids": [1, -1]}, "ids[1]: expected an id"),
    ("/decode", {"model": "ner", "ids": [[1], 2]}, "ids[1]: expected a list of ids"),
    ("/decode", {"model": "ner", "ids": [[1], [1, "a"]]}, "ids[1][1]: expected an id"),
    ("/decode", {"model": "ner", "ids": [5] * 600_000}, "at most 1048576 bytes"),
    ("/embed_all", {"model": "ner", "inputs": "a"}, "finds entities"),
)


@pytest.mark.parametrize(("path", "body", "says"), REFUSED)
def test_refusals_say_what_was_expected(served: Server, path: str, body: Any, says: str) -> None:
    code, answer = refused(served, path, body)
    assert (code, answer["error_type"]) == (422, "Validation")
    assert says in answer["error"]


def test_a_server_without_texts_has_no_info(cache: Path) -> None:
    with Server({"models": [{"name": "digits", "path": "builtin:digits"}]}, cache) as server:
        code, answer = refused(server, "/info")
    assert code == 404
    assert "no model of texts" in answer["error"]
