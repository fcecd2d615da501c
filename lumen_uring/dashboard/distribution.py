"""How often each latency was met: of single requests, or of a histogram's buckets.

Used by figures.py and runs.py. Percentiles are by nearest rank, as those of the server's own
statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

PERCENTS: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}
_CURVE_STEPS: Final = 40  # for each tenth that is left


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Ascending values in µs, and how many requests had each."""

    values_us: Floats
    counts: Counts

    @staticmethod
    def of(values_us: npt.NDArray[Any]) -> Distribution:
        """The distribution of single values; µs."""
        ordered = np.sort(values_us.astype(np.float64))
        return Distribution(ordered, np.ones(len(ordered), np.int64))

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self.counts.sum())

    def mean_us(self) -> float:
        """The mean; NaN when empty."""
        count = self.count
        return float(self.values_us @ self.counts) / count if count else math.nan

    def percentile_us(self, percent: float) -> float:
        """The value that `percent` of all values do not exceed.

        Args:
            percent: 0..100.

        Returns:
            µs; NaN when so few values cannot tell, which takes one beyond the percentile.
        """
        count = self.count
        if count * (100 - percent) / 100 < 1 - 1e-9:
            return math.nan
        rank = max(1, math.ceil(round(percent / 100 * count, 6)))
        return float(self.values_us[np.searchsorted(np.cumsum(self.counts), rank)])

    def curve(self) -> list[tuple[float, float]]:
        """Points of the percentile curve, evenly spaced where its axis is.

        Returns:
            One of how many requests is slower (2 for p50, 100 for p99), and the latency in µs; up
            to the slowest request.
        """
        count = self.count
        if not count:
            return []
        steps = np.arange(0, math.ceil(math.log10(count) * _CURVE_STEPS) + 1) / _CURVE_STEPS
        least = min(2.0, float(count))
        one_of = np.unique(np.clip(10.0**steps, least, float(count)))
        ranks = np.maximum(1, np.ceil(np.round((1 - 1 / one_of) * count, 6)))
        ranks[-1] = count
        found = self.values_us[np.searchsorted(np.cumsum(self.counts), ranks)]
        return [(float(x), float(y)) for x, y in zip(one_of, found, strict=True)]
