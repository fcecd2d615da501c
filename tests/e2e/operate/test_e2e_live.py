"""Models that come and go while clients ask: answers, counters, memory (live_server.py does it)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.once  # what loads models: the same on both backends

CHANGES = 120
BALLAST_BYTES = 4 << 22  # of the large model


def test_models_come_and_go_under_load(tmp_path: Path) -> None:
    """Each request is answered by a model that was in force, and a model's memory comes back."""
    seed = int(os.environ.get("LUMEN_SEED", "1"))
    program = Path(__file__).parents[1].joinpath("live_server.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(seed), str(CHANGES)],
        env=harness.environment(tmp_path), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"LUMEN_SEED={seed}: {done.stderr[-2000:]}"
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["wrong"] == [], f"LUMEN_SEED={seed}"
    answers = {name: count for name, count in told["answers"].items() if name != "gone"}
    # A name that came again went on counting.
    assert told["counted"] == answers
    assert told["grew"] > BALLAST_BYTES / 2
    assert told["kept"] < BALLAST_BYTES / 2
