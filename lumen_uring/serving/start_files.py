"""Finds the files that a start reads and those that it writes, and all that is wrong with them.

Called by server.py, on the main thread. It writes nothing: whoever opens a file later stops at the
first that is wrong.
"""

from __future__ import annotations

import os
from pathlib import Path

from lumen_uring.errors import ConfigError, LumenError
from lumen_uring.loading.model_cache import labels, resolve
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config
from lumen_uring.settings.without import starts_without

Files = list[tuple[ModelConfig, Path, bytes | None]]
Problems = list[tuple[str, LumenError]]  # of the model of that name


def find(config: Config) -> tuple[Files, Problems]:
    """Finds the models' files and their labels.

    Args:
        config: checked settings.

    Returns:
        The files that are there, and the problems with the others.
    """
    files: Files = []
    problems: Problems = []
    for model in config.models:
        try:
            files.append((model, resolve(model.path), labels(model)))
        except (ConfigError, OSError) as error:  # noqa: PERF203 -- all problems are reported
            problems.append((model.name, ConfigError(str(error))))
    return files, problems


def check_written(config: Config) -> None:
    """Checks that what the settings name can be written: logs, telemetry, budgets, the socket.

    Args:
        config: checked settings.

    Raises:
        ConfigError: one cannot; the message names each, and the models' files that are not there.
    """
    wrong = _not_to_be_written(config)
    if wrong and not starts_without(config):
        wrong += [str(error) for _name, error in find(config)[1]]
    if wrong:
        raise ConfigError("\n".join(wrong))


def _not_to_be_written(config: Config) -> list[str]:
    """A sentence for each file: the setting, what was expected and found."""
    files = (
        ("log.path", config.log.path),
        ("log.access_path", config.log.access_path),
        ("engine.telemetry_csv_path", config.engine.telemetry_csv_path),
        ("budgets.path", config.budgets.path),
    )
    wrong = []
    for setting, path in files:
        why = None if path is None else _why_not(Path(path), setting == "budgets.path")
        if why:
            wrong.append(f"{setting}: expected a file that can be written, found {path}: {why}.")
    socket = config.server.unix_socket
    if socket is not None and not (folder := Path(socket).parent).is_dir():
        wrong.append(
            f"server.unix_socket: expected a folder for {socket}, found none (make it, or have "
            "systemd do so with RuntimeDirectory=)."
        )
    elif socket is not None and not os.access(folder, os.W_OK | os.X_OK):
        wrong.append(
            f"server.unix_socket: expected a folder where {socket} can be made, found one that "
            "this user may not write."
        )
    return wrong


def _why_not(path: Path, is_replaced: bool) -> str | None:
    """The reason why a file cannot be opened for writing, made or, by a new one, replaced; None: it
    seems that it can."""
    if path.is_dir():
        return "it is a folder"
    if path.exists() and not is_replaced:
        return None if os.access(path, os.W_OK) else "this user may not write it"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    may = os.access(path.parent, os.W_OK | os.X_OK)
    return None if may else f"this user may not write the folder {path.parent}"
