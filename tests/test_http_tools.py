"""The benchmarks of HTTP and overload: their sums on figures made up here, and each of them
for a moment against real servers, to see that what is measured arrives in what is printed.

No time is asserted. What needs wrk or nginx is skipped where they are not installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest

from bench.common import oip
from bench.load import http_overhead, overload
from bench.peers import compare, http_live, nginx, wrk
from lumen_uring.ring.histogram import Histogram

pytestmark = pytest.mark.usefixtures("c_library")
MS = 1_000_000


@pytest.fixture
def _has_wrk() -> None:
    if not wrk.found():
        needs.absent("wrk")


def run(capsys: pytest.CaptureFixture[str], main: Callable[..., int], *options: str) -> Any:
    """What a tool prints with --json."""
    assert main([*options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---- sums ----


def samples(slow_ms: float, slow: int, count: int = 400) -> Any:
    """Requests 5 ms apart, each answered after 5 ms, but the first ones only after `slow_ms`."""
    took = [slow_ms if at < slow else 5.0 for at in range(count)]
    return np.array([(at * 5 * MS, ms * MS) for at, ms in enumerate(took)], np.uint64)


def test_recovery_is_when_answers_are_normal_again() -> None:
    limit_ns = 7.5 * MS
    assert overload.recovery_s(samples(5, 0), limit_ns) == pytest.approx(0.005)
    # Of 100 answers one may be slow: the last of 20 is.
    assert overload.recovery_s(samples(9, 20), limit_ns) == pytest.approx(0.104)
    assert overload.recovery_s(samples(9, 400), limit_ns) is None
    assert overload.recovery_s(samples(5, 0, count=50), limit_ns) is None
    assert overload.recovery_s(np.empty((0, 2), np.uint64), limit_ns) is None


def test_summary_of_an_overload() -> None:
    quiet, normal, refused = (overload.bucket(ns) for ns in (20 * MS, 90 * MS, MS // 10))
    phase = {"seconds": 2.0, "rate": 0.0, "late": 0, "unsent": 0, "lost": 0, "client_share": 0.1}
    statuses = [0] * 16
    figures = {
        "maximum": {**phase, "statuses": [200, *statuses[1:]], "accepted": [], "refused": []},
        "quiet": {**phase, "statuses": statuses, "accepted": [[quiet, 100]], "refused": []},
        "overload": {
            **phase,
            **{"rate": 200.0, "unsent": 20, "late": 3},
            "statuses": [196, 0, 0, 0, 4, 180, *statuses[6:]],
            "accepted": [[normal, 196]],
            "refused": [[refused, 184]],
        },
        "recovery": {**phase, "statuses": statuses, "accepted": [], "refused": []},
    }
    found = overload.summary(figures, samples(40, 10), 100.0)
    assert (found["maximum_rps"], found["offered_rps"], found["sent_rps"]) == (100, 200, 190)
    assert found["accepted_over_maximum"] == pytest.approx(0.98)
    assert found["p99_over_deadline"] == pytest.approx(0.9, rel=0.01)
    assert (found["refused"], found["statuses"]) == (184, {"0": 196, "4": 4, "5": 180})
    assert found["refused_p50_us"] == pytest.approx(100, rel=0.01)
    assert found["recovery_s"] == pytest.approx(0.08)
    assert found["recovery_p99_us"] is None
    text = overload.report("mlp", found)
    assert "0.980  >= 0.95" in text
    assert "The client was busy" not in text


def test_typical_latency_is_finer_than_a_bucket() -> None:
    random = np.random.default_rng(1)
    # At 7 ms a bucket is 66 or 131 µs wide; one request in ten is far off.
    base = np.where(random.random(1000) < 0.1, 20 * MS, random.normal(7 * MS, MS // 40, 1000))
    found = []
    for added_ns in (0, 15_000):
        counts = np.zeros(1728, np.uint64)
        np.add.at(counts, [overload.bucket(int(ns)) for ns in base + added_ns], 1)
        values = Histogram(counts, 6, 4)
        found.append(http_overhead.typical_us(values, float(np.mean(base + added_ns))))
    (without, with_added) = found
    assert without is not None
    assert with_added is not None
    assert without == pytest.approx(7000, rel=0.01)
    assert with_added - without == pytest.approx(15, abs=3)
    assert http_overhead.typical_us(Histogram(np.zeros(1728, np.uint64), 6, 4), np.nan) is None


def test_difference_with_its_bounds() -> None:
    def row(added: list[float | None]) -> dict[str, Any]:
        native = {"typical_us": [100.0] * len(added)}
        http = {"typical_us": [each and 100.0 + each for each in added]}
        return {"native": native, "http": http}

    # Ranks 10 and 21 of 30, as tables of the sign test have them.
    assert http_overhead.difference_us(row([*map(float, range(1, 31))])) == (15.5, 10.0, 21.0)
    assert http_overhead.difference_us(row([3.0, None, 1.0])) == (2.0, 1.0, 3.0)
    assert http_overhead.difference_us(row([None])) is None


def test_configuration_of_nginx(tmp_path: Path) -> None:
    text = nginx.configuration(tmp_path, 1234, oip.LIVE, "{}")
    assert "listen 127.0.0.1:1234;" in text
    assert "location = /v2/health/live { return 200 '{}'; }" in text
    assert "access_log off;" in text
    assert text.count("{") == text.count("}")


# ---- for a moment, against real servers ----


def test_overload_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workloads", "mlp", "--seconds", "0.4", "--calm-seconds", "0.3"]
    found = run(capsys, overload.main, *options)["workloads"]["mlp"]
    assert found["maximum_rps"] > 0
    assert found["offered_rps"] == pytest.approx(2 * found["maximum_rps"], rel=0.01)
    assert found["accepted_p99_us"] >= found["accepted_p50_us"] > 0
    assert set(found["statuses"]) <= {"0", "4", "5"}
    assert found["lost"] == 0
    assert found["quiet_p99_us"] > 0
    overload.report("mlp", found)


def test_http_overhead_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--cases", "mlp", "--connections", "1,2", "--rounds", "2", "--seconds", "0.1"]
    results = run(capsys, http_overhead.main, *options, "--warmup", "0.02", "--poll-us", "20")
    assert [row["connections"] for row in results["rows"]] == [1, 2]
    for row in results["rows"]:
        for protocol in http_overhead.PROTOCOLS:
            figures = row[protocol]
            assert (figures["errors"], len(figures["typical_us"])) == (0, 2)
            assert figures["requests"] > 0
            assert figures["cpu_us_per_request"] > 0
    assert "95 % confidence" in http_overhead.report(results)


@pytest.mark.usefixtures("_has_wrk")
def test_http_live_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    if nginx.program() is None:
        needs.absent("nginx")
    options = ["--connections", "2", "--rounds", "1", "--seconds", "1", "--warmup", "0"]
    results = run(capsys, http_live.main, *options)
    assert [row["target"] for row in results["rows"]] == ["lumen", "nginx"]
    for row in results["rows"]:
        assert row["errors"] == [0]
        assert row["throughput_rps"][0] > 0
    assert http_live.ratio(results["rows"], 2) is not None
    assert "Target: the ratio at least 1.00." in http_live.report(results)


@pytest.mark.usefixtures("_has_wrk")
def test_comparison_over_http_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "compare.json"
    targets = "lumen,lumen http,lumen http inline"
    options = ["--targets", targets, "--workloads", "mlp", "--places", "all-cores"]
    options += ["--connections", "2", "--rounds", "1", "--seconds", "1", "--warmup", "0"]
    assert compare.main([*options, "--json", str(file)]) == 0
    results = json.loads(file.read_text())
    assert results["missing"] == {}
    assert [row["target"] for row in results["rows"]] == targets.split(",")
    for row in results["rows"]:
        assert row["errors"] == [0]
        assert row["throughput_rps"][0] > 0
    assert "| lumen http | wrk, " in capsys.readouterr().out
