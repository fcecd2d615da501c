"""The setting `providers`: how it is written, what it contradicts, what each provider gets, and
what the installed ONNX Runtime refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lumen_uring.config import load
from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.loading import inspection
from lumen_uring.settings import providers as provider_settings
from lumen_uring.settings.providers import EXPECTED, EXPECTED_ENTRY, options_of


def problems(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    return str(caught.value).splitlines()


def given(written: str) -> list[tuple[str, dict[str, str]]]:
    (model,) = load(None, [f"models.0.providers={written}"]).models
    return [(one.name, one.options) for one in model.providers]


def test_both_languages_know_the_same_devices() -> None:
    source = Path(__file__).resolve().parents[1] / "c" / "src" / "onnx" / "providers.c"
    table = re.search(r"\} known\[\] = \{(.*?)\n\};", source.read_text(), re.DOTALL)
    assert table is not None
    entries = re.findall(r'\{"(\w+)",.*?(true|false)\}', table[1], re.DOTALL)
    on_device = {name for name, is_device in entries if is_device == "true"}
    assert len(entries) > len(on_device) > 0
    assert on_device == provider_settings._ON_DEVICES


def test_how_it_is_written() -> None:
    assert given("[]") == []
    assert given("[openvino, cpu]") == [("openvino", {}), ("cpu", {})]
    assert given("[{cuda: {device_id: 0, do_copy_in_default_stream: false}}, {cpu: }]") == [
        ("cuda", {"device_id": "0", "do_copy_in_default_stream": "false"}),
        ("cpu", {}),
    ]
    ((_, options),) = given("[{OpenVINOExecutionProvider: {load_config: {CPU: {A: 1, B: NO}}}}]")
    assert json.loads(options["load_config"]) == {"CPU": {"A": 1, "B": False}}


@pytest.mark.parametrize(
    ("written", "place", "expected", "found"),
    [
        ("openvino", "", EXPECTED, "'openvino'"),
        ("{openvino: {}}", "", EXPECTED, "a mapping"),
        ("[a, b, c, d, e, f, g, h, i]", "", EXPECTED, "a list of 9"),
        ("[cpu, 7]", ".1", EXPECTED_ENTRY, "7"),
        ("[Open VINO]", ".0", EXPECTED_ENTRY, "'Open VINO'"),
        ("[{cuda: {}, cpu: {}}]", ".0", EXPECTED_ENTRY, "a mapping"),
        ("[{cuda: 3}]", ".0", EXPECTED_ENTRY, "a mapping"),
        ("[{cuda: {device_id: null}}]", ".0", EXPECTED_ENTRY, "a mapping"),
        ('[{cuda: {a: "b\\0c"}}]', ".0", EXPECTED_ENTRY, "a mapping"),
        ("[cuda, CUDAExecutionProvider]", "", "each provider once", "cuda twice"),
        ("[cpu, cuda]", "", "cpu as the last one: it leaves no node to others", "cpu, cuda"),
        ("[{cpu: {arena: 0}}]", "", "cpu without options", "some"),
    ],
)
def test_how_it_is_not(written: str, place: str, expected: str, found: str) -> None:
    (line,) = problems(f"models.0.providers={written}")
    assert line.endswith(f"models.0.providers{place}: expected {expected}, found {found}")


def test_what_it_contradicts() -> None:
    others = "models.0.providers=[openvino]"
    (line,) = problems(others, "models.0.engine=native")
    assert line.endswith(
        "expected auto or onnxruntime beside other providers than cpu, found native: "
        "it runs on the CPU alone"
    )
    (line,) = problems(others, "models.0.width=2")
    assert "auto or 1 beside other providers than cpu, found 2" in line
    load(None, ["models.0.providers=[cpu]", "models.0.engine=native", "models.0.width=2"])


def openvino(written: str, threads: int = 1) -> dict[str, str]:
    (model,) = load(None, [f"models.0.providers=[{{openvino: {written}}}]"]).models
    return options_of(model.providers[0], threads)


def test_what_openvino_gets() -> None:
    """By default it has a thread for each core and moves the one that calls it."""
    plain = openvino("{}", 3)
    assert json.loads(plain.pop("load_config")) == {"CPU": {"ENABLE_CPU_PINNING": False}}
    assert plain == {"device_type": "CPU", "num_of_threads": "3"}
    own = openvino("{load_config: {CPU: {INFERENCE_NUM_THREADS: 5, ENABLE_CPU_PINNING: YES}}}")
    assert "num_of_threads" not in own
    assert json.loads(own["load_config"])["CPU"] == {
        "INFERENCE_NUM_THREADS": 5,
        "ENABLE_CPU_PINNING": True,
    }
    assert openvino("{num_of_threads: 2}")["num_of_threads"] == "2"
    assert openvino("{device_type: GPU.0}") == {"device_type": "GPU.0"}
    (model,) = load(None, ["models.0.providers=[{cuda: {device_id: 1}}]"]).models
    assert options_of(model.providers[0], 4) == {"device_id": "1"}


def test_a_file_of_openvinos_settings(tmp_path: Path) -> None:
    path = tmp_path / "ov.json"
    path.write_text('{"GPU": {"A": "1"}}')
    config = json.loads(openvino(f"{{load_config: {path}}}")["load_config"])
    assert config == {"GPU": {"A": "1"}, "CPU": {"ENABLE_CPU_PINNING": False}}
    path.write_text("[1]")
    for written, why in (
        (str(path), "expected a mapping of devices, found '"),
        (str(tmp_path / "none"), "No such file or directory"),
        ("'{\"CPU\": '", "expected JSON, found: "),
        ('{"CPU": 1}', "expected a mapping for CPU"),
    ):
        with pytest.raises(ConfigError, match="providers: openvino: load_config: ") as caught:
            openvino(f"{{load_config: {written}}}")
        assert why in str(caught.value)


@pytest.mark.usefixtures("c_library")
def test_what_the_installed_runtime_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, cure in (
        ("openvino", "the wheel onnxruntime-openvino has it"),
        ("cuda", "the wheel onnxruntime-gpu has it"),
        ("dnnl", "no wheel has it: build ONNX Runtime with --use_dnnl"),
        ("no_such", "this name is in no wheel that Lumen knows of"),
    ):
        with pytest.raises(EngineError) as caught:
            inspection.look("builtin:digits", [f"models.0.providers=[{name}]"])
        text = str(caught.value)
        assert "cannot be served: providers: expected one that the installed ONNX Runtime" in text
        assert f"cpu), found '{name}': {cure}" in text


@pytest.mark.usefixtures("c_library")
def test_the_cpu_is_what_a_model_has_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also the same place in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    entries = []
    for written in ("[]", "[cpu]", "[CPUExecutionProvider]"):
        overrides = [f"models.0.providers={written}", "models.0.engine=onnxruntime"]
        entry = inspection.look("builtin:digits", overrides).entry
        for timed in ("run", "run_why", "run_us", "width_why"):
            entry.pop(timed)
        entries.append(entry)
    assert entries[0]["providers"] == ["cpu"]
    assert entries[1:] == entries[:1] * 2
    assert len(list((tmp_path / "lumen").glob("*.ort"))) == 1
