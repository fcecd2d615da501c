"""Sentences about one model, from its entry in the description, for the banner and `lumen inspect`.

Pure functions; any thread.
"""

from __future__ import annotations

import math
from typing import Any, Final

from lumen_uring.pictures.image_input import described
from lumen_uring.settings.sizes import format_size

_RUNS: Final = {
    "auto": "on the I/O thread, or on a worker where a Run takes more than 50 µs",
    "inline": "on the I/O thread",
    "worker": "on a worker",
}


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
