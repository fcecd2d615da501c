"""The section `repository`: folders of models, and who loads them. Read by settings/schema.py."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from lumen_uring.settings.types import MODELS_MAX, U32_MAX, PathText, Section, Size, as_tuple

REPOSITORIES_MAX: Final = 16


class RepositoryConfig(Section):
    """Folders of models, which become entries of `models`."""

    paths: Annotated[
        tuple[Annotated[PathText, Field(min_length=1)], ...],
        BeforeValidator(as_tuple),
    ] = Field(
        default=(),
        max_length=REPOSITORIES_MAX,
        description=f"a list of at most {REPOSITORIES_MAX} paths of folders or files",
    )
    control: Literal["none", "explicit", "watch"] = Field(
        default="none", description="none | explicit | watch"
    )
    load: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        default=(), max_length=MODELS_MAX, description="a list of models' names, or of '*' for all"
    )
    max_loaded: int = Field(
        default=0, ge=0, le=MODELS_MAX, description=f"0 (no bound) or models, 1..{MODELS_MAX}"
    )
    strict_readiness: bool = Field(default=True, description="true | false")
    load_seconds: int = Field(default=600, ge=1, le=86_400, description="seconds, 1..86400")
    load_bytes: Size = Field(
        default=8 << 30, ge=0, le=1 << 44, description="a size such as 8GiB, or 0 (no bound)"
    )
    upload_bytes: Size = Field(
        default=0, ge=0, le=U32_MAX, description="0 (no files) or a size such as 1GiB, under 4GiB"
    )
    load_gently: bool = Field(default=True, description="true | false")
    cache_bytes: Size = Field(
        default=16 << 30, ge=0, le=1 << 44, description="a size such as 16GiB, or 0 (no bound)"
    )
