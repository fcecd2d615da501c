"""`lumen dashboard`: what was recorded of servers, as charts.

Called by cli.py, on the main thread. It replaces itself with Streamlit, which runs
dashboard/app.py. A running server shows itself: the page at /, `lumen top` and Grafana.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

from lumen_uring.errors import LumenError
from lumen_uring.options import Subparsers, port_number

_APP: Final = Path(__file__).resolve().parents[1] / "dashboard" / "app.py"
_QUIET: Final = (
    "--server.headless=true",
    "--server.fileWatcherType=none",
    "--browser.gatherUsageStats=false",
    "--client.toolbarMode=minimal",
    "--theme.base=light",
    "--theme.primaryColor=#0072b2",
)


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "dashboard",
        help="show recorded runs as charts",
        description="Serves pages of charts until Ctrl-C: of telemetry files, folders of `lumen "
        "bench --out`, results.json of `make bench`, and JSON of `make perfstat`. It needs the "
        "extra `dashboard` of the package. A running server shows itself: its page at /, and "
        "`lumen top`.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, and folders of them")
    parser.add_argument(
        "--listen",
        type=port_number,
        default=8501,
        metavar="PORT",
        help="where the pages are, on 127.0.0.1 (%(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Starts the pages; does not return.

    Args:
        arguments: as `add` declared them.

    Raises:
        LumenError: Streamlit is not installed, or a path does not exist.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise LumenError(
            "lumen dashboard needs Streamlit: pip install 'lumen-uring[dashboard]' installs it."
        )
    for path in arguments.paths:
        if not Path(path).exists():
            raise LumenError(f"{path} does not exist: expected a file or a folder of a run.")
    command = [sys.executable, "-m", "streamlit", "run", str(_APP), *_QUIET]
    command += ["--server.address=127.0.0.1", f"--server.port={arguments.listen}"]
    print(f"Dashboard: http://127.0.0.1:{arguments.listen} (Ctrl-C ends it)", flush=True)
    # Streamlit leaves what stands behind "--" to the program.
    os.execv(sys.executable, [*command, "--", "--", *arguments.paths])
