"""`lumen key`: makes a key for one client.

Called by cli.py, on the main thread. The token is printed once and stored nowhere: the settings
hold its SHA-256, from which nobody can compute the token.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import string
from typing import Final

from lumen_uring.options import TOKEN_VARIABLE, Subparsers

# 62^32 tokens; 32 characters because the native protocol's credential has 32 bytes.
_ALPHABET: Final = string.ascii_letters + string.digits
_CHARACTERS: Final = 32


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "key",
        help="make a key for a client",
        description="Makes a token for one client, and the lines of config.yaml that accept it.",
    )
    parser.add_argument("name", metavar="NAME", help="name of the client, for messages and metrics")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints a new token and its settings.

    Args:
        arguments: as `add` declared them.

    Returns:
        0.

    Raises:
        ConfigError: the name is none.
    """
    import re

    from lumen_uring.errors import ConfigError
    from lumen_uring.settings.keys import KEY_NAME_PATTERN

    if re.fullmatch(KEY_NAME_PATTERN, arguments.name) is None:
        raise ConfigError(
            f"NAME: expected 1 to 63 letters, digits, '_', '.' or '-', found {arguments.name!r}"
        )
    token = make_token()
    print(f"The token of {arguments.name}, shown this once:\n\n    {token}\n")
    print("Its client gives it as Client(token=...), over HTTP as Authorization: Bearer TOKEN,")
    print(f"and to lumen predict and lumen bench in the environment variable {TOKEN_VARIABLE}.\n")
    print("In config.yaml, under server (a running server reads it at SIGHUP):\n")
    print("  keys:")
    # In quotes: YAML would read some names and some digits as something else than a text.
    print(f'    - name: "{arguments.name}"')
    print(f'      sha256: "{hashlib.sha256(token.encode()).hexdigest()}"')
    return 0


def make_token() -> str:
    """A new token: 32 random letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_CHARACTERS))
