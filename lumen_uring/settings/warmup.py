"""Warm-up requests: what each worker runs before a model is ready.

Used by settings/models.py for a model's setting `warmup`, and by ring/model_structs.py, on the main
thread and the loader's.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lumen_uring.errors import ConfigError
from lumen_uring.files import expanded
from lumen_uring.settings.types import PathText

REQUESTS_MAX: Final = 64  # LUMEN_WARMUPS_MAX in lumen_config.h
BYTES_MAX: Final = 1 << 30
FILLS: Final = ("zeros", "random")  # in the order of LUMEN_FILL_*; then bytes of a file
_Size = Annotated[int, Field(ge=1, lt=1 << 31)]


class WarmupTensor(BaseModel):
    """An input: its shape, and what it holds: zeros, random, or a file's bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    shape: Annotated[
        tuple[_Size, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    ]
    data: PathText = Field(default="zeros", min_length=1)

    def content(self, place: str) -> bytes | None:
        """The bytes of the file; None where there is none.

        Args:
            place: of the tensor in the settings, for messages.

        Raises:
            ConfigError: the file cannot be read, or is too long.
        """
        if self.data in FILLS:
            return None
        try:
            with expanded(self.data).open("rb") as file:
                content = file.read(BYTES_MAX + 1)
        except OSError as error:
            found = f"{self.data!r}: {error.strerror or error}"
            raise ConfigError(f"{place}: expected zeros, random or a file, found {found}") from None
        if len(content) > BYTES_MAX:
            raise ConfigError(f"{place}: expected at most {BYTES_MAX} bytes in {self.data!r}")
        return content


class WarmupConfig(BaseModel):
    """A request, and how often each worker runs it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(default="", max_length=255, pattern=r"^[^\x00]*$")
    count: int = Field(default=1, ge=1, le=10_000)
    inputs: Annotated[dict[str, WarmupTensor], Field(min_length=1, max_length=256)]


Warmups = Annotated[
    tuple[WarmupConfig, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    Field(max_length=REQUESTS_MAX),
]
EXPECTED: Final = (
    f"a list of at most {REQUESTS_MAX} requests such as {{inputs: {{x: {{shape: [1, 16], data: "
    "random}}}}, each with a shape and zeros, random or a file for every input, and a count"
)
