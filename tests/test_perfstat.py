"""tools/perfstat.py: what perf writes is read as it was meant, with counters and without."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needs
import perfstat
import pytest

from bench.perf import perf_parse, perf_run

DATA = Path(__file__).resolve().parent / "data" / "perf"
GROUPS = {2000: "other", 2001: "io", 2002: "worker", 2003: "worker"}
SAME = [
    ("counters.csv", ","),
    ("counters_decimal_comma.csv", ","),
    ("counters_semicolon.csv", ";"),
]


def parse(name: str, separator: str = ",") -> list[perf_parse.Reading]:
    return perf_parse.parse((DATA / name).read_text(), perfstat.EVENTS, separator)


@pytest.mark.parametrize(("name", "separator"), SAME)
def test_counters(name: str, separator: str) -> None:
    readings = parse(name, separator)
    assert len(readings) == 3 * len(perfstat.EVENTS)
    first = readings[0]
    assert (first.comm, first.tid, first.event) == ("lumen-w/0", 2002, "cycles")
    assert (first.value, first.run_ns, first.percent) == (36e9, 9990000000, 61.5)
    clock = next(r for r in readings if r.event == "task-clock" and r.tid == 2003)
    assert (clock.value, clock.unit, clock.percent) == (9980.25, "msec", 100.0)


@pytest.mark.parametrize(("name", "separator"), SAME)
def test_groups(name: str, separator: str) -> None:
    totals = perf_parse.total(parse(name, separator), GROUPS)
    workers = totals["worker"]
    assert workers["cycles"].value == 70e9
    assert workers["cycles"].note() == "counted 62 % of the time, scaled"
    assert perf_parse.ratio(workers, "instructions", "cycles") == 1.25
    assert perf_parse.ratio(workers, "LLC-load-misses", "LLC-loads") == 0.6
    io = totals["io"]
    assert io["cycles"].note() == ""
    assert io["LLC-loads"].value is None
    assert io["LLC-loads"].note() == "not counted"
    assert perf_parse.ratio(io, "LLC-load-misses", "LLC-loads") is None


def test_without_counters() -> None:
    readings = parse("no_counters.csv")
    assert {r.event for r in readings} == set(perfstat.EVENTS)
    for reading in readings:
        missing = reading.event in perfstat.HARDWARE
        assert (reading.value is None) == missing
        assert reading.reason == ("not supported" if missing else "")


def test_threads_that_did_not_run() -> None:
    reasons = {(r.event in perfstat.HARDWARE, r.reason) for r in parse("idle.csv")}
    assert reasons == {(True, "not supported"), (False, "not counted")}


def test_some_threads_silent() -> None:
    text = "a-1,5,,cycles,10,100.00,,\nb-2,<not counted>,,cycles,0,0.00,,\n"
    found = perf_parse.total(perf_parse.parse(text, ["cycles"]), {1: "all", 2: "all"})
    assert found["all"]["cycles"].value == 5
    assert found["all"]["cycles"].note() == "1 of 2 threads: not counted"


def test_user_mode_and_hybrid() -> None:
    assert [r.event for r in parse("user_mode.csv")][:2] == ["cycles", "instructions"]
    both = perf_parse.total(parse("hybrid.csv"), GROUPS)["worker"]
    assert both["cycles"].value == 25e9
    assert both["cycles"].threads == 1


@pytest.mark.parametrize(
    ("line", "tid", "value"),
    [
        ("12345,,cycles,10,100.00,,", 0, 12345.0),
        ("12,5,msec,task-clock,10,100,00,,", 0, 12.5),
        ("odd, name-77,12345,,cycles,10,100.00,,", 77, 12345.0),
        ("lumen-w/0-5,nonsense,,cycles,10,100.00,,", 5, None),
        ("lumen-w/0-5,7,,cycles", 5, 7.0),
    ],
)
def test_odd_rows(line: str, tid: int, value: float | None) -> None:
    (reading,) = perf_parse.parse(line, perfstat.EVENTS)
    assert (reading.tid, reading.value) == (tid, value)
    assert bool(reading.reason) == (value is None)


@pytest.mark.parametrize("line", ["", "# started", ",,", "cycles", "a-1,,,,,,0.35,stalled cycles"])
def test_rows_without_an_event(line: str) -> None:
    assert perf_parse.parse(line, perfstat.EVENTS) == []


def state(name: str, throughput: float) -> dict[str, Any]:
    totals = perf_parse.total(parse(name), {3475: "io", 3476: "worker", 3477: "worker", **GROUPS})
    spread = {"mean": 10.0, "p50": 9.0, "p99": 20.0, "p999": 30.0}
    return {
        "throughput_rps": throughput,
        "errors": 0,
        "latency_us": spread,
        "stages_us": {"queue": spread, "infer": spread, "total": spread},
        "cpu_us_per_request": 5.0,
        "sleeps": 3,
        "slot_waits": 0,
        "groups": {role: perfstat.group_figures(found, 1000) for role, found in totals.items()},
    }


def test_rows_show_both_states_and_the_change() -> None:
    lines = perfstat.rows([state("counters.csv", 100), state("counters.csv", 150)])
    table = {(section, name): (values, note) for section, name, _, values, note in lines}
    assert table["client", "throughput"][0] == [100, 150]
    assert table["workers", "IPC"][0] == [1.25, 1.25]
    assert table["workers", "instructions per request"][0] == [87.5e6, 87.5e6]
    assert table["workers", "LLC loads missed"][0] == [60, 60]
    assert table["I/O threads", "LLC-loads"] == ([None, None], "not counted")
    assert perfstat.change([100, 150]) == "+50.0 %"
    assert perfstat.change([None, 150]) == perfstat.change([0, 1]) == perfstat.change([1]) == ""


def test_both_states_of_counters() -> None:
    """Twice the requests, more LLC misses and switches: what the two columns and the change say."""
    before, after = state("counters.csv", 100), state("overloaded.csv", 150)
    table = {
        (section, name): (values, perfstat.change(values, unit), note)
        for section, name, unit, values, note in perfstat.rows([before, after])
    }
    assert table["workers", "IPC"] == ([1.25, 1.0], "-20.0 %", "")
    assert table["workers", "LLC loads missed"] == ([60, 75], "+15.0 points", "")
    assert table["workers", "context-switches"] == ([8100, 8910], "+10.0 %", "")
    assert table["I/O threads", "context-switches"] == ([562, 1124], "+100.0 %", "")
    assert table["other threads", "context-switches"] == ([None, 60], "", "")
    # A thread that never ran with the counter has no figure, and so has what is derived from it.
    assert table["I/O threads", "LLC-loads"] == ([None, 900000], "", "not counted")
    assert table["I/O threads", "LLC loads missed"][:2] == ([None, 50], "")


def test_table_says_once_what_cannot_be_counted(capsys: pytest.CaptureFixture[str]) -> None:
    lines = perfstat.rows([state("no_counters.csv", 100), state("no_counters.csv", 150)])
    assert perfstat.uncounted(lines) == list(perfstat.HARDWARE)
    perfstat.show(["standard", "overloaded"], lines)
    *shown, _, said = capsys.readouterr().out.splitlines()
    assert said.startswith(f"This machine counts no {', '.join(perfstat.HARDWARE)}: perf says 'not")
    assert not [line for line in shown if line.split()[:1] in ([e] for e in perfstat.HARDWARE)]
    for event in perfstat.SOFTWARE:
        assert len([line for line in shown if line.split()[:1] == [event]]) >= 2, event
    # What one of the states has is shown.
    mixed = perfstat.rows([state("no_counters.csv", 100), state("counters.csv", 150)])
    assert perfstat.uncounted(mixed) == []


def test_csv(tmp_path: Path) -> None:
    lines = perfstat.rows([state("no_counters.csv", 100), state("no_counters.csv", 150)])
    perfstat.write_csv(tmp_path / "out.csv", ["standard", "overloaded"], lines)
    with (tmp_path / "out.csv").open() as file:
        table = {(row["section"], row["figure"]): row for row in csv.DictReader(file)}
    assert table["client", "throughput"]["change"] == "+50.0"
    assert table["workers", "cycles"]["standard"] == ""
    assert table["workers", "cycles"]["note"] == "not supported"
    assert float(table["workers", "context-switches"]["overloaded"]) > 0


@pytest.mark.parametrize("before", ["2", "4", "-1"])
def test_setting_is_put_back(tmp_path: Path, before: str) -> None:
    path = tmp_path / "perf_event_paranoid"
    path.write_text(before + "\n")

    def interrupted() -> None:
        with perf_run.relaxed_paranoid(True, path):
            assert path.read_text().strip() == "-1"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text().strip() == before


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_setting_is_put_back_whatever_ends_the_process(tmp_path: Path, ending: int) -> None:
    path = tmp_path / "perf_event_paranoid"
    path.write_text("2\n")
    code = (
        "import pathlib, signal, sys\n"
        "from bench.perf.perf_run import relaxed_paranoid\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored below nohup\n"
        "with relaxed_paranoid(True, pathlib.Path(sys.argv[1])):\n"
        "    print(flush=True)\n"
        "    signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=DATA.parents[2]
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert path.read_text() == "-1"
        process.send_signal(ending)
    until = time.monotonic() + 60
    while path.read_text() != "2" and time.monotonic() < until:
        time.sleep(0.01)
    assert path.read_text() == "2"


@pytest.fixture
def with_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A setting that only a program named sudo may write; gives the setting."""

    def make(script: str) -> Path:
        path, sudo = tmp_path / "perf_event_paranoid", tmp_path / "sudo"
        path.write_text("3\n")
        sudo.write_text(f'#!/bin/sh\n[ "$1" = -n ] && shift\n{script}\n')
        sudo.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(perf_run, "_is_ours", lambda _path: False)
        return path

    return make


def test_setting_is_changed_with_sudo(with_sudo: Callable[[str], Path]) -> None:
    path = with_sudo('touch "$0.asked"; exec "$@"')
    with perf_run.relaxed_paranoid(True, path):
        assert path.read_text() == "-1"
    assert path.read_text() == "3"
    assert path.with_name("sudo.asked").exists()


def test_setting_that_stays_as_it_is(with_sudo: Callable[[str], Path]) -> None:
    path = with_sudo("exit 1")
    with pytest.raises(perf_run.PerfError, match="cannot be set to -1: run this as root"):
        with perf_run.relaxed_paranoid(True, path):
            raise AssertionError("nothing runs in there")
    path = with_sudo(f"printf %s -1 > {path}; echo changed; cat > /dev/null")
    with pytest.raises(perf_run.PerfError, match=r"expected 3, found -1.* type: sysctl"):
        with perf_run.relaxed_paranoid(True, path):
            pass


def test_setting_is_left_alone_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "perf_event_paranoid"
    path.write_text("2\n")
    with perf_run.relaxed_paranoid(False, path):
        assert path.read_text() == "2\n"


def test_perf_that_cannot_count_says_why() -> None:
    needs.program("perf")
    perf = perf_run.Perf([2**22 + 1], ["task-clock"])  # no such thread
    try:
        with pytest.raises(perf_run.PerfError, match="perf did not count"):
            perf.enable()
    finally:
        perf.close()
