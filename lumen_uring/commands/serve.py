"""`lumen serve`: runs a server until a signal ends it.

Called by cli.py, on the main thread. It only turns options into settings; server.py does the rest.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lumen_uring.errors import ConfigError
from lumen_uring.options import model_option

if TYPE_CHECKING:
    from lumen_uring.config import Config
    from lumen_uring.options import Subparsers

_EPILOG: Final = """\
signals:
  SIGTERM, SIGINT, SIGQUIT   finish requests in flight, for server.drain_seconds at most, and end;
                             a second one ends at once
  SIGHUP                     read the settings again: keys, hosts, rates, the log and drain_seconds
                             change at once, models are loaded and unloaded, other settings need a
                             restart; open log files again (`lumen reload` waits and says more)
  SIGUSR1                    open log, access log and telemetry files again

exit status:
  0  ended by a signal; with --check: nothing is wrong
  1  could not start, or the engine ended by itself; with --check: something is wrong
  2  wrong options or settings
"""


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "serve",
        help="serve models (the default)",
        description="Serves models until SIGTERM or Ctrl-C; then finishes the requests in flight.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="MODEL.onnx",
        help="serve this file under its own name: the same as --model MODEL=MODEL.onnx; or a "
        "folder of models: the same as --model-repository",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="file of settings; without it, the defaults apply"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="override one setting, for example --set engine.thread_count=2; may be repeated",
    )
    parser.add_argument(
        "--model",
        metavar="NAME=PATH",
        action="append",
        default=[],
        dest="models",
        help="serve this model instead of the file's; PATH may be builtin:digits, or a folder of "
        "one model or its versions; may be repeated",
    )
    parser.add_argument(
        "--model-repository",
        metavar="DIR",
        action="append",
        default=[],
        dest="repositories",
        help="serve the models of this folder, as Triton, MLServer or OpenVINO Model Server lay "
        "them out; may be repeated",
    )
    parser.add_argument(
        "--load-model",
        metavar="NAME",
        action="append",
        default=[],
        dest="load_models",
        help="load this model of the repositories at start, and others when clients ask for them: "
        "the same as --set repository.control=explicit with repository.load; '*' loads all; may be "
        "repeated",
    )
    parser.add_argument(
        "--image",
        choices=("imagenet", "squeezenet", "yolo"),
        help="take JPEG and PNG files, prepared as these models were trained: the same as --set "
        "models.N.image.preset=PRESET for each model of the command line",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="the same as --set server.host=ADDRESS")
    parser.add_argument("--port", metavar="PORT", help="the same as --set server.port=PORT")
    parser.add_argument(
        "--unix-socket",
        metavar="PATH",
        help="listen on this socket too; the same as --set server.unix_socket=PATH",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the settings, load the models, report all problems, and serve nothing",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves.

    Args:
        arguments: as `add` declared them.

    Returns:
        The exit status.

    Raises:
        LumenError: the settings or the machine do not allow it.
    """
    from lumen_uring.config import load
    from lumen_uring.serving.server import run as serve

    folders = [path for path in arguments.files if os.path.isdir(path)]
    files = [path for path in arguments.files if path not in folders]
    models = [*arguments.models, *map(model_option, files)]
    repositories = [*arguments.repositories, *folders]
    overrides = _of_image(arguments.image, len(models)) + arguments.overrides
    if arguments.load_models:
        # In quotes: YAML would read '*' and some names as something else than a text.
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in arguments.load_models)
        overrides += ["repository.control=explicit", f"repository.load=[{names}]"]
    if arguments.host is not None:
        # In quotes: YAML would read some addresses as something else than a text.
        overrides.append(f"server.host='{arguments.host}'")
    if arguments.port is not None:
        overrides.append(f"server.port={arguments.port}")
    if arguments.unix_socket is not None:
        path = arguments.unix_socket.replace("'", "''")
        overrides.append(f"server.unix_socket='{path}'")

    def read() -> Config:
        return load(arguments.config, overrides, models, os.environ, repositories)

    if arguments.check:
        return _check(read)
    return serve(read(), read)


def _of_image(preset: str | None, model_count: int) -> list[str]:
    """--image as settings; those of --set come later and win."""
    if preset is None:
        return []
    if model_count == 0:
        raise ConfigError(
            f"--image {preset}: expected a model on the command line, such as `lumen MODEL.onnx "
            f"--image {preset}`, found none; in a file write image: {{preset: {preset}}}."
        )
    return [f"models.{index}.image.preset={preset}" for index in range(model_count)]


def _check(read: Callable[[], Config]) -> int:
    from lumen_uring.errors import LumenError
    from lumen_uring.serving.server import check

    try:
        found = check(read())
    except LumenError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join([*found.lines, *found.unserved]))
    if found.unserved:
        print("The server starts without what cannot be served.", file=sys.stderr)
        return 1
    print("The settings and the models are right.")
    return 0
