"""The command line: `lumen [serve|inspect|predict|stats|top|bench|quantize|...] ...`.

Called by the installed command and by `python -m lumen_uring`, on the main thread. Each
failure ends as one clear sentence on stderr and an exit status; a traceback is a bug.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from lumen_uring import __version__
from lumen_uring.errors import ConfigError, LumenError, Unauthorised, meant
from lumen_uring.options import MODEL_ENDINGS, TOKEN_VARIABLE

# Each is a module of commands/, in the order of `lumen --help`.
COMMANDS = (
    "serve",
    "inspect",
    "predict",
    "stats",
    "top",
    "dashboard",
    "bench",
    "quantize",
    "export",
    "fit-router",
    "key",
    "tls",
    "health",
    "reload",
    "doctor",
)
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_SHOWN_MAX = 80  # characters of a path
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Parser(argparse.ArgumentParser):
    """Says what was probably meant, and the usage of the command that it was said to."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Takes all arguments, or ends the process with status 2."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            options = re.findall(r"--[\w-]+", self.format_usage())
            given = rest[0].partition("=")[0]
            self.error("unrecognized arguments: " + " ".join(rest) + meant(given, options))
        return found, rest


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the arguments after the program's name; None takes the process's own.

    Returns:
        The exit status: 0 done, 1 failed, 2 wrong use or configuration, 130 interrupted.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    _keep_standard_descriptors()
    # `lumen --config x` serves: a first option that is not the main parser's belongs to serve, as
    # do a model and a folder of models, unless it is named as a command is.
    if (
        not given
        or (given[0].startswith("-") and given[0] not in ("-h", "--help", "--version"))
        or given[0].lower().endswith(MODEL_ENDINGS)
        or given[0].startswith("builtin:")
        or (given[0] not in COMMANDS and os.path.isdir(given[0]))
    ):
        given.insert(0, "serve")
    elif not given[0].startswith("-") and given[0] not in COMMANDS:
        make_parser().error(
            f"expected a command ({', '.join(COMMANDS)}), or a model or a folder of models to "
            f"serve, found {given[0]!r}{meant(given[0], COMMANDS)}"
        )
    if sys.stdout is None and given[0] != "serve":  # closed before the start; serve knows of it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process lives
    try:
        try:
            return _run(given)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # or the interpreter meets a closed pipe at its end
    except ConfigError as error:
        print(f"lumen: {error}", file=sys.stderr)
        return EXIT_USAGE
    except Unauthorised as error:
        print(f"lumen: {error}", file=sys.stderr)
        print(
            f"lumen: give the token with --token-file FILE, or in {TOKEN_VARIABLE}.",
            file=sys.stderr,
        )
        return EXIT_FAILURE
    except LumenError as error:
        print(f"lumen: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except BrokenPipeError:
        # The reader of our output is gone, as in `lumen stats --json | head`.
        _give_up_output()
        return EXIT_FAILURE
    except OSError as error:
        print(f"lumen: {_sentence(error)}", file=sys.stderr)
        if error.filename is None:
            _give_up_output()
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _keep_standard_descriptors() -> None:
    """Puts nothing in the place of those that were closed before the start: whatever is opened next
    would have their numbers, and be written to. What an encoding lacks becomes a question mark."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # noqa: PERF203 -- each of the three
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(descriptor, True)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _run(given: list[str]) -> int:
    """Reads the line and runs its command."""
    arguments = make_parser(given[:1]).parse_args(given)
    run: Callable[[argparse.Namespace], int] = arguments.run
    return run(arguments)


def _give_up_output() -> None:
    """Lets the rest of our output go to /dev/null, or the interpreter would complain at its end."""
    with suppress(io.UnsupportedOperation):  # of a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: OSError) -> str:
    """What the system said of a file that no command's own check has looked at."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        text = str(name)
        shown = text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
        return f"{shown}: expected a file or a folder that can be used, found: {reason}."
    if error.errno in _NO_ROOM:
        return f"expected room for all that the command writes, found: {reason}."
    return f"{reason}."


def make_parser(wanted: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Declares the commands and their options.

    Args:
        wanted: what the line begins with: of a command, that one alone is imported and declared,
            since a start pays for each.

    Returns:
        The parser; the namespace it gives has `run`.
    """
    parser = _Parser(
        prog="lumen",
        description="Serves ONNX models with the lowest latency a machine can give.",
        epilog="Without a command, lumen serves: `lumen MODEL.onnx`, `lumen --config config.yaml`.",
    )
    parser.add_argument("--version", action="version", version=f"lumen {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in [name for name in COMMANDS if name in wanted] or COMMANDS:
        import_module(f"lumen_uring.commands.{name.replace('-', '_')}").add(subparsers)
    return parser
