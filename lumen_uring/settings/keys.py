"""The settings of clients' keys, and how a token is read.

Read as the other sections of schema.py.
"""

from __future__ import annotations

import hashlib
import math
import os
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from lumen_uring.settings.types import (
    BURST_EXPECTED,
    RATE_EXPECTED,
    TOKEN_RATE_EXPECTED,
    U32_MAX,
    Rate,
    Section,
    as_tuple,
)

KEY_NAME_PATTERN: Final = r"[A-Za-z0-9_.-]{1,63}"  # LM_KEY_NAME_BYTES_MAX


class KeyConfig(Section):
    """A client's key: the models it may use, and how often. The token itself is in no setting."""

    name: str = Field(
        pattern=rf"^{KEY_NAME_PATTERN}$", description="1 to 63 letters, digits, '_', '.' or '-'"
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9A-Fa-f]{64}$",
        description="64 hexadecimal digits, as `lumen key` prints them",
    )
    token_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        description="the name of an environment variable",
    )
    subject: str | None = Field(
        default=None,
        pattern=r"^[!-~]{1,255}$",
        description="the name in a client's certificate, such as spiffe://example.org/ci",
    )
    rate: Rate = Field(default=0.0, description=RATE_EXPECTED)
    burst: int | None = Field(default=None, ge=1, le=U32_MAX, description=BURST_EXPECTED)
    token_rate: Rate = Field(default=0.0, description=TOKEN_RATE_EXPECTED)
    token_burst: int | None = Field(default=None, ge=1, le=U32_MAX, description=BURST_EXPECTED)
    models: (
        Literal["all"] | Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_tuple)]
    ) = Field(default="all", description="all, or a list of models' names")
    admin: bool = Field(default=False, description="true | false")
    bulk: bool = Field(default=False, description="true | false")

    def digest(self) -> bytes:
        """The SHA-256 of the token, or of the name in the client's certificate, 32 bytes.

        Raises:
            ValueError: the environment variable holds no token; config.py has checked that.
        """
        if self.sha256 is not None:
            return bytes.fromhex(self.sha256)
        if self.subject is not None:
            return hashlib.sha256(self.subject.encode()).digest()
        problem, token = token_problem(self.token_env or "")
        if problem:
            raise ValueError(problem)
        return hashlib.sha256(token.encode()).digest()


def token_problem(variable: str) -> tuple[str, str]:
    """Reads a token from the environment.

    Args:
        variable: the environment variable's name.

    Returns:
        Two texts: the fault of the token or "", and the token or "".
    """
    token = os.environ.get(variable, "")
    if not token:
        return f"{variable}, which is not set", ""
    # The token must fit an HTTP header, in the same bytes everywhere; messages never show it.
    if not (token.isascii() and token.isprintable()) or " " in token:
        return f"{variable}, with other characters than letters, digits and signs", ""
    return "", token


def burst_of(rate: float, burst: int | None) -> int:
    """How many requests, or tokens, may come at once.

    Args:
        rate: so many a second, 0 for no limit.
        burst: as set; None where it is not.

    Returns:
        0 without a rate, else at least 1.

    >>> burst_of(0, None), burst_of(2.5, None), burst_of(0.1, None), burst_of(100, 5)
    (0, 3, 1, 5)
    """
    if rate == 0:
        return 0
    return max(1, math.ceil(rate)) if burst is None else burst
