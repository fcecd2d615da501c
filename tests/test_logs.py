"""The log and the lines for people: where they go, in which form, and what a lost line costs."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lumen_uring.errors import ConfigError
from lumen_uring.serving import logs
from lumen_uring.serving.logs import LEVELS, Journal, _Lines
from lumen_uring.settings.schema import LogConfig


class Pipe:
    """A descriptor to write to that somebody reads when asked to."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)

    def text(self) -> str:
        found = b""
        try:
            while piece := os.read(self.reading, 1 << 20):
                found += piece
        except BlockingIOError:
            pass
        return found.decode()

    def fill(self) -> None:
        os.set_blocking(self.writing, False)
        try:
            while os.write(self.writing, bytes(4096)):
                pass
        except BlockingIOError:
            os.set_blocking(self.writing, True)

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Pipe, Pipe]]:
    """In the places of stdout and stderr."""
    out, err = Pipe(), Pipe()
    monkeypatch.setattr(logs, "_STDOUT", out.writing)
    monkeypatch.setattr(logs, "_STDERR", err.writing)
    yield out, err
    out.close()
    err.close()


def settings(path: Path | None = None, level: str = "info", form: str = "text") -> LogConfig:
    where = None if path is None else str(path)
    return LogConfig.model_validate({"path": where, "level": level, "format": form})


def messages(text: str) -> list[str]:
    """Lines of the text form without their times."""
    return [line.partition(" ")[2] for line in text.splitlines()]


def test_each_level_hides_those_below_it(pipes: tuple[Pipe, Pipe]) -> None:
    for at, level in enumerate(LEVELS):
        journal = Journal(settings(level=level))
        for said in LEVELS:
            journal.log(said, f"a {said}")
        assert messages(pipes[1].text()) == [f"{said:<7} a {said}" for said in LEVELS[at:]]
    assert pipes[0].text() == ""


def test_both_forms_of_a_line(pipes: tuple[Pipe, Pipe], monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is UTC's, wherever the machine is."""
    monkeypatch.setenv("TZ", "ABC-9")
    time.tzset()
    try:
        before = datetime.now(timezone.utc).replace(microsecond=0)
        Journal(settings()).log("warning", "one\ntwo ä")
        text = pipes[1].text().splitlines()
        Journal(settings(form="json")).log("error", 'with "quotes"\nand two lines')
        documents = [json.loads(line) for line in pipes[1].text().splitlines()]
        after = datetime.now(timezone.utc)
    finally:
        monkeypatch.undo()
        time.tzset()
    stamps = [document.pop("time") for document in documents]
    for line, message in zip(text, ("one", "two ä"), strict=True):
        stamp, rest = line[:24], line[24:]
        assert rest == f" warning {message}"
        stamps.append(stamp)
    assert documents == [
        {"level": "error", "message": 'with "quotes"'},
        {"level": "error", "message": "and two lines"},
    ]
    for stamp in stamps:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
        assert before <= datetime.fromisoformat(stamp.replace("Z", "+00:00")) <= after


def test_lost_lines_are_counted(pipes: tuple[Pipe, Pipe]) -> None:
    out, err = pipes
    journal = Journal(settings())
    err.fill()
    for number in range(3):
        journal.log("info", f"lost {number}")
    assert "lost" not in err.text()
    journal.log("info", "here again")
    journal.log("info", "and again")
    assert messages(err.text()) == [
        "warning 3 lines of the log could not be written here",
        "info    here again",
        "info    and again",
    ]
    assert out.text() == ""


def test_a_line_that_is_taken_in_pieces(
    pipes: tuple[Pipe, Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    lines = _Lines(pipes[1].writing)
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    done = lines.write("eleven signs\ud800")
    monkeypatch.undo()
    assert done
    assert pipes[1].text() == "eleven signs\\ud800\n"
    assert not _Lines(logs._NONE).write("to nobody")


def test_a_file_is_appended_to_and_for_its_group_to_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    before = os.umask(0)
    try:
        for number in range(2):
            Journal(settings(path)).log("info", f"start {number}")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    assert messages(path.read_text()) == ["info    start 0", "info    start 1"]


def test_reopening_follows_a_moved_file_and_the_new_settings(
    tmp_path: Path, pipes: tuple[Pipe, Pipe]
) -> None:
    path, moved = tmp_path / "log", tmp_path / "log.1"
    journal = Journal(settings(path))
    path.rename(moved)
    journal.log("info", "old")
    gc.collect()
    opened = len(os.listdir("/proc/self/fd"))
    journal.reopen(settings(path, level="warning"))
    assert len(os.listdir("/proc/self/fd")) <= opened  # the old one is closed
    journal.log("info", "not told")
    journal.log("warning", "new")
    assert (messages(moved.read_text()), messages(path.read_text())) == (
        ["info    old"],
        ["warning new"],
    )
    # A file that cannot be opened changes nothing.
    with pytest.raises(ConfigError) as caught:
        journal.reopen(settings(tmp_path / "none" / "log", level="debug"))
    assert str(caught.value) == (
        f"log.path: expected a file that can be written, found {tmp_path}/none/log: "
        "No such file or directory."
    )
    journal.log("info", "not told")
    journal.log("error", "still here")
    assert messages(path.read_text()) == ["warning new", "error   still here"]
    journal.reopen(settings())
    journal.log("info", "to stderr")
    assert messages(pipes[1].text()) == ["info    to stderr"]


def test_a_full_disk_is_told_once_and_again_after_it_had_room(
    pipes: tuple[Pipe, Pipe], tmp_path: Path
) -> None:
    journal = Journal(settings(Path("/dev/full")))
    full = journal._file
    told = "error   log.path: /dev/full cannot be written; the log comes here"
    journal.log("info", "one")
    journal.log("info", "two\nthree")
    assert messages(pipes[1].text()) == [told, "info    one", "info    two", "info    three"]
    room = Journal(settings(tmp_path / "log"))._file
    journal._file = room
    journal.log("info", "four")
    assert messages((tmp_path / "log").read_text()) == ["info    four"]
    journal._file = full
    journal.log("info", "five")
    assert messages(pipes[1].text()) == [told, "info    five"]
    assert full is not None
    assert full.dropped == 4
    journal.reopen(settings(Path("/dev/full")))
    journal.log("info", "six")
    assert messages(pipes[1].text()) == [told, "info    six"]


Say = Callable[[Journal], None]


@pytest.mark.parametrize(
    ("form", "terminal", "level", "shown", "logged"),
    [
        ("text", False, "info", True, True),
        ("text", False, "error", True, False),
        ("json", False, "info", False, True),
        ("json", True, "info", True, True),
    ],
)
def test_what_is_said_goes_to_people_and_to_the_log(
    pipes: tuple[Pipe, Pipe],
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    terminal: bool,
    level: str,
    shown: bool,
    logged: bool,
) -> None:
    out, err = pipes
    monkeypatch.setattr(os, "isatty", lambda _descriptor: terminal)
    journal = Journal(settings(level=level, form=form))
    assert journal.is_for_people is shown
    journal.say("hello", "warning")
    journal.show("the banner")
    assert out.text() == ("hello\nthe banner\n" if shown else "")
    assert ("hello" in err.text()) is logged
    journal.log("error", "for the log alone")
    assert out.text() == ""
    assert "for the log alone" in err.text()


def test_one_place_for_both_gets_a_line_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pipes: tuple[Pipe, Pipe]
) -> None:
    out, _err = pipes
    assert not Journal(settings()).is_stdout
    monkeypatch.setattr(logs, "_STDERR", out.writing)
    journal = Journal(settings())
    assert journal.is_stdout
    journal.say("once")
    assert out.text() == "once\n"
    # Programs that read get a record, and people nothing.
    journal = Journal(settings(form="json"))
    assert not journal.is_stdout
    journal.say("once")
    assert json.loads(out.text())["message"] == "once"
    # A log in a file of its own is another place, whatever stderr is.
    assert not Journal(settings(tmp_path / "log")).is_stdout


def test_a_process_without_stdout_or_stderr(
    monkeypatch: pytest.MonkeyPatch, pipes: tuple[Pipe, Pipe]
) -> None:
    out, err = pipes
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        journal = Journal(settings())
    assert not journal.is_stdout
    journal.say("hello")
    assert (out.text(), messages(err.text())) == ("", ["info    hello"])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        journal = Journal(settings())
    assert not journal.is_stdout
    journal.say("hello")
    assert (out.text(), err.text()) == ("hello\n", "")
