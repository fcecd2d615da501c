"""The data's side of `lumen quantize`: rows to calibrate with, and rows to compare on.

Called by commands/quantize.py, on the main thread. Rows are made when they are asked for: a
folder's pictures are never in memory together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lumen_uring.errors import ConfigError, PictureError, QuantizeError
from lumen_uring.offline.quantize_graph import reason_of, tools
from lumen_uring.offline.quantize_int8 import Row
from lumen_uring.pictures import files as pictures
from lumen_uring.protocol.convert import name_of, to_array, to_datatype
from lumen_uring.protocol.describe import DTYPES

if TYPE_CHECKING:
    import onnx

    from lumen_uring.pictures.image_input import Preprocessing
    from lumen_uring.protocol.convert import Array

SEED: Final = 1
# With fewer samples none is set aside: the ranges need them.
HOLD_OUT_MIN: Final = 20
_HELD_OUT_PART: Final = 5
# Source: torchvision's RandomResizedCrop with its defaults.
_CROP_AREA: Final = (0.08, 1.0)
_CROP_RATIO: Final = (3 / 4, 4 / 3)
_DATATYPES: Final = {
    "FLOAT": "FP32",
    "FLOAT16": "FP16",
    "DOUBLE": "FP64",
    **{name: name for name in DTYPES if name.startswith(("INT", "UINT", "BOOL"))},
}


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the graph: a size that is free is -1 and has its name in `dims`, or ""."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]


def inputs_of(model: onnx.ModelProto, name: str) -> list[Input]:
    """Reads a graph's inputs.

    Args:
        model: without weights among its inputs.
        name: for messages.

    Raises:
        QuantizeError: one has a type or a shape that nothing can be made for.
    """
    onnx, _ = tools()
    found = []
    for entry in model.graph.input:
        tensor = entry.type.tensor_type
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type)
        if kind not in _DATATYPES or not tensor.HasField("shape"):
            what = "no shape" if kind in _DATATYPES else kind.lower()
            raise QuantizeError(
                f"{name}: expected numbers of a known shape for input {entry.name!r}, found {what}."
            )
        dims = tensor.shape.dim
        found.append(
            Input(
                entry.name,
                _DATATYPES[kind],
                tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims),
                tuple(dim.dim_param for dim in dims),
            )
        )
    return found


def with_dims(entry: Input, sizes: Mapping[str, int]) -> Input:
    """Gives free dimensions their sizes.

    Args:
        entry: an input.
        sizes: by name.

    Raises:
        ConfigError: the input has no such dimension.
    """
    for name in sizes:
        if name not in entry.dims:
            free = [dim for dim in entry.dims[1:] if dim]
            raise ConfigError(
                f"--dims: expected free dimensions of input {entry.name!r} ({free}), found {name}."
            )
    shape = tuple(sizes.get(name, size) for name, size in zip(entry.dims, entry.shape, strict=True))
    return Input(entry.name, entry.datatype, shape, entry.dims)


class Samples(ABC):
    """Rows of one source.

    Attributes:
        what: the word for its rows.
        held_out: rows are compared that the calibration has not seen.
        skipped: a sentence for each file that could not be read.
    """

    what: str
    held_out: bool
    skipped: list[str]

    @property
    @abstractmethod
    def calibration_count(self) -> int:
        """How many rows there are to calibrate with, at most."""

    @abstractmethod
    def calibration(self) -> Iterator[Row]:
        """Inputs of a Run each."""

    @property
    @abstractmethod
    def comparison_count(self) -> int:
        """How many rows there are to compare on, at most."""

    @abstractmethod
    def comparison(self) -> Iterator[tuple[str, Row]]:
        """Inputs of a Run each, under the word for their kind."""

    @property
    @abstractmethod
    def group_count(self) -> int:
        """How many groups `everything` has: rows of different groups have nothing in common."""

    @abstractmethod
    def everything(self) -> Iterator[tuple[int, Row]]:
        """Every row with the number of its group: a picture and its crops are one."""


def _split(count: int, most: int) -> tuple[list[int], list[int]]:
    """Draws what is compared and what calibrates; the same for the same count."""
    order = [int(index) for index in np.random.default_rng(SEED).permutation(count)]
    held = min(count // _HELD_OUT_PART, most) if count >= HOLD_OUT_MIN else 0
    calibration = order[held : held + most]
    return calibration, order[:held] or calibration


class PictureSamples(Samples):
    """A folder's pictures and random crops of them.

    Args:
        folder: of the pictures, with all folders below.
        name: of the model's input.
        plan: what becomes of a picture.
        most: pictures to calibrate with, at most.
        crops: random crops to compare on.

    Raises:
        ConfigError: there is no such folder, or no picture in it.
    """

    what = "pictures"

    def __init__(self, folder: Path, name: str, plan: Preprocessing, most: int, crops: int) -> None:
        if not folder.is_dir():
            found = "a file" if folder.exists() else "nothing"
            raise ConfigError(f"--images {folder}: expected a folder of pictures, found {found}.")
        files = list(pictures.find([str(folder)]))
        if not files:
            raise ConfigError(
                f"--images {folder}: expected pictures (.png .jpg .jpeg .bmp .gif .webp), found "
                "none."
            )
        calibration, compared = _split(len(files), most)
        self._files = files
        self._calibration = [files[index] for index in calibration]
        self._compared = [files[index] for index in compared]
        self._folder, self._name, self._plan, self._crops = folder, name, plan, crops
        self._random = np.random.default_rng(SEED)
        self.held_out = len(files) >= HOLD_OUT_MIN
        self._skipped: dict[Path, str] = {}

    @property
    def skipped(self) -> list[str]:  # type: ignore[override]
        return list(self._skipped.values())

    @property
    def calibration_count(self) -> int:
        return len(self._calibration)

    def calibration(self) -> Iterator[Row]:
        for file in self._calibration:
            yield from self._rows(file)
        self._check(self._calibration)

    def _check(self, files: Sequence[Path]) -> None:
        """Refuses pictures of which none was readable."""
        if all(file in self._skipped for file in files):
            raise PictureError(
                f"--images {self._folder}: none of {len(files)} pictures can be read. The first: "
                f"{self._skipped[files[0]]}"
            )

    def _rows(self, file: Path, crops: int = 0) -> Iterator[Row]:
        """A picture, then random crops of it; nothing where it cannot be read."""
        try:
            with pictures.opened(file, self._plan.upright) as image:
                image.load()
                yield {self._name: pictures.tensor(self._plan, image)}
                for _ in range(crops):
                    crop = image.crop(crop_box(image.width, image.height, self._random))
                    yield {self._name: pictures.tensor(self._plan, crop)}
        except PictureError as error:
            self._skipped[file] = str(error)

    @property
    def comparison_count(self) -> int:
        return len(self._compared) + self._crops

    def comparison(self) -> Iterator[tuple[str, Row]]:
        self._random = np.random.default_rng(SEED)
        left = self._crops
        for index, file in enumerate(self._compared):
            # Each picture that is still to come has its part of the crops that are left.
            share = math.ceil(left / (len(self._compared) - index))
            for number, row in enumerate(self._rows(file, share)):
                yield "random crops" if number else self.what, row
                left -= number > 0
        self._check(self._compared)

    @property
    def group_count(self) -> int:
        return len(self._files)

    def everything(self) -> Iterator[tuple[int, Row]]:
        self._random = np.random.default_rng(SEED)
        for index, file in enumerate(self._files):
            for row in self._rows(file, self._crops // len(self._files)):
                yield index, row
        self._check(self._files)


def crop_box(width: int, height: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Draws a part of a picture.

    Args:
        width, height: of the picture.
        random: decides.

    Returns:
        Left, top, right and bottom.
    """
    area = width * height * random.uniform(*_CROP_AREA)
    ratio = math.exp(random.uniform(math.log(_CROP_RATIO[0]), math.log(_CROP_RATIO[1])))
    crop_width = max(1, min(width, round(math.sqrt(area * ratio))))
    crop_height = max(1, min(height, round(math.sqrt(area / ratio))))
    left = int(random.integers(width - crop_width + 1))
    top = int(random.integers(height - crop_height + 1))
    return left, top, left + crop_width, top + crop_height


class ArraySamples(Samples):
    """The rows of an .npz file: an array for each input, a sample for each entry of its first axis.

    Args:
        path: of the file.
        inputs: of the model.
        most: rows to calibrate with, at most.

    Raises:
        QuantizeError: the file cannot be read, or its arrays do not fit.
    """

    what = "rows"

    def __init__(self, path: Path, inputs: Sequence[Input], most: int) -> None:
        self._inputs = inputs
        self._arrays = _read(path, inputs)
        count = len(next(iter(self._arrays.values())))
        self._calibration, self._compared = _split(count, most)
        self.held_out = count >= HOLD_OUT_MIN
        self.skipped = []

    @property
    def calibration_count(self) -> int:
        return len(self._calibration)

    def calibration(self) -> Iterator[Row]:
        return map(self._row, self._calibration)

    @property
    def comparison_count(self) -> int:
        return len(self._compared)

    def comparison(self) -> Iterator[tuple[str, Row]]:
        return (("rows", self._row(index)) for index in self._compared)

    @property
    def group_count(self) -> int:
        return len(next(iter(self._arrays.values())))

    def everything(self) -> Iterator[tuple[int, Row]]:
        return ((index, self._row(index)) for index in range(self.group_count))

    def _row(self, index: int) -> Row:
        return {
            entry.name: self._arrays[entry.name][
                slice(index, index + 1) if has_rows(entry) else index
            ]
            for entry in self._inputs
        }


def has_rows(entry: Input) -> bool:
    """Whether an input's first dimension is its rows.

    Args:
        entry: an input.
    """
    return entry.shape[:1] in ((-1,), (1,))


def _read(path: Path, inputs: Sequence[Input]) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise ValueError("one array, as of numpy.save")
            found: dict[str, Any] = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile and numpy have many
        raise QuantizeError(
            f"--npz {path}: expected arrays as numpy.savez(FILE, NAME=ARRAY) writes them, found: "
            f"{reason_of(error)}."
        ) from None
    names = [entry.name for entry in inputs]
    if sorted(found) != sorted(names):
        raise QuantizeError(
            f"--npz {path}: expected an array for each input ({', '.join(names)}), found "
            f"{', '.join(found) or 'none'}."
        )
    arrays = {entry.name: _checked(path, entry, found[entry.name]) for entry in inputs}
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise QuantizeError(
            f"--npz {path}: expected as many samples of each input, found {counts}."
        )
    if not counts[names[0]]:
        raise QuantizeError(f"--npz {path}: expected samples, found arrays without any.")
    return arrays


def _checked(path: Path, entry: Input, array: Array) -> Array:
    rest = entry.shape[1:] if has_rows(entry) else entry.shape
    fits = array.ndim == len(rest) + 1 and all(
        wanted in (-1, size) for wanted, size in zip(rest, array.shape[1:], strict=True)
    )
    if not fits:
        shape = ", ".join(
            ["samples", *(str(size) if size >= 0 else dim or "n" for size, dim in _named(entry))]
        )
        raise QuantizeError(
            f"--npz {path}: expected {name_of(entry.datatype)} [{shape}] for input "
            f"{entry.name!r}, found {array.dtype} {list(array.shape)}."
        )
    try:
        return to_datatype(to_array(array), entry.datatype)
    except ValueError as error:
        raise QuantizeError(
            f"--npz {path}: expected {name_of(entry.datatype)} for input {entry.name!r}, {error}."
        ) from None


def _named(entry: Input) -> list[tuple[int, str]]:
    pairs = list(zip(entry.shape, entry.dims, strict=True))
    return pairs[1:] if has_rows(entry) else pairs
