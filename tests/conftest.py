"""Settings of all tests, the check for the C library, and the check of every skip."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import needs
import pytest
from hypothesis import HealthCheck, settings

# No test judges a time: these machines are shared and noisy. What is `too_slow` for Hypothesis
# depends on them alone.
settings.register_profile("lumen", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lumen")

# Collecting what a thousand tests hold, again and again, took a twentieth of their time.
gc.set_threshold(100_000, 50, 50)


@pytest.fixture(scope="session")
def c_library() -> None:
    """Fails the test where the C library has not been built: `make dev` builds it."""
    from lumen_uring.ring import library

    library.find()  # not loaded here: a sanitizer's variant would need its runtime first


# ---- skips ----


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turns a skip into a failure where this machine should have what it needs."""
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        problem = needs.problem(report.longrepr[2])
        if problem is not None:
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid}: {problem}"


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Iterator[None]:
    outcome = yield
    _judge(outcome.get_result())  # type: ignore[attr-defined]


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Iterator[None]:
    outcome = yield
    _judge(outcome.get_result())  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """What is imported and collected stays: the collector need not look at it again and again, nor
    in what is forked."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each skipped test by name, with its reason; tools/fresh.py reads these lines."""
    for report in terminalreporter.stats.get("skipped", []):
        why = str(report.longrepr[2]).removeprefix("Skipped: ")
        terminalreporter.write_line(f"skipped  {report.nodeid}: {why}")
