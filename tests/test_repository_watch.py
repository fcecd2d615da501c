"""The watch over repositories: a change is reported once it is whole, and never before."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumen_uring.guard import Guard
from lumen_uring.repository.watch import Look, Watcher, look


class Seen:
    """The looks at the moments of the reports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: queue.Queue[Look] = queue.Queue()
        self.watcher = Watcher([folder], self.note, Guard(lambda _level, _text: None), 0.05)

    def note(self) -> None:
        self.reports.put(look([self.folder]))

    def next(self) -> set[str]:
        """The files of the next report."""
        found = self.reports.get(timeout=30)
        return {os.path.relpath(name, self.folder) for name, *_ in found if os.path.isfile(name)}


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Seen]:
    (tmp_path / "a/1").mkdir(parents=True)
    (tmp_path / "a/1/model.onnx").write_text("one")
    made = Seen(tmp_path)
    yield made
    made.watcher.close()


def test_models_that_come_change_and_go(seen: Seen) -> None:
    folder = seen.folder
    (folder / "tmp").mkdir()
    (folder / "tmp/model.onnx").write_text("two")
    assert seen.next() == {"a/1/model.onnx", "tmp/model.onnx"}
    (folder / "tmp").rename(folder / "a/2")
    assert seen.next() == {"a/1/model.onnx", "a/2/model.onnx"}
    (folder / "a/2/config.pbtxt").write_text("")  # in a folder that came later
    assert "a/2/config.pbtxt" in seen.next()
    (folder / "a/1/model.onnx").write_text("other")
    assert "a/1/model.onnx" in seen.next()
    (folder / "a/1/model.onnx").unlink()
    assert seen.next() == {"a/2/model.onnx", "a/2/config.pbtxt"}
    assert seen.reports.empty()


def test_a_model_that_is_being_copied_is_left_alone(seen: Seen) -> None:
    """As long as it grows between two looks nothing is reported."""
    file = seen.folder / "a/1/large.onnx"
    done = threading.Event()

    def copy() -> None:
        with file.open("wb") as out:
            for _ in range(40):
                out.write(b"x" * 1000)
                out.flush()
                done.wait(0.01)
        done.set()

    thread = threading.Thread(target=copy)
    thread.start()
    assert "a/1/large.onnx" in seen.next()
    while not done.is_set():  # a machine that stood still for longer than two looks
        seen.next()
    thread.join()
    sizes = {size for name, size, *_ in look([seen.folder]) if name == str(file)}
    assert sizes == {40_000}


def test_hidden_files_are_no_change(seen: Seen) -> None:
    (seen.folder / "a/1/.partial").write_text("x")
    (seen.folder / "b").mkdir()
    assert seen.next() == {"a/1/model.onnx"}
    assert seen.reports.empty()
