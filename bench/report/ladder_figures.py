"""What the rungs of `make ladder` brought, and how sure that is.

Called by bench/perf/ladder.py, tested by tests/test_ladder.py. Pure functions over figures that
were taken once a round. A difference must never be called one that the rounds do not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.report.rules import DIFFERENCE_MIN

PERCENTS: Final = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
# Of a hundred comparisons, which a ladder makes, intervals of 95 % would invent five differences.
CONFIDENCE: Final = 0.99
# The bootstrap knows no more rounds than it was given: fewer make its intervals too short.
ROUNDS_MIN: Final = 6
_RESAMPLES: Final = 4000


@dataclass(frozen=True, slots=True)
class Difference:
    """A rung's figure minus its base's, and the bootstrap's interval; µs.

    `sign` is -1 where the rung is faster, 1 where it is slower, 0 where that does not show.
    """

    us: float
    low: float
    high: float
    sign: int


def difference(mine: Sequence[float], base: Sequence[float], seed: int = 1) -> Difference:
    """Compares a rung with the one it stands on.

    Args:
        mine: a figure per round; µs.
        base: of the other rung in the same rounds, so that a drift of the machine hits both.
        seed: of the bootstrap.

    Returns:
        The median of the rounds' differences, and the interval in which medians lie of rounds
        drawn from these with replacement (percentile bootstrap).
    """
    changes = np.asarray(mine, float) - np.asarray(base, float)
    rounds = len(changes)
    drawn = np.random.default_rng(seed).integers(0, rounds, (_RESAMPLES, rounds))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(changes[drawn], axis=1), [tail, 1 - tail])
    us = float(np.median(changes))
    large = abs(us) >= DIFFERENCE_MIN * float(np.median(base))
    shows = rounds >= ROUNDS_MIN and large and (low > 0 or high < 0)
    return Difference(us, float(low), float(high), (1 if us > 0 else -1) if shows else 0)
