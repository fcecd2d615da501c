"""bench/perf/floor.py, for a moment: the floor answers as Lumen does, and each server has rows."""

from __future__ import annotations

import json

import pytest

from bench.perf import floor


def test_floor_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--connections", "1,4", "--rounds", "1", "--warmup", "0.02", "--json"]
    for seconds in ("0.1", "3"):  # on a machine that others use a moment may see no answer
        assert floor.main([*options, "--seconds", seconds]) == 0
        results = json.loads(capsys.readouterr().out)
        if all(row["throughput_rps"][0] for row in results["rows"]):
            break
    names = [floor.FLOOR, *floor.MODES]
    assert [(row["connections"], row["server"]) for row in results["rows"]] == [
        (count, name) for count in (1, 4) for name in names
    ]
    for row in results["rows"]:
        assert (row["errors"], len(row["throughput_rps"])) == (0, 1)
        assert row["throughput_rps"][0] > 0
        assert row["cpu_us_per_request"][0] > 0
        assert row["p99_us"] >= row["p50_us"] > 0
    assert floor.report(results).count("\n| ") == 1 + len(results["rows"])


def test_ratios_are_made_inside_a_round() -> None:
    rows = [
        {"connections": 16, "server": name, "throughput_rps": values}
        for name, values in (
            (floor.FLOOR, [100.0, 200.0, None]),
            ("inline", [90.0, 160.0, 300.0]),
        )
    ]
    found = floor.ratio({"rows": rows}, rows[1], "throughput_rps")
    assert found is not None
    assert (found.middle, found.low, found.high) == pytest.approx((0.85, 0.8, 0.9))
    assert floor.ratio({"rows": rows[1:]}, rows[1], "throughput_rps") is None
