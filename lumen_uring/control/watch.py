"""Sees that the folders of repositories have changed, and that they change no more.

Started by control.py where repository.control is watch. It sleeps until the kernel reports a
change. A model that is being copied looks different each time: only when two looks, a second apart,
find the same sizes, times and inodes is a change reported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from lumen_uring.files import expanded
from lumen_uring.guard import Guard
from lumen_uring.loading import model_file
from lumen_uring.repository.files import LOST_FOUND
from lumen_uring.ring.inotify import Inotify
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.warmup import FILLS

SETTLE_S: Final = 1.0
_BUILTIN: Final = "builtin:"
_DEPTH_MAX: Final = 4  # repository, model, version, a folder model.onnx
_FILES_MAX: Final = 100_000
_LINKS_MAX: Final = 40  # on one way, as the kernel has it
_LOOK_S: Final = 10.0  # between looks at what the kernel does not watch
Look = frozenset[tuple[str, int, int, int]]


def look(paths: Sequence[Path]) -> Look:
    """What lies in folders: name, size, time of change and inode of each file.

    Args:
        paths: folders, or files.
    """
    found: set[tuple[str, int, int, int]] = set()
    for path in paths:
        for file in _walk(path, 0):
            try:
                status = os.stat(file)
            except OSError:
                continue  # it has gone meanwhile
            found.add((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
            if len(found) > _FILES_MAX:
                return frozenset(found)
    return frozenset(found)


def folders(paths: Sequence[Path]) -> Iterator[Path]:
    """The folders in which a change may be one of a model.

    Also those that hold the links which lead there: where a link is swapped (git-sync's `current`,
    a ConfigMap's `..data`), nothing changes in the folder that it led to.
    """
    for path in paths:
        yield from _on_the_way(path)
        for inner in _walk(path, 0):
            if os.path.islink(inner):
                yield from _on_the_way(inner)
            if _is_dir(inner):
                yield inner


def _on_the_way(path: Path) -> Iterator[Path]:
    """The folder, or the nearest one above it that is there, and those of the links before it."""
    at = Path(os.path.abspath(path))
    for _ in range(_LINKS_MAX):
        link = next((one for one in (*reversed(at.parents), at) if os.path.islink(one)), None)
        if link is None:
            break
        yield link.parent
        try:
            target = Path(os.readlink(link))
        except OSError:  # swapped at this moment, which is a change of its folder
            break
        at = Path(os.path.normpath(link.parent / target / at.relative_to(link)))
    while not _is_dir(at) and at != at.parent:
        at = at.parent
    yield at


def _is_dir(path: Path) -> bool:
    """False too for what may not be looked at, where Path.is_dir raises."""
    return os.path.isdir(path)


def _walk(path: Path, depth: int) -> Iterator[Path]:
    if _is_dir(path) and depth < _DEPTH_MAX:
        try:
            entries = sorted(path.iterdir())
        except OSError:
            return
        for entry in entries:
            if not entry.name.startswith(".") and entry.name != LOST_FOUND:
                yield entry
                yield from _walk(entry, depth + 1)
    elif depth == 0:
        yield path


class Watcher:
    """Watches until it is closed. Where the kernel cannot, it looks now and then.

    Args:
        paths: of the repositories.
        changed: called on the watcher's thread, each time that they changed and are quiet again.
        log: takes a level and a sentence.
        guard: of the server's threads.
        settle_s: between two looks.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        changed: Callable[[], None],
        log: Callable[[str, str], None],
        guard: Guard,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._paths = paths
        self._changed = changed
        self._log = log
        self._settle_s = settle_s
        self._stopped = threading.Event()
        self._problems: set[str] = set()
        self._inotify: Inotify | None = None
        self._seen: Look | None = None  # None: no look has been possible
        with guard.part("lumen-watch"):
            self._watch()  # before the look: no change falls between
            self._seen = look(paths)
        self._is_unseen = False
        self._thread = guard.thread("lumen-watch", self._run)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._inotify is not None:
            self._inotify.wake()
        self._thread.join()
        if self._inotify is not None:
            self._inotify.close()

    def _run(self) -> None:
        if self._is_unseen:  # the guard calls this again: what was missed meanwhile nobody knows
            self._seen = None
        while not self._stopped.is_set():
            if not self._is_unseen:
                self._wait()
            self._is_unseen = True  # until the look below has ended: the guard calls this again
            self._settle()
            self._is_unseen = False

    def _wait(self) -> None:
        """Waits for a change; where the kernel may not tell of one, for a while."""
        if self._inotify is None:
            self._stopped.wait(_LOOK_S)
        else:
            self._inotify.wait(_LOOK_S if self._problems or self._seen is None else None)

    def _watch(self) -> None:
        """Watches all folders, and says which cannot be; these are looked at now and then."""
        problems: list[str] = []
        try:
            if self._inotify is None:
                self._inotify = Inotify()
            problems += self._inotify.watch(folders(self._paths))
        except OSError as error:
            problems.append(error.strerror or str(error))
        for one in set(problems) - self._problems:
            self._log(
                "error", f"The repositories: {one}. They are looked at every {_LOOK_S:g} s instead."
            )
        self._problems = set(problems)

    def _settle(self) -> None:
        """Waits until nothing changes, and reports it.

        Also where all is as it was: a reload may have loaded what came and went meanwhile.
        """
        found = look(self._paths)
        is_news = found != self._seen
        while not self._stopped.is_set():
            self._watch()
            if self._inotify is None:
                self._stopped.wait(self._settle_s)
            else:
                self._inotify.pause(self._settle_s)
            again = look(self._paths)
            if again == found:
                break
            found, is_news = again, True
        if not self._stopped.is_set() and is_news:
            self._changed()
            self._seen = found


def files_of(entry: ModelConfig | ExpertsConfig | EnsembleConfig) -> Look:
    """The files of a model as they are now: another file under the same name is a change.

    Args:
        entry: of the model; one of experts has no files.

    Returns:
        The look of its graph and weights, labels, tokenizer, first states and warm-up requests.

    Raises:
        OSError: the machine lacks descriptors or memory, for now.
    """
    labels = None if isinstance(entry, ExpertsConfig) else entry.labels
    named = [] if labels is None else [labels]
    own: list[Path] = []
    if isinstance(entry, ModelConfig) and not entry.path.startswith(_BUILTIN):
        own = _graph_and_weights(entry)
        if entry.text is not None and entry.text.tokenizer is not None:
            named.append(entry.text.tokenizer)
    if isinstance(entry, ModelConfig):
        named += [] if entry.sequences is None else entry.sequences.initial_state.values()
        for request in entry.warmup:
            named += (one.data for one in request.inputs.values() if one.data not in FILLS)
    return look([*own, *(expanded(text) for text in named)])


def _graph_and_weights(model: ModelConfig) -> list[Path]:
    """The graph's file and those that it names, or the folder that holds them all."""
    path = expanded(model.path)
    # A model of a repository has its version's folder to itself.
    has_folder = model.origin is not None and Path(model.origin.folder) != path
    found = [path.parent if has_folder else path]
    if not has_folder or os.path.islink(path):
        # As loading/weights.py finds them: beside the file, or where a link leads to.
        beside = {path.parent, Path(os.path.realpath(path)).parent}
        found += [folder / name for name in model_file.weights(path) for folder in sorted(beside)]
    return found
