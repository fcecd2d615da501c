"""bench/crowd: 2,000 connections for a moment, how c10k.py divides them, and those of idle.py.

No time is asserted: that every connection is there, that those who ask are answered, and that what
is reported adds up.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bench.common.local_server import local_server
from bench.crowd import c10k, c10k_crowd, idle

SHORT = ["--model", "builtin:digits", "--seconds", "0.2", "--rounds", "1", "--json"]


pytestmark = pytest.mark.usefixtures("c_library")


def measured(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert c10k.main([*SHORT, *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_two_thousand(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "c10k.svg"
    options = ["--connections", "2000", "--slow", "3%", "--active", "8", "--period-ms", "5"]
    found = measured(capsys, *options, "--churn", "200", "--plot", str(plot))
    assert (found["idle"], found["slow"], found["active"]) == (1932, 60, 8)
    assert (found["connected"], found["failed"], found["errors"]) == (2000, 0, 0)
    assert found["requests"] > 0
    assert found["connects_per_second"] > 0
    assert found["user_bytes_per_connection"] >= found["table_entry_bytes"] > 0
    for name in ("quiet_latency_us", "active_latency_us"):
        assert found[name]["p99"] >= found[name]["p50"] > 0
    crowd = found["crowd"]
    assert crowd["answers"] > 0  # to pings and HTTP heads sent a byte at a time
    assert crowd["refusals"] == 0
    assert crowd["churned"] > 0
    # The server's figure is read first, and the last of the churn may not be accepted yet.
    assert found["server"]["connections_accepted"] > 1992 + crowd["churned"] // 2
    assert "2000 of 2000 connected" in c10k.table(found)
    if plot.exists():  # matplotlib may be missing
        assert b"<svg" in plot.read_bytes()


def test_crowd_in_several_processes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c10k_crowd, "connections_per_process", lambda: 100)
    # So much churn that some are on their way back whenever one looks; beside it, and beside other
    # tests, the active ones may wait long for their first answer.
    churn = ["--connections", "202", "--active", "2", "--churn", "5000"]
    found = measured(capsys, *churn, "--seconds", "0.6")
    assert (found["crowd_processes"], found["connected"], found["failed"]) == (2, 202, 0)


def test_server_without_room() -> None:
    """Whom the server turns away is counted, and not tried again for ever."""
    room = ("--model=digits=builtin:digits", "--set=server.max_connections=100")
    with local_server(*room) as server:
        with c10k_crowd.Crowd(server, 300, c10k_crowd.Habits()) as crowd:
            c10k.ramp(crowd, 300)
            totals = crowd.totals()
    assert (totals["connected"], totals["lost"]) == (100, 200)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], (9984, 0, 16)),
        (["--slow", "10%", "--active", "1%"], (8900, 1000, 100)),
        (["--connections", "50", "--active", "10", "--slow", "40"], (0, 40, 10)),
        (["--idle", "9000", "--slow", "984"], (9000, 984, 16)),
    ],
)
def test_shares(words: list[str], expected: tuple[int, int, int]) -> None:
    assert c10k.divide(c10k.arguments().parse_args(words)) == expected


@pytest.mark.parametrize(
    "words",
    [["--slow", "101%"], ["--active", "0"], ["--idle", "5"], ["--connections", "16"]],
)
def test_shares_that_do_not_add_up(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="expected at least one active"):
        c10k.divide(c10k.arguments().parse_args(words))


@pytest.mark.parametrize("text", ["many", "-1", "nan", "10%%", ""])
def test_no_share(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a number or a percentage"):
        c10k.share(text)


def test_idle_ones(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had its answer, or the tool fails; those with TLS hold its state."""
    monkeypatch.setattr(idle, "squeezenet", lambda: "builtin:digits")
    kind = "HTTP/2 and gRPC, TLS"
    words = ["--connections", "200", "--rounds", "1", "--seconds", "0.2", "--kind", kind]
    assert idle.main(words) == 0
    name, each, ratio = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert name == kind
    assert float(ratio) > 0
    assert float(each.replace(",", "")) > 2000
