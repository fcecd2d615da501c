"""The settings of budgets: how many requests and tokens keys and models may have.

Read as the other sections of schema.py.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from lumen_uring.settings.keys import KEY_NAME_PATTERN
from lumen_uring.settings.types import NAME_PATTERN, PathText, Section

BUDGETS_MAX: Final = 512  # LUMEN_BUDGETS_MAX, of keys and models together
USED_BITS: Final = 40  # LUMEN_BUDGET_USED_BITS
_MOST: Final = 10**12  # below 2^USED_BITS - 1
_EXPECTED: Final = f"0 (no limit) or a whole number, up to {_MOST}"
_Limit = Annotated[int, Field(ge=0, le=_MOST)]


class BudgetConfig(Section):
    """What a key or a model may have; in the order of enum lumen_budget_limit."""

    requests_per_minute: _Limit = Field(default=0, description=_EXPECTED)
    requests_per_day: _Limit = Field(default=0, description=_EXPECTED)
    tokens_per_minute: _Limit = Field(default=0, description=_EXPECTED)
    tokens_per_day: _Limit = Field(default=0, description=_EXPECTED)


class BudgetsConfig(Section):
    """Who has a budget, and where the counts are kept."""

    keys: Annotated[
        dict[Annotated[str, Field(pattern=rf"^{KEY_NAME_PATTERN}$")], BudgetConfig],
        Field(max_length=BUDGETS_MAX),
    ] = Field(default={}, description="a mapping of names of server.keys to limits")
    models: Annotated[
        dict[Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")], BudgetConfig],
        Field(max_length=BUDGETS_MAX),
    ] = Field(default={}, description="a mapping of models' names to limits")
    path: PathText | None = Field(
        default=None, min_length=1, description="null, or the path of a file"
    )
