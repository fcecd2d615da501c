"""Checks the rules of `experts`: their models, and that each number belongs to one expert.

Called by config.py, on the main thread, with settings whose types are right. It reports each
problem with its place and never raises. That the models have the same tensors, the engine checks.
"""

from __future__ import annotations

from typing import Any

from lumen_uring.settings.key_checks import Path, Report
from lumen_uring.settings.models import ExpertConfig, ExpertsConfig
from lumen_uring.settings.schema import Config
from lumen_uring.settings.types import MODELS_MAX


def check(config: Config, report: Report) -> None:
    """Reports what is wrong with the rules.

    Args:
        config: the checked settings.
        report: takes one problem.
    """
    names = [model.name for model in config.models]
    virtual = {entry.name for entry in config.experts}
    total = len(names) + len(config.experts)
    if total > MODELS_MAX:
        report(("experts",), f"at most {MODELS_MAX} models with those of `models`", f"{total}")
    for index, entry in enumerate(config.experts):
        place: Path = ("experts", index)
        for at, expert in enumerate(entry.experts):
            if expert.model in names:
                continue
            found = f"{expert.model!r}"
            if expert.model in virtual:
                found += ", which has experts itself"
            known = f"the name of a model ({', '.join(names)})"
            report((*place, "experts", at, "model"), known, found)
        if entry.feature == "pixels" and entry.of is not None:
            report((*place, "of"), "null with feature pixels", f"{entry.of!r}")
        (_check_cascade if entry.is_cascade else _check_ranges)(entry, (*place, "experts"), report)


def _check_cascade(entry: ExpertsConfig, place: Path, report: Report) -> None:
    """Each expert's answer stands from a bound on; the last one's stands in any case."""
    for at, expert in enumerate(entry.experts):
        is_last = at == len(entry.experts) - 1
        if expert.below is not None:
            expected = f"null: with feature {entry.feature} an answer stands from at_least on"
            report((*place, at, "below"), expected, f"{expert.below:g}")
        if is_last and expert.at_least is not None:
            expected = "null: the answer of the last expert stands"
            report((*place, at, "at_least"), expected, f"{expert.at_least:g}")
        if not is_last and expert.at_least is None:
            expected = f"the {entry.feature} from which the answer of {expert.model!r} stands"
            report((*place, at, "at_least"), expected, "null")


def _check_ranges(entry: ExpertsConfig, place: Path, report: Report) -> None:
    """The experts' ranges lie one behind the other, from the smallest number to the largest."""
    before: ExpertConfig | None = None
    for at, expert in enumerate(entry.experts):
        is_last = at == len(entry.experts) - 1
        end = None if before is None else before.below
        if expert.at_least is not None and before is None:
            expected = "null, since the first expert takes the smallest numbers"
            report((*place, at, "at_least"), expected, f"{expert.at_least:g}: a gap below")
        elif expert.at_least is not None and end is not None and expert.at_least != end:
            what = "a gap" if expert.at_least > end else "an overlap"
            found = f"{expert.at_least:g}: {what}"
            report((*place, at, "at_least"), f"{end:g}, where the expert before ends", found)
        if is_last and expert.below is not None:
            found = f"{expert.below:g}: a gap from there on"
            report((*place, at, "below"), "null, since the last expert takes the rest", found)
        if not is_last and expert.below is None:
            expected = f"the {entry.feature} below which {expert.model!r} runs"
            report((*place, at, "below"), expected, "null")
        if not is_last and None not in (expert.below, end) and not _above(expert.below, end):
            found = f"{expert.below:g}: an overlap"
            report((*place, at, "below"), f"more than {end:g}, where the one before ends", found)
        before = expert


def _above(number: Any, other: Any) -> bool:
    return bool(number > other)
