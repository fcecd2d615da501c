"""The settings of upstreams: servers elsewhere whose models are served here too.

Read as the other sections of schema.py. Names of hosts are looked up, and keys are read, at the
start (serving/upstreams.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.types import (
    NAME_BYTES_MAX,
    NAME_PATTERN,
    PathText,
    Section,
    as_tuple,
    no_nul,
)

UPSTREAMS_MAX: Final = 16  # LUMEN_UPSTREAMS_MAX in lumen_config.h
ADDRESSES_MAX: Final = 16  # LUMEN_UPSTREAM_ADDRESSES_MAX
NAME: Final = r"[A-Za-z0-9_.-]{1,63}"
_THERE: Final = rf"^[A-Za-z0-9_.:/@+-]{{1,{NAME_BYTES_MAX}}}$"
_SECONDS_MAX: Final = 86_400
_URL_EXPECTED: Final = "a URL such as https://10.0.0.7:8443"


def _url(value: str) -> str:
    parts = urlsplit(value)
    is_plain = value.isascii() and value.isprintable() and " " not in value
    port = parts.port  # raises ValueError where it is none
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or port == 0:
        raise ValueError(_URL_EXPECTED)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(_URL_EXPECTED)
    return value


def _seconds(value: Any) -> Any:
    return float(value) if type(value) is int else value


_Seconds = Annotated[
    float, Field(ge=0, le=_SECONDS_MAX, allow_inf_nan=False), BeforeValidator(_seconds)
]


class TimeoutsConfig(Section):
    """How patient a server is with an upstream."""

    connect: _Seconds = Field(default=1.0, description=f"seconds, 0 (no bound) to {_SECONDS_MAX}")
    first_byte: _Seconds = Field(
        default=60.0, description=f"seconds, 0 (no bound) to {_SECONDS_MAX}"
    )
    silence: _Seconds = Field(default=60.0, description=f"seconds, 0 (no bound) to {_SECONDS_MAX}")
    total: _Seconds = Field(default=600.0, description=f"seconds, 0 (no bound) to {_SECONDS_MAX}")


class RetryConfig(Section):
    """When a request that failed before its answer began goes to another address."""

    attempts: int = Field(default=1, ge=0, le=1, description="0 | 1")
    budget: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.2, description="a share of the requests, 0.0 to 1.0"
    )


class TokensConfig(Section):
    """What a request takes of budgets before its answer says what it was."""

    bytes_each: int = Field(default=2, ge=1, le=16, description="a whole number, 1..16")
    answer: int = Field(default=1024, ge=0, le=1 << 24, description="a whole number, 0..16777216")
    ask: bool = Field(default=False, description="true | false")


class UpstreamConfig(Section):
    """Servers elsewhere that serve the same models, and which of them are served here too."""

    urls: Annotated[
        tuple[Annotated[str, AfterValidator(no_nul), AfterValidator(_url)], ...],
        BeforeValidator(as_tuple),
    ] = Field(
        min_length=1,
        max_length=ADDRESSES_MAX,
        description=f"a list of 1..{ADDRESSES_MAX} URLs such as https://10.0.0.7:8443",
    )
    models: dict[
        Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")],
        Annotated[str, Field(pattern=_THERE)],
    ] = Field(
        min_length=1,
        description="a mapping of names here to names there, as in {chat: openai/gpt-oss-20b}",
    )
    key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        description="null, or the name of an environment variable",
    )
    key_file: PathText | None = Field(
        default=None, min_length=1, description="null, or the path of a file with a key"
    )
    ca: PathText | None = Field(
        default=None,
        min_length=1,
        description="null (the system's), or the path of a file in PEM form with authorities",
    )
    cert: PathText | None = Field(
        default=None, min_length=1, description="null, or the path of a file in PEM form"
    )
    cert_key: PathText | None = Field(
        default=None, min_length=1, description="null, or the path of a file in PEM form"
    )
    http2: Literal["auto", "always", "never"] = Field(
        default="auto", description="auto | always | never"
    )
    connections: int = Field(
        default=1, ge=0, le=64, description="a whole number, 0 (when they are needed) to 64"
    )
    in_flight: int = Field(default=1024, ge=1, le=65_536, description="a whole number, 1..65536")
    timeouts: TimeoutsConfig = Field(
        default_factory=TimeoutsConfig, description="a mapping of settings"
    )
    resolve: _Seconds = Field(
        default=30.0, description=f"seconds, 0 (at the start alone) to {_SECONDS_MAX}"
    )
    ping: _Seconds = Field(default=0.0, description=f"seconds, 0 (never) to {_SECONDS_MAX}")
    hedge: _Seconds = Field(default=0.0, description=f"seconds, 0 (never) to {_SECONDS_MAX}")
    retry: RetryConfig = Field(default_factory=RetryConfig, description="a mapping of settings")

    tokens: TokensConfig = Field(default_factory=TokensConfig, description="a mapping of settings")

    def served(self) -> tuple[ModelConfig, ...]:
        """Its models' settings here."""
        return tuple(ModelConfig(name=name, path="unused", width=1) for name in self.models)


Upstreams = Annotated[
    dict[Annotated[str, Field(pattern=rf"^{NAME}$")], UpstreamConfig],
    Field(max_length=UPSTREAMS_MAX),
]
EXPECTED: Final = f"a mapping of up to {UPSTREAMS_MAX} names to settings, each with urls and models"

FALLBACKS_MAX: Final = 8  # LUMEN_FALLBACKS_MAX
_Name = Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")]
Fallbacks = dict[
    _Name,
    Annotated[
        tuple[_Name, ...], Field(min_length=1, max_length=FALLBACKS_MAX), BeforeValidator(as_tuple)
    ],
]
FALLBACKS_EXPECTED: Final = (
    f"a mapping of models' names to lists of 1..{FALLBACKS_MAX} others, as in {{chat: [small]}}"
)
