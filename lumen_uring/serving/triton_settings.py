"""Triton's calls about logging and tracing, answered with what Lumen has in their place.

Used by repository/control.py, on the thread that takes calls. What is not there cannot be switched
on: a call that asks for another value than the one in force is refused as a whole, by name, with
the setting of Lumen's that has it. Which levels the log has can change.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from lumen_uring.errors import BadRequest
from lumen_uring.settings.schema import Config

_SWITCHES: Final = {"log_info": "info", "log_warning": "warning", "log_error": "error"}
_FORMATS: Final = ("default", "ISO8601")  # both are Lumen's: its times are ISO 8601's
_VERBOSE_MAX: Final = 2**32 - 1
_SETTING_OF: Final = {
    "log_file": "log file location can not be updated through network protocol; it is log.path",
    "trace_level": "engine.telemetry_csv_path has a row for each request",
    "trace_file": "engine.telemetry_csv_path",
    "trace_rate": "each request has its row",
    "trace_count": "there is no bound",
    "log_frequency": "there is one file",
    "trace_mode": "Lumen writes its own",
}


class HasLevels(Protocol):
    """What is needed of the log."""

    levels: frozenset[str]


class HasConfig(Protocol):
    """What is needed of the models: the server's settings, which a reload changes."""

    @property
    def config(self) -> Config: ...


class TritonSettings:
    """The settings of one server as Triton names them.

    Args:
        live: has the settings in force.
        log: whose levels can change.
    """

    def __init__(self, live: HasConfig, log: HasLevels) -> None:
        self._live, self._log = live, log
        self._verbose = 1  # while there is a debug level
        self._format = _FORMATS[0]

    def answer(self, kind: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Changes what is asked for.

        Args:
            kind: of the call, logging or trace.
            asked: values by name; nothing: none is to change. null is the value in force.

        Returns:
            All values that are in force.

        Raises:
            BadRequest: a name or a value that is not known, or that cannot change; nothing has.
        """
        if kind == "trace":
            _check(asked, self._trace())
            return self._trace()
        wanted = self._logging() | {name: one for name, one in asked.items() if one is not None}
        verbose, form = _verbose_of(wanted), wanted["log_format"]
        if form not in _FORMATS:
            raise BadRequest(f"log_format: expected default or ISO8601, found {form!r:.80}.")
        levels = {level for name, level in _SWITCHES.items() if _switch_of(name, wanted)}
        _check(asked, {name: wanted[name] for name in self._logging()} | self._fixed())
        self._log.levels = frozenset(levels | ({"debug"} if verbose else set()))
        self._verbose, self._format = verbose or 1, form
        return self._logging()

    def _fixed(self) -> dict[str, Any]:
        return {"log_file": self._live.config.log.path or ""}

    def _trace(self) -> dict[str, Any]:
        path = self._live.config.engine.telemetry_csv_path
        return {
            "trace_level": ["OFF" if path is None else "TIMESTAMPS"],
            "trace_rate": "1",
            "trace_count": "-1",
            "log_frequency": "0",
            "trace_file": path or "",
            "trace_mode": "triton",
        }

    def _logging(self) -> dict[str, Any]:
        switches = {name: level in self._log.levels for name, level in _SWITCHES.items()}
        verbose = self._verbose if "debug" in self._log.levels else 0
        return {
            **self._fixed(),
            **switches,
            "log_verbose_level": verbose,
            "log_format": self._format,
        }


def _switch_of(name: str, wanted: dict[str, Any]) -> bool:
    value = wanted[name]
    if not isinstance(value, bool):
        raise BadRequest(f"{name}: expected true or false, found {value!r:.80}.")
    return value


def _verbose_of(wanted: dict[str, Any]) -> int:
    value = wanted["log_verbose_level"]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _VERBOSE_MAX:
        raise BadRequest(
            f"log_verbose_level: expected a whole number, 0..{_VERBOSE_MAX}, found {value!r:.80}."
        )
    return value


def _check(asked: dict[str, Any], possible: dict[str, Any]) -> None:
    """Refuses what will not be so."""
    for name, value in asked.items():
        if name not in possible:
            raise BadRequest(f"Expected one of {', '.join(possible)}, found {name!r:.80}.")
        if value is not None and value != possible[name]:
            raise BadRequest(
                f"{name}: expected {possible[name]!r}, found {value!r:.80}: {_SETTING_OF[name]}."
            )
