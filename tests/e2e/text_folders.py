"""Folders of text models as Hugging Face's tools write them, of a graph so small that numpy is its
reference: a token's vector is its row of a table, moved by its type and its position.

Used by tests of texts, on the test's thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import graphs
import numpy as np
import tokenizers
from onnx import TensorProto, helper
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

WIDTH: Final = 6
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS: Final = (
    *("a", "cat", "dog", "sits", "runs", "on", "the", "mat", "fast", "slow", ",", ".", "!", "?"),
    *("query", ":", "##s", "##ly", "é"),
)
LABELS: Final = {0: "good", 1: "bad", 2: "ugly"}
ENTITIES: Final = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC")
_random: Final = np.random.default_rng(11)
TABLE: Final = _random.normal(size=(len(SPECIAL) + len(WORDS), WIDTH)).astype("f4")
TYPES: Final = _random.normal(size=(2, WIDTH)).astype("f4")
HEAD: Final = _random.normal(size=(WIDTH, len(LABELS))).astype("f4")
TOKEN_HEAD: Final = _random.normal(size=(WIDTH, len(ENTITIES))).astype("f4")


def tokenizer() -> tokenizers.Tokenizer:
    """Of BERT's kind, with a vocabulary of a few words."""
    pieces = {text: number for number, text in enumerate((*SPECIAL, *WORDS))}
    made = tokenizers.Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(list(SPECIAL))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


def _roberta(model: Any) -> tokenizers.Tokenizer:
    """A tokenizer whose first pieces are those of RoBERTa and XLM-R."""
    made = tokenizers.Tokenizer(model)
    mask = tokenizers.AddedToken("<mask>", lstrip=True, normalized=False)
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", mask])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def unigram() -> tokenizers.Tokenizer:
    """Of XLM-R's kind."""
    pieces = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        "\u2581",
        "\u2581a",
        "\u2581cat",
        "s",
        "dog",
    ]
    pieces += ["\u2581the", "\u2581dog", "it", "runs", "at", "c", "d", "o", "g", "e", ".", "é"]
    scores = [0.0] * 5 + [-2.0 - number / 8 for number in range(len(pieces) - 5)]
    made = _roberta(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=3))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def byte_level() -> tokenizers.Tokenizer:
    """Of RoBERTa's kind; bytes that it lacks are nothing."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"acdogthesirun.\u0120", "at", "\u0120a"]
    made = _roberta(
        models.BPE(
            {text: number for number, text in enumerate(pieces)}, [("a", "t"), ("\u0120", "a")]
        )
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def vectors(
    first: str,
    second: str | None = None,
    most: int = 16,
    kind: Callable[[], tokenizers.Tokenizer] = tokenizer,
    direction: str = "right",
) -> np.ndarray:
    """The hidden states of a text or a pair, [tokens, WIDTH]."""
    wheel = kind()
    wheel.enable_truncation(most, direction=direction)
    found = wheel.encode(first, second)
    return TABLE[found.ids] + TYPES[found.type_ids]


def _graph(
    path: Path, is_scores: bool, ints: int = TensorProto.INT64, *, is_entities: bool = False
) -> None:
    names = ("input_ids", "attention_mask", "token_type_ids")
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Gather", ["types", "token_type_ids"], ["kinds"]),
        helper.make_node("Add", ["words", "kinds"], ["sum"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
        helper.make_node("Mul", ["sum", "weights"], ["last_hidden_state"]),
    ]
    constants = {"table": TABLE, "types": TYPES, "last": np.array([2], "i8")}
    outputs = [graphs.tensor("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", WIDTH])]
    if is_scores:
        nodes += [
            helper.make_node("ReduceMean", ["last_hidden_state"], ["mean"], axes=[1], keepdims=0),
            helper.make_node("MatMul", ["mean", "head"], ["logits"]),
        ]
        constants["head"] = HEAD
        outputs = [graphs.tensor("logits", TensorProto.FLOAT, ["batch", len(LABELS)])]
    if is_entities:
        nodes += [helper.make_node("MatMul", ["last_hidden_state", "head"], ["logits"])]
        constants["head"] = TOKEN_HEAD
        shape = ["batch", "sequence", len(ENTITIES)]
        outputs = [graphs.tensor("logits", TensorProto.FLOAT, shape)]
    inputs = [graphs.tensor(name, ints, ["batch", "sequence"]) for name in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    graphs.save(path, nodes, inputs, outputs, constants)


def write(
    folder: Path,
    files: dict[str, Any],
    graph: str = "onnx/model.onnx",
    kind: Callable[[], tokenizers.Tokenizer] = tokenizer,
    **rest: Any,
) -> Path:
    """A folder with a tokenizer, a graph and files of JSON, by name.

    Args:
        folder: that is made.
        files: what each holds.
        graph: the graph's place; "" where there is none.
        kind: of its tokenizer.
        rest: of the graph: is_scores, is_entities, ints.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wheel = kind()
    wheel.enable_truncation(5)  # of whoever wrote it: not the model's
    wheel.enable_padding(length=5)
    wheel.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    if graph:
        _graph(folder / graph, rest.pop("is_scores", False), **rest)
    return folder


def sentence_files(pooling: dict[str, Any], normalises: bool = True) -> dict[str, Any]:
    """The files of sentence-transformers around a pooling's settings."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.x.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.Normalize"},
    ]
    return {
        "modules.json": modules if normalises else modules[:2],
        "1_Pooling/config.json": pooling,
        "config.json": {"model_type": "bert", "architectures": ["BertModel"]},
        "sentence_bert_config.json": {"max_seq_length": 16, "do_lower_case": False},
    }


def scores_files(**config: Any) -> dict[str, Any]:
    """The config.json of a classifier."""
    return {
        "config.json": {
            "model_type": "bert",
            "architectures": ["BertForSequenceClassification"],
            "id2label": {str(number): label for number, label in LABELS.items()},
            "max_position_embeddings": 16,
            **config,
        }
    }


def entities_files(**config: Any) -> dict[str, Any]:
    """The config.json of a model that finds entities."""
    return {
        "config.json": {
            "model_type": "bert",
            "architectures": ["BertForTokenClassification"],
            "id2label": {str(number): label for number, label in enumerate(ENTITIES)},
            "max_position_embeddings": 16,
            **config,
        }
    }
