"""Reads MLServer's model-settings.json.

Called by folders.py. A model's file is the one that `parameters.uri` names, beside the settings, or
the only one there, or in folders of versions.

Source: mlserver/settings.py of SeldonIO/MLServer (ModelSettings)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from lumen_uring.repository.files import FoundModel, Place, is_model, is_version, name_of, names_of
from lumen_uring.repository.model_config import Asked, datatype_of
from lumen_uring.repository.tree import Node, Problems
from lumen_uring.settings.origin import Declared
from lumen_uring.settings.types import BATCH_MAX

CONFIG: Final = "model-settings.json"
_SERVER: Final = "settings.json"
# Settings of MLServer's that Lumen has no use for.
_NOT_LOOKED_AT: Final = (
    "parallel_workers",
    "warm_workers",
    "inference_pool_gid",
    "cache_enabled",
    "versions",
    "environment_path",
)
OfVersions = Callable[[Place, Path, str, "Asked | None"], "FoundModel | None"]


def find(place: Place, path: Path, of_versions: OfVersions) -> list[FoundModel]:
    """The model of a model-settings.json.

    Args:
        place: that it lies in.
        path: of the file.
        of_versions: makes a model of a folder of versions.
    """
    problems = place.problems
    before = len(problems.lines)
    node = place.json(path)
    if node is None:
        return []
    asked = Asked()
    folder = path.parent
    name = node.text("name", problems) or name_of(folder)
    uri, version = _parameters(asked, node, problems)
    _kind(node, problems)
    for key in ("inputs", "outputs"):
        for tensor in node.nodes(key, problems):
            _tensor(asked, tensor, key == "inputs", problems)
    _batching(asked, node, problems)
    for key in _NOT_LOOKED_AT:
        if node.has(key):
            list(node.each(key))
            asked.notes.append(f"{node.where(key)} is not looked at")
    node.rest(problems, "MLServer's settings of a model")
    if (folder / _SERVER).is_file():
        place.notes.append(
            f"{folder / _SERVER} is not looked at: Lumen's settings say these things"
        )
    if len(problems.lines) > before:
        return []
    found = _file(place, node, folder, uri)
    if found is None:
        return []
    if found.is_dir():
        model = of_versions(place, found, name, asked)
        return [] if model is None else [model]
    return [FoundModel(name, str(path), {version: found}, asked, versions=(version,))]


def _parameters(asked: Asked, node: Node, problems: Problems) -> tuple[str, int]:
    """The place of the model's file, and its version."""
    parameters = node.node("parameters", problems)
    if parameters is None:
        return "", 1
    uri, text = parameters.text("uri", problems), parameters.text("version", problems)
    version = int(text) if is_version(text) else 1
    if text and not is_version(text):
        asked.notes.append(
            f"{parameters.where('version')}: {text!r} is served as version 1: a version is a whole "
            "number here"
        )
    for key in ("content_type", "extra", "environment_tarball", "format"):
        if parameters.has(key):
            list(parameters.each(key))
            asked.notes.append(f"{parameters.where(key)} is not looked at")
    parameters.rest(problems)
    return uri, version


def _kind(node: Node, problems: Problems) -> None:
    implementation = node.text("implementation", problems)
    platform = node.text("platform", problems)
    for key, text in (("implementation", implementation), ("platform", platform)):
        if text and "onnx" not in text.lower():
            problems.add(node.where(key), "one for ONNX, or none: Lumen runs ONNX", repr(text))


def _tensor(asked: Asked, node: Node, is_input: bool, problems: Problems) -> None:
    name = node.text("name", problems)
    datatype = ""
    if node.has("datatype"):
        text = node.text("datatype", problems)
        datatype = datatype_of("STRING" if text == "BYTES" else text, node, "datatype", problems)
    dims = None
    if node.has("shape"):
        dims = tuple(node.values("shape", int, "whole numbers, or -1", problems))
    node.text("content_type", problems)
    list(node.each("parameters"))
    list(node.each("tags"))
    node.rest(problems)
    asked.declared.append(Declared(node.where(), name, datatype, dims, False, is_input))


def _batching(asked: Asked, node: Node, problems: Problems) -> None:
    rows = node.whole("max_batch_size", problems, 0, BATCH_MAX, 0)
    what = "seconds, 0..1"
    delay_s = node.value("max_batch_time", float, what, problems) or 0.0
    if not 0 <= delay_s <= 1:
        problems.add(node.where("max_batch_time"), what, str(delay_s))
    elif rows > 1:
        asked.settings |= {"batch_size": rows, "batch_delay_us": round(delay_s * 1e6)}


def _file(place: Place, node: Node, folder: Path, uri: str) -> Path | None:
    """The model's file, or its folder of versions."""
    problems = place.problems
    if uri:
        where = f"{node.file} parameters.uri"
        if "://" in uri or ".." in Path(uri).parts or Path(uri).is_absolute():
            problems.add(where, "a path below the folder of this file", repr(uri))
            return None
        path = folder / uri
        if not path.exists():
            problems.add(where, "a file that is there", repr(uri))
            return None
        return path if place.holds(path) else None
    if any(is_version(inner.name) for inner in place.folders(folder)):
        return folder
    files = [path for path in place.models(folder) if is_model(path)]
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or names_of(folder)
        problems.add(str(folder), "one .onnx file, or parameters.uri to name it", found)
        return None
    return files[0] if place.holds(files[0]) else None
