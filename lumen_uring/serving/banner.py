"""The banner of a server that has started: models, threads, warnings, and a command to try.

Called by server.py, on the main thread, once.
"""

from __future__ import annotations

import ipaddress
import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from lumen_uring import __version__
from lumen_uring.loading.words import (
    engine_text,
    experts_text,
    free_dims_text,
    image_text,
    providers_text,
    run_text,
    sequences_text,
    strings_text,
    tensor_text,
    width_text,
)
from lumen_uring.ring.description import EngineInfo
from lumen_uring.serving.logs import Journal
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config
from lumen_uring.settings.sizes import format_size
from lumen_uring.settings.text import TextConfig

_LABELS: Final = {"builtin:squeezenet": "untrained weights, for speed only"}
# Addresses that stand for all of this machine's, and one of them.
_REACHED: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_TYPED_MAX: Final = 64  # values of a tensor that a person would paste
_SHOWN_MAX: Final = 64  # models


def banner(
    config: Config,
    info: EngineInfo,
    description: dict[str, Any],
    notes: list[str],
    ready_s: float,
    metrics: str = "none",
) -> list[str]:
    """Describes the running server, and a command to try.

    Args:
        config: the settings it was started with.
        info: the running engine's facts.
        description: its describe document.
        notes: Python's warnings; the engine's follow them.
        ready_s: seconds from the start of the program's work to ready.
        metrics: address of the metrics page.

    Returns:
        Plain lines.
    """
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    lines = [f"Lumen {__version__} serves on {host}:{info.port} (ONNX Runtime {info.ort_version})"]
    if config.server.grpc_port:
        lines.append(f"  gRPC     on {host}:{config.server.grpc_port} too")
    if info.tls_port:
        lines.append(f"  TLS      on {host}:{info.tls_port}, OpenSSL of the system")
    if config.server.unix_socket is not None:
        mode = f"{config.server.unix_socket_mode:04o}"
        lines.append(f"  socket   unix:{config.server.unix_socket} (mode {mode})")
    lines += _of_models(config, description["models"])
    cpus = ", ".join("unpinned" if cpu < 0 else f"core {cpu}" for cpu in info.worker_cpus)
    sizes = [entry.slot_bytes for entry in info.slot_classes]
    span = f", of {format_size(min(sizes))} to {format_size(max(sizes))} each" if sizes else ""
    lines += [
        f"  workers  {info.workers} ({cpus})",
        f"  I/O      {info.io_backend}, {info.io_threads} thread(s)"
        f"{f' ({info.io_detail})' if info.io_detail else ''}",
        f"  memory   {info.slots} slots in {format_size(info.arena_bytes)}{span}",
        f"  figures  {info.stats_path}",
        f"  metrics  {metrics}",
    ]
    lines += [f"  node     {node}" for node in info.nodes]
    lines += [f"  note     {note}" for note in (*notes, *info.notes)]
    lines.append(f"  ready    in {ready_s:.2f} s; Ctrl-C drains and ends")
    lines.append(f"Try: {_next_step(config, description['models'], info.port)}")
    return lines


def announce(journal: Journal, lines: list[str], notes: tuple[str, ...], config: Config) -> None:
    """The banner on stdout, and in a log that is elsewhere what it has of news.

    Args:
        journal: of the server.
        lines: of `banner`.
        notes: sentences that a log has as warnings.
        config: the settings.
    """
    for line in lines:
        journal.show(line)
    if not journal.is_stdout:
        journal.log("info", lines[0])
        for note in notes:
            journal.log("warning", note)
    for one in config.broken:
        journal.log("warning", f"model {one.name}: not served: {one.reason}")


def _elsewhere(config: Config) -> dict[str, str]:
    """Of each model of an upstream, its name there and where that is."""
    return {
        here: f"{there} of upstream {name} ({', '.join(entry.urls)})"
        for name, entry in config.upstreams.items()
        for here, there in entry.models.items()
    }


def _of_models(config: Config, described: list[dict[str, Any]]) -> list[str]:
    """All that a person reads, and how many there are beside them."""
    elsewhere, lines = _elsewhere(config), []
    served = config.served()
    for model, entry in zip(served[:_SHOWN_MAX], described, strict=False):
        where = elsewhere.get(model.name)
        lines += [f"  model    {model.name}: {where}"] if where else _of_model(model, entry)
    if len(served) > _SHOWN_MAX:
        more = len(served) - _SHOWN_MAX
        lines.append(f"  models   {more} more: GET /v1/models has all names")
    return lines


def _of_model(model: ModelConfig, entry: dict[str, Any]) -> list[str]:
    label = None if "experts" in entry else _LABELS.get(model.path)
    lines = [f"  model    {model.name}{f' ({label})' if label else ''}: {_signature(entry)}"]
    if entry.get("free_dims"):
        lines.append(f"  sizes    {model.name}: {free_dims_text(entry)}")
    if "max_string_bytes" in entry:
        lines.append(f"  strings  {model.name}: {strings_text(entry)}")
    if entry.get("image"):
        lines.append(f"  pictures {model.name}: JPEG or PNG, {image_text(entry)}")
    if entry.get("width", 1) > 1:
        lines.append(f"  width    {model.name}: {width_text(entry)}")
    if "experts" in entry:
        lines.append(f"  experts  {model.name}: {experts_text(entry)}")
    if "steps" in entry:
        lines.append(f"  steps    {model.name}: {', then '.join(entry['steps'])}")
    if "sequences" in entry:
        lines.append(f"  sequence {model.name}: {sequences_text(entry)}")
    if entry.get("engine") == "native":
        lines.append(f"  engine   {model.name}: {engine_text(entry)}")
    if entry.get("providers", ["cpu"]) != ["cpu"]:
        lines.append(f"  provider {model.name}: {providers_text(entry)}")
    if "run" in entry:
        lines.append(f"  runs     {model.name}: {run_text(entry)}")
    return lines


def _signature(entry: dict[str, Any]) -> str:
    inputs = ", ".join(tensor_text(tensor, entry) for tensor in entry["inputs"])
    outputs = ", ".join(tensor_text(tensor, entry) for tensor in entry["outputs"])
    return f"{inputs} -> {outputs}"


def _next_step(config: Config, models: list[dict[str, Any]], port: int) -> str:
    """A command that works as it stands, from any directory, beside a picture of the user's."""
    host = _REACHED.get(config.server.host, config.server.host)
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}/v2"
    header = " -H 'Authorization: Bearer TOKEN'" if config.server.keys else ""
    if not models:
        return f"curl{header} -X POST '{base}/repository/index'"
    entry = models[0]
    name = entry["name"]
    url = f"{base}/models/{name}"
    if name in _elsewhere(config):
        asked = {"model": name, "messages": [{"role": "user", "content": "Hello"}]}
        said = json.dumps(asked, separators=(",", ":"))
        return f"curl{header} '{base.removesuffix('/v2')}/v1/chat/completions' -d '{said}'"
    served = next((model for model in config.models if model.name == name), None)
    if served is not None and served.text is not None:
        path, of_task = _of_texts(served.text)
        said = json.dumps({"model": served.base, **of_task}, separators=(",", ":"))
        return f"curl{header} '{base.removesuffix('/v2')}{path}' -d '{said}'"
    tensors = [_zeros(tensor) for tensor in entry["inputs"]]
    declared = served.origin.declared if served and served.origin else ()
    if all(tensors) and not any(one.reshape for one in declared):  # HTTP has other shapes then
        whole: dict[str, Any] = {"inputs": tensors}
        if "sequences" in entry:
            whole["parameters"] = {"sequence_id": 1, "sequence_start": True}
        body = json.dumps(whole, separators=(",", ":"))
        return f"curl{header} '{url}/infer' -d '{body}'"
    if entry.get("image"):
        # Without labels the answer would hold the output's values.
        classes = [size for size in entry["outputs"][0]["shape"][1:] if size != 1]
        top = "?top=5" if not entry.get("labels") and len(classes) == 1 else ""
        return f"curl{header} -T PICTURE.jpg '{url}/infer{top}'"
    first = entry["inputs"][0]["shape"]
    grey = len(tensors) == 1 and len(first) == 4 and first[1] == 1
    if entry["rgb8"] is not None or grey:
        # `lumen` may not be on PATH, as in a virtual environment.
        lumen = "lumen" if shutil.which("lumen") else f"{sys.executable} -m lumen_uring"
        where = "" if host == "127.0.0.1" else f" --host {host}"
        where += "" if port == 8000 else f" --port {port}"
        return f"{lumen} predict{where} --model {name} PICTURE.png"
    return f"curl{header} '{url}'"


def _of_texts(text: TextConfig) -> tuple[str, dict[str, Any]]:
    """The path that clients of such a model ask, and a body beside its name."""
    if text.task != "scores":
        return "/v1/embeddings", {"input": "a text"}
    if text.pairs:
        return "/rerank", {"query": "a question", "texts": ["an answer", "another"]}
    return "/predict", {"inputs": "a text"}


def _zeros(tensor: dict[str, Any]) -> dict[str, Any] | None:
    """A small input of one row, as HTTP takes it; None when it is too long to type."""
    # A sentence may have one word, a picture of one pixel is less than some models take.
    most = 2 if "dims" in tensor and len(tensor["shape"]) == 2 else 1
    shape = [1 if index < most and dim < 0 else dim for index, dim in enumerate(tensor["shape"])]
    count = math.prod(shape)
    quoted = "'" in tensor["name"]
    typed = all(size > 0 for size in shape) and count <= _TYPED_MAX
    if quoted or not typed or tensor["datatype"] in ("FP16", "BF16"):
        return None
    zero = {"BOOL": False, "BYTES": "text"}.get(tensor["datatype"], 0)
    return {
        "name": tensor["name"],
        "datatype": tensor["datatype"],
        "shape": shape,
        "data": [zero] * count,
    }


def warnings(config: Config, info: EngineInfo) -> list[str]:
    """Warns of settings that are allowed and often not intended.

    Args:
        config: the settings it was started with.
        info: the running engine's facts.

    Returns:
        Sentences, without a full stop.
    """
    server = config.server
    notes: list[str] = []
    if not server.keys and not ipaddress.ip_address(server.host).is_loopback:
        notes.append(
            f"no keys: any client that reaches {server.host} may send requests "
            "(server.keys; `lumen key NAME` makes one)"
        )
    limit = memory_limit_bytes()
    if limit is not None and limit < info.arena_bytes:
        notes.append(
            f"the memory limit of this process's group, {format_size(limit)}, is below "
            f"server.arena_bytes: the kernel may end it under load"
        )
    notes += _unserved(config)
    return notes + [
        f"model {model.name}: batches on cuda: before each one of another size than the last, "
        "ONNX Runtime plans its convolutions anew, for up to 0.3 s; more workers without batches "
        "are faster (docs/PROVIDERS.md)"
        for model in config.models
        if (model.batch_size or config.engine.batch_size) > 1
        and any(provider.key == "cuda" for provider in model.providers)
    ]


def _unserved(config: Config) -> list[str]:
    """The versions of `traffic` that are not there, or not yet."""
    notes = []
    for name, traffic in config.traffic.items():
        served = {model.version for model in config.served() if model.base == name}
        missing = sorted(set(traffic.versions) - served)
        if not served:
            notes.append(f"traffic.{name}: no model of this name is served")
        elif missing:
            numbers = ", ".join(map(str, missing))
            notes.append(
                f"traffic.{name}: of this model there is no version {numbers}: the others have its "
                f"share ({', '.join(map(str, sorted(served)))})"
            )
    return notes


def memory_limit_bytes(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Reads the memory limit of this process's control group; None when there is none.

    Args:
        root: where control groups are mounted; version 2, then version 1.
    """
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (root / name).read_text("ascii").strip()
        except (OSError, ValueError):
            continue
        # Version 1 says "none" as a number near 2^63.
        return int(text) if text.isdecimal() and int(text) < 1 << 60 else None
    return None
