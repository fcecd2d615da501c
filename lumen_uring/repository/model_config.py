"""Reads a model configuration of Triton's: config.pbtxt, or the JSON of a call to load.

Called by folders.py. Each field is honoured, or named as one that does not change anything here, or
refused with its file, line and cure; an unknown one is refused too.

Source: model_config.proto of triton-inference-server/common
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lumen_uring.repository.accelerators import Devices
from lumen_uring.repository.batching import read_batching
from lumen_uring.repository.scheduling import inputs_of, steps_of
from lumen_uring.repository.sequence_batching import read_sequences
from lumen_uring.repository.tree import Node, Problems, Value, said
from lumen_uring.settings.origin import FORMATS, Declared
from lumen_uring.settings.types import U32_MAX, VERSION_MAX

VERSIONS_MAX: Final = 64  # of one model that a policy may keep
_WARMUP_RUNS_MAX: Final = 10_000
_TYPES: Final = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING", "BF16"),
)
# What models do in Triton and not here. The cure, where one is known.
_REFUSED: Final = {
    "model_operations": "Lumen loads no libraries of operators",
    "model_repository_agents": "Lumen has no agents",
    "cc_model_filenames": "Lumen takes one file a version",
    "batch_input": "Lumen makes no inputs of batches",
    "batch_output": "Lumen makes no outputs of batches",
}
_SESSION_PARAMETERS: Final = (
    "enable_mem_arena",
    "enable_mem_pattern",
    "memory.enable_memory_arena_shrinkage",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which versions of a model are served: the latest `count`, or `chosen`, or all."""

    count: int | None = 1  # None: all
    chosen: tuple[int, ...] = ()
    where: str = ""

    @property
    def is_single(self) -> bool:
        """Whether there is one version at a time, so that the name alone says which."""
        return len(self.chosen) == 1 or (not self.chosen and self.count == 1)

    def of(self, versions: tuple[int, ...], problems: Problems) -> tuple[int, ...]:
        """The versions to serve, of those that are there.

        Args:
            versions: ascending, at least one.
            problems: takes versions that are chosen and not there.
        """
        if self.chosen:
            there = ", ".join(map(str, versions))
            for version in self.chosen:
                if version not in versions:
                    problems.add(self.where, f"versions that are there ({there})", str(version))
            return tuple(version for version in versions if version in self.chosen)
        return versions if self.count is None else versions[-self.count :]


@dataclass(slots=True)
class Asked:
    """What a model's configuration asks for."""

    name: str = ""
    name_where: str = ""
    file_name: str = ""  # of the model in its version's folder; "": the usual one
    policy: Policy = field(default_factory=Policy)
    settings: dict[str, Any] = field(default_factory=dict)  # of ModelConfig
    labels: list[tuple[str, str]] = field(default_factory=list)  # (where, file)
    # (where, file, index of the request, input)
    warmup_files: list[tuple[str, str, int, str]] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)  # of an ensemble
    state_files: dict[str, tuple[str, str]] = field(default_factory=dict)  # by input: (where, file)


def read(node: Node, problems: Problems) -> Asked:
    """Reads a configuration.

    Args:
        node: of the file.
        problems: takes what is wrong.

    Returns:
        What it asks for, as far as it is right.
    """
    asked = Asked(name=node.text("name", problems), name_where=node.where("name"))
    _platform(node, problems)
    asked.policy = policy_of(node.node("version_policy", problems), problems)
    asked.file_name = node.text("default_model_filename", problems)
    if asked.file_name:
        plain_name(node.where("default_model_filename"), asked.file_name, problems)
    rows = node.whole("max_batch_size", problems, 0, U32_MAX, 0)
    if rows:
        asked.settings["max_rows"] = rows
    for key in ("input", "output"):
        for tensor in node.nodes(key, problems):
            _tensor(asked, tensor, rows > 0, key == "input", problems)
    devices = Devices()
    for group in node.nodes("instance_group", problems):
        _instances(asked, group, devices, problems)
    batching = read_batching(node, rows, problems)
    asked.settings |= batching.settings
    asked.notes += batching.notes
    for parameter in _parameters(node, problems):
        _parameter(asked, *parameter, problems)
    for warmup in node.nodes("model_warmup", problems):
        _warmup(asked, warmup, rows, problems)
    _ensemble(asked, node, problems)
    _sequences(asked, node, rows, problems)
    _others(asked, node, devices, problems)
    providers, notes = devices.providers()
    if providers and not asked.steps:
        asked.settings["providers"] = providers
    asked.notes += notes
    node.rest(problems, "Triton's fields of a model")
    return asked


def plain_name(where: str, name: str, problems: Problems) -> bool:
    """Reports a file's name that could lead out of its folder."""
    if name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        problems.add(where, "the name of a file in the model's folder", repr(name))
        return False
    return True


def _platform(node: Node, problems: Problems) -> None:
    for key, known in (("platform", "onnxruntime_onnx"), ("backend", "onnxruntime")):
        text = node.text(key, problems)
        is_ensemble = text == "ensemble" and node.has("ensemble_scheduling")
        if text not in ("", known) and not is_ensemble:
            problems.add(node.where(key), f"{known!r}: Lumen serves ONNX alone", repr(text))


def _ensemble(asked: Asked, node: Node, problems: Problems) -> None:
    """The steps, and that the tensors which the file declares are those of the steps."""
    scheduling = node.node("ensemble_scheduling", problems)
    if scheduling is None:
        return
    asked.steps = steps_of(scheduling, problems)
    made = {name for step in asked.steps for name in step["outputs"].values()}
    for one in asked.declared:
        known = inputs_of(asked.steps) if one.is_input else made
        if one.name not in known:
            what = "takes" if one.is_input else "makes"
            expected = f"what a step {what} ({', '.join(sorted(known)) or 'nothing'})"
            problems.add(one.where, expected, repr(one.name))


def _sequences(asked: Asked, node: Node, rows: int, problems: Problems) -> None:
    """Requests of a model with sequences have one row, and share no batch."""
    section = node.node("sequence_batching", problems)
    if section is None:
        return
    found = read_sequences(section, rows, Node.word, datatype_of, problems)
    if "batch_size" in asked.settings:
        problems.add(node.where("dynamic_batching"), "none beside sequence_batching", "it")
    asked.settings.pop("max_rows", None)
    asked.settings["sequences"] = found.settings
    for name, (where, file) in found.files.items():
        if plain_name(where, file, problems):
            asked.state_files[name] = (where, file)
    asked.declared += found.declared
    asked.notes += found.notes


def policy_of(node: Node | None, problems: Problems) -> Policy:
    """Reads a version policy, which OpenVINO Model Server writes in the same way.

    Args:
        node: of version_policy; None: there is none.
        problems: takes what is wrong.
    """
    if node is None:
        return Policy()
    given = [key for key in ("latest", "all", "specific") if node.has(key)]
    latest, specific = node.node("latest", problems), node.node("specific", problems)
    node.node("all", problems)
    node.rest(problems)
    if len(given) > 1:
        problems.add(node.where(), "one of latest, all and specific", " and ".join(given))
    if latest is not None:
        count = latest.whole("num_versions", problems, 1, VERSIONS_MAX, 1)
        latest.rest(problems)
        return Policy(count)
    if specific is not None:
        what = f"whole numbers, 1..{VERSION_MAX}"
        chosen = specific.values("versions", int, what, problems)
        wrong = [version for version in chosen if not 1 <= version <= VERSION_MAX]
        for version in wrong:
            problems.add(specific.where("versions"), what, str(version))
        if not chosen:
            problems.add(specific.where(), what, "none")
        specific.rest(problems)
        return Policy(None, tuple(sorted(set(chosen) - set(wrong))), specific.where("versions"))
    return Policy(None if "all" in given else 1)


def _tensor(asked: Asked, node: Node, has_rows: bool, is_input: bool, problems: Problems) -> None:
    name = node.text("name", problems)
    if not name:
        problems.add(node.where("name"), "the tensor's name", "none")
    dims = node.values("dims", int, "whole numbers, or -1 for a free dimension", problems)
    for dim in dims:
        if dim != -1 and not 0 < dim < 2**31:
            problems.add(node.where("dims"), "whole numbers above 0, or -1", str(dim))
    reshape = _reshape(node, dims, problems)
    datatype = datatype_of(node.word("data_type", problems), node, "data_type", problems)
    label_file = node.text("label_filename", problems)
    if label_file:
        asked.labels.append((node.where("label_filename"), label_file))
    layout = node.word("format", problems) or FORMATS[0]
    if layout not in FORMATS:
        problems.add(node.where("format"), " or ".join(FORMATS), layout)
    optional = node.flag("optional", problems)
    for key in ("is_shape_tensor", "allow_ragged_batch", "is_non_linear_format_io"):
        node.refuse(key, "ONNX Runtime on a processor has no such tensors", problems)
    node.rest(problems)
    about = Declared(node.where(), name, datatype, tuple(dims), has_rows, is_input)
    about = replace(
        about, format=layout, label_file=label_file, reshape=reshape, no_rows=not has_rows
    )
    about = replace(about, optional=optional)
    asked.declared.append(about)


def _reshape(node: Node, dims: list[int], problems: Problems) -> tuple[int, ...] | None:
    """The shape in the graph where it is another one; a reshape never changes the bytes."""
    reshape = node.node("reshape", problems)
    if reshape is None:
        return None
    shape = reshape.values("shape", int, "whole numbers", problems)
    reshape.rest(problems)
    if shape == dims:
        return None
    if min(*shape, *dims, 1) < 1 or math.prod(shape) != math.prod(dims):
        expected = "fixed dimensions, and as many elements in both"
        problems.add(node.where("reshape"), expected, f"{shape} for {dims}")
    return tuple(shape)


def datatype_of(word: str, node: Node, key: str, problems: Problems) -> str:
    """Triton's name of an element type on the wire: TYPE_STRING is BYTES."""
    kind = word.removeprefix("TYPE_")
    if kind not in _TYPES:
        types = ", ".join(f"TYPE_{one}" for one in _TYPES)
        problems.add(node.where(key), f"one of {types}", word or "none")
        return ""
    return "BYTES" if kind == "STRING" else kind


def _instances(asked: Asked, node: Node, devices: Devices, problems: Problems) -> None:
    node.text("name", problems)
    devices.group(node, problems)
    count = node.whole("count", problems, 0, U32_MAX, 0)
    if count > 1:
        asked.notes.append(
            f"{node.where('count')}: {count} is not looked at: each worker runs each model "
            "(engine.thread_count)"
        )
    for key in ("secondary_devices", "rate_limiter", "profile", "host_policy"):
        node.refuse(key, "Lumen's workers share all models", problems)
    if node.has("passive") and node.flag("passive", problems):
        problems.add(node.where("passive"), "false", "true")
    node.rest(problems)


def _parameters(node: Node, problems: Problems) -> list[tuple[str, str, str]]:
    """(place, key, value) of the map `parameters`, as text format or JSON has it."""
    found = []
    for entry in node.nodes("parameters", problems):
        if entry.has("key"):
            pairs: list[tuple[str, Value]] = [(entry.text("key", problems), None)]
            pairs = [(pairs[0][0], value) for _line, value in entry.each("value")]
        else:
            pairs = [(key, value) for key in entry.items for _line, value in entry.each(key)]
        for key, value in pairs:
            if isinstance(value, Node):
                found.append((entry.where(), key, value.text("string_value", problems)))
                value.rest(problems)
            else:
                problems.add(entry.where(), "a mapping with a string_value", said(value))
        entry.rest(problems)
    return found


def _parameter(asked: Asked, where: str, key: str, text: str, problems: Problems) -> None:
    if key == "intra_op_thread_count":
        threads = int(text) if text.isdecimal() and len(text) < 5 else 257
        if threads > 256:
            problems.add(f"{where} {key}", "a whole number, 0..256", repr(text))
        elif threads:
            asked.settings["intra_op_threads"] = threads
    elif key == "inter_op_thread_count":
        if text not in ("0", "1"):
            problems.add(f"{where} {key}", "0 or 1: a Run goes node by node", repr(text))
    elif key == "execution_mode":
        if text != "0":
            problems.add(f"{where} {key}", "0: a Run goes node by node", repr(text))
    elif key == "isolation":
        if text in ("none", "process"):
            asked.settings[key] = text
        else:
            problems.add(f"{where} {key}", "none or process", repr(text))
    elif key in _SESSION_PARAMETERS:
        asked.notes.append(f"{where} {key} is not looked at: engine.allocator_type says that")
    else:
        asked.notes.append(f"{where} {key} is not known here and not looked at")


def _warmup(asked: Asked, node: Node, rows: int, problems: Problems) -> None:
    name = node.text("name", problems)
    batch = node.whole("batch_size", problems, 0, U32_MAX, 0)
    count = node.whole("count", problems, 0, _WARMUP_RUNS_MAX, 1)
    inputs: dict[str, dict[str, Any]] = {}
    files: dict[str, tuple[str, str]] = {}
    for entry in node.nodes("inputs", problems):
        if entry.has("key"):
            pairs = [(entry.text("key", problems), value) for _line, value in entry.each("value")]
        else:
            pairs = [(key, inner) for key in entry.items for _line, inner in entry.each(key)]
        for tensor, inner in pairs:
            if isinstance(inner, Node):
                inputs[tensor] = _warmup_input(asked, tensor, inner, rows > 0, problems)
                if rows > 0:
                    inputs[tensor]["shape"].insert(0, max(batch, 1))
                if inner.has("input_data_file"):
                    where = inner.where("input_data_file")
                    files[tensor] = where, inner.text("input_data_file", problems)
            else:
                problems.add(entry.where(), "a mapping with data_type and dims", said(inner))
        entry.rest(problems)
    node.rest(problems)
    if not inputs:
        problems.add(node.where(), "inputs of the model", "none")
    requests = asked.settings.setdefault("warmup", [])
    for tensor, (where, file) in files.items():
        if plain_name(where, file, problems):
            asked.warmup_files.append((where, file, len(requests), tensor))
    requests.append({"name": name, "count": max(count, 1), "inputs": inputs})


def _warmup_input(
    asked: Asked, name: str, node: Node, has_rows: bool, problems: Problems
) -> dict[str, Any]:
    datatype = datatype_of(node.word("data_type", problems), node, "data_type", problems)
    what = "whole numbers above 0"
    dims = node.values("dims", int, what, problems)
    for dim in dims:
        if not 0 < dim < 2**31:
            problems.add(node.where("dims"), what, str(dim))
    kinds = [key for key in ("zero_data", "random_data", "input_data_file") if node.has(key)]
    if len(kinds) != 1:
        expected = "one of zero_data, random_data and input_data_file"
        problems.add(node.where(), expected, " and ".join(kinds) or "none")
    node.flag("zero_data", problems)
    node.flag("random_data", problems)
    list(node.each("input_data_file"))
    node.rest(problems)
    asked.declared.append(Declared(node.where(), name, datatype, None, has_rows, True))
    return {"shape": dims, "data": "random" if kinds == ["random_data"] else "zeros"}


def _others(asked: Asked, node: Node, devices: Devices, problems: Problems) -> None:
    for key, why in _REFUSED.items():
        node.refuse(key, why, problems)
    transactions = node.node("model_transaction_policy", problems)
    if transactions is not None:
        transactions.refuse("decoupled", "a request has one answer", problems)
        transactions.rest(problems)
    cache = node.node("response_cache", problems)
    if cache is not None:
        if cache.flag("enable", problems):
            asked.settings["response_cache"] = True
        cache.rest(problems)
    optimization = node.node("optimization", problems)
    if optimization is not None:
        accelerators = "execution_accelerators"
        for section in optimization.nodes(accelerators, problems):
            devices.accelerators(section, problems)
        for key in optimization.items.keys() - {accelerators}:
            list(optimization.each(key))
            asked.notes.append(f"{optimization.where(key)} is not looked at: Lumen optimises fully")
    for key in ("metric_tags", "model_metrics"):
        if node.has(key):
            list(node.each(key))
            asked.notes.append(f"{node.where(key)} is not looked at")
    if node.word("runtime", problems):
        asked.notes.append(f"{node.where('runtime')} is not looked at")
