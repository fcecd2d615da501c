"""How loaded the server is, on the metrics page: what autoscalers and balancers read.

Called by metrics/values.py at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from lumen_uring.errors import EngineError
from lumen_uring.ring.report import Load

_TEXTS: Final = {
    "lumen_utilization": "How loaded the server is: busy workers or I/O threads as a share of "
    "them, and requests that wait for each worker; above 1 they queue, 10 while it drains",
    "lumen_requests_waiting": "Requests that wait for a worker",
    "lumen_requests_running": "Requests that a worker has",
}


def collect(report: Callable[[], Load]) -> Iterator[Metric]:
    """The gauges of a reading.

    Args:
        report: says how loaded the server is; may raise EngineError, for one that has ended.
    """
    with suppress(EngineError):
        load = report()
        values = (load.utilization, load.waiting, load.running)
        for (name, text), value in zip(_TEXTS.items(), values, strict=True):
            yield GaugeMetricFamily(name, text, value)
