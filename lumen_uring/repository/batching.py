"""Reads `dynamic_batching` of a model configuration of Triton's: batches, and the queue.

Called by model_config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lumen_uring.repository.tree import Node, Problems
from lumen_uring.settings.types import BATCH_DELAY_US_MAX, BATCH_MAX, U32_MAX, U64_MAX


@dataclass(slots=True)
class Batching:
    """The settings that the file asks for, and notes about the rest."""

    settings: dict[str, Any] = field(default_factory=dict)  # of ModelConfig
    notes: list[str] = field(default_factory=list)


def read_batching(node: Node, rows: int, problems: Problems) -> Batching:
    """Reads `dynamic_batching`.

    Args:
        node: of the model's configuration.
        rows: its max_batch_size.
        problems: takes what is wrong.

    Returns:
        What it asks for; nothing where it is not there.
    """
    asked = Batching()
    batching = node.node("dynamic_batching", problems)
    if batching is None:
        return asked
    key = "max_queue_delay_microseconds"
    delay_us = batching.whole(key, problems, 0, U64_MAX, 0)
    if delay_us > BATCH_DELAY_US_MAX:
        asked.notes.append(f"{batching.where(key)}: a worker waits {BATCH_DELAY_US_MAX} us at most")
    if rows == 0:
        where = node.where("dynamic_batching")
        asked.notes.append(f"{where}: no batches: max_batch_size is 0, requests have no rows")
    if rows > 1:
        delay_us = min(delay_us, BATCH_DELAY_US_MAX)
        asked.settings |= {"batch_size": min(rows, BATCH_MAX), "batch_delay_us": delay_us}
    if rows > BATCH_MAX:
        asked.notes.append(f"{node.where('max_batch_size')}: a batch has at most {BATCH_MAX} rows")
    preferred = batching.values("preferred_batch_size", int, "whole numbers", problems)
    wrong = [size for size in preferred if not 1 <= size <= max(rows, 1)]
    for size in wrong:
        where = batching.where("preferred_batch_size")
        problems.add(where, f"whole numbers, 1..{max(rows, 1)} (max_batch_size)", str(size))
    kept = sorted({size for size in preferred if size <= BATCH_MAX} - set(wrong))
    if rows > 1 and kept:
        asked.settings["batch_preferred"] = tuple(kept)
    if batching.flag("preserve_ordering", problems):
        where = batching.where("preserve_ordering")
        asked.notes.append(f"{where} is not looked at: each connection has its answers in order")
    _priorities(asked, batching, problems)
    policy = batching.node("default_queue_policy", problems)
    if policy is not None:
        _queue_policy(asked, policy, problems)
    batching.rest(problems)
    return asked


def _priorities(asked: Batching, batching: Node, problems: Problems) -> None:
    """One level is one queue, which is what Lumen has."""
    levels = batching.whole("priority_levels", problems, 0, U64_MAX, 0)
    default = batching.whole("default_priority_level", problems, 0, U64_MAX, 0)
    if levels > 1:
        expected = "0 or 1: requests of all priorities wait in one queue"
        problems.add(batching.where("priority_levels"), expected, str(levels))
    elif default > levels:
        found = str(default)
        problems.add(batching.where("default_priority_level"), f"at most {levels}", found)
    if batching.has("priority_queue_policy"):
        list(batching.each("priority_queue_policy"))
        where = batching.where("priority_queue_policy")
        if levels < 2:
            asked.notes.append(f"{where} is not looked at: there is one queue")


def _queue_policy(asked: Batching, policy: Node, problems: Problems) -> None:
    """How many requests may wait, and how long."""
    action = policy.word("timeout_action", problems) or "REJECT"
    timeout_us = policy.whole("default_timeout_microseconds", problems, 0, U64_MAX, 0)
    waiting = policy.whole("max_queue_size", problems, 0, U32_MAX, 0)
    policy.flag("allow_timeout_override", problems)  # a request's own deadline counts anyway
    policy.rest(problems)
    if action not in ("REJECT", "DELAY"):
        problems.add(policy.where("timeout_action"), "REJECT or DELAY", action)
    if waiting:
        asked.settings["max_queued"] = waiting
    if timeout_us and action == "REJECT":
        asked.settings["queue_timeout_us"] = timeout_us
    elif timeout_us:
        asked.notes.append(
            f"{policy.where('timeout_action')} is not looked at: a request keeps its place in the "
            "queue, however long it has waited"
        )
