"""Reads `sequence_batching` of a model configuration of Triton's into the setting `sequences`.

Called by model_config.py. Triton's two strategies, direct and oldest, say which sequences share a
batch; here each request is a Run of its own, so only their bounds are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lumen_uring.repository.tree import Node, Problems
from lumen_uring.settings.origin import Declared
from lumen_uring.settings.sequences import OPEN_MAX
from lumen_uring.settings.types import U32_MAX

_KINDS: Final = {
    "CONTROL_SEQUENCE_START": "start",
    "CONTROL_SEQUENCE_END": "end",
    "CONTROL_SEQUENCE_READY": "ready",
    "CONTROL_SEQUENCE_CORRID": "id",
}
_VALUES: Final = {
    "int32_false_true": ("INT32", int),
    "fp32_false_true": ("FP32", float),
    "bool_false_true": ("BOOL", bool),
}
_IDLE_US_MAX: Final = 86_400_000_000


@dataclass(slots=True)
class Sequences:
    """What the section asks for."""

    settings: dict[str, Any] = field(default_factory=dict)  # of SequencesConfig, but for files
    files: dict[str, tuple[str, str]] = field(default_factory=dict)  # by input: (where, file)
    declared: list[Declared] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Read = Callable[[Node, str, Problems], str]  # the word of a key
Datatype = Callable[[str, Node, str, Problems], str]


def read_sequences(
    node: Node, rows: int, word: Read, datatype_of: Datatype, problems: Problems
) -> Sequences:
    """Reads the section.

    Args:
        node: of sequence_batching.
        rows: max_batch_size: above 0 the graph's tensors have the rows in front.
        word, datatype_of: of model_config.py.
        problems: takes what is wrong.

    Returns:
        What it asks for, as far as it is right.
    """
    asked = Sequences()
    idle_us = node.whole("max_sequence_idle_microseconds", problems, 0, _IDLE_US_MAX, 0)
    if idle_us:
        asked.settings["idle_ms"] = max(1, idle_us // 1000)
    for strategy in ("direct", "oldest"):
        inner = node.node(strategy, problems)
        if inner is not None:
            _strategy(asked, inner, problems)
    for control in node.nodes("control_input", problems):
        name = _name(control, "name", problems)
        for one in control.nodes("control", problems):
            _control(asked, one, name, rows, word, datatype_of, problems)
        control.rest(problems)
    for state in node.nodes("state", problems):
        _state(asked, state, rows, word, datatype_of, problems)
    node.refuse("iterative_sequence", "a request has one answer", problems)
    node.rest(problems)
    if not asked.settings.keys() & {"start", "end", "ready", "id", "state"}:
        problems.add(node.where(), "a control_input or a state", "neither")
    return asked


def _name(node: Node, key: str, problems: Problems) -> str:
    name = node.text(key, problems)
    if not name:
        problems.add(node.where(key), "the name of a tensor", "none")
    return name


def _strategy(asked: Sequences, node: Node, problems: Problems) -> None:
    most = node.whole("max_candidate_sequences", problems, 0, OPEN_MAX, 0)
    if most:
        asked.settings["max_open"] = most
    node.whole("max_queue_delay_microseconds", problems, 0, U32_MAX, 0)
    node.values("preferred_batch_size", int, "whole numbers", problems)
    node.flag("preserve_ordering", problems)  # a sequence has one request at a time
    node.value("minimum_slot_utilization", float, "a number", problems)
    ignored = [key for key in node.items if key != "max_candidate_sequences"]
    if ignored:
        fields = ", ".join(ignored)
        asked.notes.append(f"{node.where()}: {fields}: not looked at: sequences share no batch")
    node.rest(problems)


def _control(
    asked: Sequences,
    node: Node,
    name: str,
    rows: int,
    word: Read,
    datatype_of: Datatype,
    problems: Problems,
) -> None:
    kind = word(node, "kind", problems)
    setting = _KINDS.get(kind)
    if setting is None:
        problems.add(node.where("kind"), f"one of {', '.join(_KINDS)}", kind or "none")
    elif setting in asked.settings:
        problems.add(node.where("kind"), f"one input of {kind}", f"a second one, {name!r}")
    else:
        asked.settings[setting] = name
    datatype = ""
    for key, (kept, type_) in _VALUES.items():
        what = "a value for false and one for true"
        values: list[Any] = node.values(key, type_, what, problems)
        if values and [float(value) for value in values] != [0, 1]:
            problems.add(node.where(key), "[0, 1]", str(values))
        datatype = kept if values else datatype
    if node.has("data_type"):
        datatype = datatype_of(word(node, "data_type", problems), node, "data_type", problems)
    node.rest(problems)
    # One element, in a shape that only the graph knows.
    asked.declared.append(Declared(node.where(), name, datatype, None, rows > 0, True))


def _state(
    asked: Sequences,
    node: Node,
    rows: int,
    word: Read,
    datatype_of: Datatype,
    problems: Problems,
) -> None:
    name, output = _name(node, "input_name", problems), _name(node, "output_name", problems)
    datatype = datatype_of(word(node, "data_type", problems), node, "data_type", problems)
    dims = _dims(node, problems)
    asked.settings.setdefault("state", {})[name] = output
    for key in ("use_same_buffer_for_input_output", "use_growable_memory"):
        if node.flag(key, problems) and key.endswith("growable_memory"):
            problems.add(node.where(key), "false: a state has one size", "true")
    initials = node.nodes("initial_state", problems)
    for initial in initials:
        initial.text("name", problems)
        datatype_of(word(initial, "data_type", problems), initial, "data_type", problems)
        _dims(initial, problems)
        initial.flag("zero_data", problems)
        if initial.has("data_file"):
            asked.files[name] = initial.where("data_file"), initial.text("data_file", problems)
        initial.rest(problems)
    if len(initials) > 1:
        expected = "one initial_state: a state is of one row"
        problems.add(node.where("initial_state"), expected, f"{len(initials)}")
    node.rest(problems)
    shape = (1, *dims) if rows else tuple(dims)
    asked.declared.append(Declared(node.where(), name, datatype, shape, False, True))


def _dims(node: Node, problems: Problems) -> list[int]:
    what = "whole numbers above 0: a state has one size"
    dims = node.values("dims", int, what, problems)
    for dim in dims:
        if not 0 < dim < 2**31:
            problems.add(node.where("dims"), what, str(dim))
    return dims
