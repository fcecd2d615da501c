"""`lumen dashboard` in a real browser, on what a real server and `lumen bench --out` wrote."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import harness
import needs
import perfstat
import pytest
from browser import START_S, Browser, needs_chromium
from conftest import Serve
from harness import command, environment, eventually
from operating import free_port
from test_perfstat import state

needs_streamlit = pytest.mark.skipif(
    importlib.util.find_spec("streamlit") is None, reason=needs.reason("streamlit")
)
BROKEN = ("broken.csv line 3: expected ", " cells, found 1; left out.")
# Of each page: words that are there, and the least number of marks in its charts.
PAGES = {
    "": (["one", "two", "round trips of 300 requests", "120 cells", *BROKEN], 0),
    "modes": (["Throughput", "requests per second", "scq, lumen_arena", "p99.9"], 100),
    "percentiles": (["p50", "p90", "p99", "p99.9", "p99.99", "one: round trip", "two: server"], 4),
    "queue": (["Queue residency", "share of requests", "Where the time goes: two", "infer"], 20),
    "timeline": (["requests per second", "latency p99", "seconds since the first request"], 5),
    "workers": (["worker 0", "busy", "seconds since the first request"], 20),
    "comparison": (["two ÷ one, with its 95 % interval", "server p50", "bootstrap"], 12),
    "processor": (["workers: IPC", "workers: LLC loads missed", "overloaded ÷ standard"], 20),
}
MARKS = "document.querySelectorAll('svg.marks [role=graphics-symbol]').length"


def record(serve: Serve, folder: Path, stop: bool, connections: int) -> None:
    """A run: the server's telemetry, and what the load generator saw."""
    models = [{"name": "digits", "path": "builtin:digits", "run": "worker"}]
    engine = {"telemetry_csv_path": str(folder / "telemetry.csv"), "thread_count": 2}
    folder.mkdir()
    server = serve({"engine": engine, "models": models})
    words = ["bench", "--url", f"lumen://127.0.0.1:{server.port}", "--warmup", "0"]
    words += ["--requests", "300", "--connections", str(connections), "--out", str(folder)]
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    if stop:
        server.stop()
    else:
        rows = folder / "telemetry.csv"
        eventually(lambda: rows.read_bytes().count(b"\n") == 301, "all rows are written")


@pytest.fixture
def files(serve: Serve, tmp_path: Path) -> list[str]:
    """Two runs, one damaged file, the project's results, a report with hardware counters."""
    record(serve, tmp_path / "one", True, 2)
    record(serve, tmp_path / "two", False, 8)
    good = (tmp_path / "one" / "telemetry.csv").read_text().splitlines()
    (tmp_path / "broken.csv").write_text("\n".join([good[0], good[1], "cut", *good[2:4]]) + "\n")
    states = {"standard": state("counters.csv", 100), "overloaded": state("overloaded.csv", 150)}
    (tmp_path / "perfstat.json").write_text(json.dumps(perfstat.document({}, "m", [], states)))
    results = harness.ROOT / "docs" / "benchmarks" / "results.json"
    # The two runs first: the pages choose the first ones.
    paths = ["one", "two", "broken.csv", "perfstat.json"]
    return [*(str(tmp_path / path) for path in paths), str(results)]


@pytest.fixture
def url(files: list[str], cache: Path, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    words = ["dashboard", "--listen", str(port), *files]
    with (tmp_path / "said").open("w") as said:
        home = {**environment(cache), "HOME": str(tmp_path)}
        process = subprocess.Popen(command(*words), stdout=said, stderr=said, env=home)

    def answers() -> bool:
        with socket.socket() as link:
            return link.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(answers, "the dashboard listens", START_S, (tmp_path / "said").read_text)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "said").read_text()


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("chromium"))
    yield one
    one.close()


def look(browser: Browser, url: str, words: list[str], least: int) -> None:
    """Opens a page, and waits for its words and for its charts to have that many marks."""
    browser.open(url, 1100, 1600)

    def missing() -> list[str]:
        # Tables are painted: what they hold stands in the page for readers of screens alone.
        shown = browser.run("document.body.textContent")
        return [word for word in words if word not in shown]

    def marks() -> int:
        return int(browser.run(MARKS))

    eventually(lambda: not missing(), f"the words of {url}", START_S, missing)
    eventually(lambda: marks() >= least, f"{least} marks in {url}", START_S, marks)
    assert browser.run("document.querySelectorAll('.stException').length") == 0
    assert "NaN" not in browser.run("document.body.innerText")


@needs_streamlit
@needs_chromium
@pytest.mark.once
def test_every_page_shows_what_was_recorded(url: str, browser: Browser) -> None:
    for page, (words, least) in PAGES.items():
        look(browser, f"{url}/{page}", words, least)
    # Streamlit's page looks for its server below its own path first.
    assert [said for said in browser.complaints() if "/_stcore/" not in said] == []
    asked = [
        one["params"] for one in browser.said if one.get("method") == "Network.requestWillBeSent"
    ]
    assert {one["request"]["url"].partition("//")[2].partition("/")[0] for one in asked} <= {
        url.partition("//")[2],
        "",  # data:
    }
