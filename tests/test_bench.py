"""The benchmarks: models, rules, pages and tables from figures made up here.

No time is asserted. One test runs the matrix for a moment against real servers, to see that what is
measured arrives on the page.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import needs
import numpy as np
import onnxruntime as ort
import pytest

from bench.common import mlp
from bench.common.measure import frequency
from bench.load import bench, variants
from bench.micro import microbench
from bench.peers import compare, servers
from bench.report import bench_page, bench_plots, compare_table, rules
from bench.report.rules import Ratio
from lumen_uring.config import load

MACHINE = {
    "cpu": "Example 9000",
    "cores": 2,
    "virtual": True,
    "kernel": "6.1.0",
    "python": "3.11.0",
    "onnxruntime": "1.31.1",
    "date": "2026-01-02",
}
RATES = {"mpmc": [100.0, 110.0, 105.0], "scq": [101.0, 109.0, 105.5], "inline": [150.0, 160, 170]}


def spread(base: float) -> dict[str, float]:
    return {"mean": base, "p50": base * 0.9, "p99": base * 2, "p999": base * 3}


def cell(workload: str, queue: str, loop: str, connections: int) -> dict[str, Any]:
    # inline is the better one on the small model, the worse one on the large.
    sign = -1 if queue == "inline" and workload == "squeezenet" else 1
    rates = [100 + sign * (rate - 100) for rate in RATES[queue]]
    return {
        "workload": workload,
        "queue": queue,
        "allocator": "lumen_arena",
        "loop": loop,
        "connections": connections,
        "throughput_rps": rates,
        "cpu_us_per_request": [5.0, 6.0, 7.0],
        "latency_us": spread(1234.0),
        "queue_us": spread(3.25),
        "requests": 1000,
        "errors": 0,
        "late": 1,
        "unsent": 0,
        "rows_per_run": 1.0,
        "generator_share": 0.2,
    }


def results() -> dict[str, Any]:
    places = [(load, queue) for load in ("squeezenet", "mlp") for queue in RATES]
    cells = [
        cell(workload, queue, loop, connections)
        for workload, queue in places
        for loop, connections in (("closed", 1), ("closed", 4), ("open", 64))
    ]
    connects = [
        {
            "workload": workload,
            "queue": queue,
            "allocator": "lumen_arena",
            "connect_us": {"mean": 40.0, "p99": 120.0},
            "answer_us": {"mean": 80.0, "p99": 240.0},
        }
        for workload, queue in places
    ]
    return {
        "machine": MACHINE,
        "models": {},
        "rounds": 3,
        "seconds": 2.0,
        "warmup_s": 0.5,
        "seed": 1,
        "connections": [1, 4],
        "cells": cells,
        "connects": connects,
        "failures": [],
    }


# ---- models ----


def test_mlp_is_what_it_says(tmp_path: Path) -> None:
    session = ort.InferenceSession(str(mlp.write(tmp_path / "mlp.onnx")))
    (taken, given) = session.get_inputs()[0], session.get_outputs()[0]
    assert (taken.name, taken.shape, taken.type) == ("x", ["N", 64], "tensor(float)")
    assert (given.name, given.shape) == ("y", ["N", 8])
    for rows in (1, 3):
        (answer,) = session.run(None, {"x": np.ones((rows, 64), np.float32)})
        assert answer.shape == (rows, 8)
        assert np.ptp(answer) > 0
    assert mlp.model_bytes(1) == mlp.model_bytes(1) != mlp.model_bytes(2)


# ---- rules ----


@pytest.mark.parametrize(
    ("ratio", "sign"),
    [
        (Ratio(1.5, 1.2, 1.6, 3), 1),
        (Ratio(0.5, 0.4, 0.9, 3), -1),
        (Ratio(1.5, 0.9, 1.6, 3), 0),  # a round that disagrees
        (Ratio(1.02, 1.01, 1.03, 3), 0),  # too small to matter
        (Ratio(1.5, 1.4, 1.6, 2), 0),  # too few rounds
        (None, 0),
    ],
)
def test_verdict(ratio: Ratio | None, sign: int) -> None:
    words, found = rules.verdict(ratio, "at best")
    assert found == sign
    assert ("times" in words) == (sign != 0)


def test_ratios_are_made_inside_a_round() -> None:
    ratio = rules.paired([10, None, 40, 9], [10, 10, 20, None])
    assert ratio == Ratio(1.5, 1.0, 2.0, 2)
    assert rules.paired([None], [1.0]) is None
    assert rules.middle([None, 3.0, 1.0]) == 2.0
    assert rules.middle([None]) is None


def test_rules_follow_the_figures() -> None:
    lines = dict(
        line.removeprefix("- **`").split("`**", 1)
        for line in rules.rules(results()).splitlines()
        if line.startswith("- ")
    )
    assert "100.0 requests/s" not in lines["mpmc"]
    assert "105.0 requests/s on mlp over 1 connection" in lines["mpmc"]
    assert "no difference that shows" in lines["scq"]
    assert lines["scq"].endswith("no reason here to leave the default.")
    assert "a choice for models like mlp, not for models like squeezenet" in lines["inline"]


def test_rules_without_the_default() -> None:
    found = results()
    found["cells"] = [each for each in found["cells"] if each["queue"] != "mpmc"]
    assert "nothing to compare with" in rules.rules(found)


# ---- the page ----


def test_page_holds_figures_and_the_machine() -> None:
    page = bench_page.page(results(), ["throughput-mlp.svg", "queue-squeezenet.svg"], "")
    assert "Virtual machine: Example 9000, 2 cores, Linux 6.1.0, ONNX Runtime 1.31.1" in page
    assert "| inline, lumen_arena | 160.0 | 160.0 | 1.50 (1.45-1.62) | 6 | 1.00 |" in page
    assert "1.23 / 1.11 / 2.47 / 3.7" in page  # ms
    assert "1,234 / 1,111 / 2,468 / 3,702" in page  # µs
    assert "| mpmc, lumen_arena | 21.78 / 1.23 | 21.54 / 1.11 | 33.26 / 2.47 |" in page
    assert "compare shapes" in page
    assert page.count("benchmarks/throughput-mlp.svg") == 1
    assert "nan" not in page.lower().replace("name", "")
    assert "## What failed" not in page


def test_page_is_made_of_incomplete_figures() -> None:
    found = results()
    found["failures"] = ["round 1: scq did not start"]
    found["connects"] = []
    for each in found["cells"]:
        if each["queue"] == "scq":
            each |= {"throughput_rps": [None] * 3, "cpu_us_per_request": [None] * 3}
            each |= {"latency_us": None, "queue_us": None, "rows_per_run": None}
    found["cells"] = [each for each in found["cells"] if each["workload"] != "mlp"]
    page = bench_page.page(found, [], "")
    assert "round 1: scq did not start" in page
    assert "| scq, lumen_arena | - | - | - | - | - |" in page


def test_what_people_wrote_is_kept() -> None:
    first = bench_page.page(results(), [], "")
    assert "What the figures cannot show" in first
    edited = first.replace(bench_page.by_hand(first), "We chose `mpmc`.\n\nBecause.")
    again = bench_page.page(results(), [], edited)
    assert "We chose `mpmc`.\n\nBecause." in again
    assert "What the figures cannot show" not in again
    assert bench_page.page(results(), [], again) == again


def test_plots(tmp_path: Path) -> None:
    drawn = bench_plots.draw(results(), tmp_path)
    assert len(drawn) == 4
    before = [path.read_bytes() for path in drawn]
    assert all(b"<svg" in data for data in before)
    assert [path.read_bytes() for path in bench_plots.draw(results(), tmp_path)] == before


# ---- the matrix ----


def test_every_mode_is_a_setting_the_server_takes(tmp_path: Path) -> None:
    model = mlp.write(tmp_path / "mlp.onnx")
    for queue in bench.QUEUES:
        for allocator in bench.ALLOCATORS:
            mode = bench.Mode(queue, allocator)
            pairs = [setting.removeprefix("--set=") for setting in mode.settings()]
            config = load(None, pairs, [f"mlp={model}"])
            assert config.engine.queue_type == queue
            assert config.engine.allocator_type == allocator


@pytest.mark.usefixtures("c_library")
def test_matrix_in_short(tmp_path: Path) -> None:
    out = tmp_path / "docs"
    options = ["--short", "--no-plots", "--out", str(out), "--workloads", "mlp"]
    options += ["--queues", "mpmc,batched", "--allocators", "lumen_arena"]
    assert bench.main(options) == 0
    found = json.loads((out / "benchmarks" / "results.json").read_text())
    assert found["failures"] == []
    assert len(found["cells"]) == 6
    # A cell is measured for a moment, in which a busy machine may have answered nobody.
    assert sum(each["requests"] for each in found["cells"]) > 0
    for each in found["cells"]:
        assert each["errors"] == 0
        assert each["queue_us"]["p99"] >= each["queue_us"]["p50"]
    page = (out / "BENCHMARKS.md").read_text()
    assert "| batched, lumen_arena |" in page
    assert bench.main([*options, "--report-only"]) == 0
    assert (out / "BENCHMARKS.md").read_text() == page


# ---- variants ----


def test_a_slice_answers_with_its_first_bytes() -> None:
    session = ort.InferenceSession(variants.slice_bytes(100), providers=["CPUExecutionProvider"])
    x = np.arange(100, dtype=np.uint8).reshape(1, 100)
    (y,) = session.run(None, {"x": x})
    assert y.tolist() == [list(range(8))]


def test_variants_are_compared_inside_a_round() -> None:
    row = variants.Row("4 KB", 2000)
    rates = {"io_uring": [100.0, 200.0, None], "epoll": [110.0, 180.0, 170.0]}
    for name, times in {"io_uring": [None] * 3, "epoll": [5.0, 5.5, 6.0]}.items():
        for rps, cpu_us in zip(rates[name], times, strict=True):
            row.add(name, throughput_rps=rps, p50_us=2 * 1e6, cpu_us_per_request=cpu_us)
    assert variants.table([row]).splitlines()[2] == (
        "| 4 KB | 2,000 | 150 | 170 | 1.00 (0.90-1.10) "
        "| 2,000,000 | 2,000,000 | 1.00 (1.00-1.00) | failed | 5.5 | - |"
    )
    assert row.as_json()["throughput_rps_ratio"] == {"epoll": pytest.approx(1.0)}
    assert row.as_json()["cpu_us_per_request_ratio"] == {"epoll": None}


def test_a_variant_is_a_name_and_settings() -> None:
    assert variants.Variant.read("a b: x=1 y=2") == variants.Variant("a b", ("x=1", "y=2"))
    assert variants.Variant.read("defaults:") == variants.Variant("defaults", ())
    with pytest.raises(SystemExit):
        variants.main(["--variant", "x=1"])


@pytest.mark.usefixtures("c_library")
def test_variants_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    needs.io_uring()
    assert variants.main(["--short", "--json", "--connections", "2,8", "--payloads", "4 KB"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["connections"] for row in found["rows"]] == [2, 8]
    assert all(row["throughput_rps_ratio"]["epoll"] > 0 for row in found["rows"])


# ---- microbenchmarks and peers ----


def test_microbenchmarks_stand_beside_published_figures() -> None:
    rows = microbench.table(
        [
            {
                "group": "memory, written",
                "name": "lm_slot_alloc",
                "detail": 64,
                "min_ns": 3.75,
                "median_ns": 4.0,
                "p99_ns": None,
            },
            {
                "group": "wake-up",
                "name": "until the sleeper runs",
                "detail": 0,
                "min_ns": 9000.0,
                "median_ns": 20000.0,
                "p99_ns": 41000.0,
            },
        ]
    )
    assert rows[0] == (
        "memory, written: lm_slot_alloc, 64 B",
        "3.8",
        "4.0",
        "",
        "4.2 (Velox: Bumpalo)",
    )
    assert rows[1][1:] == ("9,000", "20,000", "41,000", "")


def row(target: str, rates: list[float | None], p99: float) -> dict[str, Any]:
    spreads = {name: [p99 / 2, p99 / 2] for name in ("mean", "p50", "p999")}
    place = {"place": "one-core", "workload": "mlp", "connections": 16, "target": target}
    figures = {"throughput_rps": rates, "errors": [0, None], "cpu_us_per_request": [8.0, 8.0]}
    return {**place, **figures, **spreads, "p99": [p99, p99], "client_share": [0.5, None]}


def test_comparison_prints_ratios_of_one_client() -> None:
    text = compare_table.report(
        {
            "machine": MACHINE,
            "rounds": 2,
            "seconds": 3.0,
            "rows": [
                row("lumen", [900.0, 1000.0], 100.0),
                row("lumen inline", [1800.0, 2000.0], 50.0),
                row("lumen http", [600.0, 600.0], 125.0),
                row("fastapi", [300.0, None], 250.0),
            ],
            "missing": {"triton python": "triton could not be installed: no network."},
        }
    )
    tails = {
        "lumen": "own, 50% | 16 | 950.0 | 50.0 | 100.0 | 8.0 | 0 | 1.00x | 1.00x | 1.00x",
        "lumen inline": "own, 50% | 16 | 1,900 | 25.0 | 50.0 | 8.0 | 0 | 0.50x | 0.50x | 0.50x",
        "lumen http": "wrk, 50% | 16 | 600.0 | 62.5 | 125.0 | 8.0 | 0 | 1.00x | 1.00x | 1.00x",
        "fastapi": "wrk, 50% | 16 | 300.0 | 125.0 | 250.0 | 8.0 | 0 | 2.00x | 2.00x | 2.00x",
    }
    for target, tail in tails.items():
        assert f"| {target} | {tail} |" in text
    assert "triton python was not measured: triton could not be installed" in text


def test_comparison_draws_one_client(tmp_path: Path) -> None:
    results = {
        "rows": [
            row("lumen", [900.0, 1000.0], 100.0),
            row("lumen http", [600.0, 600.0], 125.0),
            row("fastapi", [300.0, None], 250.0),
        ]
    }
    compare_table.draw(results, tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert "mlp, 16 connections" in text
    shown = re.findall(r">(lumen|lumen http|fastapi|600|300|950)</text>", text)
    assert sorted(shown) == ["300", "600", "fastapi", "lumen http"]  # native: another client


def test_peers_get_the_same_model(tmp_path: Path) -> None:
    work = compare.task("mlp", str(mlp.write(tmp_path / "mlp.onnx")))
    assert len(work.body) == 64 * 4
    assert work.expected.shape == (8,)
    peer = servers.oip_peer(1, 8000, work.model, work.body)
    size = int(peer.headers["Inference-Header-Content-Length"])
    head = json.loads(peer.body[:size])
    assert (peer.path, peer.body[size:]) == ("/v2/models/model/infer", work.body)
    assert head["inputs"][0]["shape"] == [1, 64]
    assert head["inputs"][0]["parameters"]["binary_data_size"] == len(work.body)
    assert head["parameters"] == {"binary_data_output": True}
    servers.write_repository(tmp_path / "model", work.model, 2)
    text = (tmp_path / "model" / "config.pbtxt").read_text()
    assert 'input [{ name: "x" data_type: TYPE_FP32 dims: [-1, 64] }]' in text
    assert "count: 2" in text
    assert (tmp_path / "model" / "1" / "model.py").is_file()


def test_what_is_noted_of_the_frequency(tmp_path: Path) -> None:
    assert frequency(tmp_path) == {"governor": "unknown: the host decides", "turbo": "unknown"}
    for core in os.sched_getaffinity(0):
        (tmp_path / f"cpu{core}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "cpufreq" / "scaling_governor").write_text("powersave\n")
    (tmp_path / "intel_pstate").mkdir()
    (tmp_path / "intel_pstate" / "no_turbo").write_text("1\n")
    assert frequency(tmp_path) == {"governor": "powersave", "turbo": "off"}
    (tmp_path / "cpufreq").mkdir()
    (tmp_path / "cpufreq" / "boost").write_text("1\n")
    assert frequency(tmp_path) == {"governor": "powersave", "turbo": "on"}
    found = results()
    found["machine"] = {**found["machine"], **frequency(tmp_path)}
    assert "Frequency governor: powersave; turbo: on." in bench_page.page(found, [], "")
