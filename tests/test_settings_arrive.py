"""Every setting of settings/schema.py reaches its own field of lumen_config.h, and no other.

A library that only writes down what it is given stands in for the C one; tests/c/test_server.c has
the way from there. A setting that is in no table here fails the first test. The way back is here
too: what the engine and the load generator answer.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lumen_uring.commands import bench
from lumen_uring.config import load
from lumen_uring.errors import EngineError
from lumen_uring.loading import prepare
from lumen_uring.ring import library, structs
from lumen_uring.ring.config_struct import crossing, ordinary, whole_range
from lumen_uring.ring.description import EngineInfo, SlotClass
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.load import Load, LoadPlan
from lumen_uring.ring.ranges import u32, u64
from lumen_uring.settings.keys import KeyConfig
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config, EngineConfig, ServerConfig

Fields = dict[str, object]
# Beside every other setting: without batches nobody may wait for one.
BATCHES = "engine.batch_size=2"
SHA = hashlib.sha256(b"token").hexdigest()
# A mean and a scale that no two channels share.
MEAN, SCALE = (1.5, -2.0, 3.0), (0.5, 0.25, 2.0)

# Section, key: as a person writes it, and what has another value in the C structure than without.
# Whole numbers and choices that are not here are added below.
SETTINGS: dict[tuple[type[BaseModel], str], tuple[str, Fields]] = {
    (ServerConfig, "name"): ("my triton", {"name": b"my triton"}),
    (ServerConfig, "host"): ("'::1'", {"host": b"::1"}),
    (ServerConfig, "unix_socket"): ("/run/x.sock", {"unix_socket": b"/run/x.sock"}),
    (ServerConfig, "unix_socket_mode"): ("'0604'", {"unix_socket_mode": 0o604}),
    (ServerConfig, "arena_bytes"): ("6GiB", {"arena_bytes": 6 << 30}),
    (ServerConfig, "shared_memory"): ("true", {"shared_memory": 1}),
    (ServerConfig, "half_close"): ("true", {"half_close": 1}),
    (ServerConfig, "shared_memory_bytes"): ("6MiB", {"shared_memory_bytes": 6 << 20}),
    (ServerConfig, "response_cache_bytes"): ("6MiB", {"response_cache_bytes": 6 << 20}),
    (ServerConfig, "rate"): ("2.5", {"rate": 2.5, "burst": 3}),
    (ServerConfig, "hosts"): ("[b.example, a]", {"host_count": 2, "hosts": [b"b.example", b"a"]}),
    (EngineConfig, "telemetry_csv_path"): ("/tmp/t.csv", {"telemetry_csv_path": b"/tmp/t.csv"}),
    (EngineConfig, "cores"): ("0-1,3", {"cores": b"0-1,3"}),
    (EngineConfig, "lock_memory"): ("true", {"lock_memory": 1}),
    (EngineConfig, "flush_denormals"): ("true", {"flush_denormals": 1}),
    (ModelConfig, "name"): ("another", {"model.name": b"another"}),
    (ModelConfig, "engine"): ("native", {"model.engine": 1}),
    (ModelConfig, "providers"): (
        "[{tensorrt: {trt_fp16_enable: true, device_id: 1}}, CUDAExecutionProvider, cpu]",
        {
            "model.provider_count": 3,
            "model.providers": [
                (b"tensorrt", [(b"trt_fp16_enable", b"true"), (b"device_id", b"1")]),
                (b"CUDAExecutionProvider", []),
                (b"cpu", []),
            ],
        },
    ),
    (ModelConfig, "mean"): (str(list(MEAN)), {"model.mean": MEAN}),
    (ModelConfig, "scale"): (str(list(SCALE)), {"model.scale": SCALE}),
    (ModelConfig, "max_dims"): (
        "{length: 7, 'x[2]': 9}",
        {"model.dim_count": 2, "model.dims": [(b"length", 7, 0), (b"x[2]", 9, 0)]},
    ),
    (ModelConfig, "fix_dims"): (
        "{hauteur: 2147483647}",
        {"model.dim_count": 1, "model.dims": [(b"hauteur", 2147483647, 1)]},
    ),
    (ModelConfig, "max_output_bytes"): ("2KiB", {"model.max_output_bytes": 2048}),
    (ModelConfig, "batch_delay_us"): ("0", {"model.batch_delay_us": 0}),
    (ModelConfig, "batch_preferred"): (
        "[2, 8]",
        {"model.preferred_count": 2, "model.preferred": [2, 8]},
    ),
    (ModelConfig, "image"): (
        "{fit: letterbox, filter: box, pad_value: 9, upright: false, decode: fast, lenient: true, "
        "max_pixels: 11, max_whole_pixels: 12}",
        {"model.image": (2, 2, 0, 9, 0, 1, 1, 1.0, 11, 12)},
    ),
    (ModelConfig, "warmup"): (
        "[{name: w, count: 2, inputs: {x: {shape: [1, 3], data: random}, t: {shape: [2]}}}]",
        {
            "model.warmup_count": 1,
            "model.warmups": [(b"w", 2, [(b"x", [1, 3], 1, None, 0), (b"t", [2], 0, None, 0)])],
        },
    ),
    (ModelConfig, "sequences"): (
        "{start: s, id: i, max_open: 3, idle_ms: 4, state: {h: hn, c: cn}}",
        {
            "model.sequences": (
                (b"s", None, None, b"i", 3, 4),
                [(b"h", b"hn", None), (b"c", b"cn", None)],
            )
        },
    ),
    (ModelConfig, "text"): (
        "{tokenizer: t, pooling: [max, cls], normalize: true, output: o, max_tokens: 9, "
        "truncate: false, prompts: {a: b, c: d}, default_prompt: c}",
        {
            "model.text": (
                (b"/t.bin", b"o", 0, 3, 1, 0, 0, 9, 0, 2),
                [(b"a", b"b"), (b"c", b"d")],
            )
        },
    ),
    (ModelConfig, "response_cache"): ("true", {"model.response_cache": 1}),
    (ModelConfig, "rate"): ("0.25", {"model.rate": 0.25, "model.burst": 1}),
}


def _add_ordinary_settings() -> None:
    """Each arrives as it is written (a choice as its number) in the field of its name."""
    ours: list[tuple[type[BaseModel], str, FieldInfo]] = [
        (ServerConfig if section == "server" else EngineConfig, key, field)
        for section, key, field in crossing()
    ]
    for owner, key, field in (
        *ours,
        *((ModelConfig, name, field) for name, field, _ in ordinary()),
    ):
        limits = whole_range(field)
        elsewhere = {"burst", "isolation_hang_seconds"}  # beside others
        if limits is None or key in elsewhere or (owner, key) in SETTINGS:
            continue
        words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        default = words.index(field.default) if words else field.default
        number = limits[0] if limits[0] not in (0, default) else limits[1]
        number -= number == default
        arrives = f"model.{key}" if owner is ModelConfig else key
        SETTINGS[owner, key] = (words[number] if words else str(number), {arrives: number})


_add_ordinary_settings()
# As above, of one key that is there, for one model, in both.
KEY_SETTINGS: dict[str, tuple[object, Fields]] = {
    "name": ("eve", {"name": b"eve"}),
    "sha256": ("ab" * 32, {"sha256": bytes.fromhex("ab" * 32)}),
    "rate": (1.5, {"rate": 1.5, "burst": 2}),
    "token_rate": (2.5, {"token_rate": 2.5, "token_burst": 3}),
    "models": (["first", "third"], {"models": [b"first", b"third"], "model_count": 2}),
    "admin": (True, {"flags": 1}),
    "bulk": (True, {"flags": 2}),
}
# Beside a rate of 4 of their own.
BURSTS: dict[type[BaseModel], str] = {ServerConfig: "burst", ModelConfig: "model.burst"}
# Tested where they are used.
ELSEWHERE: dict[type[BaseModel], set[str]] = {
    ServerConfig: {
        "keys",  # below
        # Of Python's side: tests/test_server.py, tests/test_metrics.py, tests/e2e.
        "unready_seconds", "drain_seconds", "metrics_port", "metrics_host", "agent_port",
        "tls",  # tests/e2e/http/test_e2e_tls.py
    },
    # The caller resolves them: tests/test_model_cache.py, test_e2e_http_modes.py. The memory and
    # time are bounded in the model's process: test_e2e_isolation.py.
    ModelConfig: {"path", "labels", "isolation_memory", "isolation_hang_seconds"},
    KeyConfig: {"token_env", "subject"},  # test_e2e_limits.py, test_e2e_tls.py
}  # fmt: skip


_LOAD = library.load


def _names_of(key: structs.LumenKeyConfig) -> list[bytes] | None:
    return key.models[: key.model_count] if key.models else None


class _Library:
    """The structs that lumen_open and lumen_add_model were given, field by field."""

    def __init__(self) -> None:
        self.fields: Fields = {}
        self.keys: list[Fields] = []

    def lumen_open(self, config: Any, _handle: object) -> int:
        native = config._obj
        self.fields |= {name: _plain(getattr(native, name)) for name, *_ in native._fields_}
        self.fields["hosts"] = [native.hosts[h] for h in range(native.host_count)]
        self.keys = [
            {name: _plain(getattr(native.keys[k], name)) for name, *_ in native.keys[k]._fields_}
            | {"models": _names_of(native.keys[k])}
            for k in range(native.key_count)
        ]
        del self.fields["keys"]
        return 0

    def lumen_rules(self, count: Any) -> Any:
        return _LOAD().lumen_rules(count)

    def lumen_add_model(self, _handle: object, model: Any, _index: object) -> int:
        native = model._obj
        self.fields |= {
            f"model.{name}": _plain(getattr(native, name)) for name, *_ in native._fields_
        }
        dims = [native.dims[d] for d in range(native.dim_count)]
        listed = [native.providers[p] for p in range(native.provider_count)]
        self.fields["model.providers"] = [
            (
                one.name,
                [(one.options[o].name, one.options[o].value) for o in range(one.option_count)],
            )
            for one in listed
        ]
        image = native.image.contents if native.image else None
        self.fields["model.image"] = image and tuple(getattr(image, f) for f, _ in image._fields_)
        rule = native.experts.contents if native.experts else None
        self.fields["model.experts"] = rule and (
            rule.feature,
            rule.tensor,
            [(rule.experts[e].model, rule.experts[e].bound) for e in range(rule.count)],
        )
        self.fields["model.steps"] = _steps(native.steps.contents) if native.steps else None
        self.fields["model.warmups"] = [
            (
                one.name,
                one.count,
                [
                    (t.name, t.shape[: t.rank], t.fill, t.data, t.bytes)
                    for t in one.inputs[: one.input_count]
                ],
            )
            for one in native.warmups[: native.warmup_count]
        ]
        told = native.sequences.contents if native.sequences else None
        self.fields["model.sequences"] = told and (
            (told.start, told.end, told.ready, told.id, told.max_open, told.idle_ms),
            [
                (told.states[s].input, told.states[s].output, told.states[s].initial)
                for s in range(told.state_count)
            ],
        )
        words = native.text.contents if native.text else None
        self.fields["model.text"] = words and (
            tuple(
                getattr(words, name)
                for name in (
                    *("tokenizer", "output", "task", "pooling", "normalise", "activation"),
                    *("has_pairs", "tokens_max", "may_cut", "default_prompt"),
                )
            ),
            [(words.prompts[p].name, words.prompts[p].value) for p in range(words.prompt_count)],
        )
        self.fields["model.dims"] = [(dim.name, dim.size, dim.fixed) for dim in dims]
        self.fields["model.preferred"] = native.preferred[: native.preferred_count]
        self.fields["model.declared"] = [
            (one.name, one.label_file, one.format, one.is_output)
            for one in native.declared[: native.declared_count]
        ]
        return 0

    def lumen_close(self, _handle: object) -> None:
        pass


def _steps(config: Any) -> object:
    def pairs(names: Any, count: int) -> list[tuple[bytes, bytes]]:
        return [(names[n].tensor, names[n].name) for n in range(count)]

    listed = [config.steps[s] for s in range(config.count)]
    return (
        [
            (one.model, pairs(one.inputs, one.input_count), pairs(one.outputs, one.output_count))
            for one in listed
        ],
        [config.outputs[o] for o in range(config.output_count)],
    )


def _plain(value: Any) -> object:
    if isinstance(value, ctypes.Array):
        return bytes(value) if value._type_ is ctypes.c_uint8 else tuple(value)
    return value


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> _Library:
    stand_in = _Library()
    monkeypatch.setattr(library, "load", lambda: stand_in)
    return stand_in


def crossed(given: _Library, config: Config) -> Fields:
    """The fields that cross to C for a configuration with one model."""
    with Engine(config, Path("/ort.so")) as engine:
        model, tokenizer = config.models[0], Path("/t.bin")
        labels = b"one\ntwo\n"
        engine.add_model(model, Path("/m.onnx"), Path("/cache"), labels, None, tokenizer)
    return dict(given.fields)


def changes(before: Fields, after: Fields) -> Fields:
    """The key of a model's process is no setting."""
    skipped = "model.process_key"
    return {name: one for name, one in after.items() if one != before[name] and name != skipped}


def place(section: type[BaseModel], key: str) -> str:
    where = {ServerConfig: "server", EngineConfig: "engine", ModelConfig: "models.0"}[section]
    return f"{where}.{key}"


def test_every_setting_is_in_a_table() -> None:
    for section in (ServerConfig, EngineConfig, ModelConfig):
        tested = {key for owner, key in SETTINGS if owner is section}
        tested |= {"burst"} if section in BURSTS else set()
        assert tested | ELSEWHERE.get(section, set()) == set(section.model_fields), section
    assert set(KEY_SETTINGS) | {"burst", "token_burst"} | ELSEWHERE[KeyConfig] == set(
        KeyConfig.model_fields
    )


@pytest.mark.parametrize(
    ("section", "key"), SETTINGS, ids=[place(section, key) for section, key in SETTINGS]
)
def test_a_setting_reaches_its_own_field(
    given: _Library, section: type[BaseModel], key: str
) -> None:
    written, expected = SETTINGS[section, key]
    before = crossed(given, load(None, [BATCHES]))
    after = crossed(given, load(None, [BATCHES, f"{place(section, key)}={written}"]))
    assert changes(before, after) == expected


MODEL_SETTINGS = [key for section, key in SETTINGS if section is ModelConfig]


@pytest.mark.parametrize("key", MODEL_SETTINGS)
def test_a_models_setting_reaches_the_process_that_tries_it(key: str) -> None:
    """A model that is loaded while the server runs is tried with its own settings."""
    written, _expected = SETTINGS[ModelConfig, key]
    config = load(None, [f"{place(ModelConfig, key)}={written}"])
    told = prepare._read(json.loads(prepare._spec(config, config.models[0], gentle=False)))
    if key.startswith("isolation"):  # it is a process of its own already
        return
    assert getattr(told.models[0], key) == getattr(config.models[0], key)
    assert key in told.models[0].model_fields_set or written is None


@pytest.mark.parametrize(
    ("providers", "is_bounded"),
    [
        ("[]", True),
        ("[openvino]", True),
        ("[{openvino: {device_type: CPU}}, cpu]", True),
        ("[{openvino: {device_type: CPU_FP32}}]", True),
        ("[{openvino: {device_type: GPU}}]", False),
        ("[{tensorrt: {trt_fp16_enable: true}}]", False),
        ("[CUDAExecutionProvider]", False),
    ],
)
def test_a_model_of_a_gpu_is_tried_without_a_bound_of_address_space(
    providers: str, is_bounded: bool
) -> None:
    """CUDA on an H200 under repository.load_bytes: `CUDA failure 2: out of memory`."""
    config = load(None, [f"{place(ModelConfig, 'providers')}={providers}"])
    told = json.loads(prepare._spec(config, config.models[0], gentle=False))
    assert told["memory_bytes"] == (config.repository.load_bytes if is_bounded else 0)


@pytest.mark.parametrize("section", BURSTS)
def test_a_burst_beside_its_rate(given: _Library, section: type[BaseModel]) -> None:
    rate = f"{place(section, 'rate')}=4"
    before = crossed(given, load(None, [rate]))
    after = crossed(given, load(None, [rate, f"{place(section, 'burst')}=9"]))
    assert changes(before, after) == {BURSTS[section]: 9}


def test_an_ensemble_and_its_steps(given: _Library, tmp_path: Path) -> None:
    path = tmp_path / "lumen.yaml"
    path.write_text(
        "models: [{name: a, path: a.onnx}, {name: b, path: b.onnx}]\n"
        "ensembles:\n"
        "- {name: e, run: worker, batch_size: 8, rate: 2, batch_delay_us: 4, burst: 5,\n"
        "   max_output_bytes: 1MiB, outputs: [z, y],\n"
        "   steps: [{model: b, inputs: {x: in, w: w}, outputs: {y: mid}}, {model: a}]}\n"
    )
    config = load(path)
    (entry,) = config.ensembles
    with Engine(config, Path("/ort.so")) as engine:
        engine.add_ensemble(entry, config.ensemble(entry), {"a": 0, "b": 1}, b"one\ntwo\n")
    wanted = {"name": b"e", "run": 2, "batch_size": 8, "batch_delay_us": 4, "rate": 2, "burst": 5}
    wanted |= {"max_output_bytes": 1 << 20, "labels": b"one\ntwo\n", "experts": None}
    assert {name: given.fields[f"model.{name}"] for name in wanted} == wanted
    first = (1, [(b"x", b"in"), (b"w", b"w")], [(b"y", b"mid")])
    assert given.fields["model.steps"] == ([first, (0, [], [])], [b"z", b"y"])


def test_a_virtual_model_and_its_rule(given: _Library, tmp_path: Path) -> None:
    path = tmp_path / "lumen.yaml"
    path.write_text(
        "models:\n"
        "- {name: a, path: a.onnx, run: inline}\n"
        "- {name: b, path: b.onnx, mean: 2, width: 4, fix_dims: {n: 3}, rate: 9, max_rows: 6}\n"
        "experts:\n"
        "- {name: e, feature: margin, of: y, run: worker, batch_size: 8, rate: 2,\n"
        "   batch_delay_us: 4, burst: 5,\n"
        "   experts: [{model: b, at_least: 0.5}, {model: a, at_least: 2}, {model: b}]}\n"
    )
    config = load(path)
    (entry,) = config.experts
    with Engine(config, Path("/ort.so")) as engine:
        engine.add_experts(entry, config.virtual(entry), {"a": 0, "b": 1}, b"one\ntwo\n")
    wanted = {"name": b"e", "run": 2, "batch_size": 8, "batch_delay_us": 4, "rate": 2, "burst": 5}
    # The last expert's, but for what its own Runs have.
    wanted |= {"mean": (2, 2, 2), "max_rows": 6, "labels": b"one\ntwo\n", "width": 1, "dims": []}
    assert {name: given.fields[f"model.{name}"] for name in wanted} == wanted
    feature, tensor, [*bounds, (last, _)] = given.fields["model.experts"]  # type: ignore[misc]
    assert (feature, tensor, bounds, last) == (9, b"y", [(1, 0.5), (0, 2.0)], 1)


def test_what_a_setting_is_without_being_set(given: _Library) -> None:
    fields = crossed(given, load())
    assert {name: fields[name] for name in ("io_threads", "thread_count", "max_in_flight")} == {
        "io_threads": 0, "thread_count": 0, "max_in_flight": 0,
    }  # fmt: skip
    assert (fields["unix_socket"], fields["telemetry_csv_path"], fields["host_count"]) == (
        None,
        None,
        0,
    )
    assert (fields["rate"], fields["burst"], fields["model.rate"], fields["model.burst"]) == (
        0, 0, 0, 0,
    )  # fmt: skip
    assert (fields["model.batch_size"], fields["model.batch_delay_us"]) == (0, 2**32 - 1)
    assert fields["ort_library_path"] == b"/ort.so"
    assert (fields["model.path"], fields["model.cache_path"]) == (b"/m.onnx", b"/cache")
    assert (fields["model.labels"], fields["model.label_bytes"]) == (b"one\ntwo\n", 8)


def _with_key(tmp_path: Path, **key: object) -> Config:
    import yaml

    models = [{"name": name, "path": "x"} for name in ("first", "second", "third")]
    chosen = {"server": {"keys": [{"name": "adam", "sha256": SHA, **key}]}, "models": models}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(chosen))
    return load(path)


@pytest.mark.parametrize("key", KEY_SETTINGS)
def test_a_keys_setting_reaches_its_own_field(given: _Library, tmp_path: Path, key: str) -> None:
    crossed(given, _with_key(tmp_path))
    (before,) = given.keys
    assert before == {
        "name": b"adam", "sha256": bytes.fromhex(SHA), "rate": 0, "models": None, "model_count": 0,
        "burst": 0,
        "token_rate": 0, "token_burst": 0,
        "flags": 0,
    }  # fmt: skip
    written, expected = KEY_SETTINGS[key]
    crossed(given, _with_key(tmp_path, **{key: written}))
    (after,) = given.keys
    assert changes(before, after) == expected


@pytest.mark.parametrize("of", ["", "token_"])
def test_a_keys_burst(given: _Library, tmp_path: Path, of: str) -> None:
    crossed(given, _with_key(tmp_path, **{f"{of}rate": 4, f"{of}burst": 9}))
    (key,) = given.keys
    assert (key[f"{of}rate"], key[f"{of}burst"]) == (4, 9)


def test_times_cross_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []

    class Timed(_Library):
        def lumen_stop(self, _handle: object, drain_ms: int) -> int:
            calls.append(("stop", drain_ms))
            return 0

        def lumen_wait(self, _handle: object, timeout_ms: int) -> int:
            calls.append(("wait", timeout_ms))
            return -8 if timeout_ms else 0

    answers = answering(monkeypatch, wait=lambda _handle, _timeout_ms: -7)
    with pytest.raises(EngineError, match="the library's sentence"):
        answers.wait(1)  # called before the start: not a wait that took too long
    monkeypatch.setattr(library, "load", Timed)
    with Engine(load(), Path("/ort.so")) as engine:
        engine.stop(1.25)
        assert engine.wait(0.5) is False
        assert engine.wait(0) is True
    assert calls == [("stop", 1250), ("wait", 500), ("wait", 0)]


# ---- the same of `lumen bench` ----

# Each option with a value of its own: what the plan has then, and what the C structure has.
BENCH: dict[str, tuple[str, str, object, Fields]] = {
    "--connections": ("3", "connections", 3, {"connections": 3}),
    "--requests": ("5", "requests", 5, {"requests": 5, "duration_ns": 0}),
    "--seconds": ("1.5", "seconds", 1.5, {"duration_ns": 1_500_000_000}),
    "--warmup": ("0.25", "warmup_s", 0.25, {"warmup_ns": 250_000_000}),
    "--rate": ("8.5", "rate", 8.5, {"rate": 8.5}),
    "--seed": ("9", "seed", 9, {"seed": 9}),
    "--rows": ("10", "rows", 10, {"rows": 10}),
    "--timeout-us": ("11", "timeout_us", 11, {"timeout_us": 11}),
    "--poll-us": ("12", "poll_us", 12, {"poll_us": 12}),
    "--cpu": ("0", "cpu", 0, {"cpu": 0}),
}


def bench_plan(*options: str) -> LoadPlan:
    parser = argparse.ArgumentParser()
    bench.add(parser.add_subparsers())
    url = ["--url", "http://127.0.0.1:1", "--get", "/x"]  # nothing is asked of a server
    return bench.make_plan(parser.parse_args(["bench", *url, *options]))


def load_fields(plan: LoadPlan) -> Fields:
    load = object.__new__(Load)
    load._buffers = []
    native = load._native(plan)
    pointers = ("payloads", "expected")
    return {
        name: _plain(getattr(native, name)) for name, *_ in native._fields_ if name not in pointers
    }


def test_every_option_of_bench_reaches_its_own_field() -> None:
    usual = bench_plan()
    assert (usual.requests, usual.seconds, usual.warmup_s, usual.cpu) == (0, 10.0, 1.0, -1)
    before = load_fields(usual)
    assert (before["duration_ns"], before["rows"]) == (10_000_000_000, 1)
    for option, (written, name, value, expected) in BENCH.items():
        plan = bench_plan(option, written)
        assert getattr(plan, name) == value, option
        assert changes(before, load_fields(plan)) == expected, option
    # Of the load itself, whatever the command makes of them.
    changed = {"model": 4, "encoding": 1, "protocol": 0, "port": 7, "host": "::1"}
    plan = replace(usual, **changed, expected=[b"abc"], payloads=[b"12", b"34"])  # type: ignore[arg-type]
    fields = load_fields(plan)
    assert (fields["model"], fields["encoding"], fields["protocol"]) == (4, 1, 0)
    assert (fields["port"], fields["host"], fields["credential"]) == (7, b"::1", 0)
    assert (fields["payload_count"], fields["payload_bytes"], fields["expect_bytes"]) == (2, 2, 3)
    fields = load_fields(replace(plan, credential=bytes(32)))
    assert (fields["credential"], fields["payload_bytes"]) == (1, 34)
    assert changes(load_fields(plan), load_fields(replace(plan, shapes=True))) == {"shapes": 1}


# ---- what the engine says ----


def answering(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> Engine:
    """An engine whose library does what these functions do, and nothing else."""

    class Answers(_Library):
        def lumen_last_error(self) -> bytes:
            return "the library's sentence, ä".encode()

    stand_in = Answers()
    for name, function in functions.items():
        setattr(stand_in, f"lumen_{name}", function)
    monkeypatch.setattr(library, "load", lambda: stand_in)
    config = load(None, [], ["first=x", "second=y", "third=z"])
    return Engine(config, Path("/ort.so"))


def test_every_field_of_info_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_info(_handle: object, info: Any) -> int:
        native = info._obj
        numbers = ("port", "io_threads", "workers", "models", "arena_bytes", "ready_us", "slots")
        for number, name in enumerate(numbers, 3):
            setattr(native, name, number)
        native.slot_class_count = 2
        for at in range(3):
            native.slot_classes[at].slot_bytes = 1000 + at
            native.slot_classes[at].slot_count = 10 + at
        native.worker_cpus[:] = [7 + at for at in range(64)]
        native.worker_cpus[1] = -1
        for name in ("io_backend", "io_detail", "ort_version", "stats_path", "budgets_path"):
            setattr(native, name, f"its {name}".encode()[:16])
        native.notes = "one note\nanother, ä".encode()
        return 0

    info = answering(monkeypatch, get_info=get_info).info()
    assert info == EngineInfo(
        port=3,
        io_threads=4,
        workers=5,
        models=6,
        arena_bytes=7,
        ready_us=8,
        slots=9,
        slot_classes=(SlotClass(1000, 10), SlotClass(1001, 11)),
        worker_cpus=(7, -1, 9, 10, 11),
        io_backend="its io_backend",
        io_detail="its io_detail",
        ort_version="its ort_version",
        stats_path="its stats_path",
        budgets_path="its budgets_path",
        notes=("one note", "another, ä"),
    )


@pytest.mark.parametrize("length", [20, 64 << 10, (64 << 10) + 1, 300_000])
def test_a_description_of_any_length(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    document = b'{"models":' + b"[1]}".rjust(length - 10)
    asked: list[int] = []

    def describe(_handle: object, buffer: Any, capacity: int) -> int:
        asked.append(capacity)
        if len(asked) > 3:
            raise AssertionError("asked again and again")
        if length <= capacity:
            ctypes.memmove(buffer, document, length)
        return length

    assert answering(monkeypatch, describe=describe).describe() == {"models": [1]}
    assert asked == ([64 << 10] if length <= 64 << 10 else [64 << 10, length])


def test_what_else_crosses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls that are answered with a number or a text, and what becomes of each answer."""
    heartbeats = [0, -8, -1]
    calls: list[tuple[object, ...]] = []

    def news(_handle: object, buffer: Any, size: int) -> int:
        calls.append(("news", size))
        buffer.value = "new: ä".encode()
        return 0

    def add_model(_handle: object, _model: object, index: Any) -> int:
        index._obj.value = 5
        return 0

    engine = answering(
        monkeypatch,
        news=news,
        add_model=add_model,
        heartbeat=lambda _handle: heartbeats.pop(0),
        reopen=lambda _handle, as_json: calls.append(("reopen", as_json)) or 0,
        set_metrics_port=lambda _handle, port: calls.append(("port", port)) or 0,
        start=lambda _handle: calls.append(("start",)) or 0,
        unready=lambda _handle: calls.append(("unready",)) or 0,
    )
    assert engine.add_model(load().models[0], Path("/m")) == 5
    assert (engine.heartbeat(), engine.heartbeat()) == (True, False)
    with pytest.raises(EngineError) as caught:
        engine.heartbeat()
    assert (str(caught.value), caught.value.code) == ("the library's sentence, ä", -1)
    assert engine.news() == "new: ä"
    engine.reopen_files(load())
    engine.reopen_files(load(None, ["log.format=json"]))
    engine.set_metrics_port(8003)
    engine.start()
    engine.unready()
    assert calls == [
        ("news", 1024), ("reopen", 0), ("reopen", 1), ("port", 8003), ("start",), ("unready",),
    ]  # fmt: skip


def test_a_reload_crosses_with_all_models_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Fields = {}

    def reload(_handle: object, config: Any, models: Any, count: int) -> int:
        found["rate"] = config._obj.rate
        found["hosts"] = [config._obj.hosts[at] for at in range(config._obj.host_count)]
        found["models"] = [(model.name, model.rate, model.burst) for model in models]
        found["count"] = count
        return 0

    def set_budgets(_handle: object, budgets: Any, count: int) -> int:
        found["budgets"] = [(one.name, one.kind, *one.limit, *one.count) for one in budgets]
        return 0 if count == len(budgets) else -1

    budgets = "{models: {second: {requests_per_minute: 1, requests_per_day: 2}, first: {}}}"
    wanted = load(
        None,
        [
            *("server.rate=2", "server.hosts=[a]", "models.0.rate=3", "models.1.rate=4.5"),
            *(f"budgets={budgets}", "fallbacks={first: [second]}"),
            "traffic={first: {versions: {1: 95, 7: 5}, sticky: true}}",
            *("traffic.first.shadow=3", "traffic.first.shadow_percent=7"),
        ],
        ["first=x", "second=y"],
    )

    def set_fallbacks(_handle: object, fallbacks: Any, _count: int) -> int:
        found["fallbacks"] = [(one.model, one.others[: one.other_count]) for one in fallbacks]
        return 0

    def set_traffic(_handle: object, traffic: Any, _count: int) -> int:
        found["traffic"] = [
            (
                one.name,
                one.sticky,
                one.versions[: one.count],
                one.weights[: one.count],
                one.shadow,
                one.shadow_percent,
            )
            for one in traffic
        ]
        return 0

    sets = {"budgets": set_budgets, "fallbacks": set_fallbacks, "traffic": set_traffic}
    engine = answering(
        monkeypatch, reload=reload, **{f"set_{name}": one for name, one in sets.items()}
    )
    engine.reload(wanted)
    assert found == {
        "rate": 2, "hosts": [b"a"], "models": [(b"first", 3, 3), (b"second", 4.5, 5)], "count": 2,
        "fallbacks": [(b"first", [b"second"])], "traffic": [(b"first", 1, [1, 7], [95, 5], 3, 7)],
        "budgets": [(b"second", 2, 1, 2, 0, 0, 0, 0, 0, 0), (b"first", 2, *[0] * 8)],
    }  # fmt: skip
    keys = "[{name: ann, token_env: HOME}]"
    limits = "{keys: {ann: {tokens_per_minute: 3, tokens_per_day: 4}}}"
    wanted = load(None, [f"server.keys={keys}", f"budgets={limits}"], ["first=x"])
    engine.set_budgets(wanted.budgets, {("key", "ann"): (5, 6, 7, 8), ("model", "ann"): (1,) * 4})
    assert found["budgets"] == [(b"ann", 1, 0, 0, 3, 4, 5, 6, 7, 8)]


def test_an_engine_is_closed_once_and_only_by_its_own_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[object] = []
    engine = answering(monkeypatch, close=closed.append, start=lambda _handle: 0)
    engine._process += 1  # as a forked child finds it
    with pytest.raises(EngineError, match="runs in the process that opened it"):
        engine.start()
    engine.close()
    assert closed == []
    with answering(monkeypatch, close=closed.append) as engine:
        handle = engine._handle
    engine.close()
    assert closed == [handle]


def test_numbers_that_do_not_fit_are_refused_before_they_cross(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ctypes would cut them silently."""
    for name, check, largest in (("u32", u32, 2**32 - 1), ("u64", u64, 2**64 - 1)):
        assert (check(name, 0), check(name, largest)) == (0, largest)
        for value in (-1, largest + 1):
            with pytest.raises(EngineError, match=rf"{name}: expected 0\.\..*found {value}"):
                check(name, value)
    never = lambda *_arguments: 0  # noqa: E731
    engine = answering(monkeypatch, stop=never, wait=never)
    with pytest.raises(EngineError, match="drain_s: expected"):
        engine.stop(4_294_968)
    with pytest.raises(EngineError, match="timeout_s: expected"):
        engine.wait(-1)


def test_a_refusal_without_a_sentence_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = {
        -1: "INVALID", -2: "NOMEM", -3: "IO", -4: "UNSUPPORTED", -5: "ORT", -6: "MODEL",
        -7: "STATE", -8: "AGAIN",
    }  # fmt: skip
    for code, name in refusals.items():
        engine = answering(monkeypatch, start=lambda _handle, code=code: code)
        engine._library.lumen_last_error = lambda: None
        with pytest.raises(EngineError) as caught:
            engine.start()
        assert (str(caught.value), caught.value.code) == (
            f"The engine refused (LUMEN_E_{name}).",
            code,
        )
    engine = answering(monkeypatch, start=lambda _handle: -99)
    engine._library.lumen_last_error = lambda: b""
    with pytest.raises(EngineError, match=r"The engine refused \(-99\)\."):
        engine.start()


def test_the_words_of_settings_are_the_numbers_of_the_header(given: _Library) -> None:
    """As lumen_config.h has them, in the order in which a person finds them in config.yaml."""
    for key, field, words in (
        ("engine.queue_type", "queue_type", "mpmc scq spsc naive batched inline auto"),
        ("engine.idle", "idle", "adaptive spin yield park"),
        ("engine.allocator_type", "allocator_type", "lumen_arena standard"),
        ("server.io_backend", "io_backend", "auto io_uring epoll"),
        ("server.overload", "overload", "refuse wait"),
        ("models.0.channel_order", "model.channel_order", "rgb bgr"),
    ):
        for number, word in enumerate(words.split()):
            fields = crossed(given, load(None, [BATCHES, f"{key}={word}"]))
            assert fields[field] == number, word
    fields = crossed(given, load(None, ["log.format=json", "log.access_path=/a.log"]))
    assert (fields["access_as_json"], fields["access_path"]) == (1, b"/a.log")
    fields = crossed(given, load())
    assert (fields["access_as_json"], fields["access_path"]) == (0, None)


# ---- what the load generator says ----


def load_that(monkeypatch: pytest.MonkeyPatch, fill: Any, code: int = 0) -> Load:
    class Generator:
        def lumen_load(self, config: Any, result: Any, stop: Any) -> int:
            fill(config._obj, result._obj, stop._obj)
            return code

        def lumen_last_error(self) -> bytes:
            return b"all connections were lost"

    monkeypatch.setattr(library, "load", Generator)
    return Load(replace(bench_plan(), payloads=[b"12", b"34"], credential=b"key-"))


def test_every_figure_of_a_load_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def fill(config: Any, result: Any, _stop: Any) -> None:
        size = config.payload_bytes
        sent.extend(ctypes.string_at(config.payloads[at], size) for at in range(2))
        names = "requests errors mismatches disconnects min_ns max_ns sum_ns late unsent counting"
        for number, name in enumerate(names.split(), 4):
            setattr(result, name, number)
        result.wall_ns, result.cpu_ns = 2_500_000_000, 750_000_000
        result.statuses[0], result.statuses[15] = 3, 2
        result.buckets[0], result.buckets[1727] = 1, 5

    load_ = load_that(monkeypatch, fill)
    found = load_.wait()
    assert found is not None
    assert sent == [b"key-12", b"key-34"]
    assert (found.requests, found.errors, found.mismatches, found.disconnects) == (4, 5, 6, 7)
    assert (found.min_ns, found.max_ns, found.mean_ns) == (8, 9, 10 / 4)
    assert (found.late, found.unsent, found.statuses) == (11, 12, {0: 3, 15: 2})
    assert (found.seconds, found.cpu_seconds, found.trouble) == (2.5, 0.75, None)
    histogram = found.histogram
    assert (len(histogram.counts), histogram.sub_bits, histogram.unit_bits) == (1728, 6, 4)
    assert (histogram.counts[0], histogram.counts[1727], histogram.count) == (1, 5, 6)
    assert load_.progress() == (True, 4, 5, 2.5)


def test_a_load_can_be_stopped_and_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def until_stopped(_config: Any, result: Any, stop: Any) -> None:
        while stop.value == 0:
            stopped.wait(0.001)
        result.statuses[0] = result.requests = 9

    load_ = load_that(monkeypatch, until_stopped)
    assert load_.wait(0.01) is None
    load_.stop()
    found = load_.wait(60)
    assert found is not None
    assert (found.requests, found.trouble) == (9, None)
    # Counts from before the failure stay; without any there is only the failure.
    load_ = load_that(monkeypatch, until_stopped, -3)
    load_.stop()
    found = load_.wait(60)
    assert found is not None
    assert (found.requests, found.trouble) == (9, "all connections were lost")
    load_ = load_that(monkeypatch, lambda *_arguments: None, -3)
    with pytest.raises(EngineError, match="all connections were lost") as caught:
        load_.wait(60)
    assert caught.value.code == -3
    for payloads in ([], [b"1", b"22"]):
        with pytest.raises(EngineError, match="all of one size"):
            load_fields(replace(bench_plan(), payloads=payloads))
