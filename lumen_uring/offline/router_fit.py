"""Finds the threshold of a rule: the cheapest one that still answers as the dense model.

Called by commands/fit_router.py, on the main thread, and by tests. Pure: numbers in, numbers out.

The threshold is chosen on one part of the samples and judged on the other. Chosen is the one that
gives the light model most, among those of which the exact binomial bound on the first part says, at
95 %, that the agreement is at least as wanted. The intervals of the second part are bootstrapped
over groups, since the crops of a picture are not independent of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SEED: Final = 1
RISK: Final = 0.05  # of the bound by which the threshold is chosen
HELD_OUT_PART: Final = 1 / 3
_RESAMPLES: Final = 2000
_INTERVAL: Final = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Samples:
    """What both models said of each row.

    `value` is the feature, `agrees` whether both have the same first class, `group` the number of
    the row's picture. `light_s` and `dense_s` are seconds of a Run, `rule_s` of the feature. Of a
    cascade the light model takes rows of a large value, and runs for each row.
    """

    value: Floats
    agrees: npt.NDArray[np.bool_]
    group: npt.NDArray[np.int64]
    light_s: float
    dense_s: float
    rule_s: float
    is_cascade: bool

    def light(self, bound: float) -> npt.NDArray[np.bool_]:
        """The rows that the light model answers; a value that is no number is the dense one's."""
        return self.value >= bound if self.is_cascade else self.value < bound

    def part(self, chosen: npt.NDArray[np.bool_]) -> Samples:
        """Some of the rows."""
        return Samples(
            self.value[chosen],
            self.agrees[chosen],
            self.group[chosen],
            self.light_s,
            self.dense_s,
            self.rule_s,
            self.is_cascade,
        )

    def saved(self, share: float) -> float:
        """The part of the dense model's time that is saved where the light one answers a share."""
        dense_s = (1 - share) * self.dense_s
        light_s = self.light_s if self.is_cascade else share * self.light_s
        return 1 - (dense_s + light_s + self.rule_s) / self.dense_s


class Interval(NamedTuple):
    """A figure with the ends of its 95 % interval."""

    figure: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a threshold does on a part of the samples."""

    rows: int
    groups: int
    agreement: Interval
    light: Interval
    saved: Interval


@dataclass(frozen=True, slots=True)
class Point:
    """One threshold of the curve, on all samples."""

    bound: float
    light: float
    agreement: float
    saved: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The threshold; None where none is good enough. `wrong` is how many of its rows the light
    model answers otherwise, `allowed` how many may be, -1 where the rows are too few."""

    bound: float | None
    wrong: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The threshold, and what it does on the rows that it was chosen by and on the others."""

    choice: Choice
    fitted: Judgement
    held_out: Judgement
    curve: tuple[Point, ...]


def allowed_errors(rows: int, agreement: float) -> int:
    """How many of some rows may be wrong so that the agreement is at least as said, at 95 %.

    Args:
        rows: 1 or more.
        agreement: above 0, below 1.

    Returns:
        -1 where not even none would do.

    >>> allowed_errors(298, 0.99), allowed_errors(299, 0.99), allowed_errors(1000, 0.99)
    (-1, 0, 4)
    """
    sum_, errors = 0.0, -1
    while errors + 1 < rows:
        k = errors + 1
        log = math.lgamma(rows + 1) - math.lgamma(k + 1) - math.lgamma(rows - k + 1)
        sum_ += math.exp(log + k * math.log1p(-agreement) + (rows - k) * math.log(agreement))
        if sum_ > RISK:
            return errors
        errors = k
    return errors


def choose(samples: Samples, agreement: float) -> Choice:
    """Chooses the threshold that saves most.

    Args:
        samples: all that it may be chosen by.
        agreement: with the dense model; above 0, below 1.
    """
    allowed = allowed_errors(len(samples.value), agreement)
    bounds = _bounds(samples)
    wrong = [int((samples.light(bound) & ~samples.agrees).sum()) for bound in bounds]
    chosen = max((at for at, each in enumerate(wrong) if each <= allowed), default=None)
    if chosen is None:
        return Choice(None, 0, allowed)
    return Choice(bounds[chosen], wrong[chosen], allowed)


def fit(samples: Samples, agreement: float) -> Fit:
    """Chooses the threshold and judges it.

    Args:
        samples: of at least two groups.
        agreement: with the dense model; above 0, below 1.
    """
    held = _held_out(samples)
    first, second = samples.part(~held), samples.part(held)
    choice = choose(first, agreement)
    nothing = -math.inf if not samples.is_cascade else math.inf
    used = nothing if choice.bound is None else choice.bound
    return Fit(
        choice,
        judge(first, used),
        judge(second, used),
        tuple(_point(samples, each) for each in _bounds(samples)),
    )


def judge(samples: Samples, bound: float) -> Judgement:
    """Says what a threshold does, with intervals over groups.

    Args:
        samples: to judge it on.
        bound: the threshold.
    """
    light = samples.light(bound)
    right = ~light | samples.agrees
    share = share_of(light, samples.group)
    saved = Interval(*(samples.saved(each) for each in (share.figure, share.low, share.high)))
    groups = len(np.unique(samples.group))
    agreement = share_of(right, samples.group)
    if right.all():  # no resample shows an error that has not been seen
        agreement = Interval(1.0, ((100 - _INTERVAL[1]) / 100) ** (1 / groups), 1.0)
    return Judgement(len(light), groups, agreement, share, saved)


def share_of(marked: npt.NDArray[np.bool_], group: npt.NDArray[np.int64]) -> Interval:
    """The share of rows that are marked, with an interval from resampled groups.

    Args:
        marked: of each row.
        group: the number of each row's group.
    """
    names, place = np.unique(group, return_inverse=True)
    sums = np.zeros((2, len(names)))  # of each group: rows, and those marked
    np.add.at(sums[0], place, 1)
    np.add.at(sums[1], place, marked)
    draws = np.random.default_rng(SEED).integers(len(names), size=(_RESAMPLES, len(names)))
    rows, found = sums[:, draws].sum(axis=2)
    low, high = np.percentile(found / rows, _INTERVAL)
    return Interval(float(marked.mean()), float(low), float(high))


def _held_out(samples: Samples) -> npt.NDArray[np.bool_]:
    """Which rows judge: those of a third of the groups."""
    groups = np.unique(samples.group)
    order = np.random.default_rng(SEED).permutation(groups)
    count = max(1, round(len(groups) * HELD_OUT_PART))
    return np.isin(samples.group, order[:count])


def _bounds(samples: Samples) -> list[float]:
    """A threshold between each two values, and one behind the last: the light one's share grows."""
    values = np.unique(samples.value[np.isfinite(samples.value)])
    if not len(values):
        return []
    if samples.is_cascade:
        values = values[::-1]
        return [*(_between(b, a) for a, b in pairwise(values)), float(values[-1])]
    last = float(np.nextafter(values[-1], math.inf))
    return [*(_between(a, b) for a, b in pairwise(values)), last]


def _between(low: float, high: float) -> float:
    """A number between two, the upper one included, with few digits where some will do."""
    middle = (low + high) / 2
    for digits in range(3, 17):
        short = float(f"{middle:.{digits}g}")
        if low < short <= high:
            return short
    return float(high)


def _point(samples: Samples, bound: float) -> Point:
    light = samples.light(bound)
    share = float(light.mean())
    return Point(bound, share, float((~light | samples.agrees).mean()), samples.saved(share))
