"""The guard: what is raised ends nothing, is counted and said; no thread is without it."""

from __future__ import annotations

import ast
import os
import threading
from pathlib import Path

import pytest

from lumen_uring.guard import Guard
from lumen_uring.serving.logs import Journal
from lumen_uring.settings.schema import LogConfig

PACKAGE = Path(__file__).resolve().parents[1] / "lumen_uring"
# Threads of no server, or of a call that waits for them and raises what they raise; Ray watches the
# processes of the last two.
OTHERS = {"guard.py", "ring/process.py", "ring/load.py", "ray/child.py", "ray/directory.py"}


class Said:
    """A log."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, level: str, text: str) -> None:
        self.lines.append(f"{level} {text}")


def test_a_part_that_raises_is_said_once_and_counted_each_time() -> None:
    said = Said()
    guard = Guard(said)
    for _ in range(3):
        with guard.part("look"):
            raise OSError(24, "Too many open files")
    with guard.part("look"):
        raise ValueError("another")
    assert guard.rows() == [("look", 4, True)]
    assert [line.partition(";")[0] for line in said.lines] == [
        "error look: OSError: [Errno 24] Too many open files",
        "error look: ValueError: another",
    ]


def test_a_log_that_raises_is_no_harm() -> None:
    def log(level: str, text: str) -> None:
        raise OSError("no log")

    guard = Guard(log)
    with guard.part("look"):
        raise ValueError
    assert guard.rows() == [("look", 1, True)]


def test_a_thread_that_raises_runs_again_until_it_returns() -> None:
    guard, done, calls = Guard(Said(), 0.0), threading.Event(), []

    def run() -> None:
        calls.append(1)
        if len(calls) < 4:
            raise MemoryError
        done.set()

    thread = guard.thread("work", run)
    assert guard.all_alive()  # it has not begun
    thread.start()
    assert done.wait(30)
    thread.join()
    assert guard.rows() == [("work", 3, True)]
    assert guard.all_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_as_it_should_not_is_seen() -> None:
    guard = Guard(Said(), 0.0)
    thread = guard.thread("work", lambda: (_ for _ in ()).throw(SystemExit))
    thread.start()
    thread.join()
    assert not guard.all_alive()
    assert guard.rows() == [("work", 0, False)]


def test_at_the_end_no_thread_begins_again() -> None:
    guard, failed = Guard(Said(), 3600.0), threading.Event()

    def run() -> None:
        failed.set()
        raise OSError

    thread = guard.thread("work", run)
    thread.start()
    assert failed.wait(30)
    guard.end()
    thread.join(30)
    assert not thread.is_alive()


def test_every_thread_of_the_server_has_a_guard() -> None:
    bare = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "threading.Thread",
                "Thread",
                "_thread.start_new_thread",
            ):
                bare += [f"{name}:{node.lineno}"] if name not in OTHERS else []
    assert bare == []


def test_threads_log_side_by_side_while_the_file_is_opened_again(tmp_path: Path) -> None:
    settings = LogConfig(path=str(tmp_path / "log"))
    journal = Journal(settings)
    raised: list[BaseException] = []

    def log(name: int) -> None:
        try:
            for line in range(500):
                journal.log("info", f"thread {name} line {line}")
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=log, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for number in range(50):
        os.rename(settings.path or "", tmp_path / f"log.{number}")
        journal.reopen(settings)
    for thread in threads:
        thread.join()
    assert raised == []
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert len(lines) == 2000
    assert len({line[32:] for line in lines}) == 2000


def test_the_log_keeps_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LogConfig(path=str(tmp_path / "log"))
    journal = Journal(settings)
    before = journal._file.descriptor if journal._file else -1
    with open(os.devnull) as other:  # takes the next number
        journal.reopen(settings)
        assert journal._file is not None
        assert journal._file.descriptor == before
        assert os.get_inheritable(before) is False
        assert other.fileno() != before
