"""What is wrong with one model or one folder of a repository: the others are served."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from lumen_uring.config import load
from lumen_uring.errors import ConfigError
from lumen_uring.loading import model_cache
from lumen_uring.repository import mlserver, ovms
from lumen_uring.repository.entries import entries_in, entries_of, names_in, uploaded_entries
from lumen_uring.repository.files import Place
from lumen_uring.repository.model_config import read
from lumen_uring.repository.text_format import parse
from lumen_uring.repository.tree import Problems, from_json
from lumen_uring.settings.schema import Config


def place(path: Path, text: str = "") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def watched(folder: Path) -> Config:
    return load(None, ["repository.control=watch"], (), None, [str(folder)])


def close_off(monkeypatch: pytest.MonkeyPatch, closed: Path) -> None:
    """A folder of mode 0700 of another user: what lies in it may not be looked at."""
    stat = os.stat

    def refused(path: Any, **options: Any) -> os.stat_result:
        if not isinstance(path, int) and closed in Path(os.fsdecode(path)).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refused)


def test_a_folder_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path / "m/1/model.onnx")
    place(tmp_path / "secret/1/model.onnx")
    close_off(monkeypatch, tmp_path / "secret")
    config = watched(tmp_path)  # at the start
    assert [model.name for model in config.models] == ["m"]
    (broken,) = config.broken
    assert broken.name == "secret"
    file = tmp_path / "secret/model-settings.json"
    expected = f"expected files that can be read, found {file}: Permission denied"
    assert broken.reason == f"{tmp_path}/secret: {expected}"
    held = entries_in(config)  # at a change of the folder
    assert [model.name for model in held.entries] == ["m"]
    assert held.problems.of == {"secret": [broken.reason]}
    assert not held.problems.general()
    assert names_in(config) == {"m"}  # for the index
    assert [model.name for model in entries_of(config, "m")] == ["m"]  # at a call to load
    with pytest.raises(ConfigError, match="Permission denied"):
        entries_of(config, "secret")
    with pytest.raises(ConfigError, match="secret: expected files that can be read"):
        load(None, (), (), None, [str(tmp_path)])


def test_lost_and_found_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path / "m/1/model.onnx")
    place(tmp_path / "lost+found/1/model.onnx")
    close_off(monkeypatch, tmp_path / "lost+found")
    config = load(None, (), (), None, [str(tmp_path)])
    assert [model.name for model in config.models] == ["m"]


def test_a_repository_that_may_not_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path / "inner/repo/m/1/model.onnx")
    path = tmp_path / "inner/repo"
    close_off(monkeypatch, tmp_path / "inner")
    (broken,) = watched(path).broken
    assert (broken.name, broken.reason) == (str(path), "Permission denied")
    with pytest.raises(ConfigError, match=f"{path}: expected files that can be read, found"):
        load(None, (), (), None, [str(path)])
    with pytest.raises(ConfigError, match="expected files that can be read, found"):
        load(None, (), [f"m={path}/m"], None)
    with pytest.raises(ConfigError, match=r"cannot be looked at \(Permission denied\)"):
        model_cache.resolve(str(path / "m/1/model.onnx"))


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    place(tmp_path / "m/1/model.onnx")
    place(tmp_path / "z/1/model.onnx")
    place(tmp_path / "z/config.pbtxt", f'default_model_filename: "{"x" * 300}"')
    config = watched(tmp_path)
    assert [model.name for model in config.models] == ["m"]
    (broken,) = config.broken
    assert "z: expected files that can be read, found" in broken.reason
    assert "xxx...: File name too long" in broken.reason
    with pytest.raises(ConfigError, match="File name too long"):
        entries_of(config, "m", {"default_model_filename": "x" * 300})
    with pytest.raises(ConfigError, match="File name too long"):
        uploaded_entries(tmp_path / "m", "m", {"default_model_filename": "x" * 300})


def test_an_error_of_any_kind_is_one_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path / "m/1/model.onnx")
    place(tmp_path / "z/model-settings.json", "{}")

    def wrong(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(mlserver, "find", wrong)
    config = watched(tmp_path)
    assert [model.name for model in config.models] == ["m"]
    assert "an error of the server's: IndexError: list index" in config.broken[0].reason


def test_what_the_machine_lacks_is_no_models_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path / "m/1/model.onnx")
    config = watched(tmp_path)

    def lacks(*_: object, **_options: object) -> os.stat_result:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "stat", lacks)
    with pytest.raises(OSError, match="Too many open files"):
        entries_in(config)


# ---- empty lists ----

EMPTY = ("[]", "[[]]", "{}", "[{}]", "null", '""', "0", "true")


def fields(kind: str) -> list[str]:
    """The names that a reader knows: it says them where it finds another one."""
    problems = Problems()
    node = from_json({"?": 1}, "f")
    read(node, problems)
    if kind == "triton":
        return sorted(node.read)
    inside = ("name", "base_path", "model_version_policy", "shape", "layout", "batch_size")
    of_ovms = (*inside, "target_device", "stateful", "nireq", "plugin_config")
    of_mlserver = ("name", "parameters", "implementation", "platform", "inputs", "outputs")
    more = ("max_batch_size", "max_batch_time", "versions")
    return list(of_ovms if kind == "ovms" else (*of_mlserver, *more))


@pytest.mark.parametrize("value", EMPTY)
def test_a_field_of_tritons_that_holds_nothing(value: str) -> None:
    assert len(fields("triton")) > 10
    for key in fields("triton"):
        read(from_json(json.loads(f'{{"{key}": {value}}}'), "f"), Problems())
    for key in ("name", "input", "dynamic_batching", "version_policy", "instance_group"):
        for empty in ("[]", "{}"):
            read(parse(f"{key}: {empty}", "f"), Problems())
            read(parse(f"input {{ {key}: {empty} name: [] dims: [] }}", "f"), Problems())


@pytest.mark.parametrize("value", EMPTY)
def test_a_field_of_others_that_holds_nothing(tmp_path: Path, value: str) -> None:
    place(tmp_path / "a/1/model.onnx")
    for key in fields("mlserver"):
        file = place(tmp_path / "a/model-settings.json", f'{{"{key}": {value}}}')
        mlserver.find(Place(tmp_path, Problems()), file, lambda *_: None)
    for key in fields("ovms"):
        config = {"name": "a", "base_path": "a", key: json.loads(value)}
        for listed in ({"config": config}, {"config": []}, {}):
            text = json.dumps({"model_config_list": [listed]})
            file = place(tmp_path / "config.json", text)
            found = Problems()
            ovms.find(Place(tmp_path, found), file, lambda *_: None)
            assert not any("IndexError" in line for line in found.lines)
    for key in ("model_config_list", "monitoring", "mediapipe_config_list", "other"):
        file = place(tmp_path / "config.json", f'{{"{key}": {value}}}')
        ovms.find(Place(tmp_path, Problems()), file, lambda *_: None)


def test_an_empty_name_stops_no_other_model(tmp_path: Path) -> None:
    place(tmp_path / "m/1/model.onnx")
    place(tmp_path / "z/1/model.onnx")
    place(tmp_path / "z/config.pbtxt", "name: []")
    place(tmp_path / "y/model.onnx")
    place(tmp_path / "y/model-settings.json", '{"name": []}')
    config = watched(tmp_path)
    assert [model.name for model in config.models] == ["m"]
    assert {one.name: one.reason.partition(": ")[2] for one in config.broken} == {
        "z": "expected a text, once, found a list of 0",
        "y": "expected a text, once, found a list of 0",
    }
    with pytest.raises(ConfigError, match="name: expected a text, once, found a list of 0"):
        entries_of(config, "m", {"name": []})
