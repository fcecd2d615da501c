"""Compares the settings in force with those just read: a reload changes some and refuses others.

Called by server.py on the main thread, at SIGHUP. Pure: it compares and changes nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from lumen_uring.settings import Config

_SERVER: Final = ("keys", "hosts", "rate", "burst", "unready_seconds", "drain_seconds")
_LOG: Final = ("level", "format", "path")
_MODEL: Final = ("rate", "burst")


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
    log = section("log", current.log, wanted.log, _LOG)
    models = list(current.models)
    names = [model.name for model in models]
    if [model.name for model in wanted.models] != names:
        refused.append(_refusal("models", ", ".join(names)))
    by_name = {model.name: model for model in wanted.models}
    for index, model in enumerate(models):
        new = by_name.get(model.name)
        if new is not None:
            update = section(f"models.{index}", model, new, _MODEL)
            models[index] = model.model_copy(update=update)
    config = current.model_copy(
        update={
            "server": current.server.model_copy(update=server),
            "log": current.log.model_copy(update=log),
            "models": tuple(models),
        }
    )
    return Plan(config, tuple(changed), tuple(refused))


def _refusal(name: str, value: object) -> str:
    stays = "null" if value is None else value
    return f"{name} cannot change without a restart: {stays} stays."
