"""Reads the steps of an ensemble of Triton's: `ensemble_scheduling` of a model's configuration.

Called by model_config.py. Triton runs a step once its tensors are there; here steps stand in an
order in which each has what it takes.
"""

from __future__ import annotations

from typing import Any

from lumen_uring.repository.tree import Node, Problems


def steps_of(node: Node, problems: Problems) -> list[dict[str, Any]]:
    """Reads the steps.

    Args:
        node: of ensemble_scheduling.
        problems: takes what is wrong.

    Returns:
        Entries of an ensemble's `steps`, each behind those whose outputs it takes.
    """
    steps = [_step(step, problems) for step in node.nodes("step", problems)]
    if not steps:
        problems.add(node.where(), "at least one step", "none")
    node.rest(problems)
    makers = {name for step in steps for name in step["outputs"].values()}
    known: set[str] = set()
    ordered: list[dict[str, Any]] = []
    waiting = steps
    while waiting:
        ready = [one for one in waiting if makers & {*one["inputs"].values()} <= known]
        if not ready:
            models = ", ".join(one["model"] for one in waiting)
            expected = "steps that do not wait for each other"
            problems.add(node.where("step"), expected, f"a circle of {models}")
            break
        ordered.append(ready[0])
        known |= {*ready[0]["outputs"].values()}
        waiting = [one for one in waiting if one is not ready[0]]
    return ordered


def inputs_of(steps: list[dict[str, Any]]) -> set[str]:
    """The tensors that a request brings: those that no step makes."""
    taken = {name for step in steps for name in step["inputs"].values()}
    return taken - {name for step in steps for name in step["outputs"].values()}


def _step(node: Node, problems: Problems) -> dict[str, Any]:
    model = node.text("model_name", problems)
    if not model:
        problems.add(node.where("model_name"), "the name of a model", "none")
    version = node.value("model_version", int, "a whole number", problems)
    if version is not None and version != -1 and version < 1:
        problems.add(node.where("model_version"), "a version, or -1: the highest", str(version))
    node.text("model_namespace", problems)
    found = {
        "model": f"{model}:{version}" if version is not None and version > 0 else model,
        "inputs": _names(node, "input_map", problems),
        "outputs": _names(node, "output_map", problems),
    }
    node.rest(problems)
    return found


def _names(node: Node, key: str, problems: Problems) -> dict[str, str]:
    """A map from the model's tensors to the ensemble's: entries with key and value, or of JSON."""
    names: dict[str, str] = {}
    for entry in node.nodes(key, problems):
        if entry.has("key"):
            pair = entry.text("key", problems), entry.text("value", problems)
            names[pair[0]] = pair[1]
            entry.rest(problems)
        else:
            names |= {tensor: entry.text(tensor, problems) for tensor in entry.items}
    return names
