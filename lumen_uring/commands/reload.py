"""`lumen reload`: has a running server read its settings again, and shows what became of that.

Called by cli.py, on the main thread. It sends SIGHUP to the server of a port on this machine and
reads the report that the server writes beside its statistics.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from lumen_uring.errors import StatsError
from lumen_uring.options import Subparsers, add_port_option, seconds

_LOOK_S: Final = 0.05
_ALIVE_S: Final = 1.0  # between looks whether the server is there
_WAIT_S: Final = 600.0


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "reload",
        help="have a running server read its settings and models again",
        description="Sends SIGHUP to a server on this machine, says which settings changed, which "
        "need a restart, and which models it loads, and waits for them. Exits 0 when all models "
        "are loaded, 1 when something failed or the time ran out.",
    )
    add_port_option(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=_WAIT_S,
        metavar="S",
        help="seconds to wait for the models (%(default)g)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Reloads.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 when the settings are wrong, a model could not be loaded, or the time ran out.

    Raises:
        StatsError: no server runs there, or it is another user's.
    """
    from lumen_uring.ring.stats import read, stats_path
    from lumen_uring.serving.reload_report import read as read_report
    from lumen_uring.serving.reload_report import report_path

    place = stats_path(arguments.port)
    snapshot = read(place)
    if not snapshot.is_alive:
        raise StatsError(f"{place}: its server has ended.")
    before = read_report(report_path(place)).get("number", 0)
    try:
        os.kill(snapshot.pid, signal.SIGHUP)
    except OSError as error:
        raise StatsError(
            f"The server of port {arguments.port} (process {snapshot.pid}) takes no signal from "
            f"this user ({error.strerror}): run this as the server's user."
        ) from None
    look_s = time.monotonic() + _ALIVE_S
    until_s = time.monotonic() + arguments.timeout
    number, shown = before, 0
    while True:
        report = read_report(report_path(place))
        if report.get("number", 0) > number:  # ours, or a later one, which takes its place
            number, shown = report["number"], 0
        if number > before:
            for line in report["lines"][shown:]:
                print(line, flush=True)
            shown = len(report["lines"])
            if report["done"]:
                return 1 if report["failed"] else 0
        if time.monotonic() > look_s:
            look_s += _ALIVE_S
            if _has_ended(place, snapshot.pid):
                raise StatsError(f"The server of port {arguments.port} has ended meanwhile.")
        if time.monotonic() > until_s:
            print(
                f"lumen: the server has not finished within {arguments.timeout:g} s: its log says "
                "what becomes of it.",
                file=sys.stderr,
            )
            return 1
        time.sleep(_LOOK_S)


def _has_ended(place: Path, pid: int) -> bool:
    from lumen_uring.ring.stats import read

    try:
        found = read(place)
    except StatsError:
        return True  # the file went with the server
    return not found.is_alive or found.pid != pid
