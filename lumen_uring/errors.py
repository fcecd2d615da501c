"""Every exception Lumen raises on purpose, in one tree.

Used by all modules, on any thread. A message is one sentence that says what happened, where, and
what to do. Never raise a bare Exception or let one of another library's reach a user.
"""

# LumenError
# ├── ConfigError            config.yaml, --set, --model: every problem at once, one per line
# ├── LibraryError           liblumen_uring.so, libonnxruntime.so: missing or not the right one
# ├── EngineError            a call into the C library failed; .code is its LUMEN_E*
# ├── StatsError             a statistics file that is missing, malformed or of another server
# ├── MetricsError           the metrics page: its port is taken, a profile cannot be made
# ├── PictureError           lumen predict: no readable picture, no readable labels
# ├── QuantizeError          lumen quantize: a model or data that INT8 cannot be made of
# └── ClientError
#     ├── ConnectionFailed   no server there, or the connection broke
#     ├── RequestTimeout     no reply within timeout_s
#     ├── ProtocolError      the peer does not speak Lumen's native protocol
#     └── ServerError        the server answered with a status; .status is its number
#         ├── BadRequest 1          ├── DeadlinePassed 5      ├── InferenceFailed 8
#         ├── UnknownModel 2        ├── Unauthorised 6        └── ShuttingDown 9
#         ├── TooLarge 3            ├── RateLimited 7
#         └── Overloaded 4

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from typing import Final


class LumenError(Exception):
    """The base of all errors that Lumen raises."""


class ConfigError(LumenError):
    """The configuration cannot be used; the message lists every problem, one per line."""


class LibraryError(LumenError):
    """A shared library is missing, cannot be loaded, or is of another version."""


class EngineError(LumenError):
    """A call into the C library failed.

    Args:
        message: the library's own sentence.
        code: the negative LUMEN_E* it returned, or 0 where Python refused before the call.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class StatsError(LumenError):
    """A statistics file is missing, malformed, or belongs to another run of the server."""


class MetricsError(LumenError):
    """The metrics page cannot listen, or a profile cannot be made; the message names the cure."""


class PictureError(LumenError):
    """A file that is no readable picture, or a list of labels that is no text."""


class QuantizeError(LumenError):
    """A model that cannot become INT8, or data that does not fit it."""


class ClientError(LumenError):
    """A request did not get its result."""


class ConnectionFailed(ClientError):
    """No connection could be made, or it broke before the reply was complete."""


class RequestTimeout(ClientError):
    """No complete reply arrived within the client's timeout."""


class ProtocolError(ClientError):
    """The peer's bytes are not a reply of the native protocol, version 1."""


class ServerError(ClientError):
    """The server answered with a status other than ok.

    `status` is the number on the wire; a subclass fixes it, an unknown number sets it per instance.
    """

    status: int = 0


class BadRequest(ServerError):
    """The request does not fit the model; also raised by the client before anything is sent."""

    status = 1


class UnknownModel(ServerError):
    """The server has no model of this name or index."""

    status = 2


class TooLarge(ServerError):
    """The payload is larger than the server's max_request_bytes or the model's max_rows allow."""

    status = 3


class Overloaded(ServerError):
    """The server's queue is full: try later, with a pause."""

    status = 4


class DeadlinePassed(ServerError):
    """The request's timeout passed before a worker took it."""

    status = 5


class Unauthorised(ServerError):
    """The credential is missing or wrong."""

    status = 6


class RateLimited(ServerError):
    """The rate of the key, the model or the server is used up for now."""

    status = 7


class InferenceFailed(ServerError):
    """ONNX Runtime refused or failed to run the model on this input."""

    status = 8


class ShuttingDown(ServerError):
    """The server is draining and takes no new requests."""

    status = 9


_BY_STATUS: Final[dict[int, type[ServerError]]] = {
    error.status: error
    for error in (
        BadRequest,
        UnknownModel,
        TooLarge,
        Overloaded,
        DeadlinePassed,
        Unauthorised,
        RateLimited,
        InferenceFailed,
        ShuttingDown,
    )
}


def from_status(status: int, message: str) -> ServerError:
    """Makes the typed error for a reply's status.

    Args:
        status: u16 of the reply header, not 0.
        message: the reply's text; may be empty.

    Returns:
        The error, not raised. A status this version does not know gives a plain ServerError.

    Source:
        The reply header in docs/PROTOCOL.md.
    """
    kind = _BY_STATUS.get(status)
    if kind is not None:
        return kind(message or kind.__name__)
    error = ServerError(message or f"The server answered with status {status}, unknown here.")
    error.status = status
    return error


_SCARCE: Final = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def is_scarce(error: BaseException) -> bool:
    """Whether the machine lacked descriptors, processes or memory: in a moment it may not."""
    return isinstance(error, OSError) and error.errno in _SCARCE


def no_means(error: BaseException) -> str | None:
    """What a caller is told where the machine lacked something, as 503 of HTTP: descriptors,
    processes, memory, or room on a disk; None where it was something else."""
    if isinstance(error, OSError) and error.errno in (*_SCARCE, *_FULL):
        return f"the machine has no means for it now ({error.strerror}): try again later"
    return None


def meant(found: str, names: Iterable[str]) -> str:
    """What a message adds to a name that is not known.

    Args:
        found: the name.
        names: the known ones.

    Returns:
        " (did you mean 'port'?)", or nothing where none is like it.
    """
    near = difflib.get_close_matches(found, names, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
