"""Options that several commands share, and the types of their values.

Used by the command modules, on the main thread, before anything runs.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from lumen_uring.errors import ConfigError, UnknownModel
from lumen_uring.settings import text_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lumen_uring.protocol.describe import Model

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
TOKEN_VARIABLE: Final = "LUMEN_TOKEN"
CROPS_MAX: Final = 10**6
_HERE: Final = ("localhost", "127.0.0.1", "::1")
MODEL_ENDINGS: Final = (".onnx", ".ort")
_NAME_BYTES_MAX: Final = 255  # setting_types.NAME_BYTES_MAX, which takes pydantic to import


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


def seconds(text: str) -> float:
    """Reads a time for argparse.

    Args:
        text: a number, above 0, at most 3600.

    Returns:
        The seconds.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, at most 3600, found {text!r}")
    return number


def whole(least: int, most: int) -> Callable[[str], int]:
    """Makes a reader of whole numbers for argparse.

    Args:
        least: the smallest that is taken.
        most: the largest.

    Returns:
        A function of the text; it raises argparse.ArgumentTypeError for any other.

    >>> whole(0, 9)("7")
    7
    """

    def read(text: str) -> int:
        is_one = re.fullmatch(r"-?[0-9]{1,20}", text)
        if not is_one or not least <= int(text) <= most:
            expected = f"expected a whole number, {least} to {most}"
            raise argparse.ArgumentTypeError(f"{expected}, found {text!r}")
        return int(text)

    return read


def number(most: float, least: float = 0) -> Callable[[str], float]:
    """Makes a reader of numbers from 0 on for argparse.

    Args:
        most: the largest that is taken.
        least: the smallest that is taken besides 0.

    Returns:
        A function of the text; it raises argparse.ArgumentTypeError for any other.

    >>> number(1e9)("2.5e3")
    2500.0
    """

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if found != 0 and not least <= found <= most:
            expected = f"expected a number, {f'0 or {least:g}' if least else 0} to {most:.0f}"
            raise argparse.ArgumentTypeError(f"{expected}, found {text!r}")
        return found

    return read


def core(text: str) -> int:
    """Reads the number of a core for argparse.

    Args:
        text: of a core that this process may use, or -1 for none.

    Returns:
        The number.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    usable = os.sched_getaffinity(0)
    if text != "-1" and not (re.fullmatch(r"[0-9]{1,9}", text) and int(text) in usable):
        said = ", ".join(map(str, sorted(usable)))
        raise argparse.ArgumentTypeError(
            f"expected a core that this process may use ({said}) or -1, found {text!r}"
        )
    return int(text)


class _ServerAction(argparse.Action):
    """Takes a server's URL apart, into `host`, `port` and `tls`; `const`: the command reads what
    only this machine has, and the port alone counts."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option: object = None
    ) -> None:
        """Sets both, or ends the command with what was expected."""
        text = str(values)
        unix = re.fullmatch(r"(?:http\+)?unix:(.+)", text)
        found = re.fullmatch(r"(?:(?:https?|lumen)://)?(\[[^\]]+\]|[^/:\s]+):(\d+)/?", text)
        host = f"unix:{unix[1]}" if unix else found[1].strip("[]") if found else ""
        if not host or (found and not 0 < int(found[2]) <= 65535):
            raise argparse.ArgumentError(
                self, f"expected http://HOST:PORT, lumen://HOST:PORT or unix:PATH, found {text!r}"
            )
        if self.const and host not in _HERE:
            raise argparse.ArgumentError(
                self, f"expected a server of this machine, as http://127.0.0.1:8000, found {text!r}"
            )
        is_tls = text.startswith("https:")
        if is_tls and not hasattr(namespace, "tls"):
            raise argparse.ArgumentError(
                self,
                f"expected the port for plain clients, found {text!r}: this command asks there",
            )
        namespace.host = host
        if hasattr(namespace, "tls"):
            namespace.tls = is_tls
        if found:
            namespace.port = int(found[2])


def add_server_url(parser: argparse.ArgumentParser, here: bool = False, tls: bool = False) -> None:
    """Declares --server URL, one way to name a server for all commands.

    Args:
        parser: of one command, which has --port and maybe --host.
        here: the command reads statistics or sends a signal: the server is this machine's.
        tls: the command may ask https://HOST:PORT, and finds `tls` in its arguments.
    """
    if tls:
        parser.set_defaults(tls=False)
    parser.add_argument(
        "--server",
        action=_ServerAction,
        const=here,
        metavar="URL",
        default=argparse.SUPPRESS,
        help="the server: "
        + ("http://127.0.0.1:PORT" if here else "http://HOST:PORT, lumen://HOST:PORT or unix:PATH")
        + (", or https://HOST:PORT" if tls else ""),
    )


def add_server_options(parser: argparse.ArgumentParser, tls: bool = False) -> None:
    """Declares --host and --port of a running server, and the ways to give a token.

    Args:
        parser: of one command.
        tls: as for add_server_url.
    """
    parser.add_argument(
        "--host", default="127.0.0.1", help="the server's address, or unix:PATH (%(default)s)"
    )
    parser.add_argument(
        "--port", type=port_number, default=8000, help="the server's port (%(default)s)"
    )
    add_server_url(parser, tls=tls)
    add_token_options(parser)


def add_token_options(parser: argparse.ArgumentParser) -> None:
    """Declares the ways to give a key's token to a command that asks a server.

    Args:
        parser: of one command.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--token",
        metavar="TOKEN",
        help="the token of this client's key, for a server with keys; other users of this machine "
        f"can read it while the command runs: {TOKEN_VARIABLE} and --token-file are safer",
    )
    group.add_argument("--token-file", metavar="FILE", help="a file that holds the token")


def token_of(arguments: argparse.Namespace) -> str | None:
    """Finds the token that a command uses.

    Args:
        arguments: of a parser with add_token_options.

    Returns:
        --token, the content of --token-file, or LUMEN_TOKEN; None when all are missing.

    Raises:
        ConfigError: the file cannot be read, or its text is no token; the text is not shown.
    """
    if arguments.token is not None:
        place, token = "--token", arguments.token
    elif arguments.token_file is not None:
        place = f"--token-file {arguments.token_file}"
        try:
            token = text_files.decode(Path(arguments.token_file).read_bytes()).strip()
        except (OSError, text_files.NotUtf8Error) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(f"{place}: expected a readable file, found: {reason}.") from None
    else:
        place, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            return None
    if not (token.isascii() and token.isprintable()) or not token or " " in token:
        raise ConfigError(
            f"{place}: expected a token of visible ASCII characters, as `lumen key` prints it, "
            f"found {len(token)} characters of something else."
        )
    return str(token)


def credential_of(arguments: argparse.Namespace) -> bytes:
    """Finds the token and packs it for the native protocol.

    Args:
        arguments: of a parser with add_token_options.

    Raises:
        ConfigError: as for token_of, or the token is too long for the native protocol.
    """
    from lumen_uring.protocol.native import pack_credential

    try:
        return pack_credential(token_of(arguments))
    except ValueError as error:
        raise ConfigError(f"{error}.") from None


def model_option(path: str) -> str:
    """Names a model after its file, as --model takes it.

    Args:
        path: of the file, or builtin:NAME.

    Returns:
        NAME=PATH, where NAME is the file's name without its ending, with "_" for what no model's
        name may hold. A file that is called model, as exporters call it, has its folder's name, or
        that of the folder around a version's or around Hugging Face's onnx.

    >>> model_option("models/resnet 50.v1.onnx"), model_option("builtin:digits")
    ('resnet_50.v1=models/resnet 50.v1.onnx', 'digits=builtin:digits')
    >>> model_option("/srv/minilm/onnx/model.onnx")
    'minilm=/srv/minilm/onnx/model.onnx'
    """
    file = os.path.basename(path.removeprefix("builtin:"))
    for ending in MODEL_ENDINGS:
        if file.lower().endswith(ending) and len(file) > len(ending):
            file = file[: -len(ending)]
            break
    if file == "model":
        folders = os.path.abspath(path).split("/")[:-1]
        if folders[-1].isdecimal() or folders[-1] == "onnx":
            del folders[-1]
        file = folders[-1]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", file)[:_NAME_BYTES_MAX]
    return f"{name or 'model'}={path}"


def choose_model(models: Mapping[str, Model], name: str | None) -> Model:
    """Picks the model that --model names.

    Args:
        models: the server's, by name.
        name: as given; None: the server must have one model only.

    Raises:
        UnknownModel: no model has this name, or there are several and none was named.
    """
    from lumen_uring.protocol.describe import find_model

    if name is not None:
        return find_model(models, name)
    if len(models) != 1:
        raise UnknownModel(f"The server has {list(models)}: choose one with --model NAME.")
    return next(iter(models.values()))


def add_port_option(parser: argparse.ArgumentParser) -> None:
    """Declares --port and --server of a running server of this machine.

    Args:
        parser: of one command.
    """
    parser.add_argument(
        "--port", type=port_number, default=8000, help="the server's port (%(default)s)"
    )
    add_server_url(parser, here=True)
