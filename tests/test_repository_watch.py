"""The watch over repositories: a change is reported once it is whole, and never before."""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lumen_uring.control import watch
from lumen_uring.control.watch import Look, Watcher, files_of, look
from lumen_uring.guard import Guard
from lumen_uring.loading import model_file
from lumen_uring.ring.inotify import Inotify, _until_readable
from lumen_uring.settings.models import EnsembleConfig, ModelConfig
from lumen_uring.settings.origin import Origin


class Seen:
    """The looks at the moments of the reports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: queue.Queue[Look] = queue.Queue()
        self.said: list[str] = []
        self.watcher = Watcher([folder], self.note, self.log, Guard(self.log, 0.01), 0.05)

    def log(self, _level: str, text: str) -> None:
        self.said.append(text)

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


def release(folder: Path, text: str) -> None:
    (folder / "m/1").mkdir(parents=True)
    (folder / "m/1/model.onnx").write_text(text)


def swap(link: Path, target: str) -> None:
    """As git-sync and the kubelet do: a new link is renamed onto the old one."""
    (link.parent / "new").symlink_to(target)
    os.replace(link.parent / "new", link)


@pytest.mark.parametrize("repository", ["current", "current/models", "way/current"])
def test_a_link_that_is_swapped(tmp_path: Path, repository: str) -> None:
    """On the way to the repository: nothing changes in the folder that it led to."""
    for number in (1, 2, 3):
        inner = "models" if repository.endswith("models") else ""
        release(tmp_path / f"release-{number}" / inner, f"of release {number}")
    (tmp_path / "current").symlink_to("release-1")
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "way").symlink_to("elsewhere")
    seen = Seen(tmp_path / repository)
    with closing(seen.watcher):
        for number in (2, 3):
            swap(tmp_path / "current", f"release-{number}")
            assert seen.next() == {"m/1/model.onnx"}
            file = seen.folder / "m/1/model.onnx"
            assert file.read_text() == f"of release {number}"
        (file.parent / "config.pbtxt").write_text("")  # the new folder is watched
        assert seen.next() == {"m/1/model.onnx", "m/1/config.pbtxt"}
    assert seen.said == []


def test_a_link_within_the_repository_that_leads_out_of_it(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"data-{number}").mkdir()
        (tmp_path / f"data-{number}/model.onnx").write_text("x" * number)
    (tmp_path / "..data").symlink_to("data-1")
    (tmp_path / "models/m").mkdir(parents=True)
    (tmp_path / "models/m/1").symlink_to("../../..data")
    seen = Seen(tmp_path / "models")
    with closing(seen.watcher):
        swap(tmp_path / "..data", "data-2")
        assert seen.next() == {"m/1/model.onnx"}


def test_a_circle_of_links_and_a_repository_that_comes_later(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with closing(Seen(tmp_path / "a").watcher):
        pass
    seen = Seen(tmp_path / "srv/models")
    with closing(seen.watcher):
        release(tmp_path / "srv/models", "it has come")
        assert seen.next() == {"m/1/model.onnx"}


def test_what_the_kernel_does_not_watch_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LOOK_S", 0.02)

    def refused(_self: Inotify, folders: Iterable[Path]) -> list[str]:
        return [f"{list(folders)[-1]} cannot be watched (Permission denied)"]

    release(tmp_path, "one")
    with monkeypatch.context() as denied:
        denied.setattr(Inotify, "watch", refused)
        seen = Seen(tmp_path)
        with closing(seen.watcher):
            (tmp_path / "m/1/model.onnx").write_text("another")
            assert seen.next() == {"m/1/model.onnx"}
    assert [line for line in seen.said if "Permission denied). They are looked at" in line]
    assert len(seen.said) == len(set(seen.said))  # each once


def test_a_kernel_without_inotify_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LOOK_S", 0.02)
    left = [OSError(errno.EMFILE, "Too many open files")] * 3

    def made() -> Inotify:
        if left:
            raise left.pop()
        return Inotify()

    monkeypatch.setattr(watch, "Inotify", made)
    release(tmp_path, "one")
    seen = Seen(tmp_path)
    with closing(seen.watcher):
        (tmp_path / "m/1/model.onnx").write_text("another")
        assert seen.next() == {"m/1/model.onnx"}
        while left:
            assert seen.watcher._thread.is_alive()
            seen.watcher._stopped.wait(0.01)
    assert seen.said == [
        "The repositories: Too many open files. They are looked at every 0.02 s instead."
    ]


def test_a_report_that_raises_is_made_again(tmp_path: Path) -> None:
    release(tmp_path, "one")
    seen = Seen(tmp_path)
    raised = []

    def note() -> None:
        if not raised:
            raised.append(1)
            raise OSError(errno.EIO, "once")
        Seen.note(seen)

    seen.watcher._changed = note
    with closing(seen.watcher):
        (tmp_path / "m/1/model.onnx").write_text("another")
        assert seen.next() == {"m/1/model.onnx"}
    assert len(seen.said) == 1


def test_other_labels_are_a_change_of_their_model(tmp_path: Path) -> None:
    for name in ("model.onnx", "labels.txt"):
        (tmp_path / name).write_text("one\n")
    of_model = ModelConfig(name="m", path=str(tmp_path / "model.onnx"))
    of_both = ModelConfig(
        name="m", path=str(tmp_path / "model.onnx"), labels=str(tmp_path / "labels.txt")
    )
    before = files_of(of_model), files_of(of_both)
    (tmp_path / "labels.txt").write_text("one\ntwo\n")
    assert files_of(of_model) == before[0]
    assert files_of(of_both) != before[1]


def written(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


FILES = ("tokenizer.json", "state", "request", "labels", "onnx/e.data")


@pytest.mark.parametrize("name", FILES)
def test_each_file_that_an_entry_names_is_the_models(tmp_path: Path, name: str) -> None:
    """The layout of model hubs, with the graph in a folder of its own, and of Triton."""
    graph = written(tmp_path / "onnx/model.onnx", b"graph \n\x08location\x12\x06e.data and more")
    file = {one: written(tmp_path / one, b"one") for one in FILES}
    settings = {
        "text": {"tokenizer": file["tokenizer.json"], "task": "embedding", "max_tokens": 8},
        "sequences": {"state": {"x": "y"}, "initial_state": {"x": file["state"]}},
        "warmup": [{"inputs": {"x": {"shape": [1], "data": file["request"]}, "z": {"shape": [1]}}}],
        "labels": file["labels"],
    }
    written_entry = ModelConfig.model_validate({"name": "m", "path": graph, **settings})
    of_folder = written_entry.with_origin(Origin(str(tmp_path), 1))
    of_file = written_entry.with_origin(Origin(graph, 1))  # the only file of a folder
    entries = (written_entry, of_folder, of_file)
    before = [files_of(entry) for entry in entries]
    (tmp_path / "other").write_text("of nobody")
    assert [files_of(entry) for entry in entries] == before
    written(tmp_path / "new", b"two")
    os.replace(tmp_path / "new", tmp_path / name)
    for entry, looked in zip(entries, before, strict=True):
        assert files_of(entry) != looked


def test_weights_beside_the_target_of_a_link(tmp_path: Path) -> None:
    graph = written(tmp_path / "shared/a.onnx", b"\n\x08location\x12\x06e.data")
    written(tmp_path / "shared/e.data", b"one")
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.onnx").symlink_to(graph)
    model = ModelConfig(name="m", path=str(tmp_path / "m/1/model.onnx"))
    for entry in (model, model.with_origin(Origin(str(tmp_path / "m"), 1))):
        before = files_of(entry)
        written(tmp_path / "shared/e.data", b"another")
        assert files_of(entry) != before
        written(tmp_path / "shared/e.data", b"one")


def test_the_names_of_weights_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at thousands of models reads none of them again."""
    file = tmp_path / "a.onnx"
    written(file, b"x" * (1 << 20) + b"\n\x08location\x12\x06e.data")
    names = ("e.data",)
    assert model_file.weights(file) == names  # written a moment ago: not remembered
    monkeypatch.setattr(model_file, "_SETTLED_NS", -(10**18))
    assert model_file.weights(file) == names
    monkeypatch.setattr(model_file, "_CHUNK_BYTES", 0)  # nothing can be read any more
    assert model_file.weights(file) == names
    monkeypatch.undo()
    written(file, b"none")
    assert model_file.weights(file) == ()
    assert model_file.weights(tmp_path / "missing") == ()
    assert model_file.weights(tmp_path) == ()


def test_labels_of_an_ensemble_are_its_files(tmp_path: Path) -> None:
    labels = written(tmp_path / "labels.txt", b"one")
    values = {"name": "e", "steps": [{"model": "a"}], "labels": labels}
    entry = EnsembleConfig.model_validate(values)
    before = files_of(entry)
    written(tmp_path / "labels.txt", b"one and two")
    assert files_of(entry) != before


def test_descriptors_of_a_thousand_and_more() -> None:
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 1024)
    try:
        os.write(writing, b"x")
        _until_readable([high], None)
    finally:
        for descriptor in (reading, writing, high):
            os.close(descriptor)


@pytest.mark.parametrize("between", [frozenset({("x", 1, 1, 1)}), OSError(24, "Too many files")])
def test_what_came_and_went_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: Look | OSError
) -> None:
    """A reload may have loaded it: also what went while the watcher could not look."""
    empty = look([tmp_path])
    looks: list[Look | OSError] = [empty, empty, between]

    def found(_paths: object) -> Look:
        one = looks.pop(0) if looks else empty
        if isinstance(one, OSError):
            raise one
        return one

    monkeypatch.setattr(watch, "look", found)
    seen = Seen(tmp_path)
    (tmp_path / "touched").touch()
    assert seen.reports.get(timeout=30) is not None
    seen.watcher.close()
