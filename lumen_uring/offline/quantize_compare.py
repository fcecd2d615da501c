"""The verdict of `lumen quantize`: is the INT8 model faster here, and does it agree?

Called by commands/quantize.py, on the main thread. Both models run on one thread, in turns, so
that what disturbs the machine disturbs both.
"""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import QuantizeError
from lumen_uring.offline.quantize_graph import reason_of, tools
from lumen_uring.offline.quantize_int8 import Row

if TYPE_CHECKING:
    from lumen_uring.protocol.convert import Array

_TOP: Final = 5
_WARM_UP_RUNS: Final = 3
_TURNS_MIN: Final = 15
_TURNS_MAX: Final = 200
_SECONDS: Final = 4.0
# A shorter turn would measure the clock.
_TURN_SECONDS: Final = 1e-3
_FLOAT_COMPUTE: Final = frozenset(
    {"Conv", "FusedConv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul", "FusedMatMul"}
)
_INT8_COMPUTE: Final = frozenset(
    {
        "QLinearConv",
        "QLinearConvTranspose",
        "ConvInteger",
        "QGemm",
        "QLinearMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
    }
)
_CONVERSIONS: Final = ("QuantizeLinear", "DequantizeLinear")


def session(path: Path, optimized: Path | None = None) -> Any:
    """Opens a model on one thread, as a worker of Lumen's does.

    Args:
        path: of the file.
        optimized: a file for the graph that ONNX Runtime makes of it.

    Raises:
        QuantizeError: ONNX Runtime refuses it.
    """
    _, onnxruntime = tools()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise QuantizeError(f"{path.name}: ONNX Runtime refuses it: {reason_of(error)}") from None


@dataclass(slots=True)
class Agreement:
    """How often two models agree on one kind of rows.

    `top1`: their first classes are the same. `top5`: the original's first class is among INT8's
    first five. `cosine_sum` and `cosine_min` are of the outputs, flattened. Classes are of the
    first output that has one dimension beside the rows, and more than one value.
    """

    rows: int = 0
    class_rows: int = 0
    top1: int = 0
    top5: int = 0
    cosine_sum: float = 0.0
    cosine_min: float = math.inf

    def add(self, original: Sequence[Array], int8: Sequence[Array]) -> None:
        """Counts one Run.

        Args:
            original, int8: the outputs of both.
        """
        self.rows += 1
        cosine = min(
            (_cosine(left, right) for left, right in zip(original, int8, strict=True)), default=1.0
        )
        self.cosine_sum += cosine
        self.cosine_min = min(self.cosine_min, cosine)
        for left, right in zip(original, int8, strict=True):
            if is_classes(left) and left.shape == right.shape:
                self.class_rows += 1
                first = int(left.reshape(-1).argmax())
                best = (-right.reshape(-1)).argsort(kind="stable")[:_TOP]
                self.top1 += first == int(best[0])
                self.top5 += first in best.tolist()
                break

    def as_json(self) -> dict[str, Any]:
        """The figures under stable names."""
        classes = self.class_rows or None
        return {
            "rows": self.rows,
            "top1": classes and self.top1 / classes,
            "top5": classes and self.top5 / classes,
            "cosine_mean": self.cosine_sum / self.rows if self.rows else None,
            "cosine_min": self.cosine_min if self.rows else None,
        }


def is_classes(output: Array) -> bool:
    """Whether an output of one row has a value for each of several classes.

    Args:
        output: [1, ...].
    """
    sizes = [size for size in output.shape[1:] if size != 1]
    return output.dtype.kind == "f" and output.shape[:1] == (1,) and len(sizes) == 1


def _cosine(left: Array, right: Array) -> float:
    """Of two outputs; 0 where they cannot be compared."""
    import numpy as np

    if left.shape != right.shape or left.dtype.kind not in "fiub":
        return float(left.shape == right.shape and bool(np.array_equal(left, right)))
    one, other = left.astype(np.float64).reshape(-1), right.astype(np.float64).reshape(-1)
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    if lengths == 0:
        return float(np.array_equal(one, other))
    cosine = float(one @ other) / lengths
    return cosine if math.isfinite(cosine) else 0.0


def compare(
    original: Any, int8: Any, rows: Iterator[tuple[str, Row]]
) -> Iterator[dict[str, Agreement]]:
    """Runs both models on every row.

    Args:
        original, int8: of session.
        rows: inputs of a Run each, under the word for their kind.

    Yields:
        After each row, what is known so far by kind.

    Raises:
        QuantizeError: a Run failed.
    """
    found: dict[str, Agreement] = {}
    for kind, row in rows:
        try:
            left, right = (one.run(None, dict(row)) for one in (original, int8))
        except Exception as error:
            raise QuantizeError(f"A Run on the {kind} failed: {reason_of(error)}") from None
        found.setdefault(kind, Agreement()).add(left, right)
        yield found


@dataclass(frozen=True, slots=True)
class Times:
    """Medians of one Run on one thread, in seconds, and how many turns there were."""

    original_s: float
    int8_s: float
    turns: int

    @property
    def ratio(self) -> float:
        """How many times as fast the INT8 model is."""
        return self.original_s / self.int8_s


def measure(original: Any, int8: Any, row: Row) -> Iterator[Times]:
    """Times both models in turns.

    Args:
        original, int8: of session.
        row: the inputs.

    Yields:
        After each turn, what is known so far.
    """
    feeds = dict(row)
    for model in (original, int8):
        for _ in range(_WARM_UP_RUNS):
            model.run(None, feeds)
    runs = max(1, math.ceil(_TURN_SECONDS / _run_seconds(int8, feeds, 1)))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + _SECONDS
    while len(times[0]) < _TURNS_MIN or (time.perf_counter() < end and len(times[0]) < _TURNS_MAX):
        for model, of_model in zip((original, int8), times, strict=True):
            of_model.append(_run_seconds(model, feeds, runs))
        yield Times(median(times[0]), median(times[1]), len(times[0]))


def _run_seconds(model: Any, feeds: Mapping[str, Array], runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        model.run(None, feeds)
    return (time.perf_counter() - start) / runs


@dataclass(frozen=True, slots=True)
class Processor:
    """The instructions that INT8 products use here."""

    name: str
    has_dot_product: bool
    # Sums of two products in 16 bits overflow with weights of 8 bits.
    needs_reduced_range: bool


def processor(cpuinfo: Path = Path("/proc/cpuinfo"), machine: str = "") -> Processor:
    """Finds what INT8 products will run on.

    Args:
        cpuinfo: the kernel's description.
        machine: the architecture; "" is this one's.
    """
    machine = machine or platform.machine()
    try:
        text = cpuinfo.read_text()
    except OSError:
        text = ""
    lines = (line.partition(":") for line in text.splitlines())
    flags = next(
        (value.split() for key, _, value in lines if key.strip() in ("flags", "Features")), []
    )
    if machine in ("aarch64", "arm64"):
        name = next((name for flag, name in _ARM if flag in flags), "NEON")
        return Processor(name, name != "NEON", False)
    name = next((name for flag, name in _X86 if flag in flags), "SSE")
    dot = name not in ("AVX-512", "AVX2", "SSE")
    return Processor(name, dot, not dot)


_X86: Final = (
    ("amx_int8", "AMX"),
    ("avx512_vnni", "AVX-512 VNNI"),
    ("avx_vnni", "AVX VNNI"),
    ("avx512bw", "AVX-512"),
    ("avx2", "AVX2"),
)
_ARM: Final = (("i8mm", "I8MM"), ("asimddp", "dot products"))


@dataclass(frozen=True, slots=True)
class Shape:
    """What ONNX Runtime made of the INT8 model: how much of it runs in INT8."""

    int8: int
    floats: tuple[str, ...]
    conversions: int

    @property
    def sentence(self) -> str:
        """Says it to a person.

        >>> Shape(3, ("Conv", "Conv", "Gemm"), 2).sentence
        '3 of 6 convolutions and products (not 2 Conv, 1 Gemm), 2 conversions'
        """
        left = ", ".join(f"{count} {kind}" for kind, count in Counter(self.floats).items())
        return (
            f"{self.int8} of {self.int8 + len(self.floats)} convolutions and products"
            f"{f' (not {left})' if left else ''}, {self.conversions} conversion"
            f"{'' if self.conversions == 1 else 's'}"
        )


def shape_of(optimized: Path) -> Shape:
    """Reads the graph that ONNX Runtime made of an INT8 model.

    Args:
        optimized: of session.
    """
    onnx, _ = tools()
    nodes = onnx.load(str(optimized)).graph.node
    kinds = [node.op_type for node in nodes]
    return Shape(
        int8=sum(kind in _INT8_COMPUTE for kind in kinds),
        floats=tuple(kind for kind in kinds if kind in _FLOAT_COMPUTE),
        conversions=sum(kind in _CONVERSIONS for kind in kinds),
    )


@dataclass(slots=True)
class Verdict:
    """Whether the file is kept, and the sentences that say why not, or what to look at."""

    slower: bool = False
    reasons: list[str] = field(default_factory=list)


def judge(times: Times, shape: Shape, machine: Processor) -> Verdict:
    """Says why an INT8 model is slower, where it is.

    Args:
        times: of measure.
        shape: of shape_of.
        machine: of processor.

    >>> judge(Times(2e-3, 4e-3, 9), Shape(1, (), 3), Processor("AVX2", False, True)).reasons[0]
    'this processor has AVX2 and no VNNI: INT8 products win little or nothing on it'
    """
    verdict = Verdict(slower=times.ratio < 1)
    if not verdict.slower:
        return verdict
    if not machine.has_dot_product:
        missing = "dot products" if machine.name == "NEON" else "VNNI"
        verdict.reasons.append(
            f"this processor has {machine.name} and no {missing}: INT8 products win little or "
            "nothing on it"
        )
    if len(shape.floats) > shape.int8:
        verdict.reasons.append(
            "most of the graph stays float, since ONNX Runtime has no INT8 operator for its "
            f"pattern: in INT8 run {shape.sentence}"
        )
    elif shape.conversions > shape.int8 + 2:
        verdict.reasons.append(
            "operators that stay float stand between those in INT8: conversions cost more than "
            f"the products win ({shape.sentence})"
        )
    if times.original_s < _SHORT_SECONDS:
        verdict.reasons.append(
            f"a Run takes {times.original_s * 1e6:.0f} µs: there is too little to win"
        )
    if not verdict.reasons:
        verdict.reasons.append(f"in INT8 run {shape.sentence}; nothing else explains it")
    return verdict


_SHORT_SECONDS: Final = 200e-6
