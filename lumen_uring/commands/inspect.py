"""`lumen inspect`: shows what a model takes and gives, and what Lumen will do with it.

Called by cli.py, on the main thread. It opens the model through the C library as a server does, up
to the plan of its memory, and starts nothing: what it shows is what a server will do.
"""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.options import Subparsers, model_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lumen_uring.ring.engine import SlotClass


_RAISES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A model that can be served: its entry of describe, and the slots of a server of its own."""

    entry: dict[str, Any]
    slot_classes: tuple[SlotClass, ...]
    notes: tuple[str, ...]


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "inspect",
        help="show a model file's inputs and outputs, and how it will be served",
        description="Opens a model as a server does and shows its inputs, outputs, largest sizes "
        "and memory; or why it is refused, and a command that helps. Starts no server.",
    )
    parser.add_argument("path", metavar="MODEL.onnx", help="the model's file, or builtin:digits")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="a setting to try, for example --set 'models.0.max_dims={sequence_length: 128}'; "
        "may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Shows the model.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 when the model cannot be served.

    Raises:
        ConfigError: a setting is wrong, or the file is not there.
        LibraryError: the C library or ONNX Runtime is missing.
    """
    import orjson

    try:
        found = look(arguments.path, arguments.overrides)
    except EngineError as error:
        cure = _cure(arguments.path, arguments.overrides, str(error))
        if arguments.json:
            print(orjson.dumps({"served": False, "reason": str(error), "cure": cure}).decode())
        else:
            print(error)
            print(f"Cure: {cure}" if cure else "No command mends that.")
        return 1
    if arguments.json:
        document = {
            "served": True,
            "model": found.entry,
            "slots": [
                {"slot_bytes": entry.slot_bytes, "slot_count": entry.slot_count}
                for entry in found.slot_classes
            ],
            "notes": found.notes,
        }
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join(lines(found)))
        print(f"Serve it: {_command(arguments.path, arguments.overrides)}")
    return 0


def _command(path: str, overrides: Sequence[str]) -> str:
    options = "".join(f" --set {shlex.quote(text)}" for text in overrides)
    return f"lumen {shlex.quote(path)}{options}"


def _cure(path: str, overrides: Sequence[str], refusal: str) -> str | None:
    """A command that helps: limits of memory are raised until the model is served."""
    from lumen_uring.cures import cure_of, limit_of

    raised: dict[str, int] = {}
    for _ in range(_RAISES_MAX):
        limit = limit_of(refusal)
        if limit is None:
            break
        name, least = limit
        # With several I/O threads each has a part of the arena.
        raised[name] = max(least, 2 * raised.get(name, 0))
        wanted = [*overrides, *(f"server.{key}={size}" for key, size in raised.items())]
        try:
            look(path, wanted)
        except (EngineError, ConfigError) as error:
            refusal = str(error)
        else:
            return _command(path, wanted)
    return cure_of(refusal, path)


def look(path: str, overrides: Sequence[str]) -> Found:
    """Opens a model as a server with it alone would.

    Args:
        path: of its file, or builtin:NAME.
        overrides: settings, as for --set.

    Raises:
        ConfigError: a setting is wrong, or the file is not there.
        EngineError: the model cannot be served.
    """
    from lumen_uring.config import load
    from lumen_uring.loading import add_model
    from lumen_uring.model_cache import labels, resolve
    from lumen_uring.ring.engine import Engine

    config = load(None, overrides, [model_option(path)], os.environ)
    if len(config.models) != 1:
        raise ConfigError("inspect: expected settings of one model.")
    model = config.models[0]
    file = resolve(model.path)
    with Engine(config) as engine:
        said = add_model(engine, engine.info().ort_version, model, file, labels(model))
        (entry,) = engine.describe()["models"]
        info = engine.info()
    # Notes on the machine are for `lumen doctor`.
    notes = [*said, *(note for note in info.notes if note.startswith("model "))]
    return Found(entry, info.slot_classes, tuple(notes))


def lines(found: Found) -> list[str]:
    """Says what a server does with the model.

    Args:
        found: of look.
    """
    from lumen_uring.banner import free_dims_text, tensor_text

    entry = found.entry
    text = [f"model {entry['name']}: can be served"]
    text += [f"  input    {tensor_text(tensor)}" for tensor in entry["inputs"]]
    text += [f"  output   {tensor_text(tensor)}" for tensor in entry["outputs"]]
    text.append(f"  rows     {_rows(entry)}")
    if entry.get("free_dims"):
        text.append(f"  sizes    {free_dims_text(entry)}")
    text.append(f"  memory   {_memory(found.slot_classes)}")
    text.append(f"  pictures {_pictures(entry)}")
    if entry["labels"]:
        text.append(f"  labels   {len(entry['labels'])}")
    text += [f"  note     {note}" for note in found.notes]
    return text


def _rows(entry: dict[str, Any]) -> str:
    rows_free = any(
        tensor["shape"][:1] == [-1]
        and tensor.get("dims", [None])[0] not in [dim["name"] for dim in entry.get("free_dims", [])]
        for tensor in entry["inputs"]
    )
    if not rows_free:
        return "1: no input has a free first dimension"
    why = "max_rows and server.max_request_bytes decide that"
    return f"n is 1 to {entry['max_rows']} in a request ({why})"


def _memory(classes: Sequence[SlotClass]) -> str:
    from lumen_uring.banner import rounded_size

    largest = max(entry.slot_bytes for entry in classes)
    total = sum(entry.slot_bytes * entry.slot_count for entry in classes)
    count = sum(entry.slot_count for entry in classes)
    return (
        f"the largest slot takes {rounded_size(largest)}; {count} slots take at most "
        f"{rounded_size(total)} for each I/O thread (server.arena_bytes)"
    )


def _pictures(entry: dict[str, Any]) -> str:
    rgb8 = entry["rgb8"]
    if rgb8 is None:
        return "no rgb8: that takes one input [n,3,H,W] or [n,H,W,3], FP32 or UINT8, of fixed size"
    return (
        f"rgb8 of {rgb8['width']} x {rgb8['height']} pixels; the model gets {rgb8['layout']}, "
        f"{rgb8['channel_order']} (channel_order, mean and scale change that)"
    )
