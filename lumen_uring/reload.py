"""Compares the settings in force with those just read: a reload changes some and refuses others.

Called by server.py on the main thread, at SIGHUP. Pure: it compares and changes nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel

from lumen_uring.settings import Config, EnsembleConfig, ExpertsConfig, ModelConfig

_SERVER: Final = ("keys", "hosts", "rate", "burst", "unready_seconds", "drain_seconds")
_LOG: Final = ("level", "format", "path")
_MODEL: Final = ("rate", "burst")
_Entry = TypeVar("_Entry", ModelConfig, ExpertsConfig, EnsembleConfig)


class Plan(NamedTuple):
    """The settings to apply, the names of those that change, a sentence for each that cannot."""

    config: Config
    changed: tuple[str, ...]
    refused: tuple[str, ...]


def plan(current: Config, wanted: Config) -> Plan:
    """Plans a reload.

    Args:
        current: the settings in force.
        wanted: the settings just read, checked.

    Returns:
        The plan.
    """
    changed: list[str] = []
    refused: list[str] = []

    def section(name: str, old: BaseModel, new: BaseModel, may: tuple[str, ...]) -> dict[str, Any]:
        """The values to apply."""
        update: dict[str, Any] = {}
        for field in type(old).model_fields:
            before, after = getattr(old, field), getattr(new, field)
            if before == after:
                continue
            if field in may:
                update[field] = after
                changed.append(f"{name}.{field}")
            else:
                refused.append(_refusal(f"{name}.{field}", before))
        return update

    server = section("server", current.server, wanted.server, _SERVER)
    section("engine", current.engine, wanted.engine, ())
    section("repository", current.repository, wanted.repository, ())
    log = section("log", current.log, wanted.log, _LOG)

    def entries(name: str, old: tuple[_Entry, ...], new: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
        """The entries of a list, with the values to apply."""
        names = [entry.name for entry in old]
        if [entry.name for entry in new] != names:
            refused.append(_refusal(name, ", ".join(names) or "none"))
        by_name = {entry.name: entry for entry in new}
        kept = list(old)
        for index, entry in enumerate(old):
            if entry.name in by_name:
                update = section(f"{name}.{index}", entry, by_name[entry.name], _MODEL)
                kept[index] = entry.model_copy(update=update)
        return tuple(kept)

    config = current.model_copy(
        update={
            "server": current.server.model_copy(update=server),
            "log": current.log.model_copy(update=log),
            "models": entries("models", current.models, wanted.models),
            "experts": entries("experts", current.experts, wanted.experts),
            "ensembles": entries("ensembles", current.ensembles, wanted.ensembles),
        }
    )
    return Plan(config, tuple(changed), tuple(refused))


def _refusal(name: str, value: object) -> str:
    stays = "null" if value is None else value
    return f"{name} cannot change without a restart: {stays} stays."
