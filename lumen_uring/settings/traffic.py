"""The settings of traffic: which version of a model answers the requests that name none.

Read as the other sections of schema.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from lumen_uring.settings.types import VERSION_MAX, VERSION_PATTERN, Section

TRAFFIC_MAX: Final = 64  # LUMEN_TRAFFIC_MAX
VERSIONS_MAX: Final = 16  # LUMEN_TRAFFIC_VERSIONS_MAX
WEIGHT_MAX: Final = 1_000_000  # LUMEN_WEIGHT_MAX
EXPECTED: Final = (
    f"a mapping of 1..{VERSIONS_MAX} versions to weights of 0..{WEIGHT_MAX}, not all 0, as in "
    "{1: 95, 2: 5}"
)
_NAME: Final = r"^[A-Za-z0-9_.-]{1,255}$"  # of a model, without a version
_Version = Annotated[int, Field(ge=1, le=VERSION_MAX)]


def _as_version(value: object) -> object:
    """The keys of a mapping are texts, as yaml_text.py reads them."""
    is_number = isinstance(value, str) and re.fullmatch(VERSION_PATTERN, value)
    return int(str(value)) if is_number else value


_Weight = Annotated[int, Field(ge=0, le=WEIGHT_MAX)]


def _has_weight(weights: dict[int, int]) -> dict[int, int]:
    if not any(weights.values()):
        raise ValueError("all weights are 0")
    return weights


class TrafficConfig(Section):
    """The versions of one model."""

    versions: Annotated[
        dict[Annotated[_Version, BeforeValidator(_as_version)], _Weight],
        Field(min_length=1, max_length=VERSIONS_MAX),
        AfterValidator(_has_weight),
    ] = Field(description=EXPECTED)
    sticky: bool = Field(default=False, description="true | false")
    shadow: _Version | None = Field(default=None, description="null, or the number of a version")
    shadow_percent: Annotated[int, Field(ge=1, le=100)] = Field(default=10, description="1..100")


Traffic = Annotated[
    dict[Annotated[str, Field(pattern=_NAME)], TrafficConfig], Field(max_length=TRAFFIC_MAX)
]
