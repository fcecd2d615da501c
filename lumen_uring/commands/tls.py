"""`lumen tls`: makes a certificate for trying.

Called by cli.py, on the main thread. The certificate signs itself: clients must be told to trust
it, and nobody else does.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from lumen_uring.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "tls",
        help="make a certificate for trying TLS",
        description="Makes a certificate that signs itself, for 90 days, and its key, and says how "
        "a server and a client use them.",
    )
    parser.add_argument("action", choices=("try",), help="try: make one")
    parser.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name or an address that it is for, besides localhost and 127.0.0.1",
    )
    parser.add_argument(
        "--folder", metavar="DIR", default=".", help="where lumen-try.crt and .key are written"
    )
    parser.set_defaults(run=run)


def _named(host: str) -> str:
    """A host as OpenSSL writes it."""
    import ipaddress

    from lumen_uring.errors import ConfigError

    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        if not host or not all(part.isalnum() or part in "-._*" for part in host):
            expected = "a name such as lumen.example.org, or an address"
            raise ConfigError(f"--host: expected {expected}, found {host!r}") from None
        return f"DNS:{host}"


def run(arguments: argparse.Namespace) -> int:
    """Writes the two files and says what to do with them.

    Args:
        arguments: as `add` declared them.

    Returns:
        0.

    Raises:
        ConfigError: a name is none, or a file cannot be written.
        EngineError: the system has no OpenSSL 3.
    """
    from lumen_uring.errors import ConfigError
    from lumen_uring.ring.certificates import make_certificate

    names = [_named(host) for host in ("localhost", "127.0.0.1", *arguments.host)]
    certificate, key = make_certificate(names)
    folder = Path(arguments.folder)
    cert_file, key_file = folder / "lumen-try.crt", folder / "lumen-try.key"
    try:
        for path, text, mode in ((cert_file, certificate, 0o644), (key_file, key, 0o600)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with open(descriptor, "wb") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written: {error.strerror}") from None
    print(f"{cert_file} and {key_file}: for 90 days, for {', '.join(names)}.\n")
    print("The server's settings (config.yaml), or with --set:\n")
    print("server:\n  tls:\n    port: 8443\n    certificates:")
    print(f"      - {{cert: {cert_file.resolve()}, key: {key_file.resolve()}}}\n")
    print("A client that trusts it:\n")
    print(f"    curl --cacert {cert_file} https://localhost:8443/v2/health/ready")
    print("\nFor others to trust a server it needs a certificate of an authority that they know.")
    return 0
