"""Folders of text models, served as they are: vectors, labels and rankings are those that numpy
makes of the same tokens, in the form of each client."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import graphs
import numpy as np
import pytest
import text_folders
from harness import Server, eventually
from json_http import ask, refused
from onnx import TensorProto
from operating import Reloaded, bulk_ns, key
from web import Http, chunked, post

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import BadRequest, RateLimited
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what runs models: the same on both backends

Serve = Callable[..., Server]
TEXTS: Final = (
    "a cat sits on the mat.",
    "",
    "the dog runs fast, the cat runs slowly!",
    "[SEP] é unknown",
    "dogs " * 40,
)
POOLINGS: Final = {
    "cls": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    "mean": {"word_embedding_dimension": 6, "pooling_mode_mean_tokens": True},
    "max": {"pooling_mode": "max", "embedding_dimension": 6, "include_prompt": True},
    "mean_sqrt_len": {"pooling_mode_mean_sqrt_len_tokens": True},
    "weightedmean": {"pooling_mode": ["weightedmean"]},
    "lasttoken": {"pooling_mode_lasttoken": True},
    "cls+mean": {"pooling_mode": ["mean", "cls"]},
}
TOKENIZERS: Final = (text_folders.unigram, text_folders.byte_level)


def pooled(which: str, hidden: np.ndarray) -> np.ndarray:
    count = len(hidden)
    places = np.arange(1, count + 1)[:, None]
    parts = {
        "cls": hidden[0],
        "mean": hidden.mean(0),
        "max": hidden.max(0),
        "mean_sqrt_len": hidden.sum(0) / np.sqrt(count),
        "weightedmean": (hidden * places).sum(0) / places.sum(),
        "lasttoken": hidden[-1],
    }
    return np.concatenate([parts[part] for part in which.split("+")])


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of text models beside each other."""
    root = tmp_path_factory.mktemp("texts")
    for name, pooling in POOLINGS.items():
        folder = root / name.replace("+", "-")
        text_folders.write(folder, text_folders.sentence_files(pooling))
    for kind in TOKENIZERS:
        files = text_folders.sentence_files(POOLINGS["mean"])
        text_folders.write(root / kind.__name__, files, kind=kind)
    files = text_folders.sentence_files(POOLINGS["mean"], normalises=False)
    files["config_sentence_transformers.json"] = {
        "prompts": {"query": "query: ", "dog": "the dog "},
        "default_prompt_name": "query",
    }
    text_folders.write(root / "prompted", files, "model.onnx", ints=TensorProto.INT32)
    scores = text_folders.scores_files
    text_folders.write(root / "single", scores(), is_scores=True)
    multi = scores(problem_type="multi_label_classification")
    text_folders.write(root / "multi", multi, is_scores=True)
    cross = scores(sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
    text_folders.write(root / "cross", cross, is_scores=True)
    return root


@pytest.fixture(scope="module")
def served(models: Path, cache: Path) -> Iterator[Server]:
    with Server({"repository": {"paths": [str(models)]}, "models": []}, cache) as server:
        yield server


@pytest.mark.parametrize("which", POOLINGS)
def test_vectors_are_pooled_as_the_folder_says(served: Server, which: str) -> None:
    body = {"model": which.replace("+", "-"), "input": TEXTS}
    answer = ask(served, "/v1/embeddings", body)
    tokens = 0
    for row, (text, one) in enumerate(zip(TEXTS, answer["data"], strict=True)):
        hidden = text_folders.vectors(text)
        tokens += len(hidden)
        assert (one["object"], one["index"]) == ("embedding", row)
        np.testing.assert_allclose(one["embedding"], unit(pooled(which, hidden)), atol=1e-6)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (answer["object"], answer["model"]) == ("list", body["model"])


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_folders_of_other_tokenizers(served: Server, kind: Callable[[], Any]) -> None:
    texts = ["a cat", "", "the  dog runs at a cat, <mask>\u3000dogs", "\uff43at é", "dogs " * 40]
    answer = ask(served, "/v1/embeddings", {"model": kind.__name__, "input": texts})
    for text, one in zip(texts, answer["data"], strict=True):
        hidden = text_folders.vectors(text, kind=kind)
        np.testing.assert_allclose(one["embedding"], unit(hidden.mean(0)), rtol=2e-5, atol=1e-6)


def test_the_same_vectors_by_every_way(served: Server) -> None:
    """OpenAI's floats and base64, Text Embeddings Inference, the Open Inference Protocol with JSON
    and binary tensors, rows, the native protocol."""
    model = "mean"
    floats = ask(served, "/v1/embeddings", {"model": model, "input": TEXTS})["data"]
    expected = np.array([one["embedding"] for one in floats], "f4")
    coded = {"model": model, "input": TEXTS, "encoding_format": "base64"}
    raw = [base64.b64decode(one["embedding"]) for one in ask(served, "/embeddings", coded)["data"]]
    np.testing.assert_array_equal(np.frombuffer(b"".join(raw), "<f4").reshape(-1, 6), expected)
    np.testing.assert_array_equal(
        np.array(ask(served, "/embed", {"model": model, "inputs": TEXTS}), "f4"), expected
    )
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
    outputs = ask(served, f"/v2/models/{model}/infer", {"inputs": [tensor]})["outputs"]
    assert [one["name"] for one in outputs] == ["embedding", "tokens"]
    np.testing.assert_array_equal(np.array(outputs[0]["data"], "f4").reshape(-1, 6), expected)
    rows = ask(served, f"/v1/models/{model}:predict", {"instances": TEXTS})["predictions"]
    np.testing.assert_array_equal(np.array([row["embedding"] for row in rows], "f4"), expected)
    with Client("127.0.0.1", served.port) as client:
        answer = client.infer(model, {"text": np.array(TEXTS, object)})
    np.testing.assert_array_equal(answer.outputs["embedding"], expected)


def test_dimensions_are_cut_before_they_are_normalised(served: Server) -> None:
    body = {"model": "mean", "input": TEXTS[0], "dimensions": 2}
    (one,) = ask(served, "/v1/embeddings", body)["data"]
    expected = unit(pooled("mean", text_folders.vectors(TEXTS[0]))[:2])
    np.testing.assert_allclose(one["embedding"], expected, atol=1e-6)


def test_prompts_stand_before_each_text(served: Server) -> None:
    """A graph of 32-bit integers; the folder's default prompt counts unless another is named, and
    also where tensors are sent."""
    whole = text_folders.vectors("query: " + TEXTS[0]).mean(0)
    inputs = {"model": "prompted", "inputs": TEXTS[0], "normalize": False}
    np.testing.assert_allclose(ask(served, "/embed", inputs)[0], whole, atol=1e-6)
    other = ask(served, "/embed", {**inputs, "prompt_name": "dog"})[0]
    np.testing.assert_allclose(
        other, text_folders.vectors("the dog " + TEXTS[0]).mean(0), atol=1e-6
    )
    with Client("127.0.0.1", served.port) as client:
        answer = client.infer("prompted", {"text": np.array([TEXTS[0]], object)})
    np.testing.assert_allclose(answer.outputs["embedding"][0], whole, atol=1e-6)
    np.testing.assert_allclose(
        ask(served, "/v1/embeddings", {"model": "prompted", "input": TEXTS[0]})["data"][0][
            "embedding"
        ],
        unit(whole),
        atol=1e-6,
    )
    code, answer = refused(served, "/embed", {**inputs, "prompt_name": "cat"})
    assert (code, answer["error"]) == (
        422,
        "prompt_name: expected one of query, dog, found 'cat'",
    )


def test_similarity_is_the_cosine(served: Server) -> None:
    sentences = [TEXTS[2], TEXTS[0]]
    body = {"inputs": {"source_sentence": TEXTS[0], "sentences": sentences}, "model": "cls"}
    found = ask(served, "/similarity", body)
    one, other = (unit(text_folders.vectors(text)[0]) for text in sentences)
    np.testing.assert_allclose(found, [other @ one, 1], atol=1e-6)


def logits(first: str, second: str | None = None) -> np.ndarray:
    return text_folders.vectors(first, second).mean(0) @ text_folders.HEAD


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def sigmoid(scores: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-scores))


@pytest.mark.parametrize(("model", "activate"), [("single", softmax), ("multi", sigmoid)])
def test_labels_come_by_their_scores(
    served: Server, model: str, activate: Callable[[np.ndarray], np.ndarray]
) -> None:
    body = {"inputs": [[text] for text in TEXTS], "model": model}
    answer = ask(served, "/predict", body)
    assert ask(served, "/predict", {"inputs": TEXTS[0], "model": model}) == answer[0]
    raw = ask(served, "/predict", {**body, "raw_scores": True})
    for text, labels, plain in zip(TEXTS, answer, raw, strict=True):
        scores = activate(logits(text))
        order = np.argsort(-scores)
        assert [one["label"] for one in labels] == [text_folders.LABELS[at] for at in order]
        np.testing.assert_allclose([one["score"] for one in labels], scores[order], atol=1e-6)
        np.testing.assert_allclose(
            [one["score"] for one in plain], np.sort(logits(text))[::-1], atol=1e-6
        )


def test_rankings_in_three_forms(served: Server) -> None:
    query, documents = "the cat?", [TEXTS[2], TEXTS[0], "dogs"]
    scores = [logits(query, text)[0] for text in documents]
    order = [int(at) for at in np.argsort(scores)[::-1]]
    body = {"model": "cross", "query": query, "documents": documents}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        answer = ask(served, path, {**body, "top_n": 2, "return_documents": path == "/v1/rerank"})
        assert [one["index"] for one in answer["results"]] == order[:2]
        for one, at in zip(answer["results"], order, strict=False):
            assert one["relevance_score"] == pytest.approx(scores[at], abs=1e-6)
            assert one.get("document") == (
                {"text": documents[at]} if path == "/v1/rerank" else None
            )
    bare = ask(
        served,
        "/rerank",
        {"model": "cross", "query": query, "texts": documents, "return_text": True},
    )
    assert [(one["index"], one["text"]) for one in bare] == [(at, documents[at]) for at in order]
    pair = {"inputs": [query, documents[0]], "model": "cross"}
    assert ask(served, "/predict", pair)[0]["score"] == pytest.approx(
        max(logits(query, documents[0])), abs=1e-6
    )


REFUSED: Final = [
    ("/v1/embeddings", {"model": "none", "input": "a"}, 404, "not found: GET /v1/models lists"),
    ("/v1/embeddings", {"model": "cross", "input": "a"}, 400, "model 'cross' scores pairs"),
    ("/v1/embeddings", {"model": "mean"}, 400, 'field "input" is missing'),
    ("/v1/embeddings", {"model": "mean", "input": []}, 400, "at least one text"),
    ("/v1/embeddings", {"model": "mean", "input": [1, 2]}, 400, "check_embedding_ctx_length"),
    ("/v1/embeddings", {"model": "mean", "input": [[1], [2]]}, 400, "check_embedding_ctx_length"),
    ("/v1/embeddings", {"model": "mean", "input": ["a", None]}, 400, "input[1]: expected a text"),
    ("/v1/embeddings", {"model": "mean", "input": "a", "dimensions": 7}, 400, "at most 6, found 7"),
    ("/v1/embeddings", {"model": "mean", "input": "a", "dimensions": 0}, 400, "at least 1"),
    ("/v1/embeddings", {"model": 1, "input": "a"}, 400, "model: expected a string"),
    ("/v1/embeddings", b'{"input": "\\ud800", "model": "mean"}', 400, "malformed escape"),
    ("/v1/embeddings", b"[]", 400, "no JSON object"),
    ("/v1/embeddings", {"model": "mean", "input": "x" * (2 << 20)}, 400, "at most 1048576 bytes"),
    ("/v1/embeddings", {"model": "mean", "input": ["word " * 2_500_000]}, 413, "max_request_bytes"),
    ("/v1/embeddings", {"model": "mean", "input": [""] * 1_000_000}, 413, "at most 65536 texts"),
    ("/embed", {"model": "mean", "inputs": ["a", "a " * 40], "truncate": False}, 422, "text 1: "),
    ("/embed", {"model": "mean", "inputs": "a", "truncation_direction": "Up"}, 422, "or Left"),
    ("/embed", {"model": "mean", "inputs": "a", "normalize": False}, 422, "have length 1"),
    ("/predict", {"model": "single", "inputs": ["a", "b"]}, 422, "a list of lists is a batch"),
    ("/predict", {"model": "cross", "inputs": "a"}, 422, "expected a pair"),
    ("/predict", {"model": "cross", "inputs": [["a"]]}, 422, "a list of two texts"),
    ("/rerank", {"model": "cross", "texts": ["a"]}, 422, '"query" is missing'),
    ("/v2/rerank", {"model": "cross", "query": "a", "documents": []}, 400, "at least one"),
    ("/v2/rerank", {"model": "none", "query": "a", "documents": ["b"]}, 404, "expected 'cross'"),
]


@pytest.mark.parametrize(("path", "body", "code", "said"), REFUSED)
def test_refusals_have_the_form_of_their_clients(
    served: Server, path: str, body: Any, code: int, said: str
) -> None:
    """Row 47."""
    found, answer = refused(served, path, body)
    if path == "/v1/embeddings":
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        sentence = answer["error"]["message"]
        assert answer["error"]["code"] == ("model_not_found" if code == 404 else None)
    elif path == "/v2/rerank":
        sentence = answer["message"]
    else:
        assert answer["error_type"] == "Validation"
        sentence = answer["error"]
    assert (found, said in sentence) == (code, True), (found, sentence)


def test_a_refusal_of_chunks_ends_no_connection(served: Server) -> None:
    """The whole body was read to find its model: the next request can follow."""
    bodies = [json.dumps({"model": name, "input": "a"}).encode() for name in ("none", "mean")]
    with Http(served.port) as link:
        for body, code in zip([*bodies, bodies[0]], (404, 200, 404), strict=True):
            coded = "Transfer-Encoding: chunked"
            link.send(post("/v1/embeddings", chunked(body, 9), coded, length=None))
            answer = link.answer("POST")
            assert (answer.code, answer.closes) == (code, False), answer


def test_many_short_texts_fit_beside_their_slot(served: Server) -> None:
    """Row 47: the densest JSON has far more texts than a slot of its size has room for."""
    answer = ask(served, "/v1/embeddings", {"model": "mean", "input": [""] * 3000})
    vectors = [one["embedding"] for one in answer["data"]]
    assert len(vectors) == 3000
    assert all(vector == vectors[0] for vector in vectors)


def test_a_key_uses_its_own_models_alone(models: Path, cache: Path) -> None:
    keys = [
        {"name": "one", "sha256": _digest("one-token-of-a-client"), "models": ["mean"]},
        {"name": "all", "sha256": _digest("another-token-of-one")},
    ]
    settings = {"repository": {"paths": [str(models)]}, "models": [], "server": {"keys": keys}}
    with Server(settings, cache) as server:
        for token, model, expected in (
            ("one-token-of-a-client", "mean", 200),
            ("one-token-of-a-client", "cls", 403),
            ("another-token-of-one", "cls", 200),
        ):
            body = {"model": model, "input": "a"}
            found = asked_with({"Authorization": f"Bearer {token}"}, server, body)
            assert found == expected, (token, model)


def test_a_key_that_goes_while_texts_come(serve: Serve, tmp_path: Path) -> None:
    """Another key has its number then, and may use the model."""
    text_folders.write(tmp_path / "models/mean", text_folders.sentence_files(POOLINGS["mean"]))
    settings = {"repository": {"paths": [str(tmp_path / "models")]}, "models": []}
    one = Reloaded(serve, tmp_path, {**settings, "server": {"keys": [key("ann")]}})
    body = json.dumps({"model": "mean", "input": "a"}).encode()
    data = post("/v1/embeddings", body, "Authorization: Bearer ann")
    with Http(one.server.port) as link:
        link.send(data[:-1])
        eventually(lambda: one.server.figures().slots_in_use, "a slot for its body")
        one.reload({**settings, "server": {"keys": [key("eve")]}})
        link.send(data[-1:])
        answer = link.answer("POST")
        assert (answer.code, "may not use model 'mean'" in answer.error) == (403, True), answer


def test_a_key_may_be_bound_to_give_way(models: Path, cache: Path) -> None:
    """Whatever its requests say, by HTTP and by the native protocol."""
    keys = [
        {"name": "index", "sha256": _digest("token-of-the-index"), "bulk": True},
        {"name": "people", "sha256": _digest("token-of-people")},
    ]
    settings = {"repository": {"paths": [str(models)]}, "models": [], "server": {"keys": keys}}
    with Server(settings, cache) as server:
        for token, gives_way in (("token-of-the-index", True), ("token-of-people", False)):
            headers = {"Authorization": f"Bearer {token}", "Priority": "u=0"}
            before = bulk_ns(server)
            body = {"model": "mean", "input": "a cat", "priority": 0}
            assert asked_with(headers, server, body) == 200
            assert (bulk_ns(server) > before) == gives_way, token
            before = bulk_ns(server)
            with Client("127.0.0.1", server.port, token=token) as client:
                client.infer("mean", {"text": np.array(["a cat"], object)})
            assert (bulk_ns(server) > before) == gives_way, token


def test_a_key_has_a_rate_of_tokens(models: Path, cache: Path, tmp_path: Path) -> None:
    """A request costs what its texts turn out to have; who owes waits, with texts alone."""
    keys = [
        {"name": "a", "sha256": _digest("token-of-a"), "token_rate": 0.01, "token_burst": 10},
        {"name": "b", "sha256": _digest("token-of-b"), "token_rate": 1e6},
        {"name": "c", "sha256": _digest("token-of-c"), "token_rate": 0.01, "token_burst": 5},
    ]
    settings = {
        "repository": {"paths": [str(models)]},
        "models": [{"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))}],
        "server": {"keys": keys},
    }
    texts = np.array(["a cat"], object)  # four tokens, with the special ones
    x = np.ones((1, 16), np.float32)
    with Server(settings, cache) as server:
        a, b, c = ({"Authorization": f"Bearer token-of-{name}"} for name in "abc")
        body = {"model": "mean", "input": ["a cat", "a cat"]}
        codes = []
        for _ in range(4):
            codes.append(asked_with(a, server, body))
            server.wait_until_idle()  # what it has cost is known soon after the answer
        assert codes == [200, 200, 429, 429]
        assert [asked_with(b, server, body) for _ in range(4)] == [200] * 4
        with Client("127.0.0.1", server.port, token="token-of-a") as client:
            with pytest.raises(RateLimited, match="the token_rate of this key"):
                client.infer("mean", {"text": texts})
            np.testing.assert_array_equal(client.infer("double", {"x": x}).outputs["y"], x + x)
        with Client("127.0.0.1", server.port, token="token-of-b") as client:
            client.infer("mean", {"text": texts})
        # A request that fails costs no tokens, whatever the request before it has cost.
        inputs: tuple[list[str], ...] = (["a cat"], [], [], ["a cat"], [], ["a cat"])
        codes = []
        for given in inputs:
            codes.append(asked_with(c, server, {"model": "mean", "input": given}))
            server.wait_until_idle()
        assert codes == [200, 400, 400, 200, 429, 429]


def asked_with(headers: dict[str, str], server: Server, body: dict[str, Any]) -> int:
    """The code of an answer to a request with these headers."""
    url = f"http://127.0.0.1:{server.port}/v1/embeddings"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _digest(token: str) -> str:
    import hashlib

    return hashlib.sha256(token.encode()).hexdigest()


# ---- clients as people have them ----


def test_openais_client(served: Server) -> None:
    import openai

    expected = [unit(text_folders.vectors(text).mean(0)) for text in TEXTS]
    with openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="x") as client:
        create = client.embeddings.create
        for rest in ({}, {"encoding_format": "float"}):
            answer = create(model="mean", input=list(TEXTS), **rest)  # type: ignore[call-overload]
            found = [one.embedding for one in answer.data]
            np.testing.assert_allclose(found, expected, atol=1e-6)
        assert create(model="cls", input="a", dimensions=2).usage.total_tokens == 3
        assert {"mean", "cross"} <= {model.id for model in client.models.list()}
        assert client.models.retrieve("mean").id == "mean"
        with pytest.raises(openai.NotFoundError, match="model 'none' is not found"):
            create(model="none", input="a")
        with pytest.raises(openai.BadRequestError, match="at least one text"):
            create(model="mean", input=[])


def test_what_both_clients_do_with_texts(served: Server) -> None:
    query, texts = TEXTS[0], [*TEXTS[1:], TEXTS[1]]
    hidden = [text_folders.vectors(text) for text in TEXTS]
    vectors = [unit(pooled("mean", one)) for one in hidden]
    scores = [softmax(logits(text)) for text in TEXTS]
    pairs = [float(logits(query, text)[0]) for text in texts]
    order = sorted(range(len(texts)), key=lambda at: -pairs[at])

    def check(found: Any, one: Any, labels: Any, ranks: Any) -> None:
        np.testing.assert_allclose(found, vectors, atol=1e-6)
        np.testing.assert_allclose(one, vectors[:1], atol=1e-6)
        for row, wanted in zip(labels, scores, strict=True):
            places = np.argsort(-wanted)
            assert [one.label for one in row] == [text_folders.LABELS[at] for at in places]
            np.testing.assert_allclose([one.score for one in row], wanted[places], atol=1e-6)
        assert [one.index for one in ranks] == order
        np.testing.assert_allclose([one.score for one in ranks], np.array(pairs)[order], atol=1e-6)

    with Client("127.0.0.1", served.port) as client:
        check(
            client.embed("mean", TEXTS),
            client.embed("mean", TEXTS[0]),
            client.classify("single", TEXTS),
            client.rerank("cross", query, texts),
        )
        for call, said in (
            (lambda: client.embed("single", "a"), "'single': expected one that gives vectors of"),
            (
                lambda: client.classify("mean", "a"),
                "expected one that gives scores of texts, found",
            ),
            (lambda: client.classify("cross", "a"), "inputs ['text', 'text_pair'] and the outputs"),
            (lambda: client.rerank("single", "a", ["b"]), "scores of pairs of texts, found one of"),
            (lambda: client.embed("mean", []), "takes 1 to 65536 rows in one request, found 0"),
        ):
            with pytest.raises(BadRequest, match=re.escape(said)):
                call()

    async def asked() -> Any:
        async with AsyncClient("127.0.0.1", served.port) as client:
            return await asyncio.gather(
                client.embed("mean", TEXTS),
                client.embed("mean", TEXTS[0]),
                client.classify("single", TEXTS),
                client.rerank("cross", query, texts),
            )

    check(*asyncio.run(asked()))


@pytest.mark.parametrize("which", ["Client", "ClientV2"])
def test_coheres_clients(served: Server, which: str) -> None:
    import cohere

    query, documents = "the cat?", [TEXTS[2], TEXTS[0]]
    scores = [logits(query, text)[0] for text in documents]
    url = f"http://127.0.0.1:{served.port}"
    with getattr(cohere, which)(api_key="x", base_url=url) as client:
        results = client.rerank(model="cross", query=query, documents=documents).results
    assert [one.index for one in results] == sorted(range(2), key=lambda at: -scores[at])
    assert results[0].relevance_score == pytest.approx(max(scores), abs=1e-6)


def test_hugging_faces_client(models: Path, cache: Path) -> None:
    """As of Text Embeddings Inference: one server for one model, which no request names."""
    from huggingface_hub import InferenceClient, close_session

    settings = {"models": [{"name": "one", "path": str(models / "mean")}]}
    with Server(settings, cache) as server:
        found = InferenceClient(f"http://127.0.0.1:{server.port}").feature_extraction(TEXTS[0])
        close_session()
    np.testing.assert_allclose(
        np.reshape(found, -1), unit(text_folders.vectors(TEXTS[0]).mean(0)), atol=1e-6
    )


# ---- many texts in one request: threads of their own, whoever takes a text first ----


@pytest.mark.parametrize("count", [7, 8, 9, 100, 1000])
def test_many_texts_are_answered_in_their_order(served: Server, count: int) -> None:
    texts = [
        " ".join(["a", "cat", "dog", "mat"][: 1 + at % 4] * (1 + at % 3)) for at in range(count)
    ]
    data = ask(served, "/v1/embeddings", {"model": "mean", "input": texts})["data"]
    found = [one["embedding"] for one in data]
    expected = [unit(text_folders.vectors(text).mean(0)) for text in texts]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_priority_says_who_gives_way(served: Server) -> None:
    many, few = ["a cat"] * 16, ["a cat"]
    expected = unit(text_folders.vectors("a cat").mean(0))
    for texts, priority, gives_way in (
        (few, None, False),
        (few, 1, True),
        (few, 0, False),
        (many, None, True),
        (many, 0, False),
        (many * 5, 0, True),
    ):
        before = bulk_ns(served)
        body = {"model": "mean", "input": texts, "priority": priority}
        for one in ask(served, "/v1/embeddings", body)["data"]:
            np.testing.assert_allclose(one["embedding"], expected, atol=1e-6)
        assert (bulk_ns(served) > before) == gives_way, (len(texts), priority)
    for header, priority, gives_way in (
        ("u=3", None, False),
        ("i, u=6", None, True),
        ("u=6", 0, False),  # the body knows more of its request
        ("u=0", 1, True),
    ):
        before = bulk_ns(served)
        body = {"model": "mean", "input": "a cat", "priority": priority}
        assert asked_with({"Priority": header}, served, body) == 200
        assert (bulk_ns(served) > before) == gives_way, (header, priority)
    for path, words, more, gives_way in (
        ("/tokenize", 10, {}, False),
        ("/tokenize", 10_000, {"priority": 0}, True),  # all of it is read
        ("/embed", 10_000, {}, False),
        ("/embed", 10_000, {"truncation_direction": "Left"}, True),
    ):
        before = bulk_ns(served)
        ask(served, path, {"model": "mean", "inputs": "a " * words, **more})
        assert (bulk_ns(served) > before) == gives_way, (path, words, more)
    code, said = refused(served, "/v1/embeddings", {"input": "a", "model": "mean", "priority": -1})
    assert code == 400
    assert "priority" in said["error"]["message"]


def test_tokens_are_counted_by_model(served: Server) -> None:
    def counted() -> int:
        return read(served.stats_path).models["max"]["tokens"]

    for texts in (["a cat", "the dog runs"], ["a"] * 100):
        before = counted()
        answer = ask(served, "/v1/embeddings", {"model": "max", "input": texts})
        used = answer["usage"]["total_tokens"]
        eventually(lambda wanted=before + used: counted() == wanted, "its tokens", found=counted)
    before = counted()
    assert refused(served, "/v1/embeddings", {"model": "max", "input": [1]})[0] == 400
    assert counted() == before


def test_many_pairs_are_scored_in_their_order(served: Server) -> None:
    documents = [f"{'a ' * (at % 9)}cat" for at in range(50)]
    body = {"model": "cross", "query": "the dog?", "texts": documents}
    found = {one["index"]: one["score"] for one in ask(served, "/rerank", body)}
    for at, document in enumerate(documents):
        assert found[at] == pytest.approx(logits("the dog?", document)[0], abs=1e-6)


def test_one_bad_text_of_many_is_named(served: Server) -> None:
    """Row 47."""
    texts = ["a"] * 100
    texts[71] = "a " * 40
    code, answer = refused(served, "/embed", {"model": "mean", "inputs": texts, "truncate": False})
    assert (code, answer["error"]) == (422, "text 71: expected at most 16 tokens, found more")


def test_many_requests_of_many_texts_and_clients_that_leave(served: Server) -> None:
    """Row 47: all at once, some of whose clients do not wait; those that do get their answers."""
    import socket
    import threading

    def leave(number: int) -> None:
        body = json.dumps({"model": "cls", "input": ["a cat"] * (500 + number)}).encode()
        head = f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", served.port)) as link:
            link.sendall(head.replace("Host: a", "Host: localhost").encode() + body)

    def stay(number: int) -> None:
        texts = ["a", "dog", "mat fast"] * (4 + number)
        data = ask(served, "/v1/embeddings", {"model": "cls", "input": texts})["data"]
        expected = [unit(text_folders.vectors(text)[0]) for text in texts]
        np.testing.assert_allclose([one["embedding"] for one in data], expected, atol=1e-6)
        done.append(number)

    done: list[int] = []
    threads = [
        threading.Thread(target=leave if number % 3 == 0 else stay, args=(number,))
        for number in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 20
