"""Finds the models of a place: a repository, a folder of versions, a single file.

Called by entries.py. The layout is told from what is there, in this order: a file by its name;
OpenVINO Model Server's config.json; MLServer's model-settings.json; a text model's folder as
Hugging Face has it; a model's folder (config.pbtxt
or folders of versions); folders of these, which is Triton's repository; one model's file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from lumen_uring.repository import mlserver, ovms, text_folder
from lumen_uring.repository.files import FoundModel, Place, is_model, is_version, name_of, names_of
from lumen_uring.repository.model_config import Asked, read
from lumen_uring.repository.text_format import TextFormatError, parse
from lumen_uring.repository.tree import Problems

CONFIG: Final = "config.pbtxt"
_LAYOUTS: Final = (
    "NAME/1/model.onnx (Triton), 1/model.onnx, one .onnx file, model-settings.json (MLServer) or "
    "config.json (OpenVINO Model Server)"
)
_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth", ".h5")  # no graph beside them


def find(
    path: Path,
    problems: Problems,
    instead: Mapping[str, Asked] = MappingProxyType({}),
    text: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[list[FoundModel], list[str]]:
    """Finds the models of a place.

    Args:
        path: of a folder or a file.
        problems: takes what is wrong, by model.
        instead: by name, what takes the place of a folder's own config.pbtxt.
        text: what the place's entry in the settings says of its texts.

    Returns:
        The models, by name, and sentences for the person who starts the server.
    """
    models: list[FoundModel] = []
    notes: list[str] = []
    with problems.alone("", str(path)):
        if path.is_file():
            place = Place(path.parent, problems)
            models = _of_file(place, path)
        elif path.is_dir():
            place = Place(path, problems)
            own = _of_folder(place, path, instead, text)
            models = _of_folders(place, instead, text) if own is None else own
        else:
            kind = "something else" if path.exists() else "nothing"
            problems.add(str(path), "a folder of models, or a model's file", kind)
            return [], []
        notes = place.notes
    return models, notes


def _of_folders(
    place: Place, instead: Mapping[str, Asked], text: Mapping[str, Any]
) -> list[FoundModel]:
    """The models of the folders in a place; one that cannot be read is a problem of its own."""
    models: list[FoundModel] = []
    for folder in place.models_folders(place.root):
        inner: list[FoundModel] | None = []
        with place.problems.alone(folder.name, str(folder)):
            inner = _of_folder(place, folder, instead, text)
        models += inner or []
        if inner is None:
            place.notes.append(f"{folder} holds no model: no version, no {CONFIG}")
    if not models and not place.problems.lines:
        models = _of_single_file(place, place.root)
    return models


def find_named(
    path: Path, name: str, problems: Problems, instead: Mapping[str, Asked]
) -> list[FoundModel]:
    """Finds the models of a name: in the folder of that name, where the place is a folder of
    models, or else among all of them. The name is compared with what is there, and never made a
    path.

    Args:
        path: of a folder or a file.
        name: of the model.
        problems: takes what is wrong, by model; also with others of the place.
        instead: by name, what takes the place of a folder's own config.pbtxt.
    """
    alone = Problems()
    place = Place(path, alone)
    found: list[FoundModel] | None = None
    with alone.alone(name, str(path)):
        if path.is_dir() and _of_folder(place, path, instead, {}) is None:
            for folder in (path / one for one in _names(path) if one == name):
                if folder.is_dir() and place.holds(folder):
                    found = _of_folder(place, folder, instead, {})
    if found and not alone.lines and all(one.name == name for one in found):
        return found
    models, _notes = find(path, problems, instead)
    return [one for one in models if one.name == name]


def _of_folder(
    place: Place, folder: Path, instead: Mapping[str, Asked], text: Mapping[str, Any]
) -> list[FoundModel] | None:
    """The models that a folder's own files name; None where they name none."""
    if ovms.is_list(folder / ovms.CONFIG):
        return ovms.find(place, folder / ovms.CONFIG, of_versions)
    if (folder / mlserver.CONFIG).is_file():
        return mlserver.find(place, folder / mlserver.CONFIG, of_versions)
    if text_folder.is_one(folder):
        of_texts = text_folder.find(place, folder, text)
        return [] if of_texts is None else [of_texts]
    has_versions = any(is_version(one) and (folder / one).is_dir() for one in _names(folder))
    if not has_versions and not (folder / CONFIG).is_file():
        return None
    name = name_of(folder) if folder == place.root else folder.name
    with place.problems.within(name):
        model = of_versions(place, folder, name, instead.get(name))
    return [] if model is None else [model]


def _entries(folder: Path) -> list[Path]:
    return [folder / name for name in _names(folder)]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # Place.folders says so


def of_versions(place: Place, folder: Path, name: str, asked: Asked | None) -> FoundModel | None:
    """A folder of versions as one model.

    Args:
        place: that it lies in.
        folder: of the model.
        name: that it has where its files say none.
        asked: what a file outside of the folder asks for; None: its config.pbtxt says that.

    Returns:
        The model; None after a problem.
    """
    problems = place.problems
    before = len(problems.lines)
    if asked is None:
        asked = _config(place, folder / CONFIG) or Asked()
        if asked.name not in ("", name) and folder != place.root:
            problems.add(asked.name_where, f"{name!r}, as its folder", repr(asked.name))
    if len(problems.lines) > before:
        return None
    there = place.versions(folder)
    if not there:
        expected = "a folder for each version, such as 1/model.onnx"
        problems.add(str(folder), expected, names_of(folder))
        return None
    files: dict[int, Path] = {}
    for version in asked.policy.of(tuple(there), problems):
        # An ensemble has an empty folder for its version.
        folder_of = there[version]
        file = folder_of if asked.steps else place.model_file(folder_of, asked.file_name)
        if file is not None:
            files[version] = file
        if (there[version] / ovms.MAPPING).exists():
            problems.add(str(there[version] / ovms.MAPPING), "none", "it: Lumen renames no tensors")
    labels = _labels(place, folder, asked)
    for where, warmup, request, tensor in asked.warmup_files:
        content = folder / "warmup" / warmup
        if _is_there(place, where, content):
            asked.settings["warmup"][request]["inputs"][tensor]["data"] = str(content.absolute())
    for state, (where, held) in asked.state_files.items():
        first = folder / "initial_state" / held
        if _is_there(place, where, first):
            initial = asked.settings["sequences"].setdefault("initial_state", {})
            initial[state] = str(first.absolute())
    if len(problems.lines) > before:
        return None
    return FoundModel(asked.name or name, str(folder), files, asked, labels, tuple(there))


def _config(place: Place, path: Path) -> Asked | None:
    if not path.is_file():
        return None
    text = place.text(path)
    if text is None:
        return None
    try:
        return read(parse(text, str(path)), place.problems)
    except TextFormatError as error:
        place.problems.lines.append(str(error))
        return None


def _labels(place: Place, folder: Path, asked: Asked) -> Path | None:
    files = {name for _where, name in asked.labels}
    found: Path | None = None
    for where, name in asked.labels:
        if ".." in Path(name).parts or Path(name).is_absolute():
            place.problems.add(where, "a file in the model's folder", repr(name))
        elif _is_there(place, where, folder / name):
            found = folder / name
    if len(files) > 1:
        expected = "one file of labels for a model"
        place.problems.add(asked.labels[1][0], expected, ", ".join(sorted(files)))
    return found


def _is_there(place: Place, where: str, path: Path) -> bool:
    if not path.is_file():
        place.problems.add(where, f"the file {path}", "no such file")
        return False
    return place.holds(path)


def _of_file(place: Place, path: Path) -> list[FoundModel]:
    if path.name == mlserver.CONFIG:
        return mlserver.find(place, path, of_versions)
    if path.suffix == ".json":
        return ovms.find(place, path, of_versions)
    if not is_model(path):
        place.problems.add(str(path), "a model's file, .onnx or .ort", repr(path.name))
        return []
    return [FoundModel(path.stem, str(path), {1: path}, versions=(1,))]


def _of_single_file(place: Place, folder: Path) -> list[FoundModel]:
    files = place.models(folder)
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or names_of(folder)
        place.problems.add(str(folder), _LAYOUTS, found + _advice(folder))
        return []
    if not place.holds(files[0]):
        return []
    # A name such as model.onnx says nothing: the folder's does.
    name = name_of(folder) if files[0].stem == "model" else files[0].stem
    return [FoundModel(name, str(files[0]), {1: files[0]}, versions=(1,))]


def _advice(folder: Path) -> str:
    """What gives the folder that Hugging Face's tools leave a model; nothing for others."""
    inner = sorted(path for path in _entries(folder / "onnx") if is_model(path))
    if inner:
        chosen = next((path for path in inner if path.stem == "model"), inner[0])
        return f"; give lumen {chosen}"
    if any(path.suffix in _WEIGHTS for path in _entries(folder)):
        return f"; weights alone: export them (optimum-cli export onnx --model {folder} NEW_FOLDER)"
    return ""
