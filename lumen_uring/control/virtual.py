"""Virtual models that clients' calls load: those they run come first.

Called by control.py, on the thread that loads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from lumen_uring.control.live_models import LiveModels, Virtual
from lumen_uring.repository.entries import entries_of, with_versions
from lumen_uring.settings.models import EnsembleConfig
from lumen_uring.settings.types import base_of


def load(
    live: LiveModels, entry: Virtual, told: Callable[[str], str], called_off: threading.Event
) -> None:
    """Loads a virtual model, and before it those of its models that are not served.

    Args:
        live: the models of the server.
        entry: of the virtual model.
        told: as of LiveModels.put, and so is `called_off`.

    Raises:
        LumenError: one of them cannot be served; those that were loaded stay.
    """
    parts = entry.steps if isinstance(entry, EnsembleConfig) else entry.experts
    virtual = {one.name for one in live.virtual()}
    for name in dict.fromkeys(base_of(part.model) for part in parts):
        if name in virtual or any(one.base == name for one in live.models()):
            continue
        for model in entries_of(live.config, name):
            live.put(model, told, called_off)
    if isinstance(entry, EnsembleConfig):
        entry = with_versions(entry, live.models())
    live.put_virtual(entry)
