"""Compares the tensors that a model's configuration declares with those of its graph.

Called by loading/add.py once the engine has read the graph. Both sides are shown, and the file's
place.
"""

from __future__ import annotations

from typing import Any

from lumen_uring.settings.origin import Declared, Origin


def disagreements(origin: Origin, entry: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Compares.

    Args:
        origin: of the model's entry.
        entry: of the engine's description of the model.

    Returns:
        A line for each contradiction, and notes on what the graph allows beyond the declaration.
    """
    problems: list[str] = []
    notes: list[str] = []
    for is_input, key in ((True, "inputs"), (False, "outputs")):
        graph = {tensor["name"]: tensor for tensor in entry[key]}
        required = graph.keys()
        if is_input:
            for tensor in entry.get("optional_inputs", ()):
                graph = {**graph, tensor["name"]: {**tensor, "optional": True}}
        hidden = entry.get("sequences", {}).get(key, ())
        of_sequences = {tensor["name"]: tensor for tensor in hidden}
        declared = [one for one in origin.declared if one.is_input == is_input]
        for one in declared:
            tensor = graph.get(one.name) or of_sequences.get(one.name)
            if tensor is None:
                known = f"an {key[:-1]} of the graph ({', '.join(graph)})"
                problems.append(f"{one.where}: expected {known}, found {one.name!r}")
            else:
                _compare(one, tensor, problems, notes)
                if one.optional and not tensor.get("optional", False):
                    notes.append(
                        f"{one.where} {one.name!r}: optional is not looked at: the graph has no "
                        "value for it, so that each request brings it"
                    )
        missing = required - {one.name for one in declared}
        is_whole = any(one.name in graph for one in declared)
        if is_input and is_whole and missing:
            problems.append(
                f"{declared[0].where}: expected all inputs of the graph, found none for "
                f"{', '.join(sorted(missing))}"
            )
    return problems, notes


def _compare(one: Declared, tensor: dict[str, Any], problems: list[str], notes: list[str]) -> None:
    where = f"{one.where} {one.name!r}"
    if one.datatype not in ("", tensor["datatype"]):
        problems.append(
            f"{where}: expected {tensor['datatype']} as in the graph, found {one.datatype}"
        )
    shape, graph = one.shape(), tensor["shape"]
    if shape is None or "max_rank" in tensor or not tensor.get("shape_known", True):
        return
    rows = " with the rows of max_batch_size in front" if one.has_rows else ""
    # A free dimension there, which the graph knows, is what the graph says.
    pairs = zip(shape, graph, strict=False)
    differs = any(mine != its for mine, its in pairs if -1 not in (mine, its))
    if len(shape) != len(graph) or differs:
        problems.append(f"{where}: expected the graph's shape {graph}, found {shape}{rows}")
    elif shape != graph and one.reshape is None:
        notes.append(f"{where} is {shape} there and {graph} in the graph: the graph's counts")
