"""Follows changes of the settings and of the repositories' folders: which models go, which come.

Owned by control.py. A model that has gone is unloaded at once, on the thread that has noticed: an
unload waits for no load. The rest is loaded on the loader's thread, one model after another; a
model that cannot be loaded keeps none of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from lumen_uring.control.live_models import LiveModels, Tell, Virtual
from lumen_uring.control.watch import Look, files_of
from lumen_uring.errors import is_scarce
from lumen_uring.files import expanded
from lumen_uring.repository import ovms
from lumen_uring.repository.entries import Held, entries_in, with_versions
from lumen_uring.repository.files import away
from lumen_uring.settings.models import EnsembleConfig, ModelConfig
from lumen_uring.settings.reload import needs_loading
from lumen_uring.settings.types import base_of


@dataclass(frozen=True, slots=True)
class Rescan:
    """The repositories have changed."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The settings name other models than before."""

    models: tuple[ModelConfig, ...]
    virtual: tuple[Virtual, ...]
    later: list[str]  # go once those are there that take their place
    failed: list[str]  # a line for each model that could not go
    tell: Tell  # takes a line for each load that begins, and for each model that is loaded
    done: Callable[[list[str]], None]  # with a line for each model that could not be


@dataclass(frozen=True, slots=True)
class Unloaded:
    """A call has unloaded a model, which is freed once its last requests are answered."""


class Following:
    """The list of the settings and the repositories, carried out.

    Args:
        live: the models of the server.
        log: takes a level and a sentence.
    """

    def __init__(self, live: LiveModels, log: Callable[[str, str], None]) -> None:
        self._live = live
        self._log = log
        self._lock = threading.Lock()
        self._listed = {model.name for model in live.models()}
        self._listed_virtual = {one.name for one in live.virtual()}  # by the settings, not by calls

    # ---- the settings ----

    def listed(self) -> Set[str]:
        """The names of models that the settings list; others have come by calls. Any thread."""
        with self._lock:
            return self._listed | self._listed_virtual

    def drop_unlisted(
        self, wanted: Sequence[ModelConfig], virtual: Sequence[Virtual], broken: Set[str]
    ) -> tuple[list[str], list[str]]:
        """Unloads what another list no longer has. Any thread.

        Args:
            wanted: entries of models.
            virtual: entries of virtual models.
            broken: names of models that are listed and cannot be read: they stay as they are.

        Returns:
            Versions that go once the one is there that takes requests in their stead, for `load`;
            and a line for each model that could not go.
        """
        failed: list[str] = []
        entries = {entry.name: entry for entry in (*wanted, *virtual)}
        self._live.call_off(
            lambda entry, files: (
                entry.name in entries
                and not needs_loading(entry, entries[entry.name])
                and files == files_of(entry)
            )
        )
        names = {entry.name for entry in virtual}
        # Ensembles go before experts of their steps, and both before what they run.
        for one in reversed(self._live.virtual()):
            if one.name in self._listed_virtual and one.name not in names | broken:
                failed += self._live.try_remove(one.name)
        self._listed_virtual = names | (self._listed_virtual & broken)
        bases = {model.base for model in wanted}
        served = {model.name for model in self._live.models()}
        with self._lock:
            listed = {model.name for model in wanted}
            kept = {name for name in self._listed if base_of(name) in broken}
            gone = sorted((self._listed - listed - kept) & served)
            self._listed = listed | kept
        for name in gone:
            if base_of(name) not in bases:
                failed += self._live.try_remove(name)
        for name in self._live.states.failed() - bases - names - broken:
            self._live.states.forget(name)
        return [name for name in gone if base_of(name) in bases], failed

    def load(
        self,
        wanted: Sequence[ModelConfig],
        virtual: Sequence[Virtual],
        later: Sequence[str],
        tell: Tell,
    ) -> list[str]:
        """Loads what is new or has changed.

        Args:
            wanted: entries of models.
            virtual: entries of virtual models, which come after those that they run.
            later: versions that go then.
            tell: takes a line when a load begins, and one when a model is loaded.

        Returns:
            A line for each model that could not be.
        """
        failed: list[str] = []
        kept = self._put_all(wanted, failed, tell=tell)
        for name in later:
            if base_of(name) not in kept:
                failed += self._live.try_remove(name)
        for entry in virtual:
            failed += self._live.put_virtual_if_changed(entry, tell)
        return failed

    def _put_all(
        self,
        models: Sequence[ModelConfig],
        failed: list[str],
        again: bool = True,
        tell: Tell = lambda _: None,
    ) -> set[str]:
        """Loads what is new or has changed. Returns the names of which a version could not be."""
        wrong = set()
        for model in models:
            if said := self._live.put_if_changed(model, again, tell):
                wrong.add(model.base)
                failed += said
        return wrong

    # ---- the repositories ----

    def drop_gone(self) -> None:
        """Unloads the models whose folders have gone. Any thread.

        A folder that cannot be read now changes nothing, nor does a repository that is away.
        """
        held = entries_in(self._live.config)
        names = {model.name: model for model in held.entries}
        ensembles = self._ensembles(held)
        self._live.call_off(
            lambda entry, files: self._asks_for(
                names.get(entry.name) or ensembles.get(entry.name), entry, files
            )
        )
        # Ensembles go before what they run.
        for one in self._live.virtual():
            if isinstance(one, EnsembleConfig) and one.folder and one.name not in ensembles:
                is_other = any(one.name == model.base for model in held.entries)
                if is_other or self._has_gone(one.name, one.folder, "", held):
                    self._live.try_remove(one.name)
        for model in self._live.models():
            if (origin := model.origin) is not None and model.name not in names:
                is_other = model.base in ensembles
                if is_other or self._has_gone(model.base, origin.folder, origin.listed, held):
                    self._live.try_remove(model.name)
        self.find_repositories()
        if not held.problems.general():
            known = held.names | {entry.name for entry in self._live.config.virtual_entries()}
            for name in self._live.states.unserved() - known:
                self._live.states.forget(name)

    def find_repositories(self) -> None:
        """Readiness waits no more for those that were away when the server started and have come.
        Any thread."""
        for text in self._live.config.repository.paths:
            if not away(expanded(text)):
                self._live.states.forget(text)

    def rescan(self) -> None:
        """Loads what is new in the repositories or has changed."""
        held = entries_in(self._live.config)
        found, problems = held.entries, held.problems
        for line in problems.lines:
            self._log("error", f"The repositories: {line}")
        for name, lines in problems.of.items():
            self._live.states.cannot_be_read(name, "\n".join(lines))
        kept = self._put_all(found, [], again=False)
        self._live.forget_wrong({model.name for model in found})
        for entry in self._ensembles(held, kept).values():  # before versions go that they ran
            self._put_ensemble(entry)
        for name in self._replaced(held, kept):
            self._live.try_remove(name)

    def _put_ensemble(self, entry: EnsembleConfig) -> None:
        """Loads an ensemble that is new or has changed, once all that it runs is served."""
        served = {one.name for one in (*self._live.models(), *self._live.virtual())}
        missing = next((step.model for step in entry.steps if step.model not in served), None)
        if missing is None:
            self._live.put_virtual_if_changed(entry)
            return
        why = f"it runs '{missing}', which cannot be served"
        self._log("error", f"model {entry.name}: not loaded: {why}")
        self._live.states.cannot_be_read(entry.name, why)

    def _replaced(self, held: Held, kept: Set[str]) -> list[str]:
        """Versions that go when the one is there that takes requests in their stead.

        Args:
            held: by the repositories now.
            kept: names of which that one could not be loaded.
        """
        names = {model.name for model in held.entries}
        bases = {model.base for model in held.entries} - kept
        gone = (one for one in self._live.models() if one.origin and one.name not in names)
        return [model.name for model in gone if model.base in bases]

    def _ensembles(self, held: Held, kept: Set[str] = frozenset()) -> dict[str, EnsembleConfig]:
        """The ensembles of the repositories, on the versions that are served and stay."""
        replaced = self._replaced(held, kept)
        models = [one for one in self._live.models() if one.name not in replaced]
        return {entry.name: with_versions(entry, models) for entry in held.ensembles}

    def _asks_for(
        self, now: ModelConfig | EnsembleConfig | None, entry: ModelConfig | Virtual, files: Look
    ) -> bool:
        """Whether the repositories ask for a load, or do not have to: the settings do.

        Args:
            now: the entry of that name in the repositories.
            entry: that is being loaded.
            files: how they looked before.
        """
        if now is not None:
            return files == files_of(now) and not needs_loading(entry, now)
        if isinstance(entry, ModelConfig):
            origin = entry.origin
            return origin is None or not self._around(origin.listed or origin.folder)
        return not (isinstance(entry, EnsembleConfig) and entry.folder)

    def _around(self, path: str) -> list[Path]:
        """The repositories that a path lies in, or is."""
        roots = [expanded(text) for text in self._live.config.repository.paths]
        return [root for root in roots if root in (Path(path), *Path(path).parents)]

    def _has_gone(self, base: str, of: str, list_of: str, held: Held) -> bool:
        """Whether a folder holds no model any more, or a file of it names it no longer; it may be
        half copied.

        Args:
            base: the model's name.
            of: its folder.
            list_of: the file that lists it; "": none does.
            held: by the repositories now.
        """
        folder, listed = Path(of), Path(list_of)
        named_by = listed if list_of else folder
        around = self._around(list_of or of)
        try:
            is_here = any(one.is_dir() or (one == named_by and one.exists()) for one in around)
            if around and not is_here:
                return False  # the repository is away, and may come back
            if base not in held.names:
                if list_of:
                    lines = held.problems.general()
                    is_wrong = any(line.startswith(list_of) for line in lines)
                    return not is_wrong and (ovms.is_list(listed) or not listed.exists())
                folders = {one.origin.folder for one in held.entries if one.origin is not None}
                if of in folders:
                    return True  # under another name
            if not folder.is_dir():
                return not folder.exists()
            return not any(path.is_dir() and path.name.isdecimal() for path in folder.iterdir())
        except FileNotFoundError:
            return True
        except OSError as error:
            if is_scarce(error):
                raise  # the caller looks again
            return False
