"""The server's output: lines for people on stdout, and the log on stderr or in a file.

Used by server.py and by its threads: one lock makes each line whole, and the log's file is opened
again onto the number that it has, so that no thread ever writes to another file. Writing waits for
no reader and never raises: when a reader is gone or slow, or the disk is full, lines are lost and
the server goes on. The next line that can be written says how many.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from datetime import datetime, timezone
from typing import Final

from lumen_uring.errors import ConfigError
from lumen_uring.settings.schema import LogConfig

LEVELS: Final = ("debug", "info", "warning", "error")
_STDOUT: Final = 1
_STDERR: Final = 2
_NONE: Final = -1


def levels_from(level: str) -> frozenset[str]:
    """A level and those above it.

    Args:
        level: one of LEVELS.
    """
    return frozenset(LEVELS[LEVELS.index(level) :])


class _Lines:
    """Writes complete lines to a descriptor; _NONE: the process was started without it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.dropped = 0

    def write(self, text: str) -> bool:
        """Writes lines; False when the reader is too slow, or there is none."""
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        try:
            while data and self._has_room():
                data = data[os.write(self.descriptor, data) :]
        except OSError:
            return False
        return not data

    def _has_room(self) -> bool:
        # A full pipe or a stopped terminal would block the thread that handles signals.
        if self.descriptor == _NONE:
            return False
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        return any(events & select.POLLOUT for _, events in poll.poll(0))

    def become(self, other: _Lines) -> None:
        """Takes another's file, onto the number that is there; the other one has none then."""
        try:
            os.dup2(other.descriptor, self.descriptor, inheritable=False)
        finally:
            other.close()
        self.dropped = 0

    def close(self) -> None:
        if self.descriptor != _NONE:
            os.close(self.descriptor)


class Journal:
    """The server's log, and its lines for people.

    `say` writes a line that people wait for to the log and to stdout, but not to stdout when a
    program reads it (`log.format: json`, and stdout is no terminal). When stdout and the log are
    the same terminal, file or pipe, the line is written once.

    Args:
        settings: the section `log`.

    Raises:
        ConfigError: log.path cannot be written.
    """

    def __init__(self, settings: LogConfig) -> None:
        self._lock = threading.Lock()
        self._settings = settings
        self._stdout = _Lines(_NONE if sys.stdout is None else _STDOUT)
        self._stderr = _Lines(_NONE if sys.stderr is None else _STDERR)
        self._file = _open(settings)
        self._file_fails = False
        # The levels that are logged. Any thread may set them, until the settings are read again.
        self.levels = levels_from(settings.level)

    @property
    def is_for_people(self) -> bool:
        """Whether stdout gets the lines for people."""
        has_terminal = self._stdout.descriptor != _NONE and os.isatty(_STDOUT)
        return self._settings.format == "text" or has_terminal

    @property
    def is_stdout(self) -> bool:
        """Whether stdout and the log are the same file, so that a line for people is in both."""
        log = self._file or self._stderr
        if not self.is_for_people or _NONE in (log.descriptor, self._stdout.descriptor):
            return False
        try:
            return os.path.samestat(os.fstat(log.descriptor), os.fstat(_STDOUT))
        except OSError:
            return False

    def reopen(self, settings: LogConfig) -> None:
        """Applies settings, and opens the log's file again: the old file may have been renamed.

        Args:
            settings: the section `log`.

        Raises:
            ConfigError: log.path cannot be written; nothing has changed.
        """
        new = _open(settings)
        with self._lock:
            if self._file is None or new is None:
                old, self._file = self._file, new
                if old is not None:
                    old.close()
            else:
                self._file.become(new)
            self._settings, self._file_fails = settings, False
        self.levels = levels_from(settings.level)

    def show(self, line: str) -> None:
        """Writes a line for people to stdout and not to the log, such as the banner's.

        Args:
            line: without its end.
        """
        if self.is_for_people:
            with self._lock:
                self._stdout.write(line)

    def say(self, line: str, level: str = "info") -> None:
        """Writes a line to stdout and to the log.

        Args:
            line: a sentence.
            level: one of LEVELS.
        """
        self.show(line)
        if not self.is_stdout:
            self.log(level, line)

    def log(self, level: str, message: str) -> None:
        """Writes to the log alone, if the level is one of those that are logged.

        Args:
            level: one of LEVELS.
            message: a sentence, or several lines.
        """
        if level not in self.levels:
            return
        with self._lock:
            for line in message.splitlines():
                self._put(self._record(level, line))

    def _put(self, record: str) -> None:
        if self._file is None:
            self._write(self._stderr, record)
        elif self._write(self._file, record):
            self._file_fails = False
        else:
            # Mostly a full disk. Said once, so that stderr does not fill another disk.
            if not self._file_fails:
                said = f"log.path: {self._settings.path} cannot be written; the log comes here"
                self._write(self._stderr, self._record("error", said))
            self._file_fails = True
            self._write(self._stderr, record)

    def _write(self, lines: _Lines, record: str) -> bool:
        text = record
        if lines.dropped:
            lost = f"{lines.dropped} lines of the log could not be written here"
            text = f"{self._record('warning', lost)}\n{record}"
        done = lines.write(text)
        lines.dropped = 0 if done else lines.dropped + 1
        return done

    def _record(self, level: str, message: str) -> str:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        time = now.replace("+00:00", "Z")
        if self._settings.format == "json":
            return json.dumps({"time": time, "level": level, "message": message})
        return f"{time} {level:<7} {message}"


def _open(settings: LogConfig) -> _Lines | None:
    if settings.path is None:
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return _Lines(os.open(settings.path, flags, 0o640))
    except OSError as error:
        raise ConfigError(
            f"log.path: expected a file that can be written, found {settings.path}: "
            f"{error.strerror}."
        ) from None
