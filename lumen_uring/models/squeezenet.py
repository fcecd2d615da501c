"""SqueezeNet 1.1 with untrained weights: a real architecture to measure speed with.

Called by `builtin_path("squeezenet")` on the main thread, before the server starts. The model is
written once into the user's cache. A cached file is used only if its digest is the expected one,
so that a torn, stale or planted file is replaced. Its answers mean nothing, and it says so.

Node for node this is the published ONNX file's graph, in a newer opset.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import ConfigError
from lumen_uring.files import put

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

FILE_NAME: Final = "squeezenet-1.1-untrained-v1.onnx"
SEED: Final = 20160224
# SHA-256 of model_bytes(). A change of the graph or the weights changes it: take the next vN too.
DIGEST: Final = "4312288622c520a03cc24ea85abcc24b5fb64d437664bb75a3ea104011a88efa"
# Old enough for ONNX Runtime 1.17.
OPSET_VERSION: Final = 13
IR_VERSION: Final = 8
DOC: Final = (
    "SqueezeNet 1.1's architecture with UNTRAINED, seeded He-scaled weights, written by Lumen to "
    "measure speed. Its answers mean nothing."
)
# Module: channels squeezed to; channels of each of the two expansions.
FIRES: Final = {
    2: (16, 64),
    3: (16, 64),
    4: (32, 128),
    5: (32, 128),
    6: (48, 192),
    7: (48, 192),
    8: (64, 256),
    9: (64, 256),
}
POOL_AFTER: Final = (3, 5)
CLASS_COUNT: Final = 1000
# Pixels come as 0..255. Their usual size is divided out in the first layer, so that activations
# stay near 1 and the softmax neither saturates nor produces denormals.
PIXEL_SCALE: Final = 128.0
BIAS_LIMIT: Final = 0.05


class _Builder:
    """Collects nodes and weights in order; the order of calls fixes the random numbers."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._bits = np.random.PCG64(seed)

    def uniform(self, shape: tuple[int, ...], limit: float) -> npt.NDArray[np.float32]:
        """Draw from -limit..limit, float32.

        From raw bits: numpy promises a bit generator's stream for ever but not a
        distribution's, and a uniform one needs no function of the C library.
        """
        count = int(np.prod(shape))
        top_bits = self._bits.random_raw(count) >> np.uint64(40)
        unit = top_bits.astype(np.float64) * 2.0**-23 - 1.0
        drawn: npt.NDArray[np.float32] = (unit * limit).astype(np.float32).reshape(shape)
        return drawn

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Append a node named after its only output; returns that name."""
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def conv_relu(
        self,
        source: str,
        name: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        divisor: float = 1.0,
    ) -> str:
        """Append Conv and Relu.

        Args:
            source: the value to convolve.
            name: prefix of everything made here.
            channels: in, out.
            kernel: pixels a side.
            stride: pixels.
            pad: pixels on each side.
            divisor: the input's usual size, divided out in the weights.

        Returns:
            The name of Relu's output.
        """
        from onnx import numpy_helper

        in_count, out_count = channels
        # He et al. 2015, arXiv:1502.01852, as a uniform distribution: variance 2 / fan-in.
        limit = float(np.sqrt(6.0 / (in_count * kernel * kernel))) / divisor
        weight = self.uniform((out_count, in_count, kernel, kernel), limit)
        bias = self.uniform((out_count,), BIAS_LIMIT)
        self.weights.append(numpy_helper.from_array(weight, f"{name}_w_0"))
        self.weights.append(numpy_helper.from_array(bias, f"{name}_b_0"))
        convolved = self.node(
            "Conv",
            [source, f"{name}_w_0", f"{name}_b_0"],
            f"{name}_1",
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
        )
        return self.node("Relu", [convolved], f"{name}_2")

    def max_pool(self, source: str, output: str) -> str:
        """Append a 3x3 pool of stride 2 that rounds sizes down."""
        window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0] * 4}
        return self.node("MaxPool", [source], output, **window)

    def fire(self, source: str, name: str, in_count: int, squeeze: int, expand: int) -> str:
        """Append a fire module: squeeze by 1x1, expand by 1x1 and 3x3, concatenate."""
        squeezed = self.conv_relu(source, f"{name}/squeeze1x1", (in_count, squeeze), 1)
        small = self.conv_relu(squeezed, f"{name}/expand1x1", (squeeze, expand), 1)
        large = self.conv_relu(squeezed, f"{name}/expand3x3", (squeeze, expand), 3, pad=1)
        return self.node("Concat", [small, large], f"{name}/concat_1", axis=1)


def model_bytes(seed: int = SEED) -> bytes:
    """Write the model, in memory.

    Args:
        seed: of the weights; 0..2**63-1.

    Returns:
        An ONNX file: `data_0` float32 [N,3,224,224] to `softmaxout_1` float32 [N,1000,1,1].
        The same bytes for the same seed.

    Source:
        The graph of the published SqueezeNet 1.1 (onnx/models, Windows-Machine-Learning).
    """
    from onnx import TensorProto, helper

    build = _Builder(seed)
    value = build.conv_relu("data_0", "conv1", (3, 64), 3, stride=2, divisor=PIXEL_SCALE)
    value = build.max_pool(value, "pool1_1")
    in_count = 64
    for index, (squeeze, expand) in FIRES.items():
        value = build.fire(value, f"fire{index}", in_count, squeeze, expand)
        in_count = 2 * expand
        if index in POOL_AFTER:
            value = build.max_pool(value, f"pool{index}_1")
    value = build.node("Dropout", [value], "fire9/concat_2")
    value = build.conv_relu(value, "conv10", (in_count, CLASS_COUNT), 1)
    value = build.node("GlobalAveragePool", [value], "pool10_1")
    output = build.node("Softmax", [value], "softmaxout_1", axis=1)
    float32 = TensorProto.FLOAT
    graph = helper.make_graph(
        build.nodes,
        "squeezenet-1.1-untrained",
        [helper.make_tensor_value_info("data_0", float32, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info(output, float32, ["N", CLASS_COUNT, 1, 1])],
        build.weights,
        doc_string=DOC,
    )
    model = helper.make_model(
        graph,
        producer_name="lumen",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET_VERSION)],
        doc_string=DOC,
    )
    helper.set_model_props(model, {"trained": "no", "weights": f"He-scaled, seed {seed}"})
    return bytes(model.SerializeToString(deterministic=True))


def is_valid(path: Path) -> bool:
    """Say whether the file is there, readable, and byte for byte the model."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == DIGEST
    except OSError:
        return False


def cached_path() -> Path:
    """Find the model in the user's cache, or write it there.

    Returns:
        `$XDG_CACHE_HOME/lumen/` or `~/.cache/lumen/`, and the file's name. Where that cannot be
        written, a private folder under the system's temporary one, with a warning.

    Raises:
        ConfigError: neither place can be written, or the `onnx` package is missing.
    """
    try:
        path = _cache_dir() / FILE_NAME
        return path if is_valid(path) else _write(path)
    except (OSError, RuntimeError) as error:
        refused = error
    try:
        path = _private_temp_dir() / FILE_NAME
        path = path if is_valid(path) else _write(path)
    except OSError as error:
        raise ConfigError(
            f"The built-in model squeezenet cannot be stored: the cache gave '{refused}', the "
            f"temporary folder '{error}'. Set XDG_CACHE_HOME to a folder that can be written."
        ) from error
    warnings.warn(
        f"The cache cannot be written ({refused}), so the built-in model squeezenet is kept in "
        f"{path}. Set XDG_CACHE_HOME to a folder that can be written to keep it for good.",
        RuntimeWarning,
        stacklevel=3,
    )
    return path


def _cache_dir() -> Path:
    """The user's cache. RuntimeError where there is no home; the specification of XDG has a
    relative path ignored."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "lumen"


def _private_temp_dir() -> Path:
    """A folder that only this user can write: the same one each time, unless someone else made
    it."""
    path = Path(tempfile.gettempdir()) / f"lumen-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if path.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix="lumen-"))
    return path


def _write(path: Path) -> Path:
    """Write the model under another name and rename it, so that no reader sees half a file."""
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    # The mode is set whatever the umask: model_cache.py trusts no folder that others may write.
    path.parent.mkdir(mode=0o700, exist_ok=True)
    put(_model_bytes_or_refuse(), path)
    return path


def _model_bytes_or_refuse() -> bytes:
    try:
        return model_bytes()
    except ImportError as error:
        raise ConfigError(
            "The built-in model squeezenet is written with the onnx package, which is missing: "
            f"install it with `pip install onnx` ({error})."
        ) from error
