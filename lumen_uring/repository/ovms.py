"""Reads OpenVINO Model Server's config.json: a list of models with their folders.

Called by folders.py. Settings of OpenVINO's devices have no meaning here: those that change answers
are refused, others are noted.

Source: src/schema.cpp of openvinotoolkit/model_server
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from lumen_uring.repository.files import FoundModel, Place, is_model
from lumen_uring.repository.mlserver import OfVersions
from lumen_uring.repository.model_config import Asked, policy_of
from lumen_uring.repository.tree import Node, Problems

CONFIG: Final = "config.json"
MAPPING: Final = "mapping_config.json"
_LIST: Final = "model_config_list"
_BYTES_MAX: Final = 1 << 20
_DEVICES: Final = ("", "CPU", "AUTO", "AUTO:CPU")
_OPENVINO: Final = ("GPU", "NPU")  # its provider computes there
_NOT_LOOKED_AT: Final = (
    "nireq",
    "plugin_config",
    "idle_sequence_cleanup",
    "low_latency_transformation",
)
_REFUSED: Final = {
    "mediapipe_config_list": "Lumen runs no graphs of models",
    "pipeline_config_list": "Lumen runs no graphs of models",
    "custom_node_library_config_list": "Lumen loads no libraries",
    "custom_loader_config_list": "Lumen loads no libraries",
}


def is_list(path: Path) -> bool:
    """Whether a file is such a list: many programs have a config.json. One that is no JSON is meant
    as a list where it has the list's name."""
    try:
        if not path.is_file() or path.stat().st_size > _BYTES_MAX:
            return False
        raw = path.read_bytes()
        data = json.loads(raw)
    except OSError:
        return False
    except (ValueError, RecursionError):
        return f'"{_LIST}"'.encode() in raw
    return isinstance(data, dict) and _LIST in data


def find(place: Place, path: Path, of_versions: OfVersions) -> list[FoundModel]:
    """The models of a list.

    Args:
        place: that it lies in.
        path: of the file.
        of_versions: makes a model of a folder of versions.
    """
    node = place.json(path)
    if node is None:
        return []
    problems = place.problems
    for key, why in _REFUSED.items():
        node.refuse(key, why, problems)
    if node.has("monitoring"):
        list(node.each("monitoring"))
        place.notes.append(f"{node.where('monitoring')} is not looked at: the metrics page is on")
    found: list[FoundModel] = []
    for entry in node.nodes(_LIST, problems):
        config = entry.node("config", problems)
        entry.rest(problems)
        model = None
        if config is not None:
            with problems.alone(config.text("name", Problems()), config.where()):
                model = _model(place, path.parent, config, of_versions)
        if model is not None:
            model.listed = str(path)
            found.append(model)
    node.rest(problems)
    return found


def _model(place: Place, folder: Path, node: Node, of_versions: OfVersions) -> FoundModel | None:
    problems = place.problems
    before = len(problems.lines)
    asked = Asked()
    name, base = node.text("name", problems), node.text("base_path", problems)
    for key, text in (("name", name), ("base_path", base)):
        if not text:
            problems.add(node.where(key), "a text", "none")
    asked.policy = policy_of(node.node("model_version_policy", problems), problems)
    for key in ("shape", "layout", "batch_size"):
        values = [value for _line, value in node.each(key)]
        if any(value not in ("auto", 0, "0", "") for value in values):
            expected = "auto: Lumen takes the graph's shapes; max_dims, fix_dims and max_rows bound"
            problems.add(node.where(key), expected, f"{values[0]!r}" if values else "a list")
    device = node.text("target_device", problems)
    if device in _OPENVINO:
        asked.settings["providers"] = [{"openvino": {"device_type": device}}]
        asked.notes.append(f"{node.where('target_device')}: {device} is providers: [openvino]")
    elif device not in _DEVICES:
        problems.add(node.where("target_device"), "CPU, GPU or NPU", device)
    node.refuse("stateful", "Lumen keeps no state between requests", problems)
    node.refuse("custom_loader_options", "Lumen loads no libraries", problems)
    for key in _NOT_LOOKED_AT:
        if node.has(key):
            list(node.each(key))
            asked.notes.append(f"{node.where(key)} is not looked at: it is OpenVINO's")
    node.rest(problems, "OpenVINO Model Server's settings of a model")
    if "://" in base or ".." in Path(base).parts:
        problems.add(node.where("base_path"), "a path on this machine without '..'", repr(base))
    if len(problems.lines) > before:
        return None
    path = folder / base  # an absolute path stands for itself: whoever wrote the list may name it
    inner = place
    if Path(base).is_absolute():
        inner = Place(path if path.is_dir() else path.parent, problems)
    elif not path.exists() or not place.holds(path):
        if not path.exists():
            problems.add(node.where("base_path"), "a folder or a file that is there", repr(base))
        return None
    if path.is_file() and is_model(path):
        return FoundModel(name, str(path), {1: path}, asked, versions=(1,))
    model = of_versions(inner, path, name, asked)
    if inner is not place:
        place.notes += inner.notes
    return model
