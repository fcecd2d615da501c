"""Which cores a measurement's server and client run on.

Used by compare.py, http_overhead.py, http_live.py and overload.py. What is started inside `pinned`
keeps its cores for life, as under taskset. It must never outlive its block.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

PLACES: Final = ("one-core", "all-cores")


@dataclass(frozen=True, slots=True)
class Place:
    """Which cores the server has, and which core the client; -1: wherever there is room."""

    name: str
    server: frozenset[int]
    client: int

    @property
    def client_cores(self) -> frozenset[int]:
        """The client's cores."""
        return self.server if self.client < 0 else frozenset({self.client})

    @property
    def words(self) -> str:
        """As tables say it."""
        if self.client < 0:
            return "server and client share all cores"
        return "the server on one core, the client on another"


def places() -> list[Place]:
    """One core for the server beside one for the client, and all cores for both."""
    cores = sorted(os.sched_getaffinity(0))
    found = [Place("all-cores", frozenset(cores), -1)]
    if len(cores) > 1:
        found.insert(0, Place("one-core", frozenset(cores[:1]), cores[1]))
    return found


def find(name: str) -> Place:
    """The place of that name; where there is one core only, what there is."""
    found = {place.name: place for place in places()}
    return found.get(name, found["all-cores"])


@contextmanager
def pinned(cores: Iterable[int]) -> Iterator[None]:
    """What is started inside runs on these cores alone, as under taskset."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
