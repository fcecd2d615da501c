"""Repositories: each layout becomes entries of the settings; what a file asks for is honoured or
refused by name, with its place."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_uring.cli import COMMANDS, make_parser
from lumen_uring.config import load
from lumen_uring.errors import ConfigError
from lumen_uring.loading.agreement import disagreements
from lumen_uring.repository.model_config import read
from lumen_uring.repository.text_format import TextFormatError, parse
from lumen_uring.repository.tree import Problems, from_json
from lumen_uring.settings.origin import Declared, Origin
from lumen_uring.settings.schema import Config
from lumen_uring.settings.types import VERSION_MAX
from lumen_uring.settings.without import CURE


def place(path: Path, text: str = "") -> Path:
    """A file with its folders; load() does not open models."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def served(config: Config) -> dict[str, str]:
    return {model.name: model.path for model in config.models}


def loaded(*folders: Path) -> Config:
    return load(None, (), (), None, [str(folder) for folder in folders])


def problems(*folders: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(*folders)
    *lines, cure = str(caught.value).splitlines()
    assert cure == CURE
    return lines


# ---- layouts ----


def test_a_repository_of_tritons(tmp_path: Path) -> None:
    old, new = (place(tmp_path / f"iris/{version}/model.onnx") for version in (2, 10))
    place(tmp_path / "iris/01/model.onnx")
    place(tmp_path / "iris/x/model.onnx")
    place(tmp_path / "notes/readme.txt")
    place(tmp_path / ".git/1/model.onnx")
    whole = place(tmp_path / "large/1/model.onnx/model.onnx")
    config = loaded(tmp_path)
    assert served(config) == {"iris": str(new), "large": str(whole)}
    origin = config.models[0].origin
    assert origin is not None
    assert (origin.version, origin.versions) == (10, (2, 10))
    said = "\n".join(config.notes)
    for part in ("iris/01 is no version", "iris/x is no version", "notes holds no model"):
        assert part in said
    assert str(old) not in said


TEXTS = {
    "tokenizer.json": "{}",
    "config.json": '{"architectures": ["BertModel"], "max_position_embeddings": 8}',
    "modules.json": '[{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "p"}]',
    "p/config.json": '{"pooling_mode_mean_tokens": true}',
    "model.onnx": "",
}
LAYOUTS: dict[str, dict[str, str]] = {
    "versions": {"1/model.onnx": ""},
    "a configuration": {"1/model.onnx": "", "config.pbtxt": ""},
    "one file": {"model.onnx": ""},
    "MLServer": {"any.onnx": "", "model-settings.json": "{}"},
    "MLServer's versions": {"1/model.onnx": "", "model-settings.json": "{}"},
    "a text model": TEXTS,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_link_gives_its_name(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after it leads elsewhere, and however the path is written."""
    link = tmp_path / "mine"
    for release in ("aaa111", "bbb222"):
        for name, text in LAYOUTS[layout].items():
            place(tmp_path / "tree" / release / name, text)
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / "tree" / release)
        assert set(served(loaded(link))) == {"mine"}
    monkeypatch.chdir(tmp_path / "tree/aaa111")
    assert set(served(loaded(Path()))) == {"aaa111"}
    if layout != "one file":  # which is no model of a repository
        (tmp_path / "tree/mine").symlink_to("aaa111")
        assert set(served(loaded(tmp_path / "tree"))) == {"aaa111", "bbb222", "mine"}


def test_versions_by_the_second(tmp_path: Path) -> None:
    """As exporters number them; beside others too."""
    for version in (1, 1_764_528_000, VERSION_MAX):
        place(tmp_path / f"m/{version}/model.onnx")
    place(tmp_path / "m/config.pbtxt", "version_policy { all {} }")
    assert list(served(loaded(tmp_path))) == ["m:1", "m:1764528000", f"m:{VERSION_MAX}"]
    place(tmp_path / f"m/{VERSION_MAX + 1}/model.onnx")
    assert list(served(loaded(tmp_path)))[-1] == f"m:{VERSION_MAX}"


def test_a_name_that_cannot_be_served_beside_others(tmp_path: Path) -> None:
    long = "n" * 254
    for version in (1, 2):
        place(tmp_path / f"b/{long}/{version}/model.onnx")
    place(tmp_path / f"b/{long}/config.pbtxt", "version_policy { all {} }")
    (line,) = problems(tmp_path / "b")
    assert "expected at most 255 characters with the version" in line
    assert line.endswith(f"found '{long}:1'")
    place(tmp_path / "c/n m/1/model.onnx")
    (line,) = problems(tmp_path / "c")
    assert line.endswith(
        "expected a name of 1 to 255 letters, digits, '_', '.' or '-', found 'n m'"
    )


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ("latest { num_versions: 2 }", {"m:3": 3, "m:5": 5}),
        ("all {}", {"m:1": 1, "m:3": 3, "m:5": 5}),
        ("specific { versions: [3, 1] }", {"m:1": 1, "m:3": 3}),
        ("specific { versions: [3] }", {"m": 3}),
        ("latest { num_versions: 1 }", {"m": 5}),
    ],
)
def test_version_policies(tmp_path: Path, policy: str, names: dict[str, int]) -> None:
    """One at a time has the name alone; of several each has its version in its name."""
    for version in (1, 3, 5):
        place(tmp_path / f"m/{version}/model.onnx")
    place(tmp_path / "m/config.pbtxt", f"version_policy: {{ {policy} }}")
    models = loaded(tmp_path).models
    assert {model.name: model.version for model in models} == names
    for model in models:
        assert model.base == "m"
        assert model.path == str(tmp_path / f"m/{model.version}/model.onnx")
        assert model.origin is not None
        assert not model.origin.notes
    assert {model.name for model in load(None, [], [f"n={tmp_path}/m"]).models} == {
        name.replace("m", "n") for name in names
    }


def test_a_folder_of_versions_a_file_and_mnt_models(tmp_path: Path) -> None:
    versions = place(tmp_path / "bert/3/anything.onnx").parents[1]
    assert served(loaded(versions)) == {"bert": str(versions / "3/anything.onnx")}
    single = place(tmp_path / "fox/model.onnx").parent
    assert served(loaded(single)) == {"fox": str(single / "model.onnx")}
    named = place(tmp_path / "hen/red.onnx").parent
    assert served(loaded(named)) == {"red": str(named / "red.onnx")}
    assert served(loaded(named / "red.onnx")) == {"red": str(named / "red.onnx")}
    for folder, path in ((versions, "3/anything.onnx"), (single, "model.onnx")):
        config = load(None, ["models.0.max_rows=3"], [f"mine={folder}"])
        assert served(config) == {"mine": str(folder / path)}
        assert config.models[0].max_rows == 3


def test_mlservers_settings(tmp_path: Path) -> None:
    settings = {
        "name": "trees",
        "implementation": "mlserver_onnx.OnnxModel",
        "max_batch_size": 8,
        "max_batch_time": 0.002,
        "parallel_workers": 2,
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 4]}],
        "parameters": {"uri": "./a/trees.onnx", "version": "v2", "extra": {"k": 1}},
    }
    path = place(tmp_path / "one/model-settings.json", json.dumps(settings))
    file = place(tmp_path / "one/a/trees.onnx")
    (model,) = loaded(path.parent).models
    assert (model.name, model.path) == ("trees", str(file))
    assert (model.batch_size, model.batch_delay_us) == (8, 2000)
    assert model.origin is not None
    assert model.origin.declared[0].shape() == [-1, 4]
    said = "\n".join(model.origin.notes)
    assert "'v2' is served as version 1" in said
    assert "parallel_workers is not looked at" in said
    assert served(loaded(tmp_path)) == {"trees": str(file)}
    wrong = {
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "../other.onnx"},
        "inputs": [{"name": "X", "datatype": "FP31"}],
        "speed": 3,
    }
    place(path, json.dumps(wrong))
    assert problems(path.parent) == [
        f"{path} implementation: expected one for ONNX, or none: Lumen runs ONNX, found "
        "'mlserver_sklearn.SKLearnModel'",
        f"{path} inputs.datatype: expected one of TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, TYPE_UINT32, "
        "TYPE_UINT64, TYPE_INT8, TYPE_INT16, TYPE_INT32, TYPE_INT64, TYPE_FP16, TYPE_FP32, "
        "TYPE_FP64, TYPE_STRING, TYPE_BF16, found FP31",
        f"{path} speed: expected one of MLServer's settings of a model, found the unknown field "
        "'speed'",
    ]
    place(path, json.dumps({"parameters": {"uri": "../other.onnx"}}))
    (line,) = problems(path.parent)
    assert line == (
        f"{path} parameters.uri: expected a path below the folder of this file, found "
        "'../other.onnx'"
    )


def test_a_list_of_openvinos(tmp_path: Path) -> None:
    file = place(tmp_path / "r/2/model.onnx")
    elsewhere = place(tmp_path / "far/x.onnx")
    entries = [
        {"config": {"name": "resnet", "base_path": "r", "nireq": 4, "shape": "auto"}},
        {"config": {"name": "x", "base_path": str(elsewhere), "target_device": "CPU"}},
    ]
    path = place(tmp_path / "config.json", json.dumps({"model_config_list": entries}))
    config = loaded(tmp_path)
    assert served(config) == {"resnet": str(file), "x": str(elsewhere)}
    entries[0]["config"]["target_device"] = "GPU"
    place(path, json.dumps({"model_config_list": entries}))
    (provider,) = loaded(tmp_path).models[0].providers
    assert (provider.name, provider.options) == ("openvino", {"device_type": "GPU"})
    entries[0]["config"] |= {"target_device": "TPU", "shape": "(1,3,8,8)", "base_path": "s3://b/r"}
    entries[1]["config"] = {"name": "x"}
    place(
        path, json.dumps({"model_config_list": entries, "mediapipe_config_list": [{"name": "g"}]})
    )
    said = problems(path)
    for part in ("mediapipe_config_list: expected nothing", "target_device: expected CPU",
                 "shape: expected auto", "'s3://b/r'", "base_path: expected a text"):  # fmt: skip
        assert any(part in line for line in said), part
    place(
        path, json.dumps({"model_config_list": [{"config": {"name": "resnet", "base_path": "r"}}]})
    )
    place(tmp_path / "r/2/mapping_config.json", "{}")
    assert "Lumen renames no tensors" in problems(path)[0]


def test_what_is_no_list_of_openvinos(tmp_path: Path) -> None:
    """One that is cut short is said to be no JSON; what others call so is theirs."""
    file = place(tmp_path / "r/2/model.onnx")
    path = place(tmp_path / "config.json", '{"model_config_list": [')
    assert "config.json" in problems(tmp_path)[0]
    for text in ("{", '{"model_type": "bert"}', "[]"):
        path.write_text(text)
        assert served(loaded(tmp_path)) == {"r": str(file)}
    path.unlink()
    os.mkfifo(path)  # nobody writes into it
    assert served(loaded(tmp_path)) == {"r": str(file)}


# ---- what is refused ----


def test_names_that_collide(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        place(tmp_path / f"{folder}/iris/1/model.onnx")
    first, second = tmp_path / "a", tmp_path / "b"
    assert problems(first, second) == [
        f"{second / 'iris'}: expected another name than 'iris', found it: {first / 'iris'} has it "
        "too"
    ]
    with pytest.raises(ConfigError, match="an entry of `models` has it too"):
        load(None, (), ["iris=x.onnx"], None, [str(first)])


def test_links_and_names_that_lead_out(tmp_path: Path) -> None:
    """Row 45."""
    outside = place(tmp_path / "outside/model.onnx")
    inside = tmp_path / "models"
    place(inside / "data/1/model.onnx")
    (inside / "same").symlink_to("data")
    assert set(served(loaded(inside))) == {"data", "same"}
    (inside / "file/1").mkdir(parents=True)
    (inside / "file/1/model.onnx").symlink_to(outside)
    (inside / "folder").symlink_to(outside.parent)
    place(inside / "labels/1/model.onnx")
    text = 'output { name: "y" data_type: TYPE_FP32 label_filename: "../../outside/model.onnx" }'
    place(inside / "labels/config.pbtxt", text)
    place(inside / "name/1/model.onnx")
    place(inside / "name/config.pbtxt", 'default_model_filename: "../../../outside/model.onnx"')
    assert problems(inside) == [
        f"{inside / 'folder'}: expected no link out of the repository {inside}, found one to "
        f"{outside.parent}",
        f"{inside / 'file/1/model.onnx'}: expected no link out of the repository {inside}, found "
        f"one to {outside}",
        f"{inside / 'labels/config.pbtxt'}:1 output.label_filename: expected a file in the model's "
        "folder, found '../../outside/model.onnx'",
        f"{inside / 'name/config.pbtxt'}:1 default_model_filename: expected the name of a file in "
        "the model's folder, found '../../../outside/model.onnx'",
    ]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["a b/1/model.onnx"], "expected a name of 1 to 255 letters"),
        (["m/1/other.txt"], "m/1: expected the file model.onnx, found 'other.txt'"),
        (["m/1/a.onnx", "m/1/b.onnx"], "expected the file model.onnx, found 'a.onnx', 'b.onnx'"),
        (["m/config.pbtxt"], "expected a folder for each version"),
        (["a.onnx", "b.onnx"], "found a.onnx, b.onnx"),
        (["notes/readme"], "expected NAME/1/model.onnx (Triton)"),
        ([], "found an empty folder"),
        (["onnx/model.onnx", "onnx/model_int8.onnx", "config.txt"], "/onnx/model.onnx"),
        (["onnx/model_int8.onnx"], "give lumen "),
        (["model.safetensors", "vocab.txt"], "(optimum-cli export onnx --model "),
    ],
)
def test_folders_that_hold_no_model(tmp_path: Path, files: list[str], says: str) -> None:
    for name in files:
        place(tmp_path / name)
    assert says in problems(tmp_path)[0]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert problems(missing) == [
        f"{missing}: expected a folder of models, or a model's file, found nothing"
    ]


# ---- config.pbtxt ----

FULL = """\
name: "m"  # as the folder
backend: 'onnx' "runtime"
max_batch_size: 300
input [ { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [3, -1], optional: false },
        { name: "t"; data_type: TYPE_STRING; dims: 1 } ]
output < name: "y" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "names.txt" >
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 100 default_queue_policy { } }
parameters { key: "intra_op_thread_count" value: { string_value: "2" } }
parameters: { key: "isolation" value: { string_value: "process" } }
parameters: { key: "author" value: { string_value: "ada" } }
model_warmup { name: "w" batch_size: 1 inputs { key: "x"
  value: { data_type: TYPE_FP32 dims: [3, 4] input_data_file: "first" } } }
default_model_filename: "net.onnx"
model_transaction_policy { decoupled: false }
response_cache { enable: true }
"""


def test_what_a_configuration_asks_for(tmp_path: Path) -> None:
    path = place(tmp_path / "m/config.pbtxt", FULL)
    place(tmp_path / "m/1/net.onnx")
    labels = place(tmp_path / "m/names.txt", "a\nb\n")
    assert problems(tmp_path) == [
        f"{path}:13 model_warmup.inputs.value.input_data_file: expected the file "
        f"{tmp_path / 'm/warmup/first'}, found no such file"
    ]
    place(tmp_path / "m/warmup/first")
    (model,) = loaded(tmp_path).models
    assert model.model_dump(exclude_defaults=True) == {
        "name": "m", "path": str(tmp_path / "m/1/net.onnx"), "labels": str(labels), "max_rows": 300,
        "batch_size": 256, "batch_delay_us": 100, "intra_op_threads": 2, "response_cache": True,
        "isolation": "process",
        "warmup": (
            {
                "name": "w",
                "inputs": {"x": {"shape": (1, 3, 4), "data": str(tmp_path / "m/warmup/first")}},
            },
        ),
    }  # fmt: skip
    assert model.origin is not None
    assert [
        (one.name, one.datatype, one.shape(), one.is_input) for one in model.origin.declared
    ] == [
        ("x", "FP32", [-1, 3, -1], True),
        ("t", "BYTES", [-1, 1], True),
        ("y", "FP32", [-1, 10], False),
        ("x", "FP32", None, True),  # the warm-up's
    ]
    assert [one.format for one in model.origin.declared[:2]] == ["FORMAT_NCHW", "FORMAT_NONE"]
    assert model.origin.declared[2].label_file == "names.txt"
    assert model.origin.file_name == "net.onnx"
    said = "\n".join(model.origin.notes)
    for part in (":7 instance_group.count: 2", "a batch has at most 256", "author is not known"):
        assert part in said


def test_a_reshape_says_the_shape_for_clients(tmp_path: Path) -> None:
    text = 'input { name: "x" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }'
    outer: list[int]
    for rows, inner, outer in ((0, [], [1]), (8, [-1], [-1, 1])):
        place(tmp_path / "m/config.pbtxt", f"max_batch_size: {rows} {text}")
        place(tmp_path / "m/1/model.onnx")
        (model,) = loaded(tmp_path).models
        assert model.origin is not None
        (one,) = model.origin.declared
        assert (one.shape(), one.reshaped()) == (inner, outer)


def test_a_step_without_a_version_runs_the_highest(tmp_path: Path) -> None:
    """By their numbers: 10 comes after 9."""
    config = """
        platform: "ensemble"
        input { name: "x" data_type: TYPE_FP32 dims: [4] }
        output { name: "y" data_type: TYPE_FP32 dims: [4] }
        ensemble_scheduling { step [
          { model_name: "net" model_version: -1 input_map { key: "x" value: "x" }
            output_map { key: "y" value: "y" } }
        ] }
    """
    place(tmp_path / "whole/config.pbtxt", config)
    (tmp_path / "whole/1").mkdir()
    place(tmp_path / "net/config.pbtxt", "version_policy: { all {} }")
    for version in (2, 9, 10):
        place(tmp_path / f"net/{version}/model.onnx")
    [whole] = loaded(tmp_path).ensembles
    assert [step.model for step in whole.steps] == ["net:10"]


def test_an_ensemble_of_tritons(tmp_path: Path) -> None:
    """Its steps stand in the order in which they can run."""
    config = """
        platform: "ensemble" max_batch_size: 8
        input { name: "RAW" data_type: TYPE_UINT8 dims: [-1] }
        output { name: "CLASS" data_type: TYPE_FP32 dims: [10] }
        ensemble_scheduling { step [
          { model_name: "net" model_version: -1 input_map { key: "x" value: "pixels" }
            output_map { key: "y" value: "CLASS" } },
          { model_name: "decode" model_version: -1 input_map { key: "file" value: "RAW" }
            output_map { key: "image" value: "pixels" } }
        ] }
    """
    place(tmp_path / "both/config.pbtxt", config)
    (tmp_path / "both/1").mkdir()
    for name in ("net", "decode"):
        place(tmp_path / f"{name}/1/model.onnx")
    found = loaded(tmp_path)
    assert [model.name for model in found.models] == ["decode", "net"]
    (entry,) = found.ensembles
    assert (entry.name, entry.outputs) == ("both", ("CLASS",))
    assert [(step.model, step.inputs, step.outputs) for step in entry.steps] == [
        ("decode", {"file": "RAW"}, {"image": "pixels"}),
        ("net", {"x": "pixels"}, {"y": "CLASS"}),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('platform: "tensorrt_plan"', "1 platform: expected 'onnxruntime_onnx'"),
        ("ensemble_scheduling { step [ ] }", "scheduling: expected at least one step, found none"),
        (
            'ensemble_scheduling { step { model_name: "a" model_version: 0 } }',
            "expected a version, or -1: the highest, found 0",
        ),
        (
            'input { name: "q" dims: 1 }\nensemble_scheduling { step { model_name: "a" '
            'input_map { key: "x" value: "raw" } } }',
            "1 input: expected what a step takes (raw), found 'q'",
        ),
        (
            'ensemble_scheduling { step [ { model_name: "a" input_map { key: "x" value: "s" } '
            'output_map { key: "y" value: "t" } }, { model_name: "b" '
            'input_map { key: "x" value: "t" } output_map { key: "y" value: "s" } } ] }',
            "expected steps that do not wait for each other, found a circle of a, b",
        ),
        ("sequence_batching { }", "1 sequence_batching: expected "),
        ("model_transaction_policy { decoupled: true }", "decoupled: expected nothing"),
        ("response_cache { enable: 2 }", "response_cache.enable: expected "),
        ("instance_group [ { kind: KIND_MODEL } ]", "instance_group.kind: expected KIND_AUTO"),
        ("max_batch_size: 4\ndynamic_batching { priority_levels: 2 }", "2 dynamic_batching.pri"),
        ("dynamic_batching { default_priority_level: 2 }", "expected at most 0, found 2"),
        ("dynamic_batching { default_queue_policy { timeout_action: X } }", "REJECT or DELAY"),
        ("dynamic_batching { default_queue_policy { max_queue_size: -1 } }", "0..4294967295"),
        (
            'input { name: "x" dims: [2, 3] reshape { shape: [5] } }',
            "input.reshape: expected fixed dimensions, and as many elements in both, found [5] for",
        ),
        ('input { name: "x" dims: [2, -1] reshape { shape: [-1] } }', "expected fixed dimensions"),
        ('input { name: "x" data_type: FP33 }', "data_type: expected one of TYPE_BOOL"),
        ('input { name: "x" data_type: TYPE_FP32 dims: 0 }', "above 0, or -1, found 0"),
        ('name: "n"', "1 name: expected 'm', as its folder, found 'n'"),
        ("max_batch_size: 1.5", "expected a whole number, 0..4294967295, found 1.5"),
        ("max_batch_size: 1 max_batch_size: 2", "expected a whole number, 0..4294967295, once"),
        ("version_policy { specific { versions: 7 } }", "versions that are there (1), found 7"),
        ("version_policy { latest {} all {} }", "one of latest, all and specific"),
        ('parameters { key: "execution_mode" value { string_value: "1" } }', "expected 0"),
        ('parameters { key: "isolation" value { string_value: "all" } }', "none or process, found"),
        ("optimization { execution_accelerators { } }\nspeed: 3", "2 speed: expected one of Trit"),
        ("model_warmup { name: 'w' }", "expected inputs of the model, found none"),
        ("model_warmup { inputs { key: \"x\" value { dims: 1 } } }", "expected one of zero_data"),
        ("a: [1, 2", "1: expected ',' or ']', found the end of the file"),
        ("a {", "1: expected a field's name or '}', found the end of the file"),
        ("a 1", "1: expected ':' or '{' after 'a', found '1'"),
        ("\n\na: $", "3: expected a field, found '$'"),
        ("a: " + "9" * 5000, "1: expected a shorter number"),
        ("a {" * 100, "1: expected at most 32 mappings in each other"),
    ],
)  # fmt: skip
def test_what_a_configuration_may_not_ask_for(tmp_path: Path, text: str, says: str) -> None:
    path = place(tmp_path / "m/config.pbtxt", text)
    place(tmp_path / "m/1/model.onnx")
    said = problems(tmp_path)
    assert any(says in line and line.startswith(str(path)) for line in said), said


def test_json_says_the_same() -> None:
    """The call to load has the same message as JSON, with a map for `parameters`."""
    data = {
        "name": "m", "max_batch_size": 4, "input": [{"name": "x", "data_type": "TYPE_FP32",
        "dims": ["3", -1]}], "dynamic_batching": {}, "parameters": {"intra_op_thread_count":
        {"string_value": "2"}}, "optimization": None, "instance_group": [],
    }  # fmt: skip
    found = Problems()
    asked = read(from_json(data, "the request"), found)
    assert found.lines == []
    assert asked.settings == {
        "max_rows": 4, "batch_size": 4, "batch_delay_us": 0, "intra_op_threads": 2,
    }  # fmt: skip
    assert asked.declared[0].shape() == [-1, 3, -1]


@given(st.text(alphabet="ab:{}<>[]\"'\\,;#-01.x \n", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(TextFormatError):
        read(parse(text, "f"), Problems())


# ---- a configuration and its graph ----

GRAPH = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, -1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 10]}],
}


def compared(*declared: Declared) -> tuple[list[str], list[str]]:
    return disagreements(Origin("m", 1, declared=declared), GRAPH)


def test_an_input_with_a_value_in_the_graph_may_be_declared() -> None:
    scale = {"name": "scale", "datatype": "FP32", "shape": [1]}
    graph = {**GRAPH, "optional_inputs": [scale]}
    x = Declared("c:1", "x", "FP32", (3, -1), True, True)
    declared = Declared("c:2", "scale", "FP32", (1,), False, True, optional=True)
    assert disagreements(Origin("m", 1, declared=(x, declared)), graph) == ([], [])
    assert disagreements(Origin("m", 1, declared=(x,)), graph) == ([], [])
    (wrong,), _notes = disagreements(
        Origin("m", 1, declared=(x, Declared("c:2", "scale", "INT64", (1,), False, True))), graph
    )
    assert "expected FP32" in wrong


def test_a_configuration_that_agrees() -> None:
    good = Declared("c:1", "x", "FP32", (3, -1), True, True)
    assert compared(good, Declared("c:2", "y", "", None, True, False)) == ([], [])
    wider = Declared("c:1", "x", "FP32", (-1, -1), True, True)
    assert compared(wider) == (
        [],
        ["c:1 'x' is [-1, -1, -1] there and [-1, 3, -1] in the graph: the graph's counts"],
    )
    left_out = Declared("c:1", "x", "FP32", (3, -1), True, True, optional=True)
    assert compared(left_out)[1] == [
        "c:1 'x': optional is not looked at: the graph has no value for it, so that each request "
        "brings it"
    ]
    narrower = Declared("c:1", "x", "FP32", (3, 8), True, True)
    assert compared(narrower) == (
        [],
        ["c:1 'x' is [-1, 3, 8] there and [-1, 3, -1] in the graph: the graph's counts"],
    )


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (Declared("c:1", "x", "INT64", (3, -1), True, True), "expected FP32 as in the graph"),
        (Declared("c:1", "x", "FP32", (4, -1), True, True), "[-1, 3, -1], found [-1, 4, -1] with"),
        (Declared("c:1", "x", "FP32", (3, -1), False, True), "found [3, -1]"),
        (Declared("c:1", "z", "FP32", (3, -1), True, True), "of the graph (x), found 'z'"),
        (Declared("c:1", "z", "FP32", (3, -1), True, False), "of the graph (y), found 'z'"),
    ],
)
def test_a_configuration_that_contradicts_its_graph(declared: Declared, says: str) -> None:
    wrong, _notes = compared(declared)
    assert says in wrong[0]
    assert wrong[0].startswith("c:1")


# ---- settings and the command line ----


def test_settings_of_repositories(tmp_path: Path) -> None:
    place(tmp_path / "models/iris/1/model.onnx")
    path = place(tmp_path / "lumen.yaml", "repository: {paths: [models]}\n")
    assert set(served(load(path))) == {"iris"}
    place(path, "repository: {paths: [models]}\nmodels: [{name: d, path: builtin:digits}]\n")
    assert set(served(load(path))) == {"d", "iris"}
    with_key = "server: {keys: [{name: k, sha256: '" + "a" * 64 + "', models: [iris, other]}]}\n"
    place(path, with_key + "repository: {paths: [models]}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert "names of models (iris), found 'other'" in str(caught.value)
    environment = {"LUMEN_REPOSITORY__PATHS": f"[{tmp_path / 'models'}]"}
    assert set(served(load(None, (), (), environment))) == {"iris"}
    with pytest.raises(ConfigError, match="expected a list of at most 16 paths"):
        load(None, ["repository.paths=3"])


def test_every_command_has_a_name() -> None:
    """A folder that is named as a command is not taken for models."""
    lines = [line.split()[:1] for line in make_parser().format_help().splitlines()]
    assert all([name] in lines for name in COMMANDS)
