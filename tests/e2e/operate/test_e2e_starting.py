"""A start that takes long: what it waits for is said, and a signal ends it at once."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import graphs
import harness
import numpy as np
import pytest
import yaml
from harness import eventually

# Of the products that `slow` makes: hours of them, a few seconds each.
TRIPS, TIMES = 100_000, 10_000


def endless(folder: Path) -> Path:
    """Settings of a server whose model has warm-up requests without an end."""
    (folder / "x.bin").write_bytes(np.array([TRIPS], "<i8").tobytes())
    model = {
        "name": "slow",
        "path": str(graphs.slow(folder / "slow.onnx")),
        "warmup": [
            {"inputs": {"x": {"shape": [1], "data": str(folder / "x.bin")}}, "count": TIMES}
        ],
    }
    path = folder / "lumen.yaml"
    path.write_text(yaml.safe_dump({"models": [model]}))
    return path


def statistics_of(pid: int) -> Path:
    """The file of figures, which is there before the server is ready."""
    [path] = {
        line[line.index("/dev/shm/lumen-") :]
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if "/dev/shm/lumen-" in line
    }
    return Path(path)


@pytest.mark.once  # no connection is open yet
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start(cache: Path, tmp_path: Path, number: signal.Signals) -> None:
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            harness.command("--config", str(endless(tmp_path)), "--port", "0"),
            stdout=out,
            stderr=out,
            env=harness.environment(cache),
        )
    try:
        eventually(lambda: "s so far." in said.read_text(), "what it waits for", 60)
        statistics = statistics_of(process.pid)
        process.send_signal(number)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    text = said.read_text()
    assert re.search(r"Warming up: \d+ s so far\.", text)
    assert "ended by a signal before the server was ready" in text
    assert "serves on" not in text
    assert not statistics.exists()
