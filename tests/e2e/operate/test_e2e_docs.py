"""README, the guide, and the pages of the API and of repositories: a reader does all that they say,
from the checkout and from the wheel, and gets what the prose promises.

PROMISES has an entry for each block that prints something: a block without one fails, and so does
an entry that no block needs. Files of the reader's own (a model of pictures, a picture of a cat)
are made here; models whose exporter is larger than all the rest have stand-ins of the same names,
shapes and types. Blocks that import such an exporter are only compiled where it is missing.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import graphs
import needs
import numpy as np
import pages
import pytest
import text_folders
import wheel as wheel_tool
import yaml
from harness import ROOT
from onnx import helper
from operating import free_port
from pages import Block, Home, Reader

pytestmark = pytest.mark.once  # what a reader does is the same on both backends

PAGES = ("README.md", "docs/GUIDE.md", "docs/API.md", "docs/REPOSITORIES.md")
LARGE = ("onnxmltools", "torch", "xgboost")
# The packages that the pages tell their readers to install beside Lumen, or say that they have.
OTHERS = ("openai", "skl2onnx", "scikit-learn", "tritonclient[http]")
RELEASE = ROOT / "c" / "build" / "release" / wheel_tool.LIBRARY


def outputs(text: str) -> dict[str, Any]:
    """The outputs of an answer in JSON: name -> entry."""
    return {entry["name"]: entry for entry in json.loads(text)["outputs"]}


def first_is_the_largest(text: str) -> None:
    scores = outputs(text)["probabilities"]["data"]
    assert len(scores) == 10
    assert scores.index(max(scores)) == 0


def a_seven(text: str) -> None:
    classes, _, table = text.partition("]")
    assert json.loads(classes + "]")[0]["label"] == "7"
    assert re.search(r"^\W*1\W+7\b|\b7\b", table) is not None, table


def has(*words: str) -> Callable[[str], None]:
    """All of these words are printed."""

    def check(text: str) -> None:
        for word in words:
            assert re.search(word, text, re.MULTILINE), f"{word!r} is not in:\n{text}"

    return check


def iris_classes(text: str) -> None:
    """Setosa, then virginica, by the forest that the guide's own block trained."""
    found = outputs(text)
    assert found["output_label"]["data"] == [0, 2]
    assert found["probabilities"]["shape"] == [2, 3]


def rows(text: str) -> None:
    replies = text.replace("}{", "}\n{").split("\n")
    first, second = (json.loads(reply)["predictions"] for reply in replies)
    assert [row["output_label"] for row in first] == [0, 2]
    assert [row["output_label"] for row in second] == [0]


def ready(text: str) -> None:
    """`lumen stats`, `lumen top`, the metrics page, and readiness last."""
    has(r"requests", r"^# TYPE lumen_requests_total counter")(text)


def top_classes(count: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        found = json.loads(text)
        assert len(found) == count
        assert {"label", "score", "index"} >= set(found[0]) >= {"score", "index"}
        scores = [entry["score"] for entry in found]
        assert scores == sorted(scores, reverse=True)

    return check


def a_session(text: str) -> None:
    """doctest has compared each answer; here only that there were any."""
    assert re.search(r"^[1-9]\d* passed and 0 failed", text, re.MULTILINE), text[-2000:]


# A regular expression that finds the block (or the line of a console block), and the promise.
PROMISES: dict[str, list[tuple[str, Callable[[str], None]]]] = {
    "README.md": [
        (r"^lumen\n", has("serves on", "digits")),
        (r"curl -d .*\"image\"", first_is_the_largest),
        (r"curl -T .*digits/infer\n.*lumen predict", a_seven),
        (r"lumen stats --port \d+\n.*bench", has("digits", r"requests/s|requests per second|/s")),
        (r"lumen inspect iris.onnx", has("X FP32", "output_label INT64", "probabilities FP32")),
        (r"lumen iris.onnx", has(r"model +iris:")),
        (r"from lumen_uring import Client", has(r"^\[0\] \d+")),
        (r"get_model_metadata", has("'name': 'iris'", "'X'")),
        (r"lumen builtin:squeezenet", has("squeezenet", "serves on")),
        (r"squeezenet/infer\?top=3", top_classes(3)),
        (r"lumen ./all-MiniLM-L6-v2", has(r"model +all-MiniLM-L6-v2: text BYTES", "mean pooling")),
        (r"curl -d .*password.*/embed\n", has(r"^\[\[-?0\.\d+(e-\d+)?,.*\],\[.*\]\]")),
    ],
    "docs/GUIDE.md": [
        (r"^lumen\n", has("serves on", "digits")),
        (r"curl http://[^/]*/v2/models/digits\n", has(r'"image"', "FP32", r"-1, ?1, ?8, ?8")),
        (r"lumen inspect iris.onnx", has("X FP32", "output_label INT64", "memory")),
        (r"lumen --model sentiment=", has("sequence_length", "512", "slot|memory")),
        (r"input_ids", has(r"^\[\[\s*-?[\d.]+\s+-?[\d.]+\]\n \[")),
        (r"lumen iris.onnx\n", has(r"model +iris:")),
        (r"config.yaml --check", has("right|no problem")),
        (r"lumen serve --config config.yaml\n", has(r"model +iris:", r"model +digits:")),
        (r"curl -d .*\"X\"", iris_classes),
        (r"curl -d .*instances.*\n.*dataframe_split", rows),
        (r"print\(answer.outputs\[\"output_label\"\]", has(r"^\[0 2\] \d+")),
        (r"lumen predict .*--input", has("output_label", "probabilities")),
        (r"import tritonclient", has(r"^\[0\]$")),
        (r"lumen serve --config config.yaml\n", has(r"model +resnet:", r"pictures +resnet:")),
        (r"curl -T cat.jpg", top_classes(5)),
        (r"lumen ./all-MiniLM-L6-v2", has(r"model +all-MiniLM-L6-v2: text BYTES", "mean pooling")),
        (r"from openai import", has(r"^6$")),
        (r"lumen fit-router", has("experts:", "at_least")),
        (r"lumen key ada", has(r"^    [\w-]{32}$", "sha256", "ada")),
        (r"lumen stats.*\n.*lumen top.*\n", ready),
        (r"^mkdir", lambda text: None),
        (r"telemetry_csv_path", has(r"model +iris:")),
        (r"lumen bench .*--out", has("p99|p50")),
    ],
    "docs/API.md": [
        (r"lumen --model digits", has(r"model +digits", r"model +squeezenet")),
        (r">>> ", a_session),
    ],
    "docs/REPOSITORIES.md": [
        (r"lumen /\S+models\n", has(r"model +iris:", r"model +other:")),
        (r"--model-repository", has(r"model +iris:", r"model +more:")),
        (r"--model mine=", has(r"model +mine:")),
        (r"--load-model", has("serves on")),
        (r"repository/index", has('"name": ?"iris"', "READY")),
        (r"iris/load", lambda text: None),
        (r"iris/unload", lambda text: None),
    ],
}


def pictures_model(path: Path) -> Path:
    """x FP32 [n, 3, 224, 224] -> y FP32 [n, 1000]: a model of pictures, and small."""
    random = np.random.default_rng(5)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], strides=[8, 8], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1] * 4),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    weights = {
        "w1": random.normal(size=(16, 3, 3, 3)).astype(np.float32) / 4,
        "w2": random.normal(size=(16, 16, 3, 3)).astype(np.float32) / 4,
        "w3": random.normal(size=(16, 1000)).astype(np.float32),
    }
    image = graphs.tensor("x", graphs.FLOAT, ["n", 3, 224, 224])
    return graphs.save(
        path, nodes, [image], [graphs.tensor("y", graphs.FLOAT, ["n", 1000])], weights
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


def what_a_reader_has(folder: Path, iris: Path) -> None:
    """Files of the reader's own that the pages name."""
    from PIL import Image

    random = np.random.default_rng(7)
    shutil.copy(iris, folder)
    (folder / "config.yaml").write_text("{}\n")
    (folder / "sentiment").mkdir()
    sentiment(folder / "sentiment" / "model.onnx")
    for name in ("resnet.onnx", "squeezenet.onnx", "squeezenet.int8.onnx"):
        pictures_model(folder / name)
    files = text_folders.sentence_files({"pooling_mode": "mean"})
    text_folders.write(folder / "all-MiniLM-L6-v2", files)
    (folder / "classes.txt").write_text("".join(f"class {index}\n" for index in range(1000)))
    (folder / "pictures").mkdir()
    for index in range(40):
        pixels = random.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((96, 64)).save(folder / "pictures" / f"{index}.png")
    Image.fromarray(random.integers(0, 256, (64, 96, 3), np.uint8)).save(folder / "cat.jpg")
    for name in ("models/iris", "models/other", "more/more", "mnt/models"):
        (folder / name / "1").mkdir(parents=True)
        graphs.double(folder / name / "1" / "model.onnx")


@pytest.fixture(scope="module", params=["checkout", "wheel"])
def home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> Home:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "checkout":
        return pages.checkout(folder / "bin", cache)
    parts = wheel_tool.make_parts(RELEASE, platform.machine(), None, folder / "parts")
    tag = f"manylinux_2_28_{platform.machine()}"
    wheel, _ = wheel_tool.assemble(parts, tag, folder / "dist", sys.executable, 1_700_000_000)
    return pages.unpacked(wheel, folder / "venv", cache, OTHERS)


@pytest.fixture(scope="module")
def iris(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """iris.onnx, as the guide's own block writes it."""
    folder = tmp_path_factory.mktemp("iris")
    found = [block.text for block in pages.blocks("docs/GUIDE.md") if "skl2onnx" in block.text]
    subprocess.run([home.python, "-c", found[0]], cwd=folder, env=home.variables, check=True)
    return folder / "iris.onnx"


@pytest.fixture
def reader(home: Home, iris: Path, tmp_path: Path) -> Iterator[Reader]:
    pages.copy_checkout_files(tmp_path)
    what_a_reader_has(tmp_path, iris)
    ports = free_port(), free_port()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(home.bin)
    replaced = {f"/{name}": str(tmp_path / name) for name in ("mnt/models", "models", "more")}
    reader = Reader(home, tmp_path, *ports, replaced=replaced)
    try:
        yield reader
    finally:
        reader.leave()


def only_compiled(block: Block) -> bool:
    """Whether a block needs a package that is too large for the tests, and is not here."""
    return block.language == "python" and any(
        re.search(rf"^(import|from) {name}\b", block.text, re.MULTILINE)
        and importlib.util.find_spec(name) is None
        for name in LARGE
    )


# The pages are read by people who have the wheel; what a checkout has besides, the first one shows.
@pytest.mark.once
@pytest.mark.parametrize(
    ("home", "page"),
    [("checkout", "README.md"), *(("wheel", page) for page in PAGES)],
    indirect=["home"],
    scope="module",
)
def test_a_reader_gets_what_the_page_promises(page: str, reader: Reader) -> None:
    if shutil.which("curl") is None:
        needs.program("curl")
    left = list(PROMISES[page])
    for block in whole_sessions(pages.blocks(page)):
        if only_compiled(block):
            compile(block.text, str(block), "exec")
            continue
        for command, said in reader.follow(block):
            kept = [entry for entry in left if re.search(entry[0], command, re.MULTILINE)]
            assert kept or not said.strip(), f"{block}: no promise for {command!r}:\n{said}"
            for entry in kept[:1]:
                entry[1](said)
                left.remove(entry)
    assert [entry[0] for entry in left] == []


def whole_sessions(found: list[Block]) -> list[Block]:
    """A page's `>>>` blocks are one session: the first stands for all of them."""
    sessions = [block for block in found if block.text.startswith(">>> ")]
    joined = "\n".join(block.text for block in sessions)
    return (
        [
            Block(block.page, block.line, block.language, joined) if block is sessions[0] else block
            for block in found
            if block not in sessions[1:]
        ]
        if sessions
        else found
    )


@pytest.mark.parametrize("page", ["README.md", "docs/GUIDE.md", "docs/PROVIDERS.md"])
def test_settings_are_yaml_that_the_server_knows(page: str) -> None:
    from lumen_uring.settings.schema import Config

    for block in pages.blocks(page):
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
