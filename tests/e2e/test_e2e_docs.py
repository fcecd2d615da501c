"""The guide's and README's commands, run as they stand.

A block of `bash` or `python` is run; `console` blocks start servers or need a terminal. The pages
say port 8000, and 8002 for the metrics page; here the ports of a server of the test stand there.
The guide's models are stand-ins with the same names, shapes and types, since the libraries that
export them (PyTorch, XGBoost) are larger than all the rest: blocks that import one of those are
run where it is installed, and only compiled elsewhere.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import graphs
import needs
import numpy as np
import pytest
import yaml
from harness import ROOT, Server, environment
from onnx import helper

PAGES = ("README.md", "docs/GUIDE.md")
LARGE = ("onnxmltools", "skl2onnx", "torch", "xgboost")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its first line there, its language and its text."""

    page: str
    line: int
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    source = (ROOT / page).read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", source, re.MULTILINE | re.DOTALL)
    return [
        Block(page, source.count("\n", 0, match.start()) + 2, match[1], match[2]) for match in found
    ]


ALL = [block for page in PAGES for block in blocks(page)]
RUN = [block for block in ALL if block.language in ("bash", "python")]


def iris(path: Path) -> Path:
    """X FP32 [n, 4] -> label INT64 [n], probabilities FP32 [n, 3], as a classifier's export."""
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    return graphs.save(
        path,
        [
            helper.make_node("MatMul", ["X", "weights"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=-1),
            helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
        ],
        [graphs.tensor("X", graphs.FLOAT, ["n", 4])],
        [
            graphs.tensor("label", graphs.INT64, ["n"]),
            graphs.tensor("probabilities", graphs.FLOAT, ["n", 3]),
        ],
        {"weights": weights},
    )


def sentiment(path: Path) -> Path:
    """Token ids and mask INT64 [batch_size, sequence_length] -> logits FP32 [batch_size, 2]."""
    ids = ["batch_size", "sequence_length"]
    return graphs.save(
        path,
        [
            helper.make_node("Mul", ["input_ids", "attention_mask"], ["masked"]),
            helper.make_node("Cast", ["masked"], ["floats"], to=graphs.FLOAT),
            helper.make_node("ReduceMean", ["floats"], ["mean"], axes=[1]),
            helper.make_node("MatMul", ["mean", "weights"], ["logits"]),
        ],
        [graphs.tensor(name, graphs.INT64, ids) for name in ("input_ids", "attention_mask")],
        [graphs.tensor("logits", graphs.FLOAT, ["batch_size", 2])],
        {"weights": np.array([[1, -1]], np.float32)},
    )


@dataclass(frozen=True)
class Place:
    """A folder like a checkout, and a server that has what the pages talk about."""

    folder: Path
    server: Server
    metrics_port: int

    def text(self, block: Block) -> str:
        ports = {"8000": str(self.server.port), "8002": str(self.metrics_port)}
        text = re.sub(r"\b(8000|8002)\b", lambda match: ports[match[1]], block.text)
        # The commands whose default is port 8000.
        command = r"\blumen (stats|top|predict|bench|health)\b"
        where = {"bench": f"--url lumen://127.0.0.1:{self.server.port} --seconds 0.2"}
        return re.sub(
            command,
            lambda match: f"{match[0]} {where.get(match[1], f'--port {self.server.port}')}",
            text,
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("docs")
    (folder / ".venv/bin").mkdir(parents=True)
    lumen = folder / ".venv/bin/lumen"
    lumen.write_text(f'#!/bin/sh\nexec {sys.executable} -m lumen_uring "$@"\n')
    lumen.chmod(0o755)
    (folder / "tests").symlink_to(ROOT / "tests")
    iris(folder / "iris.onnx")
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics_port = free.getsockname()[1]
    settings: dict[str, object] = {
        "server": {"metrics_port": metrics_port},
        "models": [
            {"name": "digits", "path": "builtin:digits"},
            {"name": "iris", "path": str(folder / "iris.onnx")},
            {"name": "sentiment", "path": str(sentiment(folder / "sentiment.onnx"))},
            {"name": "squeezenet", "path": "builtin:squeezenet", "image": {"preset": "imagenet"}},
        ],
    }
    with Server(settings, cache) as server:
        yield Place(folder, server, metrics_port)


@pytest.mark.once
@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block.page}:{block.line}")
def test_a_block_works(block: Block, place: Place, cache: Path) -> None:
    text = place.text(block)
    if re.search(r"\bcurl\b", text):
        needs.program("curl")
    missing = [
        name
        for name in LARGE
        if re.search(rf"^(import|from) {name}\b", text, re.MULTILINE)
        and importlib.util.find_spec(name) is None
    ]
    if missing:
        compile(text, block.page, "exec")
        return
    variables = environment(cache)
    variables.pop("LD_PRELOAD", None)  # a sanitizer is for servers; curl hangs with it
    variables["PATH"] = f"{place.folder}/.venv/bin:{variables.get('PATH', os.defpath)}"
    program = ["sh", "-euc", text] if block.language == "bash" else [sys.executable, "-c", text]
    done = subprocess.run(
        program, cwd=place.folder, env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), done.stderr
    # curl and the clients exit with 0 for an answer that is an error, too.
    assert '{"error"' not in done.stdout, done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_settings_are_yaml_that_the_server_knows(page: str) -> None:
    from lumen_uring.settings import Config

    for block in blocks(page):
        if block.language == "yaml":
            Config.model_validate(yaml.safe_load(block.text), strict=False)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    missing = [
        target for target in targets if "://" not in target and not (folder / target).exists()
    ]
    assert missing == []
