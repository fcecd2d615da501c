"""Triton's calls about logging and tracing, answered with what Lumen has in their place.

Used by repository/control.py, on the thread that takes calls. What is not there cannot be switched
on: a call that asks for another value than the one in force is refused as a whole, by name, with
the setting of Lumen's that has it. The level of the log is what can change.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from lumen_uring.errors import BadRequest
from lumen_uring.settings import Config

# As Triton's switches have it, from the last that is on.
_LEVELS: Final = (("log_info", "info"), ("log_warning", "warning"), ("log_error", "error"))
_SETTING_OF: Final = {
    "log_file": "log.path",
    "log_error": "errors are always logged",
    "log_format": "the log's times are ISO8601's",
    "trace_level": "engine.telemetry_csv_path has a row for each request",
    "trace_file": "engine.telemetry_csv_path",
    "trace_rate": "each request has its row",
    "trace_count": "there is no bound",
    "log_frequency": "there is one file",
    "trace_mode": "Lumen writes its own",
}


class HasLevel(Protocol):
    """What is needed of the log."""

    level: str


class TritonSettings:
    """The settings of one server as Triton names them.

    Args:
        config: of the server, at its start.
        log: whose level can change.
    """

    def __init__(self, config: Config, log: HasLevel) -> None:
        self._config, self._log = config, log

    def answer(self, kind: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Changes what is asked for.

        Args:
            kind: of the call, logging or trace.
            asked: values by name; nothing: none is to change. null is the value at start.

        Returns:
            All values that are in force.

        Raises:
            BadRequest: a name or a value that is not known, or that cannot change; nothing has.
        """
        if kind == "trace":
            _check(asked, self._trace())
            return self._trace()
        level = self._level(asked)
        _check(asked, self._logging(level))
        self._log.level = level
        return self._logging(level)

    def _trace(self) -> dict[str, Any]:
        path = self._config.engine.telemetry_csv_path
        return {
            "trace_level": ["OFF" if path is None else "TIMESTAMPS"],
            "trace_rate": "1",
            "trace_count": "-1",
            "log_frequency": "0",
            "trace_file": path or "",
            "trace_mode": "triton",
        }

    def _logging(self, level: str) -> dict[str, Any]:
        return {
            "log_file": self._config.log.path or "",
            "log_info": level in ("debug", "info"),
            "log_warning": level != "error",
            "log_error": True,
            "log_verbose_level": 1 if level == "debug" else 0,
            "log_format": "ISO8601",
        }

    def _level(self, asked: dict[str, Any]) -> str:
        """The level that all switches together ask for."""
        now = self._logging(self._log.level)
        verbose = asked.get("log_verbose_level", now["log_verbose_level"])
        if isinstance(verbose, bool) or not isinstance(verbose, int) or verbose < 0:
            raise BadRequest(f"log_verbose_level: expected a whole number, found {verbose!r:.80}.")
        if verbose:
            asked["log_verbose_level"] = 1  # there is one step below info
            return "debug"
        wanted = {name: asked.get(name, now[name]) for name, _ in _LEVELS}
        return next((level for name, level in _LEVELS if wanted[name]), "error")


def _check(asked: dict[str, Any], possible: dict[str, Any]) -> None:
    """Refuses what will not be so."""
    for name, value in asked.items():
        if name not in possible:
            raise BadRequest(f"Expected one of {', '.join(possible)}, found {name!r:.80}.")
        if value is not None and value != possible[name]:
            raise BadRequest(
                f"{name}: expected {possible[name]!r}, found {value!r:.80}: "
                f"{_SETTING_OF.get(name, 'a level has all switches above it on')}."
            )
