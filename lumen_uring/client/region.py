"""Memory that a client shares with a server over its unix socket (docs/PROTOCOL.md, "A region").

Used by client.py, by one thread at a time, and by async_region.py. The region is a memfd that
cannot shrink, so that the server may touch it without fear. Requests write their inputs to it and
find their outputs there.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lumen_uring.client import payloads
from lumen_uring.protocol import native
from lumen_uring.protocol.convert import Array
from lumen_uring.protocol.describe import DTYPES, Model, TensorInfo

_ALIGN: Final = 64
_SPAN: Final = struct.Struct("<QQ")
_LEAST_BYTES: Final = 1 << 16
# Of fcntl, which names them from Python 3.12 on: SHRINK, GROW, SEAL (linux/fcntl.h).
_ADD_SEALS: Final = 1033
_SEALS: Final = 0x2 | 0x4 | 0x1


class Region:
    """A sealed memfd, mapped.

    Args:
        size: at least so many bytes.

    Raises:
        OSError: there is no memory for it.
    """

    def __init__(self, size: int) -> None:
        self.size = max(_LEAST_BYTES, 1 << (size - 1).bit_length())
        self.fd = os.memfd_create("lumen-client", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, self.size)
            fcntl.fcntl(self.fd, _ADD_SEALS, _SEALS)
            self._memory = mmap.mmap(self.fd, self.size)
        except BaseException:
            os.close(self.fd)
            raise
        self._bytes = np.frombuffer(self._memory, np.uint8)

    def close(self) -> None:
        """Lets go of the memory; may be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            del self._bytes
            with contextlib.suppress(BufferError):  # a view is left: it goes with the last one
                self._memory.close()

    def write(self, offset: int, data: memoryview) -> None:
        """Copies bytes into the region."""
        self._bytes[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def view(self, offset: int, size: int) -> Array:
        """Bytes of the region, where they are."""
        return self._bytes[offset : offset + size]


class Plan:
    """Where one request's tensors lie in a region.

    Args:
        inputs: the bytes of each, in the order of the protocol.
        outputs: the room of each output.
    """

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.spans: list[tuple[int, int]] = []
        self.bytes = 0
        for size in (*inputs, *outputs):
            self.spans.append((self.bytes, size))
            self.bytes += -(-size // _ALIGN) * _ALIGN
        self.input_count = len(inputs)

    def move(self, offset: int) -> None:
        """Lets the places begin there, which is a multiple of 64; by default at 0."""
        self.spans = [(begin + offset, size) for begin, size in self.spans]

    def put(self, region: Region, buffers: Sequence[native.Buffer]) -> list[native.Buffer]:
        """Writes the inputs to a region.

        Args:
            region: in which they have their places.
            buffers: as for `plan`.

        Returns:
            The buffers to send in their stead.
        """
        shapes, tensors = buffers[: -self.input_count], buffers[-self.input_count :]
        for (offset, _size), buffer in zip(self.spans, tensors, strict=False):
            region.write(offset, buffer)
        return [*shapes, self._body()]

    def _body(self) -> memoryview:
        """The body of the request: of each tensor its offset and bytes."""
        return memoryview(b"".join(_SPAN.pack(*span) for span in self.spans))

    def payload(self, region: Region, shapes: Array) -> Array:
        """The payload that the reply would have had over the socket.

        Args:
            region: in which the outputs are.
            shapes: the reply's payload: a shape block, or nothing.
        """
        outputs = self.spans[self.input_count :]
        payload = np.empty(len(shapes) + sum(size for _, size in outputs), np.uint8)
        payload[: len(shapes)] = shapes
        at = len(shapes)
        for offset, size in outputs:
            payload[at : at + size] = region.view(offset, size)
            at += size
        return payload


def plan(model: Model, encoding: int, buffers: Sequence[native.Buffer], rows: int) -> Plan | None:
    """Plans a request whose tensors are in a region.

    Args:
        model: as describe gave it.
        encoding: of the inputs' bytes.
        buffers: the inputs' bytes, in the protocol's order; first a shape block, where the model
            has free dimensions beside the rows.
        rows: of the request.

    Returns:
        None where a region cannot have it: files of pictures, strings, or outputs whose size only
        the Run tells.
    """
    if encoding == native.ENCODING_IMAGE:
        return None
    if any(tensor.datatype not in DTYPES for tensor in (*model.inputs, *model.outputs)):
        return None
    free: dict[str, int] = {}
    if model.free_dims:
        block, *buffers = buffers
        shapes, _ = payloads.unpack_shapes(np.frombuffer(block, np.uint8), len(model.inputs))
        for tensor, shape in zip(model.inputs, shapes, strict=True):
            free |= {
                dim: size
                for dim, size in zip(tensor.dims or (), shape, strict=False)
                if isinstance(dim, str)
            }
    sizes = [_bytes_of(tensor, rows, free) for tensor in model.outputs]
    if -1 in sizes:
        return None
    return Plan([len(buffer) for buffer in buffers], sizes)


def _bytes_of(tensor: TensorInfo, rows: int, free: Mapping[str, int]) -> int:
    """An output's bytes; -1: nobody knows them yet."""
    shape = [free.get(dim, -1) if isinstance(dim, str) else dim for dim in tensor.dims or ()]
    if tensor.dims is None:
        shape = [rows if at == 0 and dim == -1 else dim for at, dim in enumerate(tensor.shape)]
    if not tensor.shape_known or -1 in shape:
        return -1
    return math.prod(shape) * DTYPES[tensor.datatype].itemsize
