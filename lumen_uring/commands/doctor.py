"""`lumen doctor`: prints what this machine allows Lumen, and how to allow the rest.

Called by cli.py, on the main thread. serving/doctor.py reads the machine, inspection.py opens the
models that are named; this file prints. It changes nothing. A check that cannot read what it
needs says so and does not fail.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import EngineError
from lumen_uring.options import Subparsers, model_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lumen_uring.loading.inspection import Found
    from lumen_uring.settings.schema import Config

_COLUMNS: Final = 80


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "doctor",
        help="check what this machine allows, and name the cures",
        description="Checks kernel, io_uring, limits, memory and cores, and the models that are "
        "named: who runs them, on how many cores, and why. Exits 1 on a problem.",
    )
    parser.add_argument(
        "models",
        metavar="MODEL.onnx",
        nargs="*",
        help="a model's file, builtin:digits, or a folder of models",
    )
    parser.add_argument("--config", metavar="FILE", help="a server's settings, with its models")
    parser.add_argument(
        "--plan", action="store_true", help="print which core each thread of a server gets, and why"
    )
    parser.add_argument(
        "--root", metavar="DIR", default="", help="with --plan: a captured /proc and /sys"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints every finding.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 when something keeps Lumen from serving.
    """
    if arguments.plan:
        return _plan(arguments)
    from dataclasses import asdict

    import orjson

    from lumen_uring.serving.doctor import NOTE, PROBLEM, Machine, check_all

    findings = check_all(Machine())
    if arguments.config is not None and (tls := _settings(arguments).server.tls) is not None:
        from lumen_uring.serving.certificates import findings as of_certificates

        findings += of_certificates(tls)
    models = _look(arguments)
    refused = [name for name, found in models.items() if isinstance(found, EngineError)]
    if arguments.json:
        document = {"findings": [asdict(finding) for finding in findings]}
        if models:
            document["models"] = [_document(name, found) for name, found in models.items()]
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            print(f"{finding.level:<8} {finding.name:<{width}}  {finding.found}")
            if finding.cure:
                print(f"{'':<8} {'':<{width}}  -> {finding.cure}")
        _show(models)
        levels = [finding.level for finding in findings]
        print(_summary(levels.count(PROBLEM) + len(refused), levels.count(NOTE)))
    return 1 if refused or any(finding.level == PROBLEM for finding in findings) else 0


def _plan(arguments: argparse.Namespace) -> int:
    """Prints the plan of a server with these settings and models, which are loaded for it."""
    import textwrap

    import orjson

    from lumen_uring.loading.inspection import plan_of

    lines = plan_of(_settings(arguments), arguments.root)
    if arguments.json:
        print(orjson.dumps({"plan": lines}, option=orjson.OPT_INDENT_2).decode())
        return 0
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        print("\n".join(textwrap.wrap(line, _COLUMNS, subsequent_indent=indent)))
    return 0


def _look(arguments: argparse.Namespace) -> dict[str, Found | EngineError]:
    """The models that are named, as `lumen inspect` sees them."""
    from lumen_uring.loading.inspection import WITH_REFUSED, look_at

    if not arguments.models and arguments.config is None:
        return {}
    return look_at(_settings(arguments, [WITH_REFUSED]))


def _settings(arguments: argparse.Namespace, overrides: Sequence[str] = ()) -> Config:
    """Those of a server with the models that are named."""
    from lumen_uring.config import load

    folders = [path for path in arguments.models if os.path.isdir(path)]
    named = [model_option(path) for path in arguments.models if path not in folders]
    return load(arguments.config, overrides, named, os.environ, folders)


def _document(name: str, found: Found | EngineError) -> dict[str, Any]:
    from lumen_uring.loading.inspection import document

    if isinstance(found, EngineError):
        return {"name": name, "served": False, "reason": str(found)}
    return {"name": name, "served": True, **document(found)}


def _show(models: dict[str, Found | EngineError]) -> None:
    from lumen_uring.loading.inspection import lines

    for found in models.values():
        print(f"problem  {found}" if isinstance(found, EngineError) else "\n".join(lines(found)))


def _summary(problems: int, notes: int) -> str:
    begin = (
        f"{problems} problem(s) keep Lumen from serving here"
        if problems
        else "Nothing keeps Lumen from serving here"
    )
    return f"{begin}; {notes} note(s) on what would make it faster or safer."
