"""Log-linear histograms of nanoseconds, as the engine's threads write them.

Used by stats.py and by tools that merge figures of several servers, on any thread. The arithmetic
is that of c/include/lumen_stats.h; values are exact counts, only their position is rounded (to
under 1 %). Nothing here touches a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import StatsError

Counts = npt.NDArray[np.uint64]
SUB_BITS_MAX: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Counts per bucket.

    Args:
        counts: uint64 [buckets].
        sub_bits: 2^sub_bits buckets per power of two, 0..16.
        unit_bits: the first buckets are 2^unit_bits ns wide, 0..16.
        sum_ns: the exact sum of all values; None where only the buckets are kept.
    """

    counts: Counts
    sub_bits: int
    unit_bits: int
    sum_ns: int | None = None

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return int(self.counts.sum(dtype=np.uint64))

    def mean_ns(self) -> float:
        """The mean, by bucket midpoints when there is no exact sum; ns, NaN when empty."""
        count = self.count
        if count == 0:
            return math.nan
        if self.sum_ns is not None:
            return self.sum_ns / count
        used = np.flatnonzero(self.counts)
        total = sum(int(self.counts[index]) * self.midpoint_ns(int(index)) for index in used)
        return total / count

    def percentile_ns(self, percent: float) -> float:
        """The value that `percent` of all values do not exceed, by nearest rank.

        Args:
            percent: 0..100, for example 99.9.

        Returns:
            The midpoint of the bucket that holds it; ns, NaN when empty.

        Raises:
            ValueError: percent is out of range.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent: expected 0..100, found {percent}")
        count = self.count
        if count == 0:
            return math.nan
        # Rounded first: 99.9 / 100 * 1000 is 999.0000000000001 in binary, whose ceiling is 1000.
        rank = max(1, math.ceil(round(percent / 100 * count, 6)))
        cumulative = np.cumsum(self.counts, dtype=np.uint64)
        return self.midpoint_ns(int(np.searchsorted(cumulative, np.uint64(rank))))

    def midpoint_ns(self, bucket: int) -> float:
        """The middle of a bucket's range; ns.

        Args:
            bucket: 0..buckets-1.
        """
        low, width = bucket_range(bucket, self.sub_bits, self.unit_bits)
        return low + (width - 1) / 2

    def plus(self, other: Histogram) -> Histogram:
        """Adds another histogram of the same layout.

        Raises:
            StatsError: the layouts differ.
        """
        self._same_layout(other)
        both = None if self.sum_ns is None or other.sum_ns is None else self.sum_ns + other.sum_ns
        return Histogram(self.counts + other.counts, self.sub_bits, self.unit_bits, both)

    def minus(self, earlier: Histogram) -> Histogram:
        """Subtracts an earlier reading of the same histogram.

        Raises:
            StatsError: the layouts differ, or a count went down.
        """
        self._same_layout(earlier)
        if bool(np.any(self.counts < earlier.counts)):
            raise StatsError("A histogram's count went down: the readings are of two servers.")
        known = self.sum_ns is not None and earlier.sum_ns is not None
        rest = (self.sum_ns or 0) - (earlier.sum_ns or 0) if known else None
        return Histogram(self.counts - earlier.counts, self.sub_bits, self.unit_bits, rest)

    def _same_layout(self, other: Histogram) -> None:
        mine = (len(self.counts), self.sub_bits, self.unit_bits)
        theirs = (len(other.counts), other.sub_bits, other.unit_bits)
        if mine != theirs:
            raise StatsError(f"Histograms of layouts {mine} and {theirs} cannot be combined.")


def bucket_of(value_ns: int, sub_bits: int, unit_bits: int) -> int:
    """The bucket a value falls in, before the last bucket's cap.

    Args:
        value_ns: at least 0.
        sub_bits: of the layout.
        unit_bits: of the layout.

    Source:
        c/include/lumen_stats.h, "statistics"
    """
    if value_ns < 1 << (sub_bits + unit_bits):
        return value_ns >> unit_bits
    exponent = value_ns.bit_length() - 1
    octave = exponent - sub_bits - unit_bits
    return (octave << sub_bits) + (value_ns >> (exponent - sub_bits))


def bucket_range(bucket: int, sub_bits: int, unit_bits: int) -> tuple[int, int]:
    """A bucket's lowest value and its width; ns.

    Args:
        bucket: at least 0.
        sub_bits: of the layout.
        unit_bits: of the layout.
    """
    octave = max(0, (bucket >> sub_bits) - 1)
    low = (bucket - (octave << sub_bits)) << (octave + unit_bits)
    return low, 1 << (octave + unit_bits)
