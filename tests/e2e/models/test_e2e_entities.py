"""Token classification: entities are those of Hugging Face's pipeline, of the same logits."""

from __future__ import annotations

import asyncio
import json
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
from text_folders import ENTITIES, SPECIAL, TABLE, TOKEN_HEAD, TYPES

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import BadRequest

pytestmark = pytest.mark.once  # what runs models: the same on both backends

KINDS: Final = (text_folders.tokenizer, text_folders.unigram, text_folders.byte_level)
STRATEGIES: Final = ("none", "simple", "first", "average", "max")
TEXTS: Final = (
    "a cat sits on the mat.",
    "",
    "dogs runs fast,  the \u00e9 cat \U0001f600 runs slowly!",
    "caf\u00e9 dogs cats the dogs",
    'the "dog" \\ \u3000 at',
)
# Of bytes that the tokenizer has: the wheel shifts the places behind others.
KNOWN: Final = ("a cat sits on the dog.", "", "dogs  run at the cat", "that ate the sun.")


def words_of(
    kind: Callable[[], tokenizers.Tokenizer], text: str
) -> list[tuple[int, int, int, int, bool, np.ndarray]]:
    """Of each token that is the text's: index, id, start, end, whether it goes on, its softmax."""
    wheel = kind()
    wheel.enable_truncation(16)
    found = wheel.encode(text)
    logits = (TABLE[found.ids] + TYPES[found.type_ids]) @ TOKEN_HEAD
    tokens = []
    for at, (number, (start, end)) in enumerate(zip(found.ids, found.offsets, strict=True)):
        if found.special_tokens_mask[at]:
            continue
        while start < end and text[start] == " ":
            start += 1
        name = wheel.id_to_token(number)
        if kind is text_folders.tokenizer:
            goes_on = len(name) != end - start and number != SPECIAL.index("[UNK]")
        else:
            goes_on = start > 0 and " " not in text[start - 1 : start + 1] and name != "<unk>"
        exp = np.exp(logits[at] - logits[at].max())
        tokens.append((at, number, start, end, goes_on, exp / exp.sum()))
    return tokens


def tag_of(label: str) -> tuple[str, str]:
    return (label[0], label[2:]) if label[:2] in ("B-", "I-") else ("I", label)


def pipeline(kind: Callable[[], tokenizers.Tokenizer], text: str, strategy: str) -> list[Any]:
    """transformers' TokenClassificationPipeline, from the softmax on."""
    tokens = words_of(kind, text)
    words: list[list[Any]] = []
    for token in tokens:
        if strategy in ("none", "simple") or not words or not token[4]:
            words.append([])
        words[-1].append(token)
    entities = []
    for word in words:
        rows = np.array([token[5] for token in word])
        row = rows[0]
        if strategy == "max":
            row = rows[rows.max(1).argmax()]
        elif strategy == "average":
            row = rows.mean(0)
        label = ENTITIES[int(row.argmax())]
        entities.append((label, float(row.max()), word[0][2], word[-1][3], word[0]))
    if strategy == "none":
        wheel = kind()
        return [
            {
                "entity": label,
                "score": pytest.approx(score, abs=1e-5),
                "index": first[0],
                "word": text[start:end]
                if wheel.id_to_token(first[1]) in ("[UNK]", "<unk>")
                else wheel.id_to_token(first[1]),
                "start": start,
                "end": end,
            }
            for label, score, start, end, first in entities
            if label != "O"
        ]
    groups: list[list[Any]] = []
    for entity in entities:
        begins, tag = tag_of(entity[0])
        if not groups or tag_of(groups[-1][-1][0])[1] != tag or begins == "B":
            groups.append([])
        groups[-1].append(entity)
    return [
        {
            "entity_group": tag_of(group[0][0])[1],
            "score": pytest.approx(np.mean([one[1] for one in group]), abs=1e-5),
            "word": text[group[0][2] : group[-1][3]],
            "start": group[0][2],
            "end": group[-1][3],
        }
        for group in groups
        if group[0][0] != "O"
    ]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("entities")
    for kind in KINDS:
        files = text_folders.entities_files()
        text_folders.write(root / kind.__name__, files, kind=kind, is_entities=True)
    return root


@pytest.fixture(scope="module")
def served(models: Path, cache: Path) -> Iterator[Server]:
    with Server({"repository": {"paths": [str(models)]}, "models": []}, cache) as server:
        yield server


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_entities_are_the_pipelines(
    served: Server, kind: Callable[[], tokenizers.Tokenizer], strategy: str
) -> None:
    path = f"/v1/models/{kind.__name__}:entities"
    parameters = {"aggregation_strategy": strategy}
    texts = KNOWN if kind is text_folders.byte_level else TEXTS
    expected = [pipeline(kind, text, strategy) for text in texts]
    assert ask(served, path, {"inputs": texts, "parameters": parameters}) == expected
    for text, one in zip(texts, expected, strict=True):
        assert ask(served, path, {"inputs": text, "parameters": parameters}) == one
    assert any(expected)


def test_entities_by_every_way(served: Server) -> None:
    """Tensors, rows, the native protocol and both clients: by the model's own strategy."""
    kind = text_folders.tokenizer
    expected = [pipeline(kind, text, "simple") for text in TEXTS]
    inputs = [{"name": "text", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}]
    outputs = ask(served, "/v2/models/tokenizer/infer", {"inputs": inputs})["outputs"]
    (found,) = (output for output in outputs if output["name"] == "entities")
    assert [json.loads(text) for text in found["data"]] == expected
    rows = ask(served, "/v1/models/tokenizer:predict", {"instances": TEXTS})["predictions"]
    assert [json.loads(row["entities"]) for row in rows] == expected
    before = bulk_ns(served)
    many = ask(served, "/v1/models/tokenizer:entities", {"inputs": TEXTS * 40})
    assert many == expected * 40
    assert bulk_ns(served) > before  # they give way, as texts of other models do

    def check(found: Any, one: Any) -> None:
        places = [[(one.start, one.end) for one in row] for row in found]
        assert places == [[(one["start"], one["end"]) for one in row] for row in expected]
        assert [entity.label for entity in one[0]] == [e["entity_group"] for e in expected[0]]
        assert [entity.word for entity in one[0]] == [e["word"] for e in expected[0]]
        assert [entity.score for entity in one[0]] == [e["score"] for e in expected[0]]

    with Client("127.0.0.1", served.port) as client:
        check(client.entities("tokenizer", TEXTS), client.entities("tokenizer", TEXTS[0]))
        with pytest.raises(BadRequest, match="expected one that gives vectors of"):
            client.embed("tokenizer", "a")

    async def asked() -> Any:
        async with AsyncClient("127.0.0.1", served.port) as client:
            return await asyncio.gather(
                client.entities("tokenizer", TEXTS), client.entities("tokenizer", TEXTS[0])
            )

    check(*asyncio.run(asked()))


@pytest.mark.parametrize(
    ("path", "body", "code", "says"),
    [
        ("tokenizer:entities", {"inputs": 1}, 422, "inputs: expected a text or a list of texts"),
        ("tokenizer:entities", {}, 422, 'field "inputs" is missing'),
        ("none:entities", {"inputs": "a"}, 404, "none"),
        (
            "tokenizer:entities",
            {"inputs": "a", "parameters": {"aggregation_strategy": "best"}},
            422,
            "expected none, simple, first, average or max, found 'best'",
        ),
        (
            "tokenizer:entities",
            {"inputs": "dogs " * 40, "truncate": False},
            422,
            "text 0: expected at most 16 tokens, found more",
        ),
    ],
)
def test_refusals(served: Server, path: str, body: Any, code: int, says: str) -> None:
    found, answer = refused(served, f"/v1/models/{path}", body)
    assert found == code
    assert says in str(answer)


def test_other_paths_say_what_the_model_is(served: Server) -> None:
    for path, body in (("/embed", {"inputs": "a"}), ("/predict", {"inputs": "a"})):
        assert refused(served, path, body)[0] == 404


def test_hugging_faces_client(models: Path, cache: Path) -> None:
    """One server for one model, which no request names."""
    from huggingface_hub import InferenceClient, close_session

    path, text = models / "tokenizer", TEXTS[2]
    settings = {
        "models": [{"name": "one", "path": str(path), "text": {"aggregation": "first"}}],
    }
    with Server(settings, cache) as server:
        client = InferenceClient(f"http://127.0.0.1:{server.port}")
        own = client.token_classification(text)
        average = client.token_classification(text, aggregation_strategy="average")
        close_session()
    for found, strategy in ((own, "first"), (average, "average")):
        expected = pipeline(text_folders.tokenizer, text, strategy)
        assert [(one.entity_group, one.start, one.end) for one in found] == [
            (one["entity_group"], one["start"], one["end"]) for one in expected
        ]
