"""The settings of a model, of experts and of an ensemble: what may be written, and what it means.

Parts of settings/schema.py's Config; config.py finds and reads the YAML. A setting that this
version cannot honour is refused, never ignored.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from lumen_uring.pictures.image_input import ImageConfig
from lumen_uring.settings.origin import Origin
from lumen_uring.settings.providers import EXPECTED as PROVIDERS_EXPECTED
from lumen_uring.settings.providers import Providers
from lumen_uring.settings.sequences import SequencesConfig
from lumen_uring.settings.text import TextConfig
from lumen_uring.settings.types import (
    BATCH_DELAY_US_MAX,
    BATCH_MAX,
    BURST_EXPECTED,
    DIMS_EXPECTED,
    NAME_BYTES_MAX,
    NAME_EXPECTED,
    NAME_PATTERN,
    RATE_EXPECTED,
    U32_MAX,
    U64_MAX,
    WORKERS_MAX,
    Bound,
    Dims,
    Float,
    PathText,
    Rate,
    Section,
    Size,
    as_number,
    as_tuple,
    base_of,
    dim_name,
    no_nul,
    versioned,
)
from lumen_uring.settings.warmup import EXPECTED as WARMUP_EXPECTED
from lumen_uring.settings.warmup import Warmups

EXPERTS_MAX: Final = 8  # LUMEN_EXPERTS_MAX
STEPS_MAX: Final = 16  # LUMEN_STEPS_MAX
TENSORS_MAX: Final = 64  # LM_STEP_TENSORS_MAX


def _three(value: object) -> object:
    """One number stands for all three channels."""
    value = as_number(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (value, value, value)
    return as_tuple(value)


# In the order of enum lumen_feature.
Feature = Literal[
    "variance",
    "mean",
    "norm",
    "edges",
    "pixels",
    "length",
    "size",
    "probability",
    "softmax",
    "margin",
]
CASCADES: Final = ("probability", "softmax", "margin")  # features of the lighter expert's answer
_Three = Annotated[tuple[Float, Float, Float], BeforeValidator(_three)]


# Types that served and virtual models have in common.
_BatchSize = Annotated[
    int | None,
    Field(
        ge=1,
        le=BATCH_MAX,
        description=f"null (as engine.batch_size) or a whole number, 1..{BATCH_MAX}",
    ),
]
_BatchDelay = Annotated[
    int | None,
    Field(
        ge=0,
        le=BATCH_DELAY_US_MAX,
        description=f"null (as engine.batch_delay_us) or microseconds, 0..{BATCH_DELAY_US_MAX}",
    ),
]
_Preferred = Annotated[
    tuple[Annotated[int, Field(ge=1, le=BATCH_MAX)], ...],
    BeforeValidator(as_tuple),
    Field(max_length=BATCH_MAX, description=f"a list of whole numbers, 1..{BATCH_MAX}"),
]


class ModelConfig(Section):
    """One model to serve."""

    _origin: Origin | None = PrivateAttr(default=None)

    name: Annotated[str, AfterValidator(versioned)] = Field(description=NAME_EXPECTED)
    path: PathText = Field(min_length=1, description="a file's path, or builtin:NAME")
    width: Literal["auto"] | Annotated[int, Field(ge=1, le=WORKERS_MAX)] = Field(
        default="auto", description=f"auto or a whole number, 1..{WORKERS_MAX}"
    )
    run: Literal["auto", "inline", "worker"] = Field(
        default="auto", description="auto | inline | worker"
    )
    engine: Literal["auto", "native", "onnxruntime"] = Field(
        default="auto", description="auto | native | onnxruntime"
    )
    providers: Providers = Field(default=(), description=PROVIDERS_EXPECTED)
    isolation: Literal["none", "process"] = Field(default="none", description="none | process")
    isolation_memory: Size = Field(
        default=0,
        ge=0,
        le=1 << 40,
        description="0 (no bound) or a size such as 1GiB, to 1024GiB",
    )
    isolation_hang_seconds: int = Field(
        default=0, ge=0, le=86_400, description="0 (as server.hang_seconds) to 86400 seconds"
    )
    intra_op_threads: int = Field(default=1, ge=1, le=256, description="a whole number, 1..256")
    channel_order: Literal["rgb", "bgr"] = Field(default="rgb", description="rgb | bgr")
    mean: _Three = Field(default=(0.0, 0.0, 0.0), description="a number or a list of three")
    scale: _Three = Field(default=(1.0, 1.0, 1.0), description="a number or a list of three")
    max_rows: int = Field(
        default=0, ge=0, le=U32_MAX, description="a whole number, 0 (what fits) to 4294967295"
    )
    max_dims: Dims = Field(default={}, description=DIMS_EXPECTED)
    fix_dims: Dims = Field(default={}, description=DIMS_EXPECTED)
    max_output_bytes: Size = Field(
        default=0,
        ge=0,
        le=U32_MAX,
        description="0 (what server.spill_bytes allows) or a size such as 1MiB, to under 4GiB",
    )
    batch_size: _BatchSize = None
    batch_delay_us: _BatchDelay = None
    batch_preferred: _Preferred = ()
    max_queued: int = Field(
        default=0, ge=0, le=U32_MAX, description="0 (no bound) or a number of requests"
    )
    queue_timeout_us: int = Field(
        default=0, ge=0, le=U64_MAX, description="0 (no bound) or microseconds"
    )
    response_cache: bool = Field(default=False, description="true | false")
    rate: Rate = Field(default=0.0, description=RATE_EXPECTED)
    burst: int | None = Field(default=None, ge=1, le=U32_MAX, description=BURST_EXPECTED)
    image: ImageConfig | None = Field(
        default=None,
        description="null (no files of pictures), or a mapping of settings such as {preset: "
        "imagenet}",
    )
    sequences: SequencesConfig | None = Field(
        default=None, description="null (each request stands alone), or a mapping of settings"
    )
    text: TextConfig | None = Field(
        default=None,
        description="null (clients send tensors, unless the path is a text model's folder), or a "
        "mapping of settings",
    )
    warmup: Warmups = Field(default=(), description=WARMUP_EXPECTED)
    labels: PathText | None = Field(
        default=None,
        min_length=1,
        description="null, or the path of a text file with one class per line",
    )

    @property
    def base(self) -> str:
        """The name without a version."""
        return base_of(self.name)

    @property
    def version(self) -> int:
        """That clients are told: the name's, or its folder's in a repository, or 1."""
        _, colon, version = self.name.partition(":")
        if colon:
            return int(version)
        return 1 if self._origin is None else self._origin.version

    @property
    def origin(self) -> Origin | None:
        """The folder of a repository that the entry was made of; None: it was written."""
        return self._origin

    def with_origin(self, origin: Origin) -> ModelConfig:
        """The same entry, made of a folder."""
        copy = self.model_copy()
        copy._origin = origin
        return copy

    def takes(self) -> ImageConfig | None:
        """What becomes of files of pictures: `image`, or what a built-in model has of its own."""
        if self.image is not None or not self.path.startswith("builtin:"):
            return self.image
        from lumen_uring.models import builtin_image

        return builtin_image(self.path.removeprefix("builtin:"))


class ExpertConfig(Section):
    """One model of a rule, and where the rule takes it."""

    model: Annotated[str, AfterValidator(versioned)] = Field(
        description="the name of an entry of `models`"
    )
    below: Bound | None = Field(
        default=None, description="null (the last expert takes the rest) or a number"
    )
    at_least: Bound | None = Field(
        default=None, description="null (where the expert before ends) or a number"
    )


class ExpertsConfig(Section):
    """A virtual model: it runs one of several models of the same inputs and outputs, by a rule."""

    name: str = Field(
        pattern=rf"^{NAME_PATTERN}$",
        description=f"1 to {NAME_BYTES_MAX} letters, digits, '_', '.' or '-'",
    )
    feature: Feature = Field(description=" | ".join(get_args(Feature)))
    of: Annotated[str, AfterValidator(no_nul), AfterValidator(dim_name)] | None = Field(
        default=None,
        description="null (the only one), or the name of an input, of an output (probability, "
        "softmax, margin) or of a free dimension (size)",
    )
    experts: Annotated[tuple[ExpertConfig, ...], BeforeValidator(as_tuple)] = Field(
        min_length=2,
        max_length=EXPERTS_MAX,
        description=f"a list of 2..{EXPERTS_MAX} experts, each with a model",
    )
    run: Literal["auto", "inline", "worker"] = Field(
        default="auto", description="auto | inline | worker"
    )
    batch_size: _BatchSize = None
    batch_delay_us: _BatchDelay = None
    response_cache: bool = Field(default=False, description="true | false")
    rate: Rate = Field(default=0.0, description=RATE_EXPECTED)
    burst: int | None = Field(default=None, ge=1, le=U32_MAX, description=BURST_EXPECTED)

    @property
    def is_cascade(self) -> bool:
        """The lightest expert runs first, and its answer decides."""
        return self.feature in CASCADES

    def bounds(self) -> tuple[float, ...]:
        """The bound of each expert as lumen_expert has it; expert_checks.py has checked them."""
        found = [one.at_least if self.is_cascade else one.below for one in self.experts]
        return tuple(math.nan if bound is None else bound for bound in found)


_Names = Annotated[dict[str, Annotated[str, AfterValidator(no_nul)]], Field(max_length=TENSORS_MAX)]


class StepConfig(Section):
    """One model of an ensemble, and the names of its tensors there."""

    model: Annotated[str, AfterValidator(versioned)] = Field(
        description="the name of an entry of `models` or of `experts`"
    )
    inputs: _Names = Field(default={}, description="a mapping from the model's inputs to names")
    outputs: _Names = Field(default={}, description="a mapping from the model's outputs to names")


class EnsembleConfig(Section):
    """A virtual model: models that run one after the other, on what those before them made."""

    _is_tritons: bool = PrivateAttr(default=False)
    _folder: str = PrivateAttr(default="")

    name: str = Field(
        pattern=rf"^{NAME_PATTERN}$",
        description=f"1 to {NAME_BYTES_MAX} letters, digits, '_', '.' or '-'",
    )
    steps: Annotated[tuple[StepConfig, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1,
        max_length=STEPS_MAX,
        description=f"a list of 1..{STEPS_MAX} steps, each with a model",
    )
    outputs: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        default=(), description="a list of names; empty: what no step takes"
    )
    labels: PathText | None = Field(
        default=None,
        min_length=1,
        description="null, or the path of a text file with one class per line",
    )
    run: Literal["auto", "inline", "worker"] = Field(
        default="auto", description="auto | inline | worker"
    )
    batch_size: _BatchSize = None
    batch_delay_us: _BatchDelay = None
    max_rows: int = Field(
        default=0, ge=0, le=U32_MAX, description="a whole number, 0 (as its steps) to 4294967295"
    )
    max_output_bytes: Size = Field(
        default=0,
        ge=0,
        le=U32_MAX,
        description="0 (what server.spill_bytes allows) or a size such as 1MiB, to under 4GiB",
    )
    response_cache: bool = Field(default=False, description="true | false")
    rate: Rate = Field(default=0.0, description=RATE_EXPECTED)
    burst: int | None = Field(default=None, ge=1, le=U32_MAX, description=BURST_EXPECTED)

    @property
    def is_tritons(self) -> bool:
        """Whether it was read from a model configuration of Triton's: an output of a step that is
        not mapped is nobody's there, and keeps its name here."""
        return self._is_tritons

    @property
    def folder(self) -> str:
        """The folder of a repository that the entry was read from; "": it was written."""
        return self._folder

    def as_tritons(self, folder: str) -> EnsembleConfig:
        """The same entry, read from a model configuration of Triton's.

        Args:
            folder: of the model.
        """
        copy = self.model_copy()
        copy._is_tritons, copy._folder = True, folder
        return copy
