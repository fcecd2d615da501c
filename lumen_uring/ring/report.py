"""How loaded the engine is, as its answers say it to balancers.

Used by engine.py; asked by the metrics page and the agent checks, on their threads.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_uint32
from dataclasses import dataclass

from lumen_uring.ring.handle import Handle


class LumenLoadReport(ctypes.Structure):
    """lumen_load_report: of about the last quarter of a second."""

    _fields_ = [
        ("utilization", c_double),
        ("answered", c_double),
        ("failed", c_double),
        ("waiting", c_uint32),
        ("running", c_uint32),
        ("leaving", c_uint32),
        ("reserved", c_uint32),
    ]


@dataclass(frozen=True, slots=True)
class Load:
    """Of about the last quarter of a second.

    Attributes:
        utilization: busy workers or I/O threads, whichever are busier, as a share of them, and
            requests that wait for each worker; 10 before the end.
        answered: requests a second.
        failed: those that were refused for lack of time or room, or failed, a second.
        waiting: requests for a worker, now.
        running: requests with one, now.
        leaving: the server is about to end.
    """

    utilization: float = 0.0
    answered: float = 0.0
    failed: float = 0.0
    waiting: int = 0
    running: int = 0
    leaving: bool = False


class Report(Handle):
    """The load that an engine reports."""

    def report_load(self) -> Load:
        """How loaded it is.

        Raises:
            EngineError: it does not run.

        Source:
            lumen_report_load
        """
        report = LumenLoadReport()
        self._check(self._library.lumen_report_load(self._open_handle(), ctypes.byref(report)))
        figures = (report.utilization, report.answered, report.failed)
        return Load(*figures, report.waiting, report.running, bool(report.leaving))
