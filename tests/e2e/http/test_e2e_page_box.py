"""The box of the page at /, in a real browser: texts and pictures, and what becomes of them."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import text_folders
from browser import START_S, Browser, needs_chromium
from harness import Server, eventually
from PIL import Image

pytestmark = pytest.mark.once  # the page: the same on both backends

LINES = ["a cat sits.", "the dog runs", "a cat sits on the mat", "slow!"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("box")
    cross = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    scores, pooling = text_folders.scores_files, {"pooling_mode": "mean"}
    text_folders.write(root / "near", text_folders.sentence_files(pooling))
    text_folders.write(root / "labels", scores(), is_scores=True)
    text_folders.write(root / "ranks", scores(**cross), is_scores=True)
    text_folders.write(root / "names", text_folders.entities_files(), is_entities=True)
    settings = {
        "repository": {"paths": [str(root)]},
        "models": [
            {"name": "pictures", "path": "builtin:squeezenet", "image": {"preset": "squeezenet"}}
        ],
    }
    with Server(settings, cache) as server:
        yield server


def ask(server: Server, path: str, body: Any) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", data, 30) as answer:
        return json.load(answer)


def page(server: Server) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", None, 30) as answer:
        return answer.read().decode()


def test_the_commands_of_texts_work_literally(served: Server) -> None:
    found = re.findall(
        r"<pre class=try>curl -d '(.*?)' \$H(/\S+)</pre>", html.unescape(page(served))
    )
    paths = {path: ask(served, path, json.loads(body)) for body, path in found}
    assert set(paths) == {"/v1/embeddings", "/predict", "/rerank", "/v1/models/names:entities"}


def shown(browser: Browser, model: str, lines: list[str]) -> str:
    said: str = ""

    def has_answer() -> bool:
        nonlocal said
        said = browser.run("at('said').textContent")
        return bool(said)

    browser.run("at('said').textContent = ''")
    browser.run(f"at('which').value = {model!r}; choose()")
    browser.run(f"at('words').value = {json.dumps(chr(10).join(lines))}")
    browser.run("at('box').requestSubmit()")
    eventually(has_answer, "an answer", START_S)
    return said


@needs_chromium
def test_texts_in_a_browser(served: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    try:
        browser.open(f"http://127.0.0.1:{served.port}/", 1280)
        options = "[...document.querySelectorAll('#which option')].map(e => e.textContent)"
        assert set(browser.run(options)) == {"near", "labels", "ranks", "names", "pictures"}
        inputs = {"source_sentence": LINES[0], "sentences": LINES[1:]}
        near = ask(served, "/similarity", {"model": "near", "inputs": inputs})
        order = np.argsort([-score for score in near], kind="stable")
        expected = "".join(f"{near[at]:.3f}  {LINES[at + 1]}\n" for at in order)
        assert shown(browser, "near", LINES) == expected
        labels = ask(served, "/predict", {"model": "labels", "inputs": [[LINES[0]]]})[0]
        rows = "".join(f"  {one['score']:.3f}  {one['label']}\n" for one in labels)
        assert shown(browser, "labels", LINES[:1]) == f"{LINES[0]}\n{rows}"
        ranks = ask(served, "/rerank", {"model": "ranks", "query": LINES[0], "texts": LINES[1:]})
        first = f"{ranks[0]['score']:.3f}  {LINES[1 + ranks[0]['index']]}\n"
        assert shown(browser, "ranks", LINES).startswith(first)
        text = "the \U0001f600 dog <b>runs</b> fast"
        found = ask(served, "/v1/models/names:entities", {"inputs": text})
        assert found
        shown(browser, "names", [text])
        marks = browser.run("[...document.querySelectorAll('#said mark')].map(e => e.textContent)")
        assert marks == [f"{one['word']} {one['entity_group']}" for one in found]
        assert browser.run("document.querySelectorAll('#said b').length") == 0
        assert "expected at least one text" in shown(browser, "names", [])
        assert browser.run("document.documentElement.scrollWidth") <= 1280
        browser.picture(tmp_path_factory.mktemp("box") / "page.png")
        complaints = [one for one in browser.complaints() if "422" not in one]
        assert complaints == []
    finally:
        browser.close()


@needs_chromium
def test_a_picture_in_a_browser(
    served: Server, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    path = tmp_path / "picture.png"
    Image.fromarray(np.full((32, 48, 3), 99, np.uint8)).save(path)
    data = base64.b64encode(path.read_bytes()).decode()
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    try:
        browser.open(f"http://127.0.0.1:{served.port}/", 360)
        browser.run("at('which').value = 'pictures'; choose()")
        assert browser.run("at('words-room').hidden && !at('file-room').hidden") is True
        browser.run(
            f"const bytes = Uint8Array.from(atob('{data}'), c => c.charCodeAt(0));"
            "const drop = new DataTransfer();"
            "drop.items.add(new File([bytes], 'p.png', {type: 'image/png'}));"
            "at('box').dispatchEvent(new DragEvent('drop', {dataTransfer: drop}))"
        )
        eventually(lambda: browser.run("at('said').textContent"), "an answer", START_S)
        url = f"http://127.0.0.1:{served.port}/v2/models/pictures/infer"
        headers = {"Content-Type": "image/png"}
        request = urllib.request.Request(url, path.read_bytes(), headers)
        with urllib.request.urlopen(request, None, 30) as answer:
            expected = json.load(answer)
        assert json.loads(browser.run("at('said').textContent")) == expected
    finally:
        browser.close()
