"""The native protocol, version 1, as pure functions: headers and credentials.

Used by both clients and by tools, on any thread; payloads.py has what follows a header. It never
touches a socket and never trusts a length that came from the peer. Everything on the wire is
little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lumen_uring.errors import BadRequest, ProtocolError
from lumen_uring.protocol.convert import Array

Buffer = memoryview

REQUEST_MAGIC: Final = b"LMN1"
REPLY_MAGIC: Final = b"LMR1"
KIND_INFER: Final = 1
KIND_PING: Final = 2
KIND_DESCRIBE: Final = 3
KIND_REGION: Final = 4
ENCODING_TENSORS: Final = 0
ENCODING_RGB8: Final = 1
ENCODING_IMAGE: Final = 2
FLAG_CREDENTIAL: Final = 1
FLAG_SHAPES: Final = 2
FLAG_REGION: Final = 4
CREDENTIAL_BYTES: Final = 32
U32_MAX: Final = 2**32 - 1

_REQUEST: Final = struct.Struct("<4sBBHQIIIHH")
_REPLY: Final = struct.Struct("<4sHHQIIIIIIHHI")
REQUEST_BYTES: Final = _REQUEST.size
REPLY_BYTES: Final = _REPLY.size


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The 32 bytes before a request's payload; the fields are those of docs/PROTOCOL.md."""

    kind: int
    encoding: int
    model_index: int
    id: int
    payload_bytes: int
    timeout_us: int
    rows: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class ReplyHeader:
    """The 48 bytes before a reply's payload; the fields are those of docs/PROTOCOL.md."""

    status: int
    flags: int
    id: int
    payload_bytes: int
    rows: int
    receive_us: int
    queue_us: int
    preprocess_us: int
    infer_us: int
    width: int = 1
    expert: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """The time that a request spent in each stage at the server, µs."""

    receive_us: int
    queue_us: int
    preprocess_us: int
    infer_us: int


@dataclass(frozen=True, slots=True)
class InferResult:
    """A model's answer.

    `outputs` has one array per output, by name, with the rows as first dimension where the model
    has a free one (bfloat16 as float32); `rows` is what the server ran, `timings` where the time
    went, `width` the number of cores that the model had, `expert` the model that ran in the place
    of a virtual one.
    """

    outputs: dict[str, Array]
    rows: int
    timings: Timings
    width: int = 1
    expert: str | None = None


def pack_request(header: RequestHeader) -> bytes:
    """Packs a request's header.

    Args:
        header: each field within its width on the wire.

    Returns:
        32 bytes.

    Raises:
        BadRequest: a field does not fit.
    """
    try:
        return _REQUEST.pack(
            REQUEST_MAGIC,
            header.kind,
            header.encoding,
            header.model_index,
            header.id,
            header.payload_bytes,
            header.timeout_us,
            header.rows,
            header.flags,
            0,
        )
    except struct.error as error:
        raise BadRequest(f"A field of the request does not fit its width: {error}.") from None


def unpack_request(buffer: bytes | bytearray | memoryview) -> RequestHeader:
    """Unpacks a request's header, for peers in tests and tools.

    Args:
        buffer: at least 32 bytes.

    Raises:
        ProtocolError: too short, another magic, or reserved bits that are not 0.
    """
    if len(buffer) < REQUEST_BYTES:
        raise ProtocolError(f"A request's header has {REQUEST_BYTES} bytes, not {len(buffer)}.")
    magic, kind, encoding, model, number, payload, timeout, rows, flags, reserved = (
        _REQUEST.unpack_from(buffer)
    )
    if magic != REQUEST_MAGIC or reserved != 0:
        raise ProtocolError(f"Expected a request starting {REQUEST_MAGIC!r}, found {magic!r}.")
    return RequestHeader(kind, encoding, model, number, payload, timeout, rows, flags)


def pack_reply(header: ReplyHeader) -> bytes:
    """Packs a reply's header, for peers in tests and tools.

    Args:
        header: each field within its width on the wire.

    Returns:
        48 bytes.
    """
    return _REPLY.pack(
        REPLY_MAGIC,
        header.status,
        header.flags,
        header.id,
        header.payload_bytes,
        header.rows,
        header.receive_us,
        header.queue_us,
        header.preprocess_us,
        header.infer_us,
        header.width,
        header.expert,
        0,
    )


def unpack_reply(buffer: bytes | bytearray | memoryview) -> ReplyHeader:
    """Unpacks a reply's header.

    Args:
        buffer: at least 48 bytes.

    Raises:
        ProtocolError: too short, or the peer speaks something else.
    """
    if len(buffer) < REPLY_BYTES:
        raise ProtocolError(f"A reply's header has {REPLY_BYTES} bytes, found {len(buffer)}.")
    magic, *fields, _reserved = _REPLY.unpack_from(buffer)
    if magic != REPLY_MAGIC:
        raise ProtocolError(
            f"Expected a reply starting {REPLY_MAGIC!r}, found {magic!r}: "
            "is this the port of a Lumen server?"
        )
    return ReplyHeader(*fields)


def pack_credential(token: str | None) -> bytes:
    """Makes the credential that comes before a payload of a key's token.

    Args:
        token: 1 to 32 visible ASCII characters, as `lumen key` prints it; None: no key.

    Returns:
        32 bytes, or none.

    Raises:
        ValueError: the token does not fit the native protocol.

    >>> len(pack_credential("a-token"))
    32
    """
    if token is None:
        return b""
    if not (token.isascii() and token.isprintable()) or " " in token or not token:
        raise ValueError("token: expected visible ASCII characters")
    if len(token) > CREDENTIAL_BYTES:
        raise ValueError(
            f"token: the native protocol takes at most {CREDENTIAL_BYTES} characters, "
            f"found {len(token)}; longer ones work over HTTP"
        )
    return token.encode().ljust(CREDENTIAL_BYTES, b"\0")


def with_credential(
    kind: int, credential: bytes, buffers: Sequence[Buffer]
) -> tuple[Sequence[Buffer], int]:
    """Puts a credential before a payload.

    Args:
        kind: KIND_*; a ping needs none.
        credential: of pack_credential.
        buffers: the payload.

    Returns:
        The whole payload, and the flags to send.
    """
    if not credential or kind == KIND_PING:
        return buffers, 0
    return [memoryview(credential), *buffers], FLAG_CREDENTIAL


def total_bytes(buffers: Sequence[Buffer]) -> int:
    """Adds up a payload.

    Raises:
        BadRequest: the payload does not fit the header's 32 bits.
    """
    size = sum(len(buffer) for buffer in buffers)
    if size > U32_MAX:
        raise BadRequest(f"The payload has {size} bytes; the protocol ends at {U32_MAX}.")
    return size
