"""bench/crowd/slow.py: a few slow clients for a moment, and what is reported of them.

No time is asserted: that the attackers were there and went, that the canary had its answers, and
that nothing of them is left.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from bench.crowd import slow

pytestmark = pytest.mark.usefixtures("c_library")
SHORT = ["--workloads", "mlp", "--seconds", "0.3", "--rounds", "1", "--connections", "60"]


@pytest.fixture(autouse=True)
def _canary_without_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few requests, which no machine is too busy to answer before the phase is over."""
    work = dataclasses.replace(slow.WORKLOADS["mlp"], rate=20.0)
    monkeypatch.setitem(slow.WORKLOADS, "mlp", work)


def test_a_native_attack(capsys: pytest.CaptureFixture[str]) -> None:
    assert slow.main([*SHORT, "--attacks", "native-mixed", "--json"]) == 0
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


# As much of slowhttptest as is asked for here: half a head on each of so many connections.
SLOW_HEADS = f"""#!{sys.executable}
import socket, sys, time
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
port = int(option("-u").split(":")[2].split("/")[0])
crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(int(option("-c")))]
for one in crowd:
    one.sendall(b"GET /v2 HTTP/1.1\\r\\nHost: a")
time.sleep(3600)
"""


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where slowhttptest is looked for, and nothing is yet."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "slowhttptest"


def test_the_table(capsys: pytest.CaptureFixture[str], tool: Path) -> None:
    """With a stand-in for slowhttptest."""
    tool.write_text(SLOW_HEADS)
    tool.chmod(0o755)
    assert slow.main([*SHORT, "--protocols", "native", "--attacks", "http-headers"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["http-headers"]
    assert all("nothing" in line for line in lines)


@pytest.mark.usefixtures("tool")
def test_without_the_tool(capsys: pytest.CaptureFixture[str]) -> None:
    assert slow.main([*SHORT, "--protocols", "native", "--attacks", "http-headers"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines == ["slowhttptest is not installed: its attacks are left out"]


def test_what_it_does_not_know() -> None:
    with pytest.raises(SystemExit, match="native-sleep"):
        slow.main(["--attacks", "native-sleep"])
