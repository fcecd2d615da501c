"""Documents with values of wrong types, and without some: what a reader of somebody else's JSON is
to refuse with a sentence, or to read.

Used by the tests of such readers, on the test's thread.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any, Final

_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, "x", "", "\n", "\ud800", [], {}, [1], {"a": 1}, [[1]], [None], {"0": None}),
    *(0, -1, 1.5, 2**31, 2**32, 2**63, 10**30, -(10**30)),
    *(float("inf"), float("-inf"), float("nan")),
)


def mutants(document: Any, count: int, seed: int = 3) -> Iterator[Any]:
    """Copies of a document, each with one or two values that are others, or gone.

    Args:
        document: of JSON.
        count: how many.
        seed: of the choices.
    """
    chance = random.Random(seed)
    for _ in range(count):
        copied = copy.deepcopy(document)
        for _ in range(chance.randint(1, 2)):
            places = list(_places(copied))
            if not places:
                break
            holder, key = chance.choice(places)
            if isinstance(holder, dict) and chance.random() < 0.2:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(chance.choice(_VALUES))
        yield copied


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each value's holder and its key there."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(inner)
