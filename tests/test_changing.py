"""What docs/CHANGING.md asks for beside the sources: each kind of a thing is in its tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from bench.load import bench
from bench.report import bench_plots
from lumen_uring.protocol import native
from lumen_uring.settings.schema import EngineConfig

ROOT = Path(__file__).resolve().parent.parent
QUEUES = tuple(
    word
    for word in get_args(EngineConfig.model_fields["queue_type"].annotation)
    if word != "auto"  # mpmc, or none
)
WITHOUT_HISTORIES = {"batched", "inline"}  # naive with batches; no queue


def text(path: str) -> str:
    return "".join(file.read_text() for file in sorted(ROOT.glob(path)))


@pytest.mark.parametrize(
    ("path", "form", "without"),
    [
        ("tests/sim/plan.c", "LUMEN_QUEUE_{upper}\\b", set()),
        ("tests/models/explore/scenarios_*.c", "LUMEN_QUEUE_{upper}\\b", {"inline"}),
        ("tests/models/explore/scenarios_queue.c", "LUMEN_QUEUE_{upper}\\b", WITHOUT_HISTORIES),
        ("tests/models/linearizability.c", "LUMEN_QUEUE_{upper}\\b", WITHOUT_HISTORIES),
        ("tests/models/mutants.py", '"parts/queue_{word}.c"', WITHOUT_HISTORIES),
        ("tests/e2e/models/test_e2e_engines.py", '"{word}"', set()),
        ("bench/micro/microbench.c", "LUMEN_QUEUE_{upper}\\b", WITHOUT_HISTORIES),
        ("docs/CONCURRENCY.md", "\\| {word} \\|", set()),
    ],
)
def test_each_queue_type_is_in(path: str, form: str, without: set[str]) -> None:
    wanted = [word for word in QUEUES if word not in without]
    found = text(path)
    missing = [w for w in wanted if not re.search(form.format(word=w, upper=w.upper()), found)]
    assert not missing, f"{path}: expected every queue type, found none of {missing}"


def test_each_queue_type_has_a_colour() -> None:
    assert bench.QUEUES == QUEUES
    assert set(bench_plots._COLOURS) == set(QUEUES)


STATUS = text("c/src/base/status.h")
ON_THE_WIRE = re.findall(r"LM_ENCODING_(\w+) = (\d+)", STATUS.split("LM_ENCODING_JSON")[0])


@pytest.mark.parametrize(("word", "number"), ON_THE_WIRE)
def test_each_encoding_of_the_native_protocol_is_in(word: str, number: str) -> None:
    assert getattr(native, f"ENCODING_{word}") == int(number)
    for path in ("docs/PROTOCOL.md", "c/src/base/native_codec.c"):
        assert re.search(rf"\b{number} {word.lower()}\b", text(path)), path
    for path in ("c/src/work/encoding.c", "tests/sim/client_native.c"):
        assert re.search(rf"\bLM_ENCODING_{word}\b", text(path)), path


DIALECTS = re.search(r"enum lm_dialect_index {(.*?)}", text("c/src/flow/dialect.h"), re.S)
assert DIALECTS
# UPSTREAM_HTTP2 is the other HTTP of UPSTREAM.
NAMES = re.findall(r"LM_DIALECT_(?!OPEN|COUNT|UPSTREAM_HTTP2)(\w+)", DIALECTS[1])


@pytest.mark.parametrize("name", NAMES)
def test_each_dialect_is_in(name: str) -> None:
    word = name.lower()
    for path in ("c/src/server/server.c", "tests/sim/engine.c"):
        assert f"dialects[LM_DIALECT_{name}] = &lm_{word};" in text(path), path
    assert f'.name = "{word}"' in text(f"c/src/dialects/{word}.c")
    assert re.search(rf"X\({word}_requests, COUNTER\)", text("c/src/parts/stats.h"))
    if name != "UPSTREAM":  # of which the server is the client
        assert f"void {word}_draw(" in text(f"tests/sim/client_{word}.c")
