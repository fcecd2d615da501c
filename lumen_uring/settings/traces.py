"""The settings of traces: which requests are recorded one by one, and where they are sent.

Read as the other sections of schema.py.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from lumen_uring.settings.types import Section, no_nul


class TracesConfig(Section):
    """Where the spans of requests go, in OTLP over HTTP, and of which."""

    endpoint: Annotated[str, AfterValidator(no_nul)] | None = Field(
        default=None,
        pattern=r"^https?://[!-~]+$",
        description="null, or a URL such as http://127.0.0.1:4318/v1/traces",
    )
    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.1, description="0.0 to 1.0"
    )
    per_second: int = Field(
        default=100, ge=1, le=1_000_000, description="a whole number, 1..1000000"
    )
    service: Annotated[str, AfterValidator(no_nul)] = Field(
        default="lumen", min_length=1, max_length=255, description="1 to 255 characters"
    )
