"""What docs/CHANGING.md asks for beside the sources: each kind of a thing is in its tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from bench.load import bench
from bench.report import bench_plots
from lumen_uring.settings import EngineConfig

ROOT = Path(__file__).resolve().parent.parent
QUEUES = get_args(EngineConfig.model_fields["queue_type"].annotation)
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
        ("tests/e2e/test_e2e_engines.py", '"{word}"', set()),
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
