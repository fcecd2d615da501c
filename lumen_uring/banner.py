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
from lumen_uring.image_input import described
from lumen_uring.ring.engine import EngineInfo
from lumen_uring.settings import Config
from lumen_uring.sizes import format_size

_LABELS: Final = {"builtin:squeezenet": "untrained weights, for speed only"}
# Addresses that stand for all of this machine's, and one of them.
_REACHED: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_RUNS: Final = {
    "auto": "on the I/O thread, or on a worker where a Run takes more than 50 µs",
    "inline": "on the I/O thread",
    "worker": "on a worker",
}
_TYPED_MAX: Final = 64  # values of a tensor that a person would paste


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
    if config.server.unix_socket is not None:
        mode = f"{config.server.unix_socket_mode:04o}"
        lines.append(f"  socket   unix:{config.server.unix_socket} (mode {mode})")
    for model, entry in zip(config.served(), description["models"], strict=True):
        label = None if "experts" in entry else _LABELS.get(model.path)
        lines.append(
            f"  model    {model.name}{f' ({label})' if label else ''}: {_signature(entry)}"
        )
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


def _signature(entry: dict[str, Any]) -> str:
    inputs = ", ".join(tensor_text(tensor, entry) for tensor in entry["inputs"])
    outputs = ", ".join(tensor_text(tensor, entry) for tensor in entry["outputs"])
    return f"{inputs} -> {outputs}"


def tensor_text(tensor: dict[str, Any], entry: dict[str, Any]) -> str:
    """Name, type and shape: `x FP32[n,3]`.

    Args:
        tensor: an input or output of the describe document.
        entry: the model that it is of.
    """
    if "max_rank" in tensor:
        return f"{tensor['name']} {tensor['datatype']}[...]"
    # n: the rows of the request; ?: known only after the model has run.
    rows = "n" if tensor.get("shape_known", True) else "?"
    free = {dim["name"] for dim in entry.get("free_dims", [])}
    dims = ",".join(
        rows if dim == -1 or (index == 0 and size < 0 and dim not in free) else str(dim)
        for index, (dim, size) in enumerate(
            zip(tensor.get("dims", tensor["shape"]), tensor["shape"], strict=True)
        )
    )
    return f"{tensor['name']} {tensor['datatype']}[{dims}]"


def free_dims_text(entry: dict[str, Any]) -> str:
    """The largest sizes of a model's free dimensions, and what they cost.

    Args:
        entry: of the describe document, with `free_dims`.
    """
    any_rank = {
        tensor["dims"][0]: f" elements in at most {tensor['max_rank']} dimensions"
        for tensor in entry["inputs"]
        if "max_rank" in tensor
    }
    parts = [
        f"{dim['name']} 1..{dim['max']}{any_rank.get(dim['name'], '')}"
        f"{' (default)' if dim.get('default') else ''}"
        for dim in entry["free_dims"]
    ]
    cost = ""
    if "slot_bytes" in entry:
        cost = f"; the largest request takes {rounded_size(entry['slot_bytes'])} of memory"
    hint = ""
    if any(dim.get("default") for dim in entry["free_dims"]):
        hint = "; max_dims sets others"
    return f"{', '.join(parts)}{cost}{hint}"


def sequences_text(entry: dict[str, Any]) -> str:
    """How many sequences may be open, and which inputs are theirs.

    Args:
        entry: of the describe document, with `sequences`.
    """
    told = entry["sequences"]
    inputs = ", ".join(
        f"{tensor_text(tensor, entry)} ({tensor['is']})" for tensor in told["inputs"]
    )
    idle = f"{told['idle_ms'] / 1000:g} s"
    return f"{inputs}; at most {told['max_open']} open, each for {idle} without a request"


def experts_text(entry: dict[str, Any]) -> str:
    """The rule of a virtual model: `light where variance of data is below 120, else dense`.

    Args:
        entry: of the describe document, with `experts`.
    """
    *others, last = entry["experts"]
    what = entry["feature"] + (f" of {entry['of']}" if entry["of"] else "")
    parts = [
        f"{one['model']} below {one['below']:g}"
        if "below" in one
        else f"{one['model']} from {one['at_least']:g} on"
        for one in others
    ]
    return f"by {what}: {', '.join(parts)}, else {last['model']}"


def width_text(entry: dict[str, Any]) -> str:
    """How many cores a request may have, and why.

    Args:
        entry: of the describe document.
    """
    cores = entry["width"]
    what = "1 core" if cores == 1 else f"{cores} cores while other workers are idle"
    return f"{what}: {entry['width_why']}"


def run_text(entry: dict[str, Any]) -> str:
    """Which thread runs a model, and why.

    Args:
        entry: of the describe document, with `run`.
    """
    where = _RUNS[entry["run"]]
    if "run_us" not in entry:
        return f"{where}: {entry['run_why']}"
    return f"{where}: {entry['run_why']} ({entry['run_us']:g} µs for the smallest request)"


def engine_text(entry: dict[str, Any]) -> str:
    """What computes a model's answers, and why.

    Args:
        entry: of the describe document, with `engine`.
    """
    names = {"native": "native", "onnxruntime": "ONNX Runtime"}
    return f"{names[entry['engine']]}: {entry['engine_why']}"


def providers_text(entry: dict[str, Any]) -> str:
    """What computes a model's graph: `openvino, then cpu; 2 of 66 nodes are the CPU's`.

    Args:
        entry: of the describe document, with `providers`.
    """
    names = ", then ".join(entry["providers"])
    if "nodes" not in entry:
        return names
    left = entry["nodes_on_cpu"]
    return f"{names}; {left or 'none'} of {entry['nodes']} nodes left to the CPU"


def strings_text(entry: dict[str, Any]) -> str:
    """How long the strings of a request may be.

    Args:
        entry: of the describe document, with `max_string_bytes`.
    """
    most = format_size(entry["max_string_bytes"])
    return f"of at most {most} each, and server.max_request_bytes in all"


def image_text(entry: dict[str, Any]) -> str:
    """What becomes of a file of a picture.

    Args:
        entry: of the describe document, with `image`.
    """
    return described(entry["inputs"][0]["datatype"], entry["image"]).sentence()


def rounded_size(size_bytes: int) -> str:
    """A size as people read it, rounded up.

    Args:
        size_bytes: bytes.

    >>> rounded_size(5000), rounded_size(5 << 20), rounded_size((5 << 20) + 1)
    ('5KiB', '5MiB', '6MiB')
    """
    unit_bytes = 1 << 20 if size_bytes >= 4 << 20 else 1 << 10
    return format_size(math.ceil(size_bytes / unit_bytes) * unit_bytes)


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
    tensors = [_zeros(tensor) for tensor in entry["inputs"]]
    origins = [model.origin for model in config.models if model.name == name]
    declared = origins[0].declared if origins and origins[0] else ()
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
