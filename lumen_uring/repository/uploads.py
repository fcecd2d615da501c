"""Files that a call to load brings along: read from its body, and laid out as a model's folder.

Called by control.py on the loader's thread. They lie in a folder of this process's own, in the
system's folder for temporary files (TMPDIR), until another load takes their place, the model is
unloaded, or the server ends. A file's name is checked, and never leads out of that folder.
"""

from __future__ import annotations

import base64
import binascii
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lumen_uring.errors import ConfigError
from lumen_uring.ring.process import gently

PREFIX: Final = "file:"
FILES_MAX: Final = 64
# VERSION/FILE, a file of labels, or what config.pbtxt keeps in folders of its own.
_NAME: Final = re.compile(
    r"(?:(?:[1-9][0-9]{0,8}|warmup|initial_state)/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
)


class Uploads:
    """The folders of the models that calls have brought."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._count = 0
        self._folders: dict[str, Path] = {}  # by name of a model, in force

    def put(self, name: str, files: Mapping[str, str]) -> Path:
        """Writes files to a new folder.

        Args:
            name: of the model; it is no part of the path.
            files: by parameter, such as file:1/model.onnx, base64.

        Returns:
            The folder, which is the caller's to keep or to drop.

        Raises:
            ConfigError: a name or a content is wrong, or there is no room; nothing is left.
        """
        if len(files) > FILES_MAX:
            raise ConfigError(f"parameters: expected at most {FILES_MAX} files, found {len(files)}")
        for parameter in files:
            if _NAME.fullmatch(parameter.removeprefix(PREFIX)) is None:
                expected = "file:VERSION/NAME, such as file:1/model.onnx"
                raise ConfigError(f"parameters: expected {expected}, found '{parameter:.80}'")
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="lumen-models-"))
        self._count += 1
        folder = self._root / str(self._count) / "model"
        try:
            gently(_write, folder, files)
        except OSError as error:
            self.drop(folder)
            raise ConfigError(f"the files of {name!r} in {folder}: {error.strerror}") from None
        except ConfigError:
            self.drop(folder)
            raise
        return folder

    def keep(self, name: str, folder: Path | None) -> None:
        """The model is served from that folder, or (None) from none of these: another one goes."""
        before = self._folders.pop(name, None)
        if folder is not None:
            self._folders[name] = folder
        if before is not None and before != folder:
            self.drop(before)

    def drop(self, folder: Path) -> None:
        """Removes a folder."""
        shutil.rmtree(folder.parent, ignore_errors=True)

    def close(self) -> None:
        """Removes all."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for parameter, text in files.items():
        path = folder / parameter.removeprefix(PREFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"parameters.{parameter}: expected base64: {error}") from None
        path.write_bytes(content)
