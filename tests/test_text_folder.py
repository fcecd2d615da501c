"""Folders of text models: what their files decide, by sentence-transformers' rules, and what is
refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from mutated_json import mutants

from lumen_uring.config import load
from lumen_uring.errors import ConfigError
from lumen_uring.settings.text import TextConfig

MODULES: Final = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.base.modules.pooling.Pooling", "path": "1_Pooling"},
]
NORMALIZE: Final = {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}
BERT: Final = {"model_type": "bert", "max_position_embeddings": 512}
SCORES: Final = {
    **BERT,
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "bad", "1": "good"},
}
SENTENCE: Final = {
    "config.json": BERT,
    "modules.json": [*MODULES, NORMALIZE],
    "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
}


def folder(at: Path, files: dict[str, Any], *graphs: str) -> Path:
    for name, content in {"tokenizer.json": {}, **files}.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(content if isinstance(content, str) else json.dumps(content))
    for graph in graphs or ("onnx/model.onnx",):
        (at / graph).parent.mkdir(parents=True, exist_ok=True)
        (at / graph).touch()
    return at


def read(at: Path, *overrides: str) -> tuple[TextConfig, str, str]:
    """What is decided, the graph's name, and the line that says it."""
    (model,) = load(models=[f"m={at}"], overrides=overrides).models
    assert model.text is not None
    assert model.origin is not None
    (said,) = model.origin.notes
    return model.text, str(Path(model.path).relative_to(at)), said


def refused(at: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(models=[f"m={at}"], overrides=overrides)
    return str(caught.value)


def test_a_sentence_transformers_folder(tmp_path: Path) -> None:
    files = {
        **SENTENCE,
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "tokenizer_config.json": {"model_max_length": 128},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "document": ""},
            "default_prompt_name": None,
        },
    }
    at = folder(tmp_path / "m", files, "onnx/model.onnx", "onnx/model_quantized.onnx")
    text, graph, said = read(at)
    assert (text.task, text.pooling, text.normalize) == ("embedding", ("mean",), True)
    assert (text.max_tokens, graph) == (256, "onnx/model.onnx")
    assert (text.prompts, text.default_prompt) == ({"query": "query: "}, None)
    assert said == (
        "text: onnx/model.onnx; mean pooling; normalised; at most 256 tokens; prompts query; "
        "other variants: quantized"
    )


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_lasttoken": True, "pooling_mode_max_tokens": True}, ("max", "lasttoken")),
        ({"word_embedding_dimension": 8}, ("mean",)),
        ({"pooling_mode": "weightedmean", "embedding_dimension": 8}, ("weightedmean",)),
        ({"pooling_mode": ["mean", "cls"], "include_prompt": True}, ("cls", "mean")),
    ],
)
def test_both_forms_of_a_pooling(
    tmp_path: Path, pooling: dict[str, Any], expected: tuple[str, ...]
) -> None:
    at = folder(tmp_path / "m", {**SENTENCE, "1_Pooling/config.json": pooling})
    assert read(at)[0].pooling == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 512),
        ({"tokenizer_config.json": {"model_max_length": 128}}, 128),
        ({"tokenizer_config.json": {"model_max_length": 1e30}}, 512),
        ({"sentence_roberta_config.json": {"max_seq_length": 75}}, 75),
        ({"sentence_bert_config.json": {"transformer_task": "x"}}, 512),  # since version 6
        (
            {
                "config.json": {
                    "model_type": "roberta",
                    "max_position_embeddings": 514,
                    "pad_token_id": 1,
                }
            },
            512,
        ),
    ],
)
def test_the_limit_of_tokens(tmp_path: Path, files: dict[str, Any], expected: int) -> None:
    assert read(folder(tmp_path / "m", {**SENTENCE, **files}))[0].max_tokens == expected


@pytest.mark.parametrize(
    ("config", "activation", "has_pairs"),
    [
        ({}, "softmax", None),
        ({"problem_type": "multi_label_classification"}, "sigmoid", None),
        ({"problem_type": "regression"}, "none", None),
        ({"id2label": {"0": "LABEL_0"}}, "sigmoid", None),
        (
            {
                "id2label": {"0": "LABEL_0"},
                "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
            },
            "none",
            True,
        ),
        (
            {
                "sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid",
            },
            "sigmoid",
            True,
        ),
    ],
)
def test_what_becomes_of_scores(
    tmp_path: Path, config: dict[str, Any], activation: str, has_pairs: bool | None
) -> None:
    text, _graph, _said = read(folder(tmp_path / "m", {"config.json": {**SCORES, **config}}))
    assert (text.task, text.activation, text.pairs) == ("scores", activation, has_pairs)
    assert text.labels == tuple({**SCORES, **config}["id2label"].values())


def test_an_entry_counts_more_than_the_folder(tmp_path: Path) -> None:
    graphs = ("onnx/model.onnx", "onnx/model_int8.onnx")
    at = folder(tmp_path / "m", SENTENCE, *graphs)
    text, graph, said = read(at, "models.0.text={pooling: cls, variant: int8, truncate: false}")
    assert (text.pooling, text.normalize, text.truncate) == (("cls",), True, False)
    assert (graph, "cls pooling" in said) == ("onnx/model_int8.onnx", True)


def test_a_pooling_that_no_file_says(tmp_path: Path) -> None:
    at = folder(tmp_path / "m", {"config.json": {**BERT, "architectures": ["BertModel"]}})
    assert "nothing else says how the vectors of tokens become one" in refused(at)
    assert read(at, "models.0.text.pooling=lasttoken")[0].pooling == ("lasttoken",)


def test_a_snapshot_of_hugging_faces_cache(tmp_path: Path) -> None:
    """Its files are links to blobs beside it."""
    blobs = folder(tmp_path / "models--x--y" / "blobs", SENTENCE)
    at = tmp_path / "models--x--y" / "snapshots" / "abc"
    (at / "1_Pooling").mkdir(parents=True)
    (at / "onnx").mkdir()
    for name in ("tokenizer.json", *SENTENCE, "onnx/model.onnx"):
        (at / name).symlink_to(blobs / name)
    assert read(at)[0].pooling == ("mean",)


REFUSED: Final = [
    (
        {"modules.json": [*MODULES, {"type": "x.Dense", "path": "2_Dense"}]},
        "Dense: not implemented",
    ),
    ({"modules.json": {}}, "expected a list of modules, found a dict"),
    ({"1_Pooling/config.json": {"pooling_mode": "median"}}, "found median"),
    ({"1_Pooling/config.json": {"include_prompt": False, "pooling_mode": "cls"}}, "include_prompt"),
    ({"1_Pooling/config.json": "{"}, "1_Pooling/config.json: expected JSON"),
    ({"sentence_bert_config.json": {"max_seq_length": 99999}}, "a limit of 3 to 32768 tokens"),
    ({"config.json": {"model_type": "bert"}}, "max_position_embeddings"),
]


WHOLE: Final = {
    **SENTENCE,
    "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
    "tokenizer_config.json": {"model_max_length": 128},
    "config_sentence_transformers.json": {
        "prompts": {"query": "query: "},
        "default_prompt_name": "query",
    },
}
CROSS: Final = {
    "config.json": {
        **SCORES,
        "model_type": "xlm-roberta",
        "pad_token_id": 1,
        "num_labels": 2,
        "problem_type": "single_label_classification",
        "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
    },
    "tokenizer_config.json": {"model_max_length": 128},
}


@pytest.mark.parametrize("files", [WHOLE, CROSS], ids=["sentence", "cross"])
def test_wrong_types_are_refused_or_harmless(tmp_path: Path, files: dict[str, Any]) -> None:
    outcomes = set()
    for number, changed in enumerate(mutants(files, 400)):
        # A file's whole content may be a text as well: JSON then.
        there = {name: json.dumps(content) for name, content in changed.items()}
        at = folder(tmp_path / str(number), there)
        try:
            load(models=[f"m={at}"])
            outcomes.add("read")
        except ConfigError as error:
            assert "expected" in str(error)  # noqa: PT017 -- some may be right
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize(("files", "said"), REFUSED)
def test_what_is_not_implemented_is_refused_by_name(
    tmp_path: Path, files: dict[str, Any], said: str
) -> None:
    assert said in refused(folder(tmp_path / "m", {**SENTENCE, **files}))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**SCORES, "problem_type": "x"}, "found 'x'"),
        ({**SCORES, "id2label": {}}, "id2label, the names of 1 to 65536 scores, found none"),
        (
            {**SCORES, "id2label": None, "num_labels": 10**12},
            "1 to 65536 scores, found 10000000000",
        ),
        ({**SCORES, "id2label": ["a"]}, "id2label: the scores' names by number, found ['a']"),
        ({**SCORES, "architectures": 5}, "architectures: a list of names, found 5"),
        ({**SCORES, "sentence_transformers": {"activation_fn": "a.B"}}, "found 'a.B'"),
        ({**BERT, "architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM, which is not"),
    ],
)
def test_other_models_are_refused_by_name(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    assert said in refused(folder(tmp_path / "m", {"config.json": config}))


def test_a_folder_without_its_graph(tmp_path: Path) -> None:
    several = folder(tmp_path / "a", SENTENCE, "onnx/model_q4.onnx", "onnx/model_int8.onnx")
    assert "text.variant, one of int8, q4, found several" in refused(several)
    assert "one of int8, q4, found 'x'" in refused(several, "models.0.text.variant=x")
    weights = folder(tmp_path / "b", SENTENCE, "model.safetensors")
    assert f"weights alone: `lumen export {weights}` writes it" in refused(weights)
