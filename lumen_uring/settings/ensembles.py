"""Checks the steps of `ensembles`: their models, and that none takes what a later one makes.

Called by config.py, on the main thread, with settings whose types are right. It reports each
problem with its place and never raises. That the tensors fit each other, the engine checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumen_uring.settings.schema import Config
from lumen_uring.settings.types import MODELS_MAX

if TYPE_CHECKING:
    from lumen_uring.settings.key_checks import Path, Report


def check(config: Config, report: Report) -> None:
    """Reports what is wrong with the steps.

    Args:
        config: the checked settings.
        report: takes one problem.
    """
    names = [model.name for model in config.models]
    names += [entry.name for entry in config.experts]
    ensembles = {entry.name for entry in config.ensembles}
    total = len(names) + len(ensembles)
    if config.ensembles and total > MODELS_MAX:
        expected = f"at most {MODELS_MAX} models with those of `models` and `experts`"
        report(("ensembles",), expected, f"{total}")
    for index, entry in enumerate(config.ensembles):
        made: dict[str, int] = {}
        for at, step in enumerate(entry.steps):
            for name in step.outputs.values():
                made.setdefault(name, at)
        for at, step in enumerate(entry.steps):
            place: Path = ("ensembles", index, "steps", at)
            if step.model not in names:
                found = f"{step.model!r}"
                if step.model in ensembles:
                    found += ", an ensemble"
                known = f"the name of a model or of experts ({', '.join(names)})"
                report((*place, "model"), known, found)
            for tensor, name in step.inputs.items():
                if made.get(name, -1) >= at:
                    found = f"{name!r} for {tensor!r}, which step {made[name]} makes"
                    report((*place, "inputs"), "what an earlier step makes", found)
