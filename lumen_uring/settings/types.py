"""Kinds of values that settings have in common: what may be written, and how YAML's forms are read.

Used by settings/schema.py and settings/models.py. Checks raise ValueError; the message that a
person sees is made of a field's description.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from lumen_uring.settings.sizes import parse_size

WORKERS_MAX: Final = 64  # LUMEN_WORKERS_MAX in lumen_config.h; tests/test_library.py compares
MODELS_MAX: Final = 4096  # LUMEN_MODELS_MAX
BATCH_MAX: Final = 256  # LM_BATCH_MAX in limits.h
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
BATCH_DELAY_US_MAX: Final = U32_MAX - 1  # of a model; U32_MAX is the engine's
DIM_MAX: Final = 2**31 - 1
DIM_NAME_BYTES_MAX: Final = 255  # LM_TENSOR_NAME_BYTES_MAX, without its terminator
NAME_BYTES_MAX: Final = 255  # LM_NAME_BYTES_MAX, without its terminator
VERSION_MAX: Final = U32_MAX - 1  # below LM_HTTP_VERSION_ANY; exporters number by the second
NAME_PATTERN: Final = rf"[A-Za-z0-9_.-]{{1,{NAME_BYTES_MAX}}}"
VERSION_PATTERN: Final = r"[1-9][0-9]{0,9}"  # at most VERSION_MAX
# Of a model beside other versions of it: NAME:VERSION.
VERSIONED_PATTERN: Final = (
    rf"(?=.{{1,{NAME_BYTES_MAX}}}$)[A-Za-z0-9_.-]+(:(?P<version>{VERSION_PATTERN}))?"
)
NAME_EXPECTED: Final = (
    f"1 to {NAME_BYTES_MAX} letters, digits, '_', '.' or '-'; and ':' with a version, 1 to "
    f"{VERSION_MAX}, beside other versions of that name"
)
_RATE_MAX: Final = 1e9
_FILE_NAME_BYTES_MAX: Final = 255  # NAME_MAX of limits.h
_PATH_BYTES_MAX: Final = 4095  # PATH_MAX of limits.h, without its terminator
_EXPONENT: Final = re.compile(r"[-+]?[0-9]{1,20}(\.[0-9]{0,20})?[eE][-+]?[0-9]{1,3}")
_FLOAT32_MAX: Final = 3.4028234663852886e38


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def as_number(value: object) -> object:
    """YAML 1.1 reads 1e9 as a text: it wants 1.0e+9."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        return float(value)
    return value


def as_tuple(value: object) -> object:
    """YAML has lists."""
    return tuple(value) if isinstance(value, list) else value


def as_cores(value: object) -> object:
    """YAML reads a single core as a number."""
    return str(value) if type(value) is int and value >= 0 else value


def as_mode(value: object) -> object:
    """YAML reads 0660 as an octal number by itself, "0660" and 0o660 as texts."""
    if isinstance(value, str) and re.fullmatch(r"(0o?)?[0-7]{3}", value):
        return int(value, 8)
    return value


def versioned(value: str) -> str:
    """The name of a model, which may have a version."""
    found = re.fullmatch(VERSIONED_PATTERN, value)
    if found is None or int(found["version"] or 1) > VERSION_MAX:
        raise ValueError(f"expected {NAME_EXPECTED}")
    return value


def base_of(name: str) -> str:
    """The name of a model without the version that it may have.

    >>> base_of("resnet:2"), base_of("resnet")
    ('resnet', 'resnet')
    """
    return name.partition(":")[0]


def no_nul(value: str) -> str:
    """A text that crosses into C as a terminated string: a NUL would silently cut it short."""
    if "\0" in value:
        raise ValueError("holds a NUL byte")
    return value


class TooLongError(ValueError):
    """What a value has too much of; complaints.py adds it to what was found."""


def path_text(value: str) -> str:
    """The path of a file or folder, as long as Linux takes it: a longer one cannot even be looked
    for."""
    part_bytes = max(len(os.fsencode(part)) for part in no_nul(value).split("/"))
    if part_bytes > _FILE_NAME_BYTES_MAX:
        raise TooLongError(f"with a name of {part_bytes} bytes, more than {_FILE_NAME_BYTES_MAX}")
    path_bytes = len(os.fsencode(value))
    if path_bytes > _PATH_BYTES_MAX:
        raise TooLongError(f"a path of {path_bytes} bytes, more than {_PATH_BYTES_MAX}")
    return value


def dim_name(value: str) -> str:
    """The name of a dimension, as long as C takes it."""
    if not 1 <= len(value.encode()) <= DIM_NAME_BYTES_MAX:
        raise ValueError("too short or too long")
    return value


PathText = Annotated[str, AfterValidator(path_text)]
Size = Annotated[int, BeforeValidator(_size)]
Float = Annotated[
    float,
    BeforeValidator(as_number),
    Field(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX, allow_inf_nan=False),
]
Bound = Annotated[float, BeforeValidator(as_number), Field(allow_inf_nan=False)]
Rate = Annotated[float, BeforeValidator(as_number), Field(ge=0, le=_RATE_MAX, allow_inf_nan=False)]
RATE_EXPECTED: Final = "requests a second, 0 (no limit) to 1e9"
TOKEN_RATE_EXPECTED: Final = "tokens a second, 0 (no limit) to 1e9"
BURST_EXPECTED: Final = "null (the rate, rounded up) or a whole number, 1..4294967295"
Dims = dict[
    Annotated[str, AfterValidator(no_nul), AfterValidator(dim_name)],
    Annotated[int, Field(ge=1, le=DIM_MAX)],
]
DIMS_EXPECTED: Final = (
    f"a mapping of dimensions' names (1 to {DIM_NAME_BYTES_MAX} bytes) to whole numbers, "
    f"1..{DIM_MAX}"
)


class Section(BaseModel):
    """A part of the settings."""

    # Each field's description says what is expected: error messages are made of it.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
