"""Models that are loaded when a request asks for them, in the place of those that nobody has asked
for longest (repository.max_loaded).

Used by control.py: `refusal` on the thread that takes calls, which must not wait, `load` on the
thread that loads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lumen_uring.control.calls import CallError, Calls
from lumen_uring.control.live_models import LiveModels
from lumen_uring.control.watch import Look, files_of
from lumen_uring.errors import LumenError
from lumen_uring.files import expanded
from lumen_uring.repository.entries import entries_of, names_in
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.types import base_of

# Until a model that could not be loaded is tried again, or a name that is missing looked for again.
_FAILED_S: Final = 5.0
_FAILED_MAX: Final = 1024  # of those that are remembered


class OnDemand:
    """The models of a server that are loaded on demand.

    Args:
        engine: that serves them.
        live: its models.
    """

    def __init__(self, engine: Calls, live: LiveModels) -> None:
        self._engine = engine
        self._live = live
        self._folders: set[str] = set()
        self._names: set[str] | None = None  # None: not read since the folders changed
        self._names_s = 0.0  # when they were read
        self._seen: tuple[int, ...] = ()  # when the repositories' folders last changed
        self._failed: dict[str, tuple[float, int, str]] = {}  # when, the code, and why
        self._proved: dict[str, tuple[ModelConfig, Look]] = {}  # what was served before

    def refusal(self, name: str) -> tuple[int, str] | None:
        """Why a model will not be loaded now: a code of HTTP and a sentence; None: it may be.

        Args:
            name: as the request's path has it.
        """
        if not self._may_be(base_of(name)):
            return 404, f"Request for unknown model: '{name}' is not found"
        failed_s, code, why = self._failed.get(name, (-_FAILED_S, 0, ""))
        return (code, why) if time.monotonic() - failed_s < _FAILED_S else None

    def _may_be(self, name: str) -> bool:
        """Whether a folder of a repository has the name, or its files name a model so. They are
        read when that is asked for, and again when the folders have changed, or for a name that is
        not among them: no time of a folder says that a file below has another text."""
        paths = self._live.config.repository.paths
        seen = tuple(map(_changed_ns, paths))
        if seen != self._seen:
            self._folders = {one for path in paths for one in _folders(path)}
            self._names = None
            self._seen = seen
            self._proved = {
                n: one for n, one in self._proved.items() if base_of(n) in self._folders
            }
        if name in self._folders:
            return True
        is_old = time.monotonic() - self._names_s >= _FAILED_S
        if self._names is None or (name not in self._names and is_old):
            self._names = names_in(self._live.config)
            self._names_s = time.monotonic()  # afterwards: a slow disk leaves time for calls
        return name in self._names

    def load(self, name: str, called_off: threading.Event) -> None:
        """Loads a model, after others went as far as it needs their places.

        Args:
            name: as the request's path has it.
            called_off: set when it is not to come.

        Raises:
            CallError: it cannot be loaded; the message is for the clients that wait.
        """
        if self._serves(name):
            return  # another I/O thread's clients asked too, or the settings
        try:
            served = [one for one in self._live.models() if one.base == base_of(name)]
            if not all(map(self._comes_back, served)):
                raise CallError(404, "its versions are those that a call or the settings gave it")
            entries = entries_of(self._live.config, base_of(name))
            if not any(_is(entry, name) for entry in entries):
                raise CallError(
                    404, "there is no such version, or its version_policy leaves it out"
                )
            self.make_room(entries)
            # The highest first: it is what a request without a version asks for.
            for entry in sorted(entries, key=lambda one: one.version, reverse=True):
                files = files_of(entry)
                is_proved = self._proved.get(entry.name) == (entry, files)
                self._live.put(entry, called_off=called_off, is_proved=is_proved)
                self._proved[entry.name] = (entry, files)
        except LumenError as error:
            is_missing = isinstance(error, CallError) and error.code == 404
            code = 404 if is_missing else 503
            why = f"model '{name}' could not be loaded: {error}"
            while len(self._failed) >= _FAILED_MAX:
                self._failed.pop(next(iter(self._failed)))
            if not called_off.is_set():  # else it may come when the next client asks
                self._failed[name] = (time.monotonic(), code, why)
            raise CallError(code, why) from None
        self._failed.pop(name, None)

    def _serves(self, name: str) -> bool:
        return any(_is(model, name) for model in self._live.models())

    def _comes_back(self, model: ModelConfig) -> bool:
        """Whether a request would bring it again: it is a repository's, and not one whose entry or
        files a client has given."""
        if model.origin is None or model.origin.is_given:
            return False
        folder = Path(os.path.abspath(model.origin.folder))
        paths = [os.path.abspath(expanded(one)) for one in self._live.config.repository.paths]
        # A list of OpenVINO's may name folders anywhere.
        return bool(model.origin.listed) or any(map(folder.is_relative_to, paths))

    def make_room(self, entries: Sequence[ModelConfig]) -> None:
        """Unloads as many models as others need the places of (repository.max_loaded); lower
        versions with the highest, or requests without a version would get one of them.

        Args:
            entries: that are loaded, or about to be.

        Raises:
            CallError: there is no room for them.
        """
        most = self._live.config.repository.max_loaded
        come = {entry.name for entry in entries if self._comes_back(entry)}
        if not most or not come:
            return
        if len(come) > most:
            raise CallError(
                503, f"it has {len(come)} versions, and repository.max_loaded is {most}"
            )
        while True:
            models = self._live.models()
            stay = {m.name for m in models if m.name in come or not self._comes_back(m)}
            if len(models) - len(stay) + len(come) <= most:
                return
            name = self._engine.longest_idle(list(stay))
            if name is None:
                raise CallError(503, "all models that are loaded are needed by others")
            versions = [m for m in models if m.base == base_of(name) and m.name not in stay]
            if name == max(versions, key=lambda one: one.version).name:
                for one in versions:
                    if one.name != name:
                        self._live.try_remove(one.name)
            self._live.remove(name)


def _is(model: ModelConfig, name: str) -> bool:
    """Whether a request for NAME or NAME:VERSION is for this model."""
    return name in (model.base, f"{model.base}:{model.version}")


def _folders(path: str) -> list[str]:
    try:
        return os.listdir(expanded(path))
    except OSError:
        return []


def _changed_ns(path: str) -> int:
    try:
        return os.stat(expanded(path)).st_mtime_ns
    except OSError:
        return 0
