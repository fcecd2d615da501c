"""The parts that all charts have: axes, colours, ticks; plain dicts as Vega-Lite has them.

Used by charts.py alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Spec = dict[str, Any]
Row = Mapping[str, Any]

# Okabe and Ito's colours, which people who see few colours can tell apart.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a6d00")
TIME: Final = (
    "datum.value >= 1e6 ? format(datum.value / 1e6, '~r') + ' s' : "
    "datum.value >= 1e3 ? format(datum.value / 1e3, '~r') + ' ms' : "
    "format(datum.value, '~r') + ' µs'"
)
PERCENTILE: Final = (
    "datum.value <= 2 ? 'p50' : 'p' + format(100 - 100 / datum.value, "
    "datum.value <= 100 ? 'd' : datum.value <= 1000 ? '.1f' : datum.value <= 10000 ? '.2f' : '.3f')"
)
_HEIGHT: Final = 260
# The ticks of each power of ten, by how many of these an axis has.
_STEPS: Final[tuple[tuple[float, tuple[float, ...]], ...]] = (
    (0.3, (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.3, 2.6, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)),
    (0.6, (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)),
    (1.5, (1, 1.5, 2, 3, 5, 7)),
    (2.5, (1, 2, 5)),
    (4, (1, 3)),
)
EACH: Final = 26  # a line of a chart that has a line for each name


def spec(rows: Iterable[Row], height: int | Spec = _HEIGHT, **parts: Any) -> Spec:
    """A chart of these rows; `height` in pixels, or {"step": those of each name}."""
    values = [{name: _value(value) for name, value in row.items()} for row in rows]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": values},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "height": height,
        **parts,
    }


def _value(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def time_axis(field: str, title: str, values: Iterable[float]) -> Spec:
    """A logarithmic axis of times with ticks such as 200 µs, 1 ms, 5 ms."""
    return log_axis(field, title, values, labelExpr=TIME)


def log_axis(field: str, title: str, values: Iterable[float], **axis: Any) -> Spec:
    """A logarithmic axis that holds these values."""
    marks = ticks([value for value in values if 0 < value < math.inf])
    scale = {"type": "log", "domain": [marks[0], marks[-1]], "nice": False}
    return number_axis(field, title, scale=scale, axis={"values": marks, **axis})


def ticks(values: Sequence[float]) -> list[float]:
    """Round numbers that enclose all values, for a logarithmic axis.

    Args:
        values: above 0.

    >>> ticks([30.0, 4000.0])
    [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0]
    >>> ticks([0.9, 1.4])
    [0.9, 1.0, 1.1, 1.2, 1.3, 1.5]
    """
    low, high = min(values, default=1.0), max(values, default=10.0)
    decades = math.log10(high / low)
    steps = next((steps for most, steps in _STEPS if decades < most), (1.0,))
    first = math.floor(math.log10(low)) - 1
    powers = range(first, math.ceil(math.log10(high)) + 2)
    marks = [float(f"{step * 10.0**power:.6g}") for power in powers for step in steps]
    begin = max(at for at, mark in enumerate(marks) if mark <= low)
    end = min(at for at, mark in enumerate(marks) if mark >= high)
    return marks[begin : max(end, begin + 1) + 1]


def number_axis(field: str, title: str, **more: Any) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def words_of(field: str, title: str | None, **more: Any) -> Spec:
    """A channel of names."""
    return {"field": field, "type": "nominal", "title": title, **more}


def name_axis(field: str, sort: Any = None, grid: bool = True) -> Spec:
    """An axis with a line for each name, in the order of the data."""
    axis = {"labelLimit": 360, "grid": grid, "labelOverlap": False}
    return words_of(field, None, sort=sort, axis=axis)


def colour_of(field: str, title: str | None, domain: Sequence[str] | None = None) -> Spec:
    """A colour for each name, and a legend above the chart."""
    scale: Spec = {"range": list(COLOURS)} | ({"domain": list(domain)} if domain else {})
    legend = {"orient": "top", "labelLimit": 400, "columns": 5}
    return words_of(field, title, scale=scale, legend=legend)
