"""The page at / in a real browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import graphs
import needs
import numpy as np
import onnx
import pytest
import web
import wire
from browser import START_S, Browser, needs_chromium
from conftest import Serve
from harness import Server, eventually
from web import Http

pytestmark = pytest.mark.once  # the page: the same on both backends


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Asked for after the server: it ends first, and lets its connections go."""
    one = Browser(tmp_path_factory.mktemp("chromium"))
    yield one
    one.close()


def odd(path: Path) -> Path:
    """Two inputs, one of many elements, with names that need quotes everywhere."""
    names = ['it\'s <b>"x"</b>', "large & $H `y`"]
    shapes = [[2], ["n", 100]]
    types = [graphs.INT64, graphs.FLOAT]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", [name], [f"out{i}"]) for i, name in enumerate(names)],
        "odd",
        [graphs.tensor(n, t, s) for n, t, s in zip(names, types, shapes, strict=True)],
        [graphs.tensor(f"out{i}", types[i], shapes[i]) for i in range(2)],
    )
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), str(path))
    return path


@pytest.fixture
def shown(serve: Serve, tmp_path: Path) -> Server:
    models = [
        {"name": "digits", "path": "builtin:digits"},
        {"name": "odd", "path": str(odd(tmp_path / "odd.onnx"))},
        {"name": "dtypes", "path": str(graphs.dtypes(tmp_path / "dtypes.onnx")), "max_rows": 8},
        {"name": "with-a-name-as-long_as.it.may.be-" + 30 * "x", "path": "builtin:digits"},
    ]
    return serve({"server": {"metrics_port": 0}, "models": models})


def ask(server: Server, count: int) -> None:
    image = np.zeros((1, 1, 8, 8), np.float32)
    with Http(server.port) as http:
        for _ in range(count):
            assert http.query(web.infer("digits", {"image": image})).code == 200


FIGURE = "document.querySelector('tr[data-model=digits] .{}').textContent"


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_in_a_browser(shown: Server, browser: Browser, tmp_path: Path, width: int) -> None:
    url = f"http://127.0.0.1:{shown.port}/"
    ask(shown, 7)
    browser.open(url, width)
    assert browser.run("document.title") == "Lumen"
    # It names the address it was asked by, not one that somebody once wrote down.
    for place in browser.run("[...document.querySelectorAll('.origin')].map(e => e.textContent)"):
        assert place == url.rstrip("/")
    eventually(lambda: browser.run("at('state').textContent") == "ready", "the state", START_S)
    eventually(lambda: browser.run(FIGURE.format("answered")) == "7", "the count", START_S)
    # The figures of the last minute are those of what comes after the page was opened.
    ask(shown, 20)
    eventually(lambda: browser.run(FIGURE.format("answered")) == "27", "the new count", START_S)
    for cell in ("p50", "p99", "wait", "run"):
        shows = browser.run(FIGURE.format(cell))
        assert shows.endswith((" µs", " ms", " s")), (cell, shows)
    assert browser.run(FIGURE.format("failed")) == "0"
    assert browser.run("at('rate').getAttribute('d')").startswith("M")
    assert "/s" in browser.run("at('rate-now').textContent")
    # Nothing is cut off: neither the page, nor a table, nor a command is wider than the screen.
    browser.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    wide = browser.run(
        "[...document.querySelectorAll('body *')].filter(e => "
        "e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1 && "
        "getComputedStyle(e).display !== 'inline' && !e.closest('svg')).map(e => e.outerHTML)"
    )
    assert wide == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    browser.picture(tmp_path / f"page-{width}.png")
    assert browser.complaints() == []


@needs_chromium
def test_the_percentiles_are_those_of_the_figures(shown: Server, browser: Browser) -> None:
    browser.open(f"http://127.0.0.1:{shown.port}/", 1280)
    eventually(lambda: browser.run("kept.length") > 0, "the first figures", START_S)
    # 4 buckets per power of two from 2^14 ns; below, of 4096 ns each: c/include/lumen.h.
    assert browser.run("[0, 1, 3, 4, 5, 8, 9].map(edge)") == [
        0, 4096, 12288, 16384, 20480, 32768, 40960,
    ]  # fmt: skip
    # Ten values in bucket 4 and one in bucket 8: the median is half way through bucket 4.
    counts = "[0,0,0,0,10,0,0,0,1]"
    assert browser.run(f"quantile({counts}, 0.5)") == 16384 + 4096 * 5.5 / 10
    assert 32768 < browser.run(f"quantile({counts}, 0.99)") <= 40960
    assert browser.run("quantile([0,0], 0.5)") is None
    # Nothing happens: that is a rate of 0, drawn as a line.
    browser.run("draw('rate', [0, 0], rate)")
    assert browser.run("at('rate-now').textContent") == "now 0.0, at most 0.0"
    assert "NaN" not in browser.run("at('rate').getAttribute('d')")
    first = {
        "at": 0,
        "models": {"m": {"answered": 1, "queue_ns": 5, "infer_ns": 7, "latency": [1]}},
    }
    later = {
        "at": 2000,
        "models": {"m": {"answered": 5, "queue_ns": 405, "infer_ns": 807, "latency": [3, 2]}},
    }
    found = browser.run(f"span({json.dumps(first)}, {json.dumps(later)})")
    assert found["rate"] == 2
    assert found["models"]["m"] == {"rate": 2, "counts": [2, 2], "wait": 100, "run": 200}


@needs_chromium
def test_a_key_shows_the_figures(serve: Serve, browser: Browser) -> None:
    import hashlib

    token = "lumen-page-token-0123456789"
    key = {"name": "page", "sha256": hashlib.sha256(token.encode()).hexdigest()}
    models = [{"name": "digits", "path": "builtin:digits"}]
    server = serve({"server": {"keys": [key]}, "models": models})
    browser.open(f"http://127.0.0.1:{server.port}/", 360)
    eventually(lambda: browser.run("at('key').hidden") is False, "the question", START_S)
    browser.run(f"at('token').value = {token!r}; at('key').requestSubmit()")
    eventually(lambda: browser.run("at('key').hidden") is True, "the figures", START_S)
    eventually(lambda: browser.run(FIGURE.format("answered")) == "0", "a figure", START_S)


def commands(server: Server) -> dict[str, str]:
    """The command of each model, as a person would copy it."""
    import html.parser

    class Reader(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__(convert_charrefs=True)
            self.found: list[str] = []
            self.inside = False

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.inside = tag == "pre" and ("class", "try") in attrs
            self.found += [""] if self.inside else []

        def handle_endtag(self, tag: str) -> None:
            self.inside = False

        def handle_data(self, data: str) -> None:
            if self.inside:
                self.found[-1] += data

    with Http(server.port) as http:
        answer = http.query(web.get("/"))
    reader = Reader()
    reader.feed(answer.body.decode())
    return dict(zip(server.models, reader.found, strict=True))


def test_every_command_of_the_page_works_literally(shown: Server, tmp_path: Path) -> None:
    needs.program("curl")
    for model, command in commands(shown).items():
        done = subprocess.run(
            ["bash", "-c", f"H=http://127.0.0.1:{shown.port}\n{command}"],
            capture_output=True,
            check=False,
            cwd=tmp_path,
            timeout=wire.TIMEOUT_S,
        )
        assert done.returncode == 0, (command, done.stderr)
        if model == "dtypes":  # FP16 and BF16 among several inputs: no short command says that
            assert command.startswith("# ")
            continue
        answer = json.loads(done.stdout)
        assert answer["model_name"] == model, (command, answer)
        assert answer["outputs"]
    assert "python3" in commands(shown)["odd"]
    assert commands(shown)["digits"].startswith("curl -d '{")


def test_the_figures_are_those_of_the_file(shown: Server) -> None:
    """A model's counts and its histogram, over all threads; also where there are several."""
    from lumen_uring.ring.stats import read

    ask(shown, 5)
    with Http(shown.port) as http:
        bad = web.post("/v2/models/digits/infer", b'{"inputs":[]}')
        assert http.query(bad).code == 400
        figures = http.query(web.get("/figures")).json()
        assert http.query(web.post("/figures")).code == 405
    shown.check_idle()
    snapshot = read(shown.stats_path)
    assert [one["name"] for one in figures["models"]] == list(snapshot.models)
    for one in figures["models"]:
        words = snapshot.models[one["name"]]
        own = snapshot.model_histograms[one["name"]]
        assert (figures["sub_bits"], figures["unit_bits"]) == (
            own["total"].sub_bits,
            own["total"].unit_bits,
        )
        counts = own["total"].counts.tolist()
        assert one["latency"] == counts[: len(one["latency"])]
        assert sum(one["latency"]) == sum(counts)
        assert one["answered"] == words["ok"] == (5 if one["name"] == "digits" else 0)
        assert one["refused"] == (1 if one["name"] == "digits" else 0)
        assert one["failed"] == 0
        assert one["queue_ns"] == own["queue"].sum_ns
        assert one["infer_ns"] == own["infer"].sum_ns
