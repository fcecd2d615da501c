"""The settings of one server: what may be written, what it means, what is refused.

Read by the commands and by ring/engine.py, on the main thread, before anything starts. This file
holds the sections, and settings/models.py the models; config.py finds and reads the YAML. A setting
that this version cannot honour is refused here, never ignored.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from lumen_uring.settings.broken import Broken
from lumen_uring.settings.budgets import BudgetsConfig
from lumen_uring.settings.keys import KeyConfig
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.repository import RepositoryConfig
from lumen_uring.settings.tls import TlsConfig
from lumen_uring.settings.traces import TracesConfig
from lumen_uring.settings.traffic import Traffic
from lumen_uring.settings.types import (
    BATCH_MAX,
    BURST_EXPECTED,
    MODELS_MAX,
    RATE_EXPECTED,
    U32_MAX,
    WORKERS_MAX,
    PathText,
    Rate,
    Section,
    Size,
    as_cores,
    as_mode,
    as_tuple,
    no_nul,
)
from lumen_uring.settings.upstreams import EXPECTED as UPSTREAMS_EXPECTED
from lumen_uring.settings.upstreams import FALLBACKS_EXPECTED, Fallbacks, Upstreams

IO_THREADS_MAX: Final = 16  # LUMEN_IO_THREADS_MAX
NODES_MAX: Final = 8  # LUMEN_NODES_MAX
KEYS_MAX: Final = 256  # LUMEN_KEYS_MAX
HOSTS_MAX: Final = 32  # LUMEN_HOSTS_MAX
UNIX_PATH_BYTES_MAX: Final = 107  # LM_UNIX_PATH_BYTES_MAX, without its terminator
# Settings that only Python uses. Every other setting of the sections server, engine and log is a
# field of lumen_config in lumen_config.h, of the same name and range, in the order of this file.
PYTHON_SIDE: Final = frozenset(
    {
        "server.unready_seconds",
        "server.drain_seconds",
        "server.metrics_port",
        "server.metrics_host",
        "server.agent_port",
        "server.tls",
        "log.level",
        "log.format",  # C knows it as access_as_json
        "log.path",
    }
)

_SERVER_NAME_PATTERN: Final = r"^[ !#-&(-\[\]-~]{1,64}$"  # LM_SERVER_NAME_BYTES_MAX
_HOST_PATTERN: Final = r"^(\*|[A-Za-z0-9_-]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_-])?)$"
_CORES_PATTERN: Final = r"^(auto|isolated|[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)$"


def _address(value: str) -> str:
    ipaddress.ip_address(value)
    return value


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("not a power of two")
    return value


def _short_path(value: str) -> str:
    if len(os.fsencode(value)) > UNIX_PATH_BYTES_MAX:
        raise ValueError("too long")
    return value


class ServerConfig(Section):
    """Sockets, I/O threads, memory for requests, and clients' rights."""

    name: str = Field(
        default="lumen",
        pattern=_SERVER_NAME_PATTERN,
        description="1 to 64 printable ASCII characters, without quotes and backslashes",
    )
    host: Annotated[str, AfterValidator(_address)] = Field(
        default="127.0.0.1", description="an IPv4 or IPv6 address such as 127.0.0.1"
    )
    port: int = Field(default=8000, ge=0, le=65535, description="a port number, 0..65535")
    grpc_port: int = Field(
        default=0, ge=0, le=65535, description="a port number, 0 (none) to 65535"
    )
    unix_socket: Annotated[str, AfterValidator(no_nul), AfterValidator(_short_path)] | None = Field(
        default=None,
        min_length=1,
        description=f"null, or a path of 1 to {UNIX_PATH_BYTES_MAX} bytes such as "
        "/run/lumen/lumen.sock",
    )
    # For its user and group: a client's user joins the group. Other users are shut out, since a
    # server without keys serves every client that can connect.
    unix_socket_mode: Annotated[int, BeforeValidator(as_mode)] = Field(
        default=0o660,
        ge=0,
        le=0o777,
        description="an octal mode with its leading zero such as 0660, 0000 to 0777",
    )
    io_backend: Literal["auto", "io_uring", "epoll"] = Field(
        default="auto", description="auto | io_uring | epoll"
    )
    io_threads: Literal["auto"] | Annotated[int, Field(ge=1, le=IO_THREADS_MAX)] = Field(
        default="auto", description=f"auto or a whole number, 1..{IO_THREADS_MAX}"
    )
    max_connections: int = Field(
        default=16384, ge=1, le=1 << 20, description="a whole number, 1..1048576"
    )
    max_request_bytes: (
        Literal["auto"]
        | Annotated[
            Size,
            Field(ge=64, le=2 << 30),  # more is more memory than the parser of JSON can be given
        ]
    ) = Field(default="auto", description="auto or a size such as 8MiB, 64 bytes to 2GiB")
    arena_bytes: Literal["auto"] | Annotated[Size, Field(ge=64 << 10, le=1 << 40)] = Field(
        default="auto", description="auto or a size such as 256MiB, 64KiB to 1024GiB"
    )
    spill_bytes: Size = Field(
        default=0,
        ge=0,
        le=1 << 40,
        description="0 (a quarter of the memory) or a size such as 1GiB, up to 1024GiB",
    )
    shared_memory: bool = Field(default=False, description="true | false")
    shared_memory_bytes: Size = Field(
        default=256 << 20,
        ge=0,
        le=1 << 40,
        description="a size such as 256MiB, 0 to 1024GiB",
    )
    response_cache_bytes: Size = Field(
        default=64 << 20,
        ge=0,
        le=1 << 40,
        description="a size such as 64MiB, 0 (off) to 1024GiB",
    )
    unready_seconds: float = Field(default=5.0, ge=0, le=3600, description="0 to 3600 seconds")
    drain_seconds: float = Field(
        default=5.0, ge=0, le=3600, allow_inf_nan=False, description="seconds, 0..3600"
    )
    default_timeout_ms: int = Field(
        default=0, ge=0, le=U32_MAX // 1000, description="milliseconds, 0 (no deadline) to 4294967"
    )
    max_in_flight: Literal["auto"] | Annotated[int, Field(ge=1, le=U32_MAX)] = Field(
        default="auto", description="auto or a whole number, 1..4294967295"
    )
    overload: Literal["refuse", "wait"] = Field(default="refuse", description="refuse | wait")
    overload_status: Literal[503, 429] = Field(default=503, description="503 | 429")
    orca: Literal["never", "asked", "always"] = Field(
        default="asked", description="never | asked | always"
    )
    rate: Rate = Field(default=0.0, description=RATE_EXPECTED)
    burst: int | None = Field(default=None, ge=1, le=U32_MAX, description=BURST_EXPECTED)
    header_timeout_ms: int = Field(
        default=10_000, ge=0, le=3_600_000, description="0 (none) to 3600000 milliseconds"
    )
    body_bytes_per_second: Size = Field(
        default=16 << 10, ge=0, le=U32_MAX, description="0 (no bound) to 4294967295 bytes a second"
    )
    reply_timeout_ms: int = Field(
        default=30_000, ge=0, le=3_600_000, description="0 (none) to 3600000 milliseconds"
    )
    idle_timeout_seconds: int = Field(
        default=650, ge=0, le=86_400, description="0 (none) to 86400 seconds"
    )
    max_connection_age_seconds: int = Field(
        default=0, ge=0, le=604_800, description="0 (none) to 604800 seconds"
    )
    half_close: bool = Field(default=False, description="true | false")
    hang_seconds: int = Field(default=60, ge=0, le=86_400, description="0 (never) to 86400 seconds")
    connections_per_address: int = Field(
        default=0, ge=0, le=U32_MAX, description="0 (no bound) to 4294967295"
    )
    hosts: Annotated[
        tuple[Annotated[str, Field(pattern=_HOST_PATTERN)], ...], BeforeValidator(as_tuple)
    ] = Field(
        default=(),
        max_length=HOSTS_MAX,
        description=f"a list of at most {HOSTS_MAX} host names such as lumen.example.org, or '*'",
    )
    keys: Annotated[tuple[KeyConfig, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=KEYS_MAX,
        description=f"a list of at most {KEYS_MAX} keys, each with a name and a sha256",
    )
    metrics_port: Literal["auto"] | Annotated[int, Field(ge=0, le=65535)] = Field(
        default="auto",
        description="auto (the first free port of 8002 to 8017), 0 (none) or a port number, "
        "1..65535",
    )
    metrics_host: Annotated[str, AfterValidator(_address)] = Field(
        default="127.0.0.1", description="an IPv4 or IPv6 address such as 127.0.0.1"
    )
    agent_port: int = Field(
        default=0, ge=0, le=65535, description="a port number, 0 (none) to 65535"
    )
    tls: TlsConfig | None = Field(default=None, description="null, or a mapping with certificates")

    def ports(self) -> tuple[int, ...]:
        """The ports that are set, without that of the metrics page."""
        tls_port = 0 if self.tls is None else self.tls.port
        return tuple(filter(None, (self.port, self.grpc_port, self.agent_port, tls_port)))


class EngineConfig(Section):
    """Workers, their queue and their memory."""

    queue_type: Literal["mpmc", "scq", "spsc", "naive", "batched", "inline", "auto"] = Field(
        default="auto", description="auto | mpmc | scq | spsc | naive | batched | inline"
    )
    allocator_type: Literal["lumen_arena", "standard"] = Field(
        default="lumen_arena", description="lumen_arena | standard"
    )
    thread_count: Literal["auto"] | Annotated[int, Field(ge=1, le=WORKERS_MAX)] = Field(
        default="auto", description=f"auto or a whole number, 1..{WORKERS_MAX}"
    )
    queue_capacity: Annotated[int, AfterValidator(_power_of_two)] = Field(
        default=1024, ge=2, le=32768, description="a power of two, 2..32768"
    )
    batch_size: int = Field(
        default=1, ge=1, le=BATCH_MAX, description=f"a whole number, 1..{BATCH_MAX}"
    )
    batch_delay_us: int = Field(default=0, ge=0, le=10**6, description="microseconds, 0..1000000")
    idle: Literal["adaptive", "spin", "yield", "park"] = Field(
        default="adaptive", description="adaptive | spin | yield | park"
    )
    busy_poll_us: Literal["auto"] | Annotated[int, Field(ge=1, le=10**6)] = Field(
        default="auto", description="auto or microseconds, 1..1000000"
    )
    cores: Annotated[str, BeforeValidator(as_cores), Field(pattern=_CORES_PATTERN)] = Field(
        default="auto", max_length=255, description="auto | isolated | a list such as 0-3,8"
    )
    nodes: Literal["auto"] | Annotated[int, Field(ge=1, le=NODES_MAX)] = Field(
        default="auto", description=f"auto or a whole number, 1..{NODES_MAX}"
    )
    real_time: int = Field(default=0, ge=0, le=99, description="a priority, 1..99, or 0 (none)")
    lock_memory: bool = Field(default=False, description="true | false")
    huge_pages: Literal["transparent", "explicit", "none"] = Field(
        default="transparent", description="transparent | explicit | none"
    )
    flush_denormals: bool = Field(default=False, description="true | false")
    telemetry_csv_path: PathText | None = Field(
        default=None, description="null, or the path of a file to write"
    )


class LogConfig(Section):
    """The log and the access log: level, form and place."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug | info | warning | error"
    )
    format: Literal["text", "json"] = Field(default="text", description="text | json")
    path: PathText | None = Field(
        default=None, min_length=1, description="null (stderr), or the path of a file to append to"
    )
    access_path: PathText | None = Field(
        default=None,
        min_length=1,
        description="null, the path of a file to append to, or '-' for stdout",
    )


class Config(Section):
    """Everything a server is started with."""

    server: ServerConfig = Field(default_factory=ServerConfig, description="a mapping of settings")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="a mapping of settings")
    log: LogConfig = Field(default_factory=LogConfig, description="a mapping of settings")
    repository: RepositoryConfig = Field(
        default_factory=RepositoryConfig, description="a mapping of settings"
    )
    models: Annotated[tuple[ModelConfig, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=MODELS_MAX,
        description=f"a list of 1..{MODELS_MAX} models, each with a name and a path",
    )
    experts: Annotated[tuple[ExpertsConfig, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=MODELS_MAX,
        description="a list of virtual models, each with a name, a feature and experts",
    )
    ensembles: Annotated[tuple[EnsembleConfig, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=MODELS_MAX,
        description="a list of virtual models, each with a name and steps",
    )
    upstreams: Upstreams = Field(default={}, description=UPSTREAMS_EXPECTED)
    fallbacks: Fallbacks = Field(default={}, description=FALLBACKS_EXPECTED)
    traffic: Traffic = Field(default={}, description="a mapping of models' names to settings")
    budgets: BudgetsConfig = Field(default=BudgetsConfig(), description="a mapping of settings")
    traces: TracesConfig = Field(default=TracesConfig(), description="a mapping of settings")
    _notes: tuple[str, ...] = PrivateAttr(default=())
    _broken: tuple[Broken, ...] = PrivateAttr(default=())

    @property
    def broken(self) -> tuple[Broken, ...]:
        """The models that cannot be served, where the server starts without them."""
        return self._broken

    def with_broken(self, broken: tuple[Broken, ...]) -> Config:
        """The same settings with other models that cannot be served."""
        copy = self.model_copy()
        copy._broken = broken
        return copy

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the repositories, for the person who starts the server."""
        return self._notes

    def with_entries(self, models: tuple[ModelConfig, ...]) -> Config:
        """The same settings with other entries of `models`."""
        return self.model_copy(update={"models": models})

    def virtual_entries(self) -> tuple[ExpertsConfig | EnsembleConfig, ...]:
        """Those of `experts` and of `ensembles`."""
        return (*self.experts, *self.ensembles)

    def with_virtual(self, entries: tuple[ExpertsConfig | EnsembleConfig, ...]) -> Config:
        """The same settings with other virtual models.

        Args:
            entries: of `experts` and of `ensembles`.
        """
        experts = tuple(entry for entry in entries if isinstance(entry, ExpertsConfig))
        ensembles = tuple(entry for entry in entries if isinstance(entry, EnsembleConfig))
        return self.model_copy(update={"experts": experts, "ensembles": ensembles})

    def with_models(
        self,
        models: tuple[ModelConfig, ...],
        ensembles: tuple[EnsembleConfig, ...],
        notes: tuple[str, ...],
    ) -> Config:
        """The same settings with other models.

        Args:
            models: entries.
            ensembles: the same of ensembles.
            notes: sentences on where they come from.
        """
        copy = self.model_copy(update={"models": models, "ensembles": ensembles})
        copy._notes = notes
        return copy

    def served(self) -> tuple[ModelConfig, ...]:
        """The settings of all that clients may ask for, in the order of the wire's indexes."""
        names = {model.name for model in self.models}
        # A rule whose last expert is no model is refused later, with a sentence of its own.
        there = (entry for entry in self.experts if entry.experts[-1].model in names)
        virtual = [self.virtual(entry) for entry in there]
        ensembles = (self.ensemble(entry) for entry in self.ensembles)
        elsewhere = (model for entry in self.upstreams.values() for model in entry.served())
        return (*self.models, *virtual, *ensembles, *elsewhere)

    def ensemble(self, entry: EnsembleConfig) -> ModelConfig:
        """The settings of an ensemble as those of a model.

        Args:
            entry: of `ensembles`.
        """
        own = (
            *("name", "labels", "run", "batch_size", "batch_delay_us", "max_output_bytes"),
            *("max_rows", "response_cache", "rate", "burst"),
        )
        values = {name: getattr(entry, name) for name in own}
        return ModelConfig(path="unused", width=1, **values)

    def virtual(self, entry: ExpertsConfig) -> ModelConfig:
        """The settings of a virtual model: its own, and the last expert's for tensors and labels.

        Args:
            entry: of `experts`.
        """
        last = next(model for model in self.models if model.name == entry.experts[-1].model)
        own = ("name", "run", "batch_size", "batch_delay_us", "response_cache", "rate", "burst")
        copy = last.model_copy(
            update={name: getattr(entry, name) for name in own}
            | {"isolation": "none", "isolation_memory": 0, "isolation_hang_seconds": 0}
            | {"sequences": None, "warmup": (), "max_queued": 0, "queue_timeout_us": 0}
            | {"batch_preferred": ()}
            | {"width": 1, "intra_op_threads": 1, "max_dims": {}, "fix_dims": {}, "providers": ()}
        )
        copy._origin = None
        return copy
