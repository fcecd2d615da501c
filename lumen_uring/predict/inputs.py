"""Reads the inputs that a person gives to a command: `--input NAME=FILE.npy|FILE.json|VALUES`.

Used by commands/predict.py and commands/bench.py, on the main thread, before anything is sent.
Shapes come from the data; convert.py turns the values into the model's types.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import BadRequest

if TYPE_CHECKING:
    from lumen_uring.protocol.convert import Array
    from lumen_uring.protocol.describe import Model, TensorInfo

_FORMS: Final = "FILE.npy, FILE.json, or numbers such as '5.1 3.5' or '[[5.1, 3.5]]'"
_TEXTS: Final = '; for strings a text, or \'["one", "two"]\''
_WORDS: Final = {"true": True, "false": False}


def add_input_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Declares --input.

    Args:
        parser: of one command.
        what: the beginning of the help text.
    """
    parser.add_argument(
        "--input",
        metavar="[NAME=]VALUE",
        action="append",
        default=[],
        dest="inputs",
        help=f"{what}: {_FORMS}{_TEXTS}; NAME may be left out where the model has one input; "
        "may be repeated",
    )


def read(model: Model, options: Sequence[str]) -> dict[str, Any]:
    """Reads the values of --input.

    Args:
        model: that they are for.
        options: as given. FILE.json without a name may hold an object with the values of several
            inputs by name.

    Returns:
        Values by the input's name, for Client.infer. A single row gets its dimension, and a flat
        list of numbers the shape of rows where these have a fixed size.

    Raises:
        BadRequest: an option is no such text, or a file cannot be read.
    """
    found: dict[str, Any] = {}
    for option in options:
        for name, value in _split(model, option).items():
            if name in found:
                raise BadRequest(f"--input: expected input {name!r} once, found it twice.")
            found[name] = value
    tensors = {tensor.name: tensor for tensor in model.inputs}
    return {
        name: _shaped(tensors[name], value) if name in tensors else value
        for name, value in found.items()
    }


def sizes_of(model: Model, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of a model's free dimensions beside the rows in some inputs.

    Args:
        model: as describe gave it.
        inputs: that payloads.pack_inputs has taken.
    """
    import numpy as np

    names = {dim.name for dim in model.free_dims}
    return {
        dim: size
        for tensor in model.inputs
        for dim, size in zip(tensor.dims or (), np.shape(inputs[tensor.name]), strict=False)
        if isinstance(dim, str) and dim in names and tensor.max_rank is None
    }


def _split(model: Model, option: str) -> dict[str, Any]:
    """The values of one option by name."""
    # Longest first: a name may hold "=", and may begin with another one.
    for tensor in sorted(model.inputs, key=lambda entry: -len(entry.name)):
        if option.startswith(f"{tensor.name}="):
            return {tensor.name: _value(option[len(tensor.name) + 1 :], tensor.datatype)}
    names = [tensor.name for tensor in model.inputs]
    name, equals, _rest = option.partition("=")
    kind = model.inputs[0].datatype if len(names) == 1 else ""
    if equals and kind != "BYTES" and not os.path.isfile(option):
        raise BadRequest(f"--input: model {model.name!r} has the inputs {names}, found {name!r}.")
    value = _value(option, kind)
    if isinstance(value, dict):
        return value
    if len(names) != 1:
        raise BadRequest(
            f"--input: model {model.name!r} has the inputs {names}: expected NAME={_FORMS}, "
            f"found {_short(option)}."
        )
    return {names[0]: value}


def _value(text: str, datatype: str) -> Any:
    ending = Path(text).suffix.lower()
    if ending == ".npy":
        return _array(text)
    if ending == ".json":
        return _json(text)
    import orjson

    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if datatype == "BYTES":
        return value if isinstance(value, (str, list)) else text
    if isinstance(value, (int, float, list, dict)):
        return value
    try:
        numbers = [_number(word) for word in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if not numbers:
        raise BadRequest(f"--input: expected {_FORMS}, found {_short(text)}.")
    return numbers


def _number(word: str) -> int | float | bool:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    try:
        return int(word)
    except ValueError:
        return float(word)


def _array(path: str) -> Array:
    import numpy as np

    try:
        with Path(path).open("rb") as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise BadRequest(f"--input: {path}: {error.strerror}.") from None
    except (ValueError, EOFError, MemoryError) as error:  # of a header that claims too much
        reason = " ".join(str(error).split()).rstrip(".")
        raise BadRequest(
            f"--input: {path}: expected an array as numpy.save writes it ({reason})."
        ) from None
    return array


def _json(path: str) -> Any:
    import orjson

    try:
        return orjson.loads(Path(path).read_bytes())
    except OSError as error:
        raise BadRequest(f"--input: {path}: {error.strerror}.") from None
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"--input: {path}: expected JSON ({error}).") from None


def _shaped(tensor: TensorInfo, value: Any) -> Any:
    """Adds the dimension of the rows to one row, and shapes a flat list of numbers."""
    import numpy as np

    from lumen_uring.protocol import convert, strings

    is_text = tensor.datatype == strings.DATATYPE
    try:
        array = strings.to_array(value) if is_text else convert.to_array(value)
    except ValueError:
        return value  # Client.infer says what is wrong
    if len(tensor.shape) == 0 and array.shape == (1,):
        return array.reshape(())
    if tensor.max_rank is not None:
        return array
    if tensor.shape[:1] not in ((-1,), (1,)) or array.ndim == len(tensor.shape):
        return array
    if is_text and array.ndim == 0:
        array = array.reshape(1)
    row = tensor.shape[1:]
    if array.ndim == len(row) and all(
        size in (-1, found) for size, found in zip(row, array.shape, strict=True)
    ):
        return array[np.newaxis]
    row_size = math.prod(row)
    if array.ndim == 1 and -1 not in row and array.size and array.size % row_size == 0:
        return array.reshape(-1, *row)
    return array


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."
