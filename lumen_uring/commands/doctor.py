"""`lumen doctor`: prints what this machine allows Lumen, and how to allow the rest.

Called by cli.py, on the main thread. checks.py reads the machine; this file prints. It changes
nothing. A check that cannot read what it needs says so and does not fail.
"""

from __future__ import annotations

import argparse

from lumen_uring.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "doctor",
        help="check what this machine allows, and name the cures",
        description="Checks kernel, io_uring, limits, memory and cores. Exits 1 on a problem.",
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
    from dataclasses import asdict

    import orjson

    from lumen_uring.checks import NOTE, PROBLEM, Machine, check_all

    findings = check_all(Machine())
    if arguments.json:
        document = {"findings": [asdict(finding) for finding in findings]}
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            print(f"{finding.level:<8} {finding.name:<{width}}  {finding.found}")
            if finding.cure:
                print(f"{'':<8} {'':<{width}}  -> {finding.cure}")
        levels = [finding.level for finding in findings]
        print(_summary(levels.count(PROBLEM), levels.count(NOTE)))
    return 1 if any(finding.level == PROBLEM for finding in findings) else 0


def _summary(problems: int, notes: int) -> str:
    begin = (
        f"{problems} problem(s) keep Lumen from serving here"
        if problems
        else "Nothing keeps Lumen from serving here"
    )
    return f"{begin}; {notes} note(s) on what would make it faster or safer."
