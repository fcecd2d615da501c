"""What is known of each model and version of a server, in Triton's words.

Owned by control.py; read on the threads that answer the index and the metrics page. One lock, held
for a moment. A name is wanted from the moment that the settings ask for it at the start, or that it
serves, until it is unloaded: a name that never served holds nothing, since its caller was told.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

READY: Final = "READY"
LOADING: Final = "LOADING"
UNLOADING: Final = "UNLOADING"
UNAVAILABLE: Final = "UNAVAILABLE"
ALL: Final = (READY, LOADING, UNLOADING, UNAVAILABLE)
Row = tuple[str, int, str]  # name, version, state
UNLOADED: Final = "unloaded"  # Triton's reason of one that was asked to go
UNAVAILABLE_MAX: Final = 64  # versions that are remembered though nobody serves or wants them
NO_VERSION: Final = 0  # of a model whose files could not be read


@dataclass(frozen=True, slots=True)
class State:
    """Of one version; the reason is empty unless it is not served."""

    state: str
    reason: str = ""


class States:
    """The states by name and version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[tuple[str, int], State] = {}  # the last one that changed is the last
        self._wanted: set[str] = set()

    def put(self, name: str, version: int, state: str, reason: str = "") -> None:
        """Sets the state of a version.

        Args:
            name: of the model.
            version: of it.
            state: one of the words above.
            reason: why it is not served.
        """
        with self._lock:
            self._states.pop((name, version), None)
            self._states[name, version] = State(state, reason)
            if state == READY:
                self._wanted.add(name)
                self._states.pop((name, NO_VERSION), None)
            elif reason == UNLOADED and not self._serves(name):
                self._wanted.discard(name)
            self._forget_oldest()

    def want(self, name: str) -> None:
        """Readiness waits until a model is served, or is unloaded.

        Args:
            name: of the model, without a version.
        """
        with self._lock:
            self._wanted.add(name)

    def cannot_be_read(self, name: str, reason: str, version: int = NO_VERSION) -> None:
        """Lists a model whose files cannot be read; what is served of it is served.

        Args:
            name: of the model, without a version.
            reason: why they cannot.
            version: of the model, where one is known.
        """
        with self._lock:
            if version != NO_VERSION or not self._serves(name):
                self._states[name, version] = State(UNAVAILABLE, reason)
                self._forget_oldest()

    def forget(self, name: str) -> bool:
        """Takes back that a model is wanted, of which a version could not be loaded.

        Returns:
            Whether there was such a version.
        """
        with self._lock:
            failed = [
                key
                for key, one in self._states.items()
                if key[0] == name and one.state == UNAVAILABLE and one.reason != UNLOADED
            ]
            for key in failed:
                del self._states[key]
            if not self._serves(name):
                self._wanted.discard(name)
            return bool(failed)

    def unserved(self) -> set[str]:
        """The names of which a version could not be loaded."""
        with self._lock:
            return {
                name
                for (name, _version), one in self._states.items()
                if one.state == UNAVAILABLE and one.reason != UNLOADED
            }

    def failed(self) -> set[str]:
        """The names that the settings want and nobody can serve."""
        with self._lock:
            return self._wanted - self._serving()

    def _serving(self) -> set[str]:
        """The names of which a version is served."""
        return {
            name
            for (name, _version), one in self._states.items()
            if one.state in (READY, UNLOADING)
        }

    def _serves(self, name: str) -> bool:
        return name in self._serving()

    def _forget_oldest(self) -> None:
        """Else each name that ever came would stay on the metrics page and in the index."""
        gone = [
            key
            for key, one in self._states.items()
            if one.state == UNAVAILABLE and (one.reason == UNLOADED or key[0] not in self._wanted)
        ]
        for key in gone[: max(len(gone) - UNAVAILABLE_MAX, 0)]:
            del self._states[key]

    def ready_version(self, name: str) -> int | None:
        """The version that is served; None: none is."""
        with self._lock:
            ready = [
                version
                for (one, version), state in self._states.items()
                if one == name and state.state == READY
            ]
        return max(ready, default=None)

    def all_as_wanted(self) -> bool:
        """Whether each model that is wanted has a version that is served."""
        return not self.failed()

    def rows(self) -> list[Row]:
        """Each version that is known, and its state."""
        with self._lock:
            found = sorted(self._states.items(), key=lambda item: item[0])
        return [(name, version, one.state) for (name, version), one in found]

    def index(self, known: Iterable[str], ready_only: bool) -> list[dict[str, str]]:
        """The document of the index.

        Args:
            known: names that repositories hold; one that was never loaded has no state.
            ready_only: leaves out what is not ready.
        """
        with self._lock:
            states = sorted(self._states.items(), key=lambda item: item[0])
        found = [
            {
                "name": name,
                "version": str(version) if version != NO_VERSION else "",
                "state": one.state,
                "reason": one.reason,
            }
            for (name, version), one in states
        ]
        if ready_only:
            return [one for one in found if one["state"] == READY]
        others = set(known) - {name for (name, _version), _one in states}
        return found + [{"name": name} for name in sorted(others)]
