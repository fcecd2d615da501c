"""Files that a call to load brings along: read from its body, and laid out as a model's folder.

Called by control.py: `put` on the loader's thread, the rest on any. The files lie in a folder of
this process's own, in the system's folder for temporary files (TMPDIR), until no model is served
from them, or the server ends. No file's name, and no name of a file in a model, leads out of its
folder.
"""

from __future__ import annotations

import binascii
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from lumen_uring.control.long_texts import LongText
from lumen_uring.errors import ConfigError, no_means
from lumen_uring.settings.types import VERSION_PATTERN

PREFIX: Final = "file:"
FILES_MAX: Final = 64
# VERSION/FILE, a file of labels, or what config.pbtxt keeps in folders of its own.
_NAME: Final = re.compile(
    rf"(?:(?:{VERSION_PATTERN}|warmup|initial_state)/)?[A-Za-z0-9_][A-Za-z0-9_.-]{{0,99}}"
)
# The mark that weights lie in another file (onnx.proto, TensorProto.external_data, an entry whose
# key is "location"), in any form that a reader of protobuf takes; and in the one that writers give
# it: the entry's length, its key, its value, and no room for a second one.
_LOCATION: Final = re.compile(rb"(?:\n|\x8a\x80*\0)(?:\x08|\x88\x80*\0)location")
_PLAIN_LOCATION: Final = re.compile(
    rb"\x6a([\0-\x7f])\n\x08location\x12([\0-\x7f])([A-Za-z0-9_][A-Za-z0-9_.-]*)"
)
_PLAIN_BYTES: Final = 12  # of such an entry, but for its value
# A number of protobuf's has at most 10 bytes: of a key's tag and length, and behind it a value's.
_BEFORE_BYTES: Final = 32
_AFTER_BYTES: Final = 160
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


class Uploads:
    """The folders of the models that calls have brought.

    Args:
        paths: says where the files of the models lie that are served.
    """

    def __init__(self, paths: Callable[[], Iterable[str]]) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._count = 0
        self._coming = ""  # the folder of the model that is being loaded

    def put(self, name: str, files: Mapping[str, str | LongText]) -> Path:
        """Writes files to a new folder, which stays until `drop_unused`.

        Args:
            name: of the model; it is no part of the path.
            files: by parameter, such as file:1/model.onnx, base64.

        Returns:
            The folder.

        Raises:
            ConfigError: a name or a content is wrong, or no file can be written here.
            OSError: the machine has no room or descriptor now. In all cases nothing of this call is
                left, and everything of others is.
        """
        if len(files) > FILES_MAX:
            raise ConfigError(f"parameters: expected at most {FILES_MAX} files, found {len(files)}")
        for parameter in files:
            if _NAME.fullmatch(parameter.removeprefix(PREFIX)) is None:
                expected = "file:VERSION/NAME, such as file:1/model.onnx"
                raise ConfigError(f"parameters: expected {expected}, found '{parameter:.80}'")
        try:
            with self._lock:
                if self._root is None:
                    self._root = Path(tempfile.mkdtemp(prefix="lumen-models-")).resolve()
                self._count += 1
                self._coming = str(self._count)
                folder = self._root / self._coming
            _write(folder / "model", files)
        except OSError as error:
            self.drop_unused()
            if no_means(error) is not None:
                raise
            raise ConfigError(f"the files of {name!r} cannot be kept: {error.strerror}") from None
        except BaseException:
            self.drop_unused()
            raise
        return folder / "model"

    def drop_unused(self, is_loaded: bool = True) -> None:
        """Removes the folders that no model is served from.

        Args:
            is_loaded: the model that `put` was called for too is loaded, or has failed.
        """
        with self._lock:
            if is_loaded:
                self._coming = ""
            if self._root is None:
                return
            used = {path.removeprefix(f"{self._root}/").partition("/")[0] for path in self._paths()}
            with suppress(OSError):  # what stays now goes the next time
                for folder in self._root.iterdir():
                    if folder.name not in used | {self._coming}:
                        shutil.rmtree(folder, ignore_errors=True)

    def hide(self, text: str) -> str:
        """A sentence without the places of the files, which are nothing that their sender knows."""
        if self._root is None:
            return text
        return re.sub(re.escape(f"{self._root}/") + "[0-9]+/model", "the call's files", text)

    def close(self) -> None:
        """Removes all."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


def _write(folder: Path, files: Mapping[str, str | LongText]) -> None:
    for parameter, text in files.items():
        path = folder / parameter.removeprefix(PREFIX)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _keep(path, _checked(parameter, _decoded(text)))
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"parameters.{parameter}: expected base64: {error}") from None
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            wrong = "found a file and a folder of one name"
            raise ConfigError(f"parameters.{parameter}: {wrong}") from None


def _keep(path: Path, pieces: Iterator[bytes]) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)


def _decoded(text: str | LongText) -> Iterator[bytes]:
    """The bytes of base64, piece by piece.

    Raises:
        ValueError: it is none.
    """
    pieces = [text.encode("utf-8", "surrogatepass")] if isinstance(text, str) else text.pieces()
    rest = b""
    for piece in pieces:
        # Of the padding a part may have come with the piece before.
        if piece.translate(None, _ALPHABET) or (b"=" in rest and piece.strip(b"=")):
            raise ValueError("found another character, or one behind its end")
        whole = rest + piece
        padding = whole.find(b"=")
        end = (padding if padding >= 0 else len(whole)) // 4 * 4
        if end:
            yield binascii.a2b_base64(whole[:end])
        rest = whole[end:]
    if rest and (len(rest) != 4 or rest.rstrip(b"=").find(b"=") >= 0 or rest.count(b"=") > 2):
        raise ValueError("its end is missing")
    if rest:
        yield binascii.a2b_base64(rest)


def _checked(parameter: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, of which none names a file outside of the model's folder: not every version
    of ONNX Runtime refuses a model that does.

    Raises:
        ConfigError: one does.
    """
    seen, looked = b"", 0
    for piece in pieces:
        seen += piece
        # A mark may go on in the next piece, and what is before it tells whether it is one.
        end = max(len(seen) - _AFTER_BYTES, looked)
        _check_locations(parameter, seen, looked, end)
        cut = max(end - _BEFORE_BYTES, 0)
        seen, looked = seen[cut:], end - cut
        yield piece
    _check_locations(parameter, seen, looked, len(seen))


def _check_locations(parameter: str, content: bytes, start: int, end: int) -> None:
    """Looks at each key of that name that begins there."""
    at = start - 1
    while 0 <= (at := content.find(b"location", at + 1)) < end:
        before = content[max(at - _BEFORE_BYTES, 0) : at + len(b"location")]
        if not any(one.end() == len(before) for one in _LOCATION.finditer(before)):
            continue
        plain = _PLAIN_LOCATION.match(content, at - 4) if at >= 4 else None
        if plain is not None:
            entry_bytes, value_bytes, name = plain[1][0], plain[2][0], plain[3]
            if value_bytes <= len(name) and entry_bytes == _PLAIN_BYTES + value_bytes:
                continue
        raise ConfigError(
            f"parameters.{parameter}: expected weights in the model's file, or in one beside "
            "it, named by letters, digits, '_', '.' and '-', found another place"
        )
