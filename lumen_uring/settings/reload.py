"""Compares the settings in force with those just read: a reload changes some and refuses others.

Called by server.py on the main thread, at SIGHUP. Pure: it compares and changes nothing.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel

from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.schema import Config, EngineConfig
from lumen_uring.settings.tls import TlsConfig
from lumen_uring.settings.upstreams import UpstreamConfig

_SERVER: Final = ("keys", "hosts", "rate", "burst", "unready_seconds", "drain_seconds")
_LOG: Final = ("level", "format", "path")
_ENGINE: Final = ("thread_count", "queue_type", "allocator_type")  # as far as the engine can
_WHOLE: Final = ("fallbacks", "traffic")  # taken as they are
_RATES: Final = ("rate", "burst")
_Entry = TypeVar("_Entry", ModelConfig, ExpertsConfig, EnsembleConfig)


class Plan(NamedTuple):
    """The settings to apply, the names of those that change, a sentence for each that cannot.

    The models of `config` are those in force, with their new rates; `models` and `virtual` are
    those wanted.
    """

    config: Config
    changed: tuple[str, ...]
    refused: tuple[str, ...]
    models: tuple[ModelConfig, ...]
    virtual: tuple[ExpertsConfig | EnsembleConfig, ...]


def plan(current: Config, wanted: Config, listed: Set[str] | None = None) -> Plan:
    """Plans a reload.

    Args:
        current: the settings in force.
        wanted: the settings just read, checked.
        listed: names of models that go where they are not wanted; None: all. Those that came by
            calls stay.

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

    may = (*_SERVER, "tls") if _has_same_ports(current.server.tls, wanted.server.tls) else _SERVER
    server = section("server", current.server, wanted.server, may)
    engine = section("engine", current.engine, wanted.engine, _ENGINE)
    section("repository", current.repository, wanted.repository, ())
    upstreams = _upstreams(current, wanted, changed, refused)
    budgets = section("budgets", current.budgets, wanted.budgets, ("keys", "models"))
    changed += [name for name in _WHOLE if getattr(current, name) != getattr(wanted, name)]
    section("traces", current.traces, wanted.traces, ())
    log = section("log", current.log, wanted.log, _LOG)

    config = current.model_copy(
        update={
            "server": current.server.model_copy(update=server),
            "engine": current.engine.model_copy(update=engine),
            "log": current.log.model_copy(update=log),
            "upstreams": upstreams,
            **{name: getattr(wanted, name) for name in _WHOLE},
            "budgets": current.budgets.model_copy(update=budgets),
            "models": _entries("models", current.models, wanted.models, listed, changed),
            "experts": _entries("experts", current.experts, wanted.experts, listed, changed),
            "ensembles": _entries(
                "ensembles", current.ensembles, wanted.ensembles, listed, changed
            ),
        }
    )
    virtual = wanted.virtual_entries()
    return Plan(config, tuple(changed), tuple(refused), wanted.models, virtual)


def _upstreams(
    current: Config, wanted: Config, changed: list[str], refused: list[str]
) -> dict[str, UpstreamConfig]:
    """Those in force, where they listen now."""
    kept = dict(current.upstreams)
    may = dict.fromkeys(("urls", "resolve"))
    for name, old in current.upstreams.items():
        new = wanted.upstreams.get(name)
        if new is None or old.model_copy(update=may) != new.model_copy(update=may):
            continue
        kept[name] = new
        other = [field for field in may if getattr(old, field) != getattr(new, field)]
        changed.extend(f"upstreams.{name}.{field}" for field in other)
    if kept != wanted.upstreams:
        refused.append(
            "upstreams cannot change without a restart, but for urls and resolve: they stay."
        )
    return kept


def _entries(
    name: str,
    old: tuple[_Entry, ...],
    new: tuple[_Entry, ...],
    listed: Set[str] | None,
    changed: list[str],
) -> tuple[_Entry, ...]:
    """Those in force with their new rates; others are loaded and unloaded afterwards."""
    by_name = {entry.name: entry for entry in new}
    kept = list(old)
    for index, entry in enumerate(old):
        found = by_name.pop(entry.name, None)
        if found is None and listed is not None and entry.name not in listed:
            continue
        if found is None:
            changed.append(f"model {entry.name} (to be unloaded)")
            continue
        rates = {rate: getattr(found, rate) for rate in _RATES}
        kept[index] = entry.model_copy(update=rates)
        changed.extend(
            f"{name}.{index}.{rate}"
            for rate, value in rates.items()
            if getattr(entry, rate) != value
        )
        if needs_loading(kept[index], found):
            changed.append(f"model {entry.name} (to be loaded again)")
    changed.extend(f"model {entry} (to be loaded)" for entry in by_name)
    return tuple(kept)


def _has_same_ports(old: TlsConfig | None, new: TlsConfig | None) -> bool:
    """Certificates may change while the server runs, what it listens on may not."""
    return bool(old and new and (old.port, old.only) == (new.port, new.only))


def without_certificates(plan: Plan, tls: TlsConfig | None, why: str) -> Plan:
    """The same plan, with the certificates as they were.

    Args:
        plan: of a reload.
        tls: in force.
        why: those that are wanted cannot be used; a sentence's part.
    """
    server = plan.config.server.model_copy(update={"tls": tls})
    return Plan(
        plan.config.model_copy(update={"server": server}),
        tuple(name for name in plan.changed if name != "server.tls"),
        (*plan.refused, f"{why}; the certificates stay."),
        plan.models,
        plan.virtual,
    )


def without_engine(plan: Plan, engine: EngineConfig, why: str) -> Plan:
    """The same plan, with the engine's settings as they were.

    Args:
        plan: of a reload.
        engine: in force.
        why: the engine cannot change; a sentence's part.
    """
    return Plan(
        plan.config.model_copy(update={"engine": engine}),
        tuple(name for name in plan.changed if not name.startswith("engine.")),
        (*plan.refused, f"{why}; the engine's settings stay."),
        plan.models,
        plan.virtual,
    )


def needs_loading(served: BaseModel, wanted: BaseModel) -> bool:
    """Whether a model must be loaded again to be as its entry says: rates change without that.

    Args:
        served: the entry in force.
        wanted: the entry of the same name.
    """
    before, after = served.model_dump(), wanted.model_dump()
    if any(before.get(name) != after.get(name) for name in before.keys() - set(_RATES)):
        return True
    return _beyond_settings(served) != _beyond_settings(wanted)


def _beyond_settings(entry: BaseModel) -> object:
    """What a repository's files say of a model that is no setting of its entry: its version, the
    tensors that they declare, wherever in the file, and the name of its file."""
    if isinstance(entry, EnsembleConfig):
        return entry.is_tritons
    if not isinstance(entry, ModelConfig) or entry.origin is None:
        return None
    declared = tuple(replace(one, where="") for one in entry.origin.declared)
    return entry.version, declared, entry.origin.file_name


def _refusal(name: str, value: object) -> str:
    stays = "null" if value is None else value
    return f"{name} cannot change without a restart: {stays} stays."
