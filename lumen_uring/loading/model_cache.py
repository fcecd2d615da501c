"""Finds a model's file and labels, and the place of its optimised graph in the cache.

Called by server.py at start, on the main thread. A cached graph fits one model, one ONNX Runtime
and one kind of processor, so its name has all three. When the cache directory cannot be written,
the start takes longer and does not fail.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lumen_uring.errors import ConfigError, is_scarce
from lumen_uring.files import expanded
from lumen_uring.loading import model_file, weights
from lumen_uring.settings import text_files

if TYPE_CHECKING:
    from lumen_uring.settings.models import ModelConfig

_BUILTIN: Final = "builtin:"
_LABEL_BYTES_MAX: Final = 4 << 20
_GRAPH_BYTES_MAX: Final = 1 << 31  # of a FlatBuffer, which ONNX Runtime's own format is
_used: Final[set[str]] = set()  # of what this process has loaded: how its entries' names begin
_LEFT_OVER_S: Final = 86_400  # nothing is written for so long


@dataclass(frozen=True, slots=True)
class CachePlace:
    """The path of the optimised graph, or None and the sentence that says why there is none. Of a
    model whose weights lie beside it also the folder of them, and that of a copy."""

    path: Path | None
    note: str | None
    weights: Path | None = None
    copy: Path | None = None

    @property
    def has_graph(self) -> bool:
        """Whether the optimised graph is there."""
        return self.path is not None and self.path.is_file()


def resolve(path: str) -> Path:
    """Turns a model entry's path into a file.

    Args:
        path: a file, relative to the working directory, or builtin:NAME.

    Returns:
        An existing file, absolute.

    Raises:
        ConfigError: the file does not exist; the message says what to do.
    """
    if path.startswith(_BUILTIN):
        # Imported late: building the benchmark models needs onnx, serving a file does not.
        from lumen_uring.models import builtin_path

        return builtin_path(path.removeprefix(_BUILTIN)).resolve()
    file = expanded(path)
    if not os.path.isfile(file):  # Path.is_file raises of what may not be looked at
        raise ConfigError(
            f"The model file {file.absolute()} {_kind(file)}: give the path of an .onnx file, "
            "or builtin:digits for the one that comes with Lumen."
        )
    return file.resolve()


def _kind(file: Path) -> str:
    """Names the kind of a path that is no file; to open a pipe would wait for its writer."""
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError as error:
        if is_scarce(error):
            raise
        return f"cannot be looked at ({error.strerror})"
    return "is a directory" if stat.S_ISDIR(mode) else "is a pipe, a socket or a device"


def labels(model: ModelConfig) -> bytes | None:
    """Reads the names of a model's classes.

    Args:
        model: its entry; a built-in model has its own unless the entry names a file.

    Returns:
        UTF-8, one class per line without a final newline; None where there are none.

    Raises:
        ConfigError: the file cannot be read, or is no such list; the message says what to do.
        OSError: the machine lacks what reading takes, for now.
    """
    if model.labels is None and model.text is not None and model.text.labels:
        return "\n".join(model.text.labels).encode()
    if model.labels is not None:
        path = expanded(model.labels)
    elif model.path.startswith(_BUILTIN):
        from lumen_uring.models import builtin_labels

        shipped = builtin_labels(model.path.removeprefix(_BUILTIN))
        if shipped is None:
            return None
        path = shipped
    else:
        return None
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(
            f"The labels of model {model.name} at {path}: expected a text file, found that it "
            f"{_kind(path)}."
        )
    try:
        with path.open("rb") as file:
            raw = file.read(_LABEL_BYTES_MAX + 1)
        text = text_files.decode(raw)
    except OSError as error:
        if is_scarce(error):
            raise
        raise ConfigError(
            f"The labels of model {model.name} at {path}: {error.strerror}."
        ) from None
    except text_files.NotUtf8Error as error:
        raise ConfigError(
            f"The labels of model {model.name} at {path}: expected UTF-8, found {error}."
        ) from None
    # Not splitlines: a label may hold a line separator of Unicode, and must keep its number.
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if len(raw) > _LABEL_BYTES_MAX or not text.strip() or "\0" in text:
        raise ConfigError(
            f"The labels of model {model.name} at {path}: expected one class per line, "
            f"at most {_LABEL_BYTES_MAX} bytes in all, found {len(raw)} bytes of something else."
        )
    return "\n".join(lines).encode()


def cache_place(
    model: Path,
    ort_version: str,
    fix_dims: Mapping[str, int] | None = None,
    given: str | None = None,
) -> CachePlace:
    """Names the file for a model's optimised graph, and makes its directory.

    Args:
        model: the model's file.
        ort_version: of the ONNX Runtime that will optimise it.
        fix_dims: sizes that the optimised graph has for good.
        given: the model's path in the settings, before links were followed; None: the same.

    Returns:
        `$XDG_CACHE_HOME` or `~/.cache`, then lumen/<sha256 of the model, with fix_dims also of
        these, with weights beside it also of them, 32 digits>-<ort version>-<processor flags,
        8 digits>.ort; no path where that directory cannot be written, or weights are not there.

    Raises:
        ConfigError: the model's file cannot be read.
    """
    reading = model_file.read(model)
    digest, beside = reading.digest, None
    if reading.weights:
        beside = weights.folder_of(given or str(model), model, reading.weights)
        if beside is None:
            return CachePlace(None, None)  # ONNX Runtime says what is wrong
        digest = weights.digest(digest, beside, reading.weights)
    if fix_dims:
        sizes = json.dumps(sorted(fix_dims.items()))
        digest = hashlib.sha256(f"{digest} {sizes}".encode()).hexdigest()
    name = f"{digest[:32]}-{ort_version}-{cpu_flags_hash()[:8]}.ort"
    try:
        directory = made_directory()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return CachePlace(
            None,
            f"the optimised graph of {model.name} is not kept, each start makes it anew: "
            f"no cache directory ({reason}); set XDG_CACHE_HOME to a writable one"
            + ("; nobody may write into its weights meanwhile" if reading.weights else ""),
        )
    if beside is None:
        return CachePlace(directory / name, None)
    copy = directory / f"{digest[:32]}-weights"
    # A graph that does not fit is not tried twice: ONNX Runtime finds out at the end of all work.
    fits = weights.bytes_of(beside, reading.weights) < _GRAPH_BYTES_MAX
    return CachePlace(directory / name if fits else None, None, beside, copy)


def made_directory() -> Path:
    """The cache's directory, which nobody else may write: its files are mapped and run as models.

    Raises:
        OSError: it cannot be made, or others may write it.
        RuntimeError: nobody knows where it is.
    """
    directory = _cache()
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied")
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(1, f"{directory} belongs to another user")
    if found.st_mode & 0o022:
        raise PermissionError(
            1, f"others may write {directory}: use chmod go-w, or another XDG_CACHE_HOME"
        )
    return directory


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # The XDG specification says to ignore a relative path.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "lumen"


def used(place: CachePlace) -> None:
    """Marks what the cache holds of a model as used now: what was not used for longest goes first.

    Args:
        place: of its optimised graph.
    """
    for entry in (place.path, place.copy):
        if entry is None:
            continue
        _used.add(_start_of(entry.name))
        with suppress(OSError):  # `trim` marks the others: a listing for each model is slow
            os.utime(entry)


def _start_of(name: str) -> str:
    """The model's digest, with which the names of all its entries begin."""
    return name.partition("-")[0]


class _Entry(NamedTuple):
    """A file or a folder of the cache; the first to go sorts first."""

    used_s: float
    path: str
    bytes: int

    def is_left_over(self, before_s: float) -> bool:
        """Whether a process that was killed left it half written, before that time."""
        return self.path.endswith(".tmp") and self.used_s < before_s


def _entries() -> list[_Entry]:
    """All of them. Each start looks at them, and there may be many thousands: no Path for each."""
    found = []
    with suppress(OSError, RuntimeError), os.scandir(_cache()) as entries:  # no cache, or no home
        for entry in entries:
            with suppress(OSError):  # it has just gone
                if _start_of(entry.name) in _used:
                    os.utime(entry.path, follow_symlinks=False)
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append(_Entry(status.st_mtime, entry.path, status.st_size))
                elif stat.S_ISDIR(status.st_mode):
                    files = [path for path in Path(entry.path).rglob("*") if path.is_file()]
                    size = sum(path.stat().st_size for path in files)
                    found.append(_Entry(status.st_mtime, entry.path, size))
    return found


class Trimmer:
    """Trims the cache after loads that brought it something: a listing of many files is slow.

    Args:
        most_bytes: as of `trim`.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._seen_ns = -1

    def __call__(self) -> list[str]:
        """After a load; returns as `trim`."""
        try:
            changed_ns = _cache().stat().st_mtime_ns
        except (OSError, RuntimeError):
            return []
        if changed_ns == self._seen_ns:
            return []
        said = trim(self._most_bytes)
        with suppress(OSError):
            self._seen_ns = _cache().stat().st_mtime_ns
        return said


def trim(most_bytes: int) -> list[str]:
    """Removes what was not used for longest, until the cache has no more than so many bytes, and
    what a process that was killed has left half written. A server that has mapped what goes keeps
    it; the next start makes it anew.

    Args:
        most_bytes: of all files together; 0: no bound.

    Returns:
        A sentence where that is too little for what this process has loaded.
    """
    found = _entries()
    left = sum(entry.bytes for entry in found)
    left_over_s = time.time() - _LEFT_OVER_S
    if most_bytes == 0 or left <= most_bytes:
        found = [entry for entry in found if entry.is_left_over(left_over_s)]
    gone = []
    for entry in sorted(found):
        if left <= most_bytes and not entry.is_left_over(left_over_s):
            continue
        with suppress(OSError):
            if os.path.isdir(entry.path):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
            gone.append(os.path.basename(entry.path))
            left -= entry.bytes
    short = [name for name in gone if _start_of(name) in _used]
    if not short:
        return []
    return [
        f"repository.cache_bytes, {most_bytes} bytes, has no room for all that was loaded: the "
        f"next start optimises or copies it again ({len(short)} of the cache's files)"
    ]


def cpu_flags_hash(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Hashes the processor's features, which decide the layout of an optimised graph.

    Args:
        cpuinfo: the kernel's list.

    Returns:
        64 hexadecimal digits; of the empty text when the list cannot be read.
    """
    flags: list[str] = []
    try:
        for line in cpuinfo.read_text("ascii", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                flags = sorted(value.split())
                break
    except OSError:
        pass
    return hashlib.sha256(" ".join(flags).encode()).hexdigest()
