"""Budgets of the C library: what keys and models may use, and the file that has their counts.

Used by engine.py, by serving/budgets.py, and by whatever shows the counts, from any process.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from ctypes import c_char, c_char_p, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lumen_uring.errors import StatsError
from lumen_uring.ring.handle import Handle
from lumen_uring.ring.ranges import u64
from lumen_uring.settings.budgets import BUDGETS_MAX, USED_BITS, BudgetConfig, BudgetsConfig

LIMITS: Final = tuple(BudgetConfig.model_fields)  # the order of enum lumen_budget_limit
KINDS: Final[dict[int, str]] = {1: "key", 2: "model"}  # enum lumen_budget_kind
_MAGIC: Final = b"LMNBUDG1"
_HEADER_BYTES: Final = 64
_SECONDS: Final = (60, 86_400, 60, 86_400)
_Counts = c_uint64 * len(LIMITS)


class LumenBudgetConfig(ctypes.Structure):
    """lumen_budget_config: what a key or a model may have."""

    _fields_ = [
        ("name", c_char_p),
        ("kind", c_uint32),
        ("reserved", c_uint32),
        ("limit", _Counts),
        ("count", _Counts),
    ]


class LumenBudget(ctypes.Structure):
    """lumen_budget: an entry of the file."""

    _fields_ = [
        ("count", _Counts),
        ("limit", _Counts),
        ("requests", c_uint64),
        ("tokens", c_uint64),
        ("refused", c_uint64),
        ("kind", c_uint32),
        ("reserved", c_uint32),
        ("unused", c_uint64 * 4),
        ("name", c_char * 256),
    ]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a key or a model may have, and has used.

    Attributes:
        kind: "key" or "model".
        name: of it.
        limits: by the names of the settings; those without a limit are not there.
        used: in this minute or day, of the same names; what is set aside counts.
        requests: since the counts began, like the following.
        tokens: that answers turned out to be.
        refused: requests that would have been too much.
        counts: as the file has them.
    """

    kind: str
    name: str
    limits: dict[str, int]
    used: dict[str, int]
    requests: int
    tokens: int
    refused: int
    counts: tuple[int, ...]


def budgets_path(port: int) -> Path:
    """The file with the counts of the server on a port.

    Args:
        port: 1..65535.
    """
    return Path(f"/dev/shm/lumen-{port}.budgets")


def read(path: Path, now_s: float | None = None) -> list[Budget]:
    """Reads the counts, without disturbing the server.

    Args:
        path: as budgets_path or the engine's info gives it.
        now_s: unix time; None: now.

    Returns:
        The budgets that have a limit, those of keys first, by name; none where there is no such
        file.

    Raises:
        StatsError: it cannot be read, or is of another version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StatsError(f"{path} cannot be read ({error.strerror}).") from None
    if data[:8] != _MAGIC or len(data) != _HEADER_BYTES + BUDGETS_MAX * ctypes.sizeof(LumenBudget):
        raise StatsError(f"{path} holds no budgets of this version.")
    entries = (LumenBudget * BUDGETS_MAX).from_buffer_copy(data, _HEADER_BYTES)
    found = [_budget(one, time.time() if now_s is None else now_s) for one in entries if one.kind]
    return sorted((one for one in found if one.limits), key=lambda one: (one.kind, one.name))


def _budget(entry: LumenBudget, now_s: float) -> Budget:
    windows = [int(now_s // seconds) % (1 << 64 - USED_BITS) for seconds in _SECONDS]
    limits, used = {}, {}
    for name, count, limit, window in zip(LIMITS, entry.count, entry.limit, windows, strict=True):
        if limit:
            limits[name] = limit
            used[name] = count % (1 << USED_BITS) if count >> USED_BITS == window else 0
    return Budget(
        KINDS.get(entry.kind, "unknown"),
        entry.name.decode("utf-8", "replace"),
        limits,
        used,
        entry.requests,
        entry.tokens,
        entry.refused,
        tuple(entry.count),
    )


class Budgets(Handle):
    """What an engine does about budgets."""

    def set_budgets(
        self, config: BudgetsConfig, counts: Mapping[tuple[str, str], tuple[int, ...]] | None = None
    ) -> None:
        """Puts budgets in force, at any time.

        Args:
            config: the settings.
            counts: of an earlier time, by kind and name.

        Raises:
            EngineError: there is no memory, or there were too many names in two days.

        Source:
            lumen_set_budgets
        """
        rows = [
            LumenBudgetConfig(
                name=name.encode(),
                kind=kind,
                limit=_Counts(*(u64(limit, getattr(budget, limit)) for limit in LIMITS)),
                count=_Counts(*(counts or {}).get((KINDS[kind], name), ())),
            )
            for kind, budgets in ((1, config.keys), (2, config.models))
            for name, budget in budgets.items()
        ]
        natives = (LumenBudgetConfig * len(rows))(*rows)
        self._check(self._library.lumen_set_budgets(self._open_handle(), natives, len(rows)))
