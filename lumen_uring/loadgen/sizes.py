"""`lumen bench` and models with free dimensions: the sizes of each request.

Used by commands/bench.py and loadgen/http.py, on the main thread, before the load starts. All
requests of a load have one size.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lumen_uring.errors import ConfigError

if TYPE_CHECKING:
    from lumen_uring.protocol.describe import Model

_DEFAULT: Final = 128
_UNKNOWN_MAX: Final = 2**31 - 1


def dims(text: str) -> dict[str, int]:
    """Reads sizes for argparse.

    Args:
        text: NAME=SIZE, several with commas between them.

    Returns:
        Sizes above 0 by name.

    Raises:
        argparse.ArgumentTypeError: not such a list.

    >>> dims("height=224,width=320")
    {'height': 224, 'width': 320}
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _equals, size = part.rpartition("=")
        whole = size.isascii() and size.isdecimal() and 0 < int(size) <= _UNKNOWN_MAX
        if not name or not whole or name in found:
            raise argparse.ArgumentTypeError(
                f"expected NAME=SIZE,... with each name once and sizes above 0, found {text!r}"
            )
        found[name] = int(size)
    return found


def with_names(model: Model) -> Model:
    """Names free dimensions as Lumen names those without a name, where the server says none.

    Args:
        model: of a server that says shapes alone; -1 as the first dimension are the rows.

    Returns:
        A copy in which every other -1 of an input is a free dimension INPUT[INDEX].
    """
    from lumen_uring.protocol.describe import FreeDim

    inputs = []
    free: list[FreeDim] = []
    for tensor in model.inputs:
        named = [
            f"{tensor.name}[{index}]" if size < 0 < index else size
            for index, size in enumerate(tensor.shape)
        ]
        free += [FreeDim(name, _UNKNOWN_MAX) for name in named if isinstance(name, str)]
        inputs.append(dataclasses.replace(tensor, dims=tuple(named)))
    return dataclasses.replace(model, inputs=tuple(inputs), free_dims=tuple(free))


def with_sizes(model: Model, wanted: Mapping[str, int]) -> Model:
    """Gives every free dimension the size that all requests will have.

    Args:
        model: as describe gave it.
        wanted: sizes by name; others are the dimension's maximum, at most 128.

    Returns:
        A copy whose inputs have these sizes; only their rows are free.

    Raises:
        ConfigError: no free dimension has such a name, or its maximum is less.
    """
    most = {dim.name: dim.max for dim in model.free_dims}
    for name, size in wanted.items():
        if name not in most:
            raise ConfigError(
                f"--dims: expected free dimensions of model {model.name!r}, which are "
                f"{list(most) or 'none'}, found {name!r}."
            )
        if size > most[name]:
            raise ConfigError(f"--dims: {name}: expected 1 to {most[name]}, found {size}.")
    sizes = {name: wanted.get(name, min(size, _DEFAULT)) for name, size in most.items()}
    inputs = []
    for tensor in model.inputs:
        dims = tuple(
            sizes.get(dim, dim) if isinstance(dim, str) else dim
            for dim in tensor.dims or tensor.shape
        )
        shape = tuple(-1 if isinstance(dim, str) else dim for dim in dims)
        inputs.append(dataclasses.replace(tensor, shape=shape, dims=dims if tensor.dims else None))
    return dataclasses.replace(model, inputs=tuple(inputs))
