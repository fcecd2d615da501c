"""What may be read from a repository: small files inside it, and models that lie inside it.

Called by folders.py, mlserver.py and ovms.py. A link that leads out of the repository is refused,
and so is a name that could: what a repository's owner may write is not all that the server may
read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lumen_uring.errors import is_scarce
from lumen_uring.repository.model_config import Asked
from lumen_uring.repository.tree import Node, Problems, from_json
from lumen_uring.settings import text_files
from lumen_uring.settings.types import VERSION_MAX, VERSION_PATTERN

MODEL_FILE: Final = "model.onnx"
LOST_FOUND: Final = "lost+found"  # mkfs makes it at the root of a volume; only root may enter it
_ENDINGS: Final = (".onnx", ".ort")
_TEXT_BYTES_MAX: Final = 1 << 20
# Folders beside the versions that are none and need no remark.
_OTHERS: Final = ("configs", "initial_state", "warmup")
_SHOWN_MAX: Final = 5


@dataclass(slots=True)
class FoundModel:
    """A model of a repository, before it becomes an entry of the settings."""

    name: str
    where: str  # what messages call its folder or file
    files: dict[int, Path]  # by version, ascending, those that are to be served
    asked: Asked = field(default_factory=Asked)
    labels: Path | None = None
    versions: tuple[int, ...] = ()  # all that are there
    listed: str = ""  # the file that lists the model with others


class Place:
    """A repository: its folder, whose real path bounds what is read."""

    def __init__(self, root: Path, problems: Problems) -> None:
        self.root = root
        self.problems = problems
        self.notes: list[str] = []
        self._real = _bound(root.resolve())

    def holds(self, path: Path) -> bool:
        """Whether a path that exists leads to something inside; reports one that does not."""
        real = path.resolve()
        if real == self._real or self._real in real.parents:
            return True
        expected = f"no link out of the repository {self.root}"
        self.problems.add(str(path), expected, f"one to {real}")
        return False

    def folders(self, folder: Path) -> list[Path]:
        """The folders in a folder that lead to no other place, by name, hidden ones left out."""
        return [path for path in self._listed(folder) if path.is_dir() and self.holds(path)]

    def models_folders(self, folder: Path) -> list[Path]:
        """The same of a folder whose folders are models: a wrong one is the problem of its own."""
        found = []
        for path in self._listed(folder):
            if path.name == LOST_FOUND:
                continue
            with self.problems.alone(path.name, str(path)):
                if path.is_dir() and self.holds(path):
                    found.append(path)
        return found

    def models(self, folder: Path) -> list[Path]:
        """The models' files in a folder, by name."""
        return [path for path in self._listed(folder) if is_model(path) and path.is_file()]

    def _listed(self, folder: Path) -> list[Path]:
        try:
            return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except OSError as error:
            self.problems.add(str(folder), "a folder that can be read", str(error.strerror))
            return []

    def text(self, path: Path) -> str | None:
        """A small file's text; None after a problem."""
        if not self.holds(path):
            return None
        try:
            with path.open("rb") as file:
                raw = file.read(_TEXT_BYTES_MAX + 1)
            text = text_files.decode(raw)
        except OSError as error:
            self.problems.add(str(path), "a readable file", str(error.strerror))
            return None
        except text_files.NotUtf8Error as error:
            self.problems.add(str(path), "UTF-8", str(error))
            return None
        if len(raw) > _TEXT_BYTES_MAX:
            self.problems.add(str(path), f"at most {_TEXT_BYTES_MAX} bytes", "more")
            return None
        return text

    def document(self, path: Path) -> Any | None:
        """What a small file of JSON holds; None after a problem."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            self.problems.add(str(path), "JSON", str(error))
        except RecursionError:
            self.problems.add(str(path), "JSON of a few levels", "more")
        return None

    def json(self, path: Path) -> Node | None:
        """A small file with an object of JSON; None after a problem."""
        data = self.document(path)
        if data is None:
            return None
        if not isinstance(data, dict):
            self.problems.add(str(path), "an object", f"a {type(data).__name__}")
            return None
        return from_json(data, str(path))

    def versions(self, folder: Path) -> dict[int, Path]:
        """The folders of versions, ascending; what only looks like one is noted."""
        found: dict[int, Path] = {}
        for path in self.folders(folder):
            if is_version(path.name):
                found[int(path.name)] = path
            elif path.name not in _OTHERS:
                self.notes.append(
                    f"{path} is no version and is not served: a version's folder is named by a "
                    f"whole number from 1 on, without leading zeros"
                )
        return dict(sorted(found.items()))

    def model_file(self, folder: Path, named: str) -> Path | None:
        """The model in a version's folder; None after a problem.

        Args:
            folder: of the version.
            named: what the configuration calls the file; "": model.onnx, or the only one.
        """
        wanted = folder / (named or MODEL_FILE)
        if wanted.is_dir():  # the graph and its weights in a folder of their own
            folder, wanted = wanted, wanted / MODEL_FILE
        if not wanted.is_file():
            others = [] if named else self.models(folder)
            if len(others) != 1:
                self.problems.add(str(folder), f"the file {wanted.name}", names_of(folder))
                return None
            wanted = others[0]
        return wanted if self.holds(wanted) else None


def _bound(root: Path) -> Path:
    """Where a repository's links may lead: into itself; of a snapshot in Hugging Face's cache,
    whose files are links to its blobs, into the folder of both."""
    is_snapshot = root.parent.name == "snapshots" and root.parent.parent.name.startswith("models--")
    return root.parent.parent if is_snapshot else root


def away(path: Path) -> str:
    """Why a repository's path leads nowhere; "" where something is there.

    Args:
        path: of a folder or a file.

    Raises:
        OSError: the machine lacks descriptors or memory, for now.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "no such folder"
    except OSError as error:
        if is_scarce(error):
            raise
        return error.strerror or str(error)
    return ""


def is_version(name: str) -> bool:
    """Whether a folder's name is a version: decimal, from 1 on, without leading zeros.

    >>> is_version("12"), is_version("01"), is_version("x"), is_version("99999999999")
    (True, False, False, False)
    """
    return re.fullmatch(VERSION_PATTERN, name) is not None and int(name) <= VERSION_MAX


def is_model(path: Path) -> bool:
    """Whether a file's name is a model's."""
    return path.name.lower().endswith(_ENDINGS)


def name_of(folder: Path) -> str:
    """The name that a folder's path has: that of a link, not of what it leads to for now.

    Args:
        folder: of a model.
    """
    return os.path.basename(os.path.abspath(folder))


def names_of(folder: Path) -> str:
    """The first names in a folder, for a message."""
    try:
        names: Sequence[str] = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        return str(error.strerror)
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    return (", ".join(map(repr, names[:_SHOWN_MAX])) or "an empty folder") + more
