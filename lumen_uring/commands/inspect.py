"""`lumen inspect`: shows what a model takes and gives, and what Lumen will do with it.

Called by cli.py, on the main thread. inspection.py opens the model; this file prints, and looks for
a command that helps.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from typing import TYPE_CHECKING, Final

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.options import Subparsers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lumen_uring.loading.inspection import Found


_RAISES_MAX: Final = 8
_SIDE: Final = 640  # of pictures for a detector whose sides are free, where its file says none
_SIDES: Final = "imgsz"  # where Ultralytics' exports have them: "[height, width]"


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
    parser.add_argument(
        "path", metavar="MODEL.onnx", help="the model's file, builtin:digits, or a folder of models"
    )
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

    from lumen_uring.loading.inspection import document, lines, look

    if os.path.isdir(arguments.path):
        return _folder(arguments)
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
        told = {"served": True, **document(found)}
        print(orjson.dumps(told, option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join(lines(found)))
        print(f"Serve it: {_command(arguments.path, arguments.overrides)}")
        if found.guess:
            print(f"With pictures: {_with_pictures(arguments.path, arguments.overrides, found)}")
    return 0


def _folder(arguments: argparse.Namespace) -> int:
    """Shows all models of a folder, and those that are refused."""
    import orjson

    from lumen_uring.loading.inspection import document, lines, look_at, settings_of

    config = settings_of(arguments.path, arguments.overrides)
    found = look_at(config)
    refused = {name: str(one) for name, one in found.items() if isinstance(one, EngineError)}
    if arguments.json:
        told = [
            {"name": name, "served": False, "reason": str(one)}
            if isinstance(one, EngineError)
            else {"name": name, "served": True, **document(one)}
            for name, one in found.items()
        ]
        told_of_all = {"models": told, "notes": config.notes}
        print(orjson.dumps(told_of_all, option=orjson.OPT_INDENT_2).decode())
        return 1 if refused else 0
    for name, one in found.items():
        refusal = f"model {name}: refused\n  {refused.get(name)}"
        print(refusal if isinstance(one, EngineError) else "\n".join(lines(one)))
    for note in config.notes:
        print(f"note: {note}")
    if not refused:
        print(
            f"Serve {'it' if len(found) == 1 else 'them'}: "
            f"{_command(arguments.path, arguments.overrides)}"
        )
    return 1 if refused else 0


def _command(path: str, overrides: Sequence[str]) -> str:
    options = "".join(f" --set {shlex.quote(text)}" for text in overrides)
    return f"lumen {shlex.quote(path)}{options}"


def _with_pictures(path: str, overrides: Sequence[str], found: Found) -> str:
    """A command that serves the model with the guessed preset; free sides need a size for that."""
    assert found.guess is not None
    tensor = found.entry["inputs"][0]
    free = [dim for dim in tensor.get("dims", [])[1:] if isinstance(dim, str)]
    sides = _sides(path)
    if len(sides) != len(free):
        sides = [_SIDE] * len(free)
    sizes = ", ".join(f"{json.dumps(name)}: {side}" for name, side in zip(free, sides, strict=True))
    fixed = [f"models.0.fix_dims={{{sizes}}}"] if free else []
    return f"{_command(path, [*overrides, *fixed])} --image {found.guess.preset}"


def _sides(path: str) -> list[int]:
    """The sides of its pictures that the model's file says it was made for; none where it does not,
    as in ONNX Runtime's own format."""
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
        said = {entry.key: entry.value for entry in model.metadata_props}
        sides = json.loads(said.get(_SIDES, "[]"))
    except Exception:  # protobuf has errors of its own
        return []
    right = isinstance(sides, list) and all(type(side) is int and side > 0 for side in sides)
    return sides if right else []


def _cure(path: str, overrides: Sequence[str], refusal: str) -> str | None:
    """A command that helps: limits of memory are raised until the model is served."""
    from lumen_uring.loading.cures import cure_of, limit_of
    from lumen_uring.loading.inspection import look

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
