"""Checks settings that contradict each other; called by config.py, on the main thread.

key_checks.py does the same for keys and rates, ring/rules.py for what a model's own settings
exclude. It reports each problem with its place and never raises.
"""

from __future__ import annotations

from typing import Any

from lumen_uring.settings import providers, sequences, text
from lumen_uring.settings.key_checks import Path, Report
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config, ServerConfig
from lumen_uring.settings.types import MODELS_MAX


def check_names(data: dict[str, Any], report: Report) -> None:
    """Reports two models of one name, also virtual ones, in the raw values, so that other problems
    do not hide it.

    Args:
        data: the settings as read.
        report: takes one problem.
    """
    first: dict[str, str] = {}
    for section, what in (
        ("models", "model"),
        ("experts", "experts"),
        ("ensembles", "ensemble"),
    ):
        models = data.get(section)
        for index, model in enumerate(models if isinstance(models, (list, tuple)) else ()):
            name = model.get("name") if isinstance(model, dict) else None
            if not isinstance(name, str):
                continue
            if name in first:
                found = f"{name!r}, the name of {first[name]} too"
                report((section, index, "name"), "a name of its own", found)
            first.setdefault(name, f"{what} {index}")
    upstreams = data.get("upstreams")
    for upstream, entry in upstreams.items() if isinstance(upstreams, dict) else ():
        models = entry.get("models") if isinstance(entry, dict) else None
        for name in models if isinstance(models, dict) else ():
            if name in first:
                found = f"{name!r}, the name of {first[name]} too"
                report(("upstreams", upstream, "models", name), "a name of its own", found)
            first.setdefault(name, f"a model of upstream {upstream}")


def _check_names_elsewhere(config: Config, report: Report) -> None:
    """Whoever has a budget, or answers for another, is there: of a repository others may come
    later."""
    keys = {key.name for key in config.server.keys}
    models = {model.name for model in config.served()} | {model.name for model in config.broken}
    models |= {entry.name for entry in config.experts}
    named: list[tuple[Path, str]] = [
        (("budgets", "models", name), name) for name in config.budgets.models
    ]
    for name in config.budgets.keys:
        if name not in keys:
            report(("budgets", "keys", name), "a name of server.keys", repr(name))
    for model, others in config.fallbacks.items():
        named.append((("fallbacks", model), model))
        named += [(("fallbacks", model, at), other) for at, other in enumerate(others)]
        if model in others:
            report(("fallbacks", model), "other models", f"{model!r} itself")
    for place, name in named if config.repository.control == "none" else ():
        if name not in models:
            report(place, "the name of a model that is served", repr(name))


def _check_ports(server: ServerConfig, report: Report) -> None:
    """Each is another one."""
    tls = server.tls
    if server.metrics_port == server.port != 0:
        report(
            ("server", "metrics_port"), "another port than server.port", f"{server.metrics_port}"
        )
    if server.grpc_port and server.grpc_port in (server.port, server.metrics_port):
        expected = "another port than server.port and server.metrics_port"
        report(("server", "grpc_port"), expected, f"{server.grpc_port}")
    if tls and tls.port and tls.port in (server.port, server.grpc_port, server.metrics_port):
        report(("server", "tls", "port"), "a port of its own", f"{tls.port}")
    others = (server.port, server.grpc_port, server.metrics_port, tls.port if tls else 0)
    if server.agent_port and server.agent_port in others:
        report(("server", "agent_port"), "a port of its own", f"{server.agent_port}")


def check_together(config: Config, report: Report) -> None:
    """Reports settings that contradict each other.

    Args:
        config: the checked settings.
        report: takes one problem.
    """
    _check_names_elsewhere(config, report)
    server, engine = config.server, config.engine
    kind = engine.queue_type
    batches = engine.batch_size > 1 or any((entry.batch_size or 1) > 1 for entry in config.models)
    known = "auto" not in (server.max_request_bytes, server.arena_bytes)
    if known and server.max_request_bytes > server.arena_bytes:  # type: ignore[operator]
        least = f"at least max_request_bytes ({server.max_request_bytes} bytes)"
        report(("server", "arena_bytes"), least, f"{server.arena_bytes}")
    _check_ports(server, report)
    tls = server.tls
    if tls and (tls.clients == "any") != (tls.client_ca is None):
        expected = "a file with clients asked or certified, null with clients any"
        report(("server", "tls", "client_ca"), expected, f"{tls.client_ca or 'null'}")
    subjects = [index for index, key in enumerate(server.keys) if key.subject is not None]
    for index in subjects if tls is None or tls.clients == "any" else ():
        found = "a server that asks no client for one"
        report(("server", "keys", index, "subject"), "tls.clients asked or certified", found)
    if engine.real_time and engine.idle in ("spin", "yield"):
        found = f"{engine.real_time}: threads that never sleep would keep every other from running"
        report(("engine", "real_time"), f"0 with idle {engine.idle}", found)
    if kind == "spsc" and engine.thread_count not in ("auto", 1):
        found = f"{engine.thread_count}: spsc has a single consumer"
        report(("engine", "thread_count"), "1 with queue_type spsc", found)
    if kind == "spsc" and server.io_threads not in ("auto", 1):
        found = f"{server.io_threads}: spsc has a single producer"
        report(("server", "io_threads"), "1 with queue_type spsc", found)
    if kind == "batched" and engine.batch_size == 1:
        found = "1: without batches this is queue_type naive"
        report(("engine", "batch_size"), "2 or more with queue_type batched", found)
    if kind == "inline" and engine.batch_delay_us > 0:
        found = (
            f"{engine.batch_delay_us}: an I/O thread that waits for a batch serves no other request"
        )
        report(("engine", "batch_delay_us"), "0 with queue_type inline", found)
    pinned_down = "auto" not in (engine.thread_count, server.io_threads)
    if kind == "inline" and pinned_down and engine.thread_count != server.io_threads:
        found = f"{engine.thread_count} beside server.io_threads {server.io_threads}"
        expected = "auto with queue_type inline, whose I/O threads are its workers"
        report(("engine", "thread_count"), expected, found)
    if engine.batch_delay_us > 0 and not batches:
        found = f"{engine.batch_delay_us}, but no model has a batch_size above 1"
        report(("engine", "batch_delay_us"), "0 without batches", found)
    repository = config.repository
    if repository.max_loaded and repository.control != "explicit":
        found = f"{repository.max_loaded} beside control: {repository.control}"
        report(("repository", "max_loaded"), "0 unless control is explicit", found)
    _check_versions(config, report)
    for index in range(len(config.models)):
        _check_model(config, index, report)
    _check_upstreams(config, report)


def _check_model(config: Config, index: int, report: Report) -> None:
    """Reports what a model contradicts of the engine's settings, of others and of its own."""
    model, engine = config.models[index], config.engine
    kind = engine.queue_type
    if kind == "inline" and model.run == "worker":
        found = "worker: there is none with engine.queue_type inline"
        report(("models", index, "run"), "auto or inline", found)
    delay_us = model.batch_delay_us if model.batch_delay_us is not None else engine.batch_delay_us
    if model.run == "inline" and kind != "inline" and delay_us > 0:
        found = f"{delay_us}: an I/O thread that waits for a batch serves no other request"
        report(("models", index, "batch_delay_us"), "0 with run: inline", found)
    _check_isolation(config, index, report)
    _check_sequences(config, index, report)
    wrong = None if model.text is None else text.problem(model.text)
    if wrong:
        report(("models", index, "text"), *wrong)
    for name in model.fix_dims.keys() & model.max_dims.keys():
        found = f"{model.fix_dims[name]} beside {model.max_dims[name]} in max_dims"
        place = ("models", index, "fix_dims", name)
        report(place, "a dimension that max_dims does not name", found)
    _check_providers(model, index, report)


def _check_versions(config: Config, report: Report) -> None:
    """Reports models that clients would call the same."""
    first: dict[tuple[str, int], str] = {}
    for index, model in enumerate(config.models):
        twin = first.setdefault((model.base, model.version), model.name)
        if twin != model.name:
            found = f"{model.name!r} beside {twin!r}: both are version {model.version}"
            report(("models", index, "name"), f"another version of {model.base!r}", found)


def _check_upstreams(config: Config, report: Report) -> None:
    """Reports upstreams with two keys, and more models than there may be."""
    for name, entry in config.upstreams.items():
        if entry.key_env is not None and entry.key_file is not None:
            found = f"{entry.key_file} beside key_env {entry.key_env}"
            report(("upstreams", name, "key_file"), "null beside key_env", found)
        if (entry.cert is None) != (entry.cert_key is None):
            found = f"{entry.cert or 'null'} beside cert_key {entry.cert_key or 'null'}"
            report(("upstreams", name, "cert"), "both cert and cert_key, or neither", found)
        for setting in ("ca", "cert"):
            if getattr(entry, setting) and all(url.startswith("http:") for url in entry.urls):
                found = f"{getattr(entry, setting)} beside URLs without TLS"
                report(("upstreams", name, setting), "null, or an https URL", found)
    count = len(config.served())
    if config.upstreams and count > MODELS_MAX:
        report(("upstreams",), f"at most {MODELS_MAX} models in all", f"{count}")


def _check_providers(model: ModelConfig, index: int, report: Report) -> None:
    """Reports a list of providers that contradicts itself."""
    wrong = providers.problem(model.providers)
    if wrong:
        report(("models", index, "providers"), *wrong)


def _check_sequences(config: Config, index: int, report: Report) -> None:
    """Reports what a model with sequences cannot have."""
    model = config.models[index]
    if model.sequences is None:
        return
    place = ("models", index)
    wrong = sequences.problem(model.sequences)
    if wrong:
        report((*place, "sequences"), *wrong)
    parts = {expert.model for entry in config.experts for expert in entry.experts}
    parts |= {step.model for entry in config.ensembles for step in entry.steps}
    if model.name in parts:
        found = "sequences of a model that a virtual model runs"
        report((*place, "sequences"), "null for an expert or a step", found)


def _check_isolation(config: Config, index: int, report: Report) -> None:
    """Reports what a model in a process of its own cannot have."""
    model, engine = config.models[index], config.engine
    place = ("models", index)
    if model.isolation == "none":
        for name in ("isolation_memory", "isolation_hang_seconds"):
            if value := getattr(model, name):
                report((*place, name), "0 without isolation: process", f"{value}")
        return
    found = "process: its model is run by a process, which a worker waits for"
    if engine.queue_type == "inline":
        report((*place, "isolation"), "none with engine.queue_type inline", found)
    for virtual in config.experts:
        if model.name in {expert.model for expert in virtual.experts}:
            found = f"process, and the model is an expert of {virtual.name}"
            report((*place, "isolation"), "none for an expert", found)
