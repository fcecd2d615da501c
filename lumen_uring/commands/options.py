"""What several commands share: the type of argparse's sub-parsers, options for reaching a server.

Used by the command modules, on the main thread, before anything runs.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def port_number(text: str) -> int:
    """Reads a port for argparse.

    Args:
        text: decimal digits, 1..65535.

    Returns:
        The port.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"expected a port, 1..65535, found {text!r}")
    return int(text)


def count(text: str) -> int:
    """Reads a whole number above 0 for argparse.

    Args:
        text: decimal digits.

    Returns:
        The number.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return int(text)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Declares --host and --port of a running server.

    Args:
        parser: of one command.
    """
    parser.add_argument(
        "--host", default="127.0.0.1", help="the server's address, or unix:PATH (%(default)s)"
    )
    add_port_option(parser)


def add_port_option(parser: argparse.ArgumentParser) -> None:
    """Declares --port of a running server.

    Args:
        parser: of one command.
    """
    parser.add_argument(
        "--port", type=port_number, default=8000, help="the server's port (%(default)s)"
    )
