"""`lumen top`: a running server's rates, latencies and workers, live in a terminal.

Called by cli.py, on the main thread. It reads the statistics file once for each interval and shows
the difference of two readings (top_screen.py). It sends no request, and opens nothing else.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lumen_uring.errors import StatsError
from lumen_uring.options import Subparsers, add_port_option, seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lumen_uring.metrics.top_screen import Reading

_INTERVAL_S_MIN: Final = 0.1
_WIDTH_OF_A_PIPE: Final = 120  # as `lumen stats`


def _interval(text: str) -> float:
    interval_s = seconds(text)
    if interval_s < _INTERVAL_S_MIN:
        raise argparse.ArgumentTypeError(
            f"expected at least {_INTERVAL_S_MIN} seconds, found {text!r}"
        )
    return interval_s


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "top",
        help="watch a running server's rates and latencies",
        description="Shows rates, latencies by stage, models and workers of a server on this "
        "machine, for each interval, until q or Ctrl-C. It waits for a server that was stopped.",
        epilog="pending: requests that wait for a worker or run in one. queued: how many waited, "
        "on average over the interval. busy: the worker's time in the stages preprocess, infer "
        "and send of requests that were answered in the interval; io workers are I/O threads that "
        "run short models themselves (a model's share of such Runs is in the column inline).",
    )
    add_port_option(parser)
    parser.add_argument(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="S",
        help="seconds between two readings (%(default)g)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print one interval and end, as without a terminal"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Shows the figures.

    Args:
        arguments: as `add` declared them.

    Returns:
        0.

    Raises:
        StatsError: no server with this port runs here; with --once, also none at the end.
    """
    from rich.console import Console

    from lumen_uring.metrics.top_screen import screen
    from lumen_uring.ring.stats import stats_path

    path = stats_path(arguments.port)
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _WIDTH_OF_A_PIPE)
    first = _take(path)
    if is_terminal and not console.is_dumb_terminal and not arguments.once:
        _watch(console, path, first, arguments.interval)
        return 0
    time.sleep(arguments.interval)
    console.print(screen(first, _take(path), console.width))
    return 0


def _take(path: Path) -> Reading:
    from lumen_uring.metrics.top_screen import Reading
    from lumen_uring.ring.stats import read

    at_s = time.monotonic()
    snapshot = read(path)
    if not snapshot.is_alive:
        raise StatsError(
            f"No server with port {snapshot.port} runs here: process {snapshot.pid} was killed."
        )
    return Reading(at_s, snapshot)


def _watch(console: Console, path: Path, first: Reading, interval_s: float) -> None:
    from rich.live import Live

    earlier: Reading | None = first
    shown: RenderableType = f"The first figures come in {interval_s:g} s. q ends."
    with (
        _keyboard() as is_ended,
        Live(shown, console=console, screen=True, auto_refresh=False) as live,
    ):
        while not is_ended(interval_s):
            shown, earlier = _next(path, earlier, console)
            live.update(shown, refresh=True)


def _next(
    path: Path, earlier: Reading | None, console: Console
) -> tuple[RenderableType, Reading | None]:
    """What is shown after an interval, and the reading from which the next interval counts."""
    from lumen_uring.metrics.top_screen import screen

    later = None
    try:
        later = _take(path)
        if earlier is None:
            return f"A server with port {later.snapshot.port} runs. q ends.", later
        return screen(earlier, later, console.width, console.height), later
    except StatsError as error:  # no server, or another one than before
        return f"{error} Waiting for the next figures. q ends.", later


@contextmanager
def _keyboard() -> Iterator[Callable[[float], bool]]:
    """Takes single keys from the terminal; gives a wait that returns at once, and True, for q."""
    import termios
    import tty

    if sys.stdin is None or not sys.stdin.isatty():
        yield _sleep
        return
    terminal = sys.stdin.fileno()
    modes = termios.tcgetattr(terminal)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        tty.setcbreak(terminal, termios.TCSANOW)  # keeps what was typed already
        yield lambda wait_s: _is_q_pressed(terminal, wait_s)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
        signal.signal(signal.SIGTERM, before)


def _sleep(wait_s: float) -> bool:
    time.sleep(wait_s)
    return False


def _is_q_pressed(terminal: int, wait_s: float) -> bool:
    end_s = time.monotonic() + wait_s
    while select.select([terminal], [], [], max(0.0, end_s - time.monotonic()))[0]:
        keys = os.read(terminal, 64)
        if not keys or b"q" in keys.lower():  # nothing: the terminal is gone
            return True
    return False
