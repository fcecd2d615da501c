"""What is known of each model and version of a server, in Triton's words.

Owned by control.py; read on the thread that answers the index. One lock, held for a moment.
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


@dataclass(frozen=True, slots=True)
class State:
    """Of one version; the reason is empty unless it is not served."""

    state: str
    reason: str = ""


class States:
    """The states by name and version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, dict[int, State]] = {}

    def put(self, name: str, version: int, state: str, reason: str = "") -> None:
        """Sets the state of a version.

        Args:
            name: of the model.
            version: of it.
            state: one of the words above.
            reason: why it is not served.
        """
        with self._lock:
            self._states.setdefault(name, {})[version] = State(state, reason)

    def ready_version(self, name: str) -> int | None:
        """The version that is served; None: none is."""
        with self._lock:
            versions = self._states.get(name, {})
            ready = [version for version, state in versions.items() if state.state == READY]
        return max(ready, default=None)

    def all_as_wanted(self) -> bool:
        """Whether no model is missing: each one that was not asked to go has a version ready, and
        none has failed."""
        with self._lock:
            return all(
                any(state.state == READY for state in versions.values())
                or all(state == State(UNAVAILABLE, UNLOADED) for state in versions.values())
                for versions in self._states.values()
            )

    def rows(self) -> list[Row]:
        """Each version that was ever to be served, and its state."""
        with self._lock:
            return [
                (name, version, one.state)
                for name, versions in sorted(self._states.items())
                for version, one in sorted(versions.items())
            ]

    def index(self, known: Iterable[str], ready_only: bool) -> list[dict[str, str]]:
        """The document of the index.

        Args:
            known: names that repositories hold; one that was never loaded has no state.
            ready_only: leaves out what is not ready.
        """
        with self._lock:
            found = [
                {"name": name, "version": str(version), "state": one.state, "reason": one.reason}
                for name, versions in self._states.items()
                for version, one in sorted(versions.items())
            ]
            others = sorted(set(known) - self._states.keys())
        if ready_only:
            return [one for one in found if one["state"] == READY]
        return sorted(found, key=lambda one: one["name"]) + [{"name": name} for name in others]
