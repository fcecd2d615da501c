"""Models that cannot be served, of a server that starts without them.

Made by entries.py, config.py and server.py, carried by Config; live_models.py lists them as
UNAVAILABLE with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Broken:
    """A model that cannot be served.

    Args:
        name: of the entry, or without a version where none could be read; of a repository that is
            not there, its path.
        reason: why.
        is_wanted: the settings ask for it, so that readiness may wait for it.
        version: 0: none is known.
        is_repository: a whole repository is not there.
        entry: of the settings, a ModelConfig, where the engine has refused it.
    """

    name: str
    reason: str
    is_wanted: bool = True
    version: int = 0
    is_repository: bool = False
    entry: object = None
