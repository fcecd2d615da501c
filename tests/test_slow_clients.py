"""tools/slow_clients.py: a few slow clients for a moment, and what is reported of them.

No time is asserted: that the attackers were there and went, that the canary had its answers, and
that nothing of them is left.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import slow_clients

pytestmark = pytest.mark.usefixtures("c_library")
SHORT = ["--workloads", "mlp", "--seconds", "0.3", "--rounds", "1", "--connections", "60"]


def test_a_native_attack(capsys: pytest.CaptureFixture[str]) -> None:
    assert slow_clients.main([*SHORT, "--attacks", "native-mixed", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["failed"] == []
    found = said["results"]["mlp"]["native-mixed"]
    (account,) = found["attackers"]
    assert account["connects"] >= 60
    assert found["left"] == {}
    for protocol in ("native", "http"):
        assert found[protocol]["requests"] > 0
        assert found[protocol]["neighbour_p99_ratio"] > 0
        assert found[protocol]["errors"] == found[protocol]["unanswered"] == 0


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SHORT, "--protocols", "native"]
    has_http = shutil.which("slowhttptest") is not None
    attacks = "http-headers,native-header" if has_http else "native-header"
    assert slow_clients.main([*words, "--attacks", attacks]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + has_http
    assert all("nothing" in line for line in lines[1:])


def test_what_it_does_not_know() -> None:
    with pytest.raises(SystemExit, match="native-sleep"):
        slow_clients.main(["--attacks", "native-sleep"])
