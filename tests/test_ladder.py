"""bench/perf/ladder.py: what its rungs set, what its figures say, and two rungs for a moment."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.perf import ladder
from bench.perf.ladder_rungs import CORES, PROTOCOL, SERVER, STEPS, Step, rungs
from bench.report.ladder_figures import PERCENTS, Difference, difference
from bench.report.ladder_plot import draw
from bench.report.ladder_table import BEGIN, END, report, with_report

# ---- rungs ----


def test_each_rung_has_one_technique_more_than_its_base() -> None:
    """No Lumen that can run this has all settings: those it lacks are another test's."""
    found, missing = rungs()
    assert len(found) + len(missing) == len(STEPS)
    by_name = {rung.name: rung for rung in found}
    assert len(by_name) == len(found)
    assert found[0].base is None
    for rung in found[1:]:
        assert rung.base is not None
        base = by_name[rung.base].settings
        assert {**base, **rung.step.change} == rung.settings
        changed = [key for key in rung.settings if rung.settings[key] != base.get(key)]
        assert changed == list(rung.step.change)
        assert len(changed) <= 1 or rung.settings[SERVER] != base[SERVER]


def test_the_rung_after_an_aside_stands_on_its_base() -> None:
    steps = [
        Step("first", {SERVER: "Lumen", CORES: "one", "models.0.no_such_setting": "1"}),
        Step("all cores", {CORES: "all"}, aside=True),
        Step("no such", {"engine.no_such_setting": "1"}),
        Step("arena", {"engine.allocator_type": "lumen_arena"}),
        Step("inline", {"models.0.run": "inline"}),
    ]
    found, missing = rungs(steps)
    assert [(rung.name, rung.base) for rung in found] == [
        ("first", None),
        ("all cores", "first"),
        ("arena", "first"),
        ("inline", "arena"),
    ]
    assert missing == {"no such": "engine.no_such_setting"}
    assert found[-1].settings[CORES] == "one"
    assert all("no_such" not in key for rung in found for key in rung.settings)
    assert found[-1].change == "models.0.run: inline"


# ---- figures ----


def test_a_drift_that_both_rungs_share_is_no_difference_and_hides_none() -> None:
    random = np.random.default_rng(7)
    drift = random.uniform(80, 200, 8)
    base = list(drift + random.normal(0, 1, 8))
    same = difference(list(drift + random.normal(0, 1, 8)), base)
    assert same.sign == 0
    assert same.low <= 0 <= same.high
    less = list(drift - 20 + random.normal(0, 1, 8))
    faster, slower = difference(less, base), difference(base, less)
    assert -23 < faster.low <= faster.us <= faster.high < -17
    assert faster.us == np.median(np.subtract(less, base)) == -slower.us
    assert (faster.sign, slower.sign) == (-1, 1)


def test_a_disturbed_round_is_outvoted() -> None:
    found = difference([90.0] * 9 + [5000.0], [100.0] * 10)
    assert (found.us, found.low, found.high, found.sign) == (-10, -10, -10, -1)


@pytest.mark.parametrize(
    ("mine", "rounds"),
    [([50.0], 5), ([98.0], 8), ([50.0, 50.0, 150.0], 9)],
    ids=["too few rounds", "under three percent", "rounds that disagree"],
)
def test_what_does_not_show_has_no_sign(mine: list[float], rounds: int) -> None:
    values = (mine * rounds)[:rounds]
    assert difference(values, [100.0] * rounds).sign == 0
    assert difference([100.0] * rounds, values).sign == 0


# ---- words ----


LOADS = ["1 connection", "8 connections"]


def results() -> dict[str, Any]:
    better = {"us": -40.0, "low": -1234.4, "high": -35.5, "sign": -1}
    nothing = {"us": 0.5, "low": -1.0, "high": 2.0, "sign": 0}
    brought = {"p50": better, "p99": nothing, "p999": nothing}
    rows = [
        {
            "load": load,
            "rung": name,
            "errors": errors,
            "cpu_us_per_request": [5.0, 7.0, 6.0],
            "latency_us": {"p50": [1.0, 160.0, 170.0], "p99": [1200.4], "p999": [5000.0]},
            "brought_us": change,
        }
        for load, (name, errors, change) in itertools.product(
            LOADS, (("plain Python", 0, {}), ("aside", 3, brought), ("queue", 0, brought))
        )
    ]
    rung = {"notes": [], "claim_ms": None, "settings": {}}
    return {
        "machine": {
            **{"cpu": "Abacus 7", "cores": 2, "kernel": "6.1", "virtual": True},
            **{"onnxruntime": "1.20", "python": "3.11", "date": "2026-01-02"},
            **{"governor": "performance", "turbo": "off"},
        },
        "model": "500 trees",
        **{"rounds": 6, "starts": 2, "seconds": 0.5, "loads": LOADS},
        **{"repeats": 1, "others_cores": [0.01, 0.03, 0.07]},
        "missing": {"huge pages": "engine.no_such"},
        "rungs": [
            {**rung, "name": "plain Python", "change": "all", "base": None},
            {**rung, "name": "aside", "change": "x: 1", "base": "plain Python"},
            {
                **{**rung, "name": "queue", "change": "q: mpmc", "base": "plain Python"},
                **{"claim_ms": 0.9, "notes": ["no huge pages"]},
            },
        ],
        "rows": rows,
    }


def test_the_tables_say_what_was_measured() -> None:
    text = report(results())
    assert text.startswith("Virtual machine, Abacus 7, 2 cores, Linux 6.1")
    assert "2026-01-02; governor performance, turbo off. 500 trees" in text
    assert "used 3% of a core meanwhile in the median, 7% at most; 1 figure where" in text
    assert "- queue (on: plain Python): q: mpmc; the server noted: no huge pages" in text
    assert "- aside: x: 1" in text
    assert "- huge pages: left out, this Lumen has no engine.no_such" in text
    lines = text.splitlines()
    assert lines.count("| plain Python | 160.0 | 1,200 | 5,000 |  |  |  | 6.0 |") == 2
    changes = "**-40.0** (-1,234 to -35.5) | +0.5 (-1.0 to +2.0) | +0.5 (-1.0 to +2.0) | 6.0 |"
    assert lines.count(f"| aside (3 errors) | 160.0 | 1,200 | 5,000 | {changes}") == 2
    claim = "| queue | -0.9 ms | -11% | **-40.0** (-1,234 to -35.5) | -25.0% |"
    assert lines.count(claim) == 1
    assert text.index("**1 connection**") < text.index("**8 connections**") < text.index(claim)


def test_what_people_wrote_on_the_page_is_kept() -> None:
    page = f"# Title\n\nAbove.\n\n{BEGIN}\n\nold\n\n{END}\n\nBelow.\n"
    assert with_report(page, "new") == page.replace("old", "new")
    for broken in ("", f"{BEGIN} old", f"old {END}"):
        with pytest.raises(ValueError, match="expected the lines"):
            with_report(broken, "new")


def test_the_page_can_be_made_anew() -> None:
    assert ladder.PLOT.name in ladder.PAGE.read_text()
    with_report(ladder.PAGE.read_text(), "")


def test_the_picture_has_every_rung(tmp_path: Path) -> None:
    draw(results(), tmp_path / "new" / "ladder.svg")
    text = (tmp_path / "new" / "ladder.svg").read_text()
    for words in ("plain Python", "aside", "queue", "p99.9", "1 connection:", "8 connections:"):
        assert f">{words}" in text


# ---- all of it ----


def test_two_rungs_in_short(c_library: None) -> None:
    plain = {SERVER: "Lumen", CORES: "all", PROTOCOL: "HTTP", "engine.queue_type": "naive"}
    steps = [Step("plain", plain), Step("native protocol", {PROTOCOL: "native"})]
    options = ["--rounds", "1", "--starts", "1", "--patience", "0"]
    options += ["--connections", "2", "--rate", "2000", "--requests", "50", "--warmup", "0.01"]
    found = ladder.measure(ladder.parser().parse_args(options), steps)
    loads = ["2 connections", "1 connection, 2,000 requests a second"]
    assert [(row["load"], row["rung"], row["errors"]) for row in found["rows"]] == [
        (load, name, 0) for load in loads for name in ("plain", "native protocol")
    ]
    for row in found["rows"]:
        assert row["requests"] == 50
        ((p50,), (p99,), (p999,)) = (row["latency_us"][name] for name in PERCENTS)
        assert 0 < p50 <= p99 <= p999
    changes = {name: Difference(**one) for name, one in found["rows"][1]["brought_us"].items()}
    first, second = (row["latency_us"] for row in found["rows"][:2])
    for name, change in changes.items():
        assert change.us == pytest.approx(second[name][0] - first[name][0])
        assert change.sign == 0  # one round
