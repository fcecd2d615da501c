"""The describe document, in which a server describes its models, checked and typed.

Used by payloads.py, both clients and `lumen predict`, on any thread. The document comes from a
peer: each field is checked, and one that is wrong is a ProtocolError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import orjson

from lumen_uring.errors import ProtocolError, UnknownModel

# Triton's names for element types, and how numpy holds them on the wire's little-endian side.
# numpy has no bfloat16: its bits travel as uint16. Strings, BYTES, are in strings.py.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "INT8": np.dtype("i1"),
    "UINT16": np.dtype("<u2"),
    "INT16": np.dtype("<i2"),
    "UINT32": np.dtype("<u4"),
    "INT32": np.dtype("<i4"),
    "UINT64": np.dtype("<u8"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype("<u2"),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output: -1 is a free dimension, or an output's unknown one.

    Where more than the rows are free, `dims` has the shape with a name for each free dimension;
    None where only the rows are. An input with `max_rank` takes any shape of at most so many
    dimensions; `shape` then shows it as a list, and the name in `dims` bounds its elements.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    shape_known: bool
    dims: tuple[int | str, ...] | None = None
    max_rank: int | None = None


@dataclass(frozen=True, slots=True)
class FreeDim:
    """A free dimension beside the rows, or the elements of an input of any rank: 1 to `max`."""

    name: str
    max: int
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Rgb8Info:
    """The picture a model takes: height and width in pixels, and how the server normalises it.

    The model gets (value - mean) * scale, in the order of colours channel_order. All three are None
    when the server does not report them.
    """

    height: int
    width: int
    channel_order: str | None = None
    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What the server does with a picture's file; image_input.described makes a plan of it.

    The tensor has height x width pixels and holds (value - mean) * scale, in the order of colours
    channel_order: RGB, BGR, or GREY for one channel. `resize` is the size before a crop, or 0;
    `pad_value` surrounds a letterbox.
    """

    height: int
    width: int
    layout: str
    channel_order: str
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    fit: str
    filter: str
    resize: int
    pad_value: int
    max_pixels: int


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a server; requests carry its `index`, `labels` are the names of its classes.

    A virtual model runs one of `experts`, of each of which this has index and name.
    """

    index: int
    name: str
    max_rows: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    rgb8: Rgb8Info | None
    labels: tuple[str, ...] = ()
    free_dims: tuple[FreeDim, ...] = ()
    image: ImageInfo | None = None
    experts: tuple[tuple[int, str], ...] = ()
    version: int = 1


@dataclass(frozen=True, slots=True)
class Description:
    """A server's models by name, and the document as it came."""

    models: dict[str, Model]
    document: dict[str, Any]


def parse_description(payload: bytes | bytearray | memoryview) -> Description:
    """Reads a describe reply.

    Args:
        payload: UTF-8 JSON.

    Returns:
        The models, in the document's order.

    Raises:
        ProtocolError: not JSON, or not the document this version knows.
    """
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(f"The server's describe reply is no JSON: {error}.") from None
    try:
        protocol = document["server"]["protocol"]
        if protocol != 1:
            raise ProtocolError(f"This client speaks protocol 1, the server {protocol!r}.")
        places = {_text(entry["name"]): place for place, entry in enumerate(document["models"])}
        parsed = [_model(entry, places) for entry in document["models"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(
            f"The server's describe reply is not the document expected: {error!r}."
        ) from None
    return Description({model.name: model for model in parsed}, document)


def find_model(models: Mapping[str, Model], name: str) -> Model:
    """Finds a model by its name.

    Args:
        models: of a server, by name.
        name: of the model, with or without its version: NAME or NAME:VERSION.

    Raises:
        UnknownModel: no model has this name; the message lists the names of all.
    """
    model = models.get(name)
    if model is None:
        # Of several versions a name alone is the highest.
        versions = [one for one in models.values() if one.name.partition(":")[0] == name]
        model = max(versions, key=lambda one: one.version, default=None)
    if model is None:
        raise UnknownModel(f"The server has no model {name!r}; it has {list(models)}.")
    return model


def _model(entry: dict[str, Any], places: Mapping[str, int]) -> Model:
    rgb8 = entry["rgb8"]
    image = entry.get("image")
    free_dims = tuple(_free_dim(dim) for dim in entry.get("free_dims") or ())
    names = {dim.name for dim in free_dims}
    if len(names) != len(free_dims):
        raise ValueError("two free dimensions of one name")
    return Model(
        index=_integer(entry["index"], 0, 0xFFFF),
        name=_text(entry["name"]),
        max_rows=_integer(entry["max_rows"], 1, 2**32 - 1),
        inputs=tuple(_input(tensor, names) for tensor in entry["inputs"]),
        outputs=tuple(_tensor(tensor) for tensor in entry["outputs"]),
        rgb8=None if rgb8 is None else _rgb8(rgb8),
        labels=tuple(_text(label) for label in entry.get("labels") or ()),
        free_dims=free_dims,
        image=None if image is None else _image(image),
        experts=tuple(
            (places[one["model"]], _text(one["model"])) for one in entry.get("experts") or ()
        ),
        version=_integer(entry.get("version", 1), 1, 2**32 - 1),
    )


def _free_dim(entry: dict[str, Any]) -> FreeDim:
    return FreeDim(
        _text(entry["name"]), _integer(entry["max"], 1, 2**32 - 1), entry.get("default") is True
    )


def _rgb8(entry: dict[str, Any]) -> Rgb8Info:
    order = entry.get("channel_order")
    return Rgb8Info(
        height=_integer(entry["height"], 1, 2**31),
        width=_integer(entry["width"], 1, 2**31),
        channel_order=None if order is None else _text(order),
        mean=_three(entry.get("mean")),
        scale=_three(entry.get("scale")),
    )


def _image(entry: dict[str, Any]) -> ImageInfo:
    return ImageInfo(
        height=_integer(entry["height"], 1, 2**31),
        width=_integer(entry["width"], 1, 2**31),
        layout=_text(entry["layout"]),
        channel_order=_text(entry["channel_order"]),
        mean=_three(entry["mean"]) or (),
        scale=_three(entry["scale"]) or (),
        fit=_text(entry["fit"]),
        filter=_text(entry["filter"]),
        resize=_integer(entry["resize"], 0, 2**31),
        pad_value=_integer(entry["pad_value"], 0, 255),
        max_pixels=_integer(entry["max_pixels"], 1, 2**32),
    )


def _three(value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    numbers = tuple(float(number) for number in value)
    if len(numbers) != 3:
        raise ValueError(f"{value!r} where three numbers belong")
    return numbers


def _input(entry: dict[str, Any], free: set[str]) -> TensorInfo:
    """An input of a model with free dimensions of these names, or of one with none."""
    tensor = _tensor(entry)
    dims = tensor.dims or tensor.shape
    if tensor.max_rank is not None and not (len(tensor.shape) == 1 and free.issuperset(dims)):
        raise ValueError(f"max_rank of input {tensor.name!r}, whose dims are {tensor.dims}")
    if not free:
        return replace(tensor, dims=None)
    if tensor.dims is None:
        raise ValueError(f"input {tensor.name!r} without dims, in a model with free dimensions")
    for index, dim in enumerate(tensor.dims):
        if dim == -1 or (index > 0 and isinstance(dim, str) and dim not in free):
            raise ValueError(f"dimension {dim!r} of input {tensor.name!r}, not in free_dims")
    return tensor


def _tensor(entry: dict[str, Any]) -> TensorInfo:
    datatype = _text(entry["datatype"])
    if datatype not in DTYPES and datatype != "BYTES":
        raise ValueError(f"datatype {datatype!r}")
    shape = tuple(_integer(dim, -1, 2**40) for dim in entry["shape"])
    known = bool(entry.get("shape_known", True))
    dims = _dims(entry["dims"], shape) if entry.get("dims") is not None else None
    rank = entry.get("max_rank")
    return TensorInfo(
        _text(entry["name"]),
        datatype,
        shape,
        known,
        dims,
        None if rank is None else _integer(rank, 1, 255),
    )


def _dims(entry: Any, shape: tuple[int, ...]) -> tuple[int | str, ...]:
    """The shape again, where names may stand for -1."""
    dims = tuple(dim if isinstance(dim, str) else _integer(dim, -1, 2**40) for dim in entry)
    if tuple(-1 if isinstance(dim, str) else dim for dim in dims) != shape:
        raise ValueError(f"dims {list(dims)} beside the shape {list(shape)}")
    return dims


def _integer(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{value!r} where a whole number from {low} to {high} belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} where a text belongs")
    return value
