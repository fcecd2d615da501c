"""The rules between a model's settings: the library's own table, checked before a model is opened.

Called by config.py, on the main thread. The library refuses by the same table, with the same words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

from lumen_uring.ring import library, structs
from lumen_uring.ring.config_struct import ordinary, whole_number
from lumen_uring.settings import providers
from lumen_uring.settings.key_checks import Report
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config

# In the order of LUMEN_BESIDE_*.
_HAS: Final[tuple[Callable[[ModelConfig], bool], ...]] = (
    lambda model: model.sequences is not None,
    lambda model: model.isolation == "process",
    lambda model: bool(providers.others(model.providers)),
    lambda model: model.text is not None,
)


@cache
def _rules() -> tuple[structs.LumenRule, ...]:
    count = ctypes.c_uint32()
    table = library.load().lumen_rules(ctypes.byref(count))
    return tuple(table[: count.value])


def check(config: Config, report: Report) -> None:
    """Reports each setting of a model that something else of the model excludes.

    Args:
        config: the checked settings.
        report: takes one problem.

    Raises:
        LibraryError: the C library is not there.
    """
    fields = {name: field for name, field, _limits in ordinary()}
    for index, model in enumerate(config.models):
        kinds = {kind for kind, has in enumerate(_HAS) if has(model)}
        for rule in _rules() if kinds else ():
            name = rule.setting.decode()
            number = whole_number(name, fields[name], getattr(model, name))
            if rule.kind in kinds and not rule.allowed >> number & 1:
                expected = f"{rule.expected.decode()} beside {rule.beside.decode()}"
                found = f"{getattr(model, name)}: {rule.because.decode()}"
                report(("models", index, name), expected, found)
