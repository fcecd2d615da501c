"""Takes the models that cannot be served out of the settings of a server that starts without them.

Called by entries.py, config.py and server.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from lumen_uring.settings.broken import Broken
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig
from lumen_uring.settings.schema import Config
from lumen_uring.settings.types import base_of

_Virtual = TypeVar("_Virtual", ExpertsConfig, EnsembleConfig)
CURE: Final = (
    "To start without what cannot be served, set repository.strict_readiness: false, or "
    "repository.control: watch or explicit."
)


def starts_without(config: Config) -> bool:
    """Whether a server starts without the models that cannot be served, and names them.

    Args:
        config: of the server.
    """
    return config.repository.control != "none" or not config.repository.strict_readiness


def without(config: Config, broken: Iterable[Broken]) -> Config:
    """The same settings without some models, and without those that run them.

    Args:
        config: of the server.
        broken: what cannot be served beside what is known already.
    """
    found = {one.name: one for one in (*config.broken, *broken)}

    def kept(entries: Iterable[_Virtual]) -> tuple[_Virtual, ...]:
        left = []
        for entry in entries:
            parts = [part.model for part in getattr(entry, "experts", getattr(entry, "steps", ()))]
            missing = next((part for part in parts if found.keys() & {part, base_of(part)}), None)
            if missing is not None:
                why = f"it runs '{missing}', which cannot be served"
                found.setdefault(entry.name, Broken(entry.name, why))
            if entry.name not in found:
                left.append(entry)
        return tuple(left)

    models = tuple(one for one in config.models if not found.keys() & {one.name, one.base})
    experts = kept(config.experts)
    copy = config.with_entries(models).with_virtual((*experts, *kept(config.ensembles)))
    return copy.with_broken(tuple(found.values()))
