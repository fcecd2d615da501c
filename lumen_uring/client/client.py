"""A client of the native protocol: one connection, one request at a time.

Called from any thread; a lock lets one request pass at a time, so give each thread its own Client
for speed. Inputs are sent from the caller's memory; outputs are received into memory of their own.
The client never sends a request twice: once the server may have a byte of it, the caller decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from lumen_uring.client import payloads, region
from lumen_uring.client.base import CLOSED, check_size, may_be_stale, refusal, refuses_header
from lumen_uring.client.connection import Connection
from lumen_uring.client.region import Region
from lumen_uring.client.texts import TextClient
from lumen_uring.client.tls import TlsConnection
from lumen_uring.errors import (
    BadRequest,
    ClientError,
    ConnectionFailed,
    DeadlinePassed,
    ProtocolError,
    UnknownModel,
)
from lumen_uring.pictures import files as pictures
from lumen_uring.pictures.files import Picture
from lumen_uring.protocol import native
from lumen_uring.protocol.convert import Array
from lumen_uring.protocol.describe import Description, Model, find_model, parse_description
from lumen_uring.protocol.native import Buffer, InferResult, ReplyHeader

_T = TypeVar("_T")
# One recv takes a small reply whole; a larger one goes to its own memory after the first bytes.
_SCRATCH_BYTES: Final = 4096
# How long close waits for another thread's call that it has interrupted.
_CLOSE_S: Final = 1.0


class Client(TextClient):
    """Talks to one Lumen server.

    It works after os.fork, as multiprocessing and pre-fork web servers use it: the child's copy
    leaves the parent's connection alone and opens its own at its first call.

    Its arguments are those of ClientBase.

    >>> client = Client("127.0.0.1", 8000)  # connects with the first call, not before
    >>> client.close()
    """

    def _set_up(self) -> None:
        self._region: Region | None = None
        self._connection: Connection | None = None
        # Dropped with the connection: after a reconnect the server may be another one.
        self._description: Description | None = None
        self._next_id = 1
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; may be called twice. Afterwards every call raises ValueError.

        A call that another thread has in flight fails with ConnectionFailed.
        """
        self._closed = True
        connection = self._connection
        if connection is not None and self._lock.locked():
            connection.interrupt()
        # Bounded: a signal handler may call this in the middle of a call of its own thread.
        if self._lock.acquire(timeout=_CLOSE_S):
            try:
                self._drop()
            finally:
                self._lock.release()

    def ping(self) -> float:
        """Asks the server for a sign of life.

        Returns:
            The round trip in seconds.

        Raises:
            ClientError: no server, no reply in time, or not a Lumen server.
        """
        with self._lock:
            deadline = self._begin()
            start = time.perf_counter()
            self._exchange(native.KIND_PING, deadline)
            return time.perf_counter() - start

    def describe(self) -> dict[str, Any]:
        """Asks what the server serves; the answer is kept with the connection, as API.md says.

        Returns:
            The document of docs/PROTOCOL.md: "server" and "models".

        Raises:
            ClientError: no server, no reply in time, or not a Lumen server.
        """
        with self._lock:
            return self._describe(self._begin()).document

    def models(self) -> dict[str, Model]:
        """Asks for the models, as describe does, checked and typed.

        Returns:
            The models by name.

        Raises:
            ClientError: no server, no reply in time, or not a Lumen server.
        """
        with self._lock:
            return dict(self._describe(self._begin()).models)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        timeout_us: int = 0,
        rows: int | None = None,
    ) -> InferResult:
        """Runs a model on tensors.

        Args:
            model: its name.
            inputs: for each input, numbers of the model's shape with the rows first: arrays, or
                lists. Other types are converted where nothing is lost but by rounding to a float;
                an integer that does not fit, or a float for an integer, is refused.
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.
            rows: how many rows the arrays must have; None takes what they have.

        Returns:
            Outputs by name, each [rows, ...]; rows; the server's timings.

        Raises:
            BadRequest: an input's name, dtype or shape is wrong; nothing was sent.
            ClientError: what the server answered, or how the connection failed.
        """
        with self._lock:
            deadline = self._begin()
            entry, (buffers, used) = self._fitted(
                model, lambda entry: payloads.pack_inputs(entry, inputs, rows), deadline
            )
            return self._infer(entry, native.ENCODING_TENSORS, buffers, used, timeout_us, deadline)

    def infer_rgb8(
        self,
        model: str,
        image: Array | Picture | Sequence[Picture],
        *,
        timeout_us: int = 0,
        rows: int | None = None,
    ) -> InferResult:
        """Runs a model on pictures; the server turns them into the model's tensor.

        Args:
            model: its name.
            image: uint8 RGB, [height, width, 3] or [rows, height, width, 3] at the model's size;
                or a picture, or a list of pictures: a file's path, its bytes or a Pillow image.
                A picture is scaled to the model's size as a whole, not cropped (needs Pillow).
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.
            rows: how many pictures there must be; None takes what is there.

        Returns:
            Outputs by name, each [rows, ...]; rows; the server's timings.

        Raises:
            BadRequest: the model takes no pictures, or dtype or shape is wrong; nothing was sent.
            PictureError: a file is no picture, or Pillow is not installed.
            ClientError: what the server answered, or how the connection failed.
        """
        with self._lock:
            deadline = self._begin()
            entry, (buffers, used) = self._fitted(
                model,
                lambda entry: payloads.pack_rgb8(entry, pictures.pixels(entry, image), rows),
                deadline,
            )
            return self._infer(entry, native.ENCODING_RGB8, buffers, used, timeout_us, deadline)

    def infer_images(
        self, model: str, images: Picture | Sequence[Picture], *, timeout_us: int = 0
    ) -> InferResult:
        """Runs a model on files of pictures; the server decodes and resizes them.

        Args:
            model: its name; it has the setting `image`.
            images: a picture or a list of them: a file's path, its bytes, or a Pillow image, which
                is sent as PNG.
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.

        Returns:
            Outputs by name, each [rows, ...] with a row for each picture; the server's timings.

        Raises:
            BadRequest: the model takes no files, or there is none; or the server's sentence on a
                file it cannot read.
            PictureError: a path cannot be read.
            ClientError: what else the server answered, or how the connection failed.
        """
        files = pictures.files(images)
        with self._lock:
            deadline = self._begin()
            entry, (buffers, used) = self._fitted(
                model, lambda entry: payloads.pack_images(entry, files), deadline
            )
            return self._infer(entry, native.ENCODING_IMAGE, buffers, used, timeout_us, deadline)

    def _infer(
        self,
        model: Model,
        encoding: int,
        buffers: Sequence[Buffer],
        rows: int,
        timeout_us: int,
        deadline: float,
    ) -> InferResult:
        plan = region.plan(model, encoding, buffers, rows) if self._shares else None
        flags = payloads.request_flags(model)
        if plan is not None:
            memory = self._region_of(plan.bytes, deadline)
            buffers, flags = plan.put(memory, buffers), flags | native.FLAG_REGION
        try:
            header, payload = self._exchange(
                native.KIND_INFER, deadline, encoding, model.index, buffers, timeout_us, rows, flags
            )
        except DeadlinePassed:
            # The model may be writing to the region still.
            self._drop_region()
            raise
        if plan is not None:
            payload = plan.payload(memory, payload)
        try:
            return payloads.unpack_outputs(model, header, payload)
        except ProtocolError:
            self._drop()
            raise

    def _region_of(self, size: int, deadline: float) -> Region:
        """The region, handed over; a larger one where it is too small."""
        if self._region is not None and self._region.size >= size:
            return self._region
        self._drop_region()
        self._exchange(native.KIND_REGION, deadline)
        connection = self._connection
        assert connection is not None
        made = Region(size)
        complete = False
        try:
            connection.send_descriptor(made.fd, deadline)
            header, payload = self._receive(connection, self._next_id - 1, deadline)
            complete = True
        finally:
            if not complete:
                made.close()
                self._drop()
        if header.status != 0:
            made.close()
            raise refusal(header, payload)
        self._region = made
        return made

    def _drop_region(self) -> None:
        dropped, self._region = self._region, None
        if dropped is not None:
            dropped.close()

    def _fitted(self, name: str, make: Callable[[Model], _T], until: float) -> tuple[Model, _T]:
        """A model, and what is made for it: once more with a new description where the kept one
        lacks the model or its shapes do not fit, since models come and go."""
        kept = self._description
        try:
            entry = find_model(self._describe(until).models, name)
            return entry, make(entry)
        except (BadRequest, UnknownModel):
            if kept is None:
                raise
            self._description = None
        entry = find_model(self._describe(until).models, name)
        return entry, make(entry)

    def _made_for(self, model: str, make: Callable[[Model], _T]) -> tuple[Model, _T]:
        with self._lock:
            return self._fitted(model, make, self._begin())

    def _describe(self, deadline: float) -> Description:
        if self._description is None:
            _header, payload = self._exchange(native.KIND_DESCRIBE, deadline)
            try:
                self._description = parse_description(payload.data)
            except ProtocolError:
                self._drop()
                raise
        return self._description

    def _begin(self) -> float:
        """Connects, unless the connection is alive; returns the call's deadline, monotonic s."""
        self._check_open()
        deadline = time.monotonic() + self._timeout_s
        if self._connection is not None and not self._connection.is_quiet():
            self._drop()
        if self._connection is None:
            server = self._host, self._port, self._timeout_s, deadline
            self._connection = (
                Connection(*server) if self._tls is None else TlsConnection(*server, self._tls)
            )
            if self._closed:
                self._drop()
                raise ConnectionFailed(CLOSED)
        return deadline

    def _exchange(
        self,
        kind: int,
        deadline: float,
        encoding: int = 0,
        model_index: int = 0,
        buffers: Sequence[Buffer] = (),
        timeout_us: int = 0,
        rows: int = 0,
        flags: int = 0,
    ) -> tuple[ReplyHeader, Array]:
        """Sends one request and receives its reply; any failure in between ends the connection."""
        buffers, credential = native.with_credential(kind, self._credential, buffers)
        flags |= credential
        size = native.total_bytes(buffers)
        number = self._next_id
        packed = native.pack_request(
            native.RequestHeader(kind, encoding, model_index, number, size, timeout_us, rows, flags)
        )
        self._next_id += 1
        connection = self._connection
        if connection is None:
            raise ConnectionFailed("The connection broke; call again to reconnect.")
        complete = False
        try:
            try:
                connection.send([memoryview(packed), *buffers], deadline)
            except ConnectionFailed as error:
                # A server that refuses a request early may close while its body is being sent; its
                # reply, which says why, may have arrived already.
                self._raise_refusal(connection, number, deadline, error)
            header, payload = self._receive(connection, number, deadline)
            complete = True
        finally:
            # Covers KeyboardInterrupt too: a half-read reply must never meet the next request.
            if not complete or self._closed:
                self._drop()
        if header.status != 0:
            self._description = None if may_be_stale(header, encoding) else self._description
            raise refusal(header, payload)
        return header, payload

    def _raise_refusal(
        self, connection: Connection, number: int, deadline: float, error: ConnectionFailed
    ) -> NoReturn:
        try:
            header, payload = self._receive(connection, number, deadline)
        except ClientError:
            raise error from None
        raise refusal(header, payload) if header.status else error

    def _receive(
        self, connection: Connection, number: int, deadline: float
    ) -> tuple[ReplyHeader, Array]:
        scratch = memoryview(self._scratch)
        have = 0
        while have < native.REPLY_BYTES:
            have += connection.receive_into(scratch[have:], deadline)
        header = native.unpack_reply(scratch)
        if header.id != number and not refuses_header(header):
            raise ProtocolError(f"Expected the reply to request {number}, found {header.id}.")
        check_size(header, self._max_reply_bytes)
        early = have - native.REPLY_BYTES
        if early > header.payload_bytes:
            raise ProtocolError("The server sent more than the reply it announced.")
        payload = np.empty(header.payload_bytes, np.uint8)
        target = payload.data
        target[:early] = scratch[native.REPLY_BYTES : have]
        while early < header.payload_bytes:
            early += connection.receive_into(target[early:], deadline)
        return header, payload

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._description = None
        self._drop_region()
        if connection is not None:
            connection.close()

    def _after_fork(self) -> None:
        """The parent goes on using the connection; a thread that held the lock is not in the
        child."""
        self._lock = threading.Lock()
        self._drop()
