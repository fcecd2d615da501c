"""One pipelined connection of the asyncio client: replies matched to requests by id.

Used by async_client.py alone, on its event loop's thread. Small replies are cut out of one
buffer; a large one is received straight into memory of its own. A reply that matches no request
ends the connection, since the bytes after it cannot be trusted.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from lumen_uring.client import payloads, region
from lumen_uring.client.async_region import Place, Sharing
from lumen_uring.client.base import check_size, may_be_stale, refusal, refuses_header
from lumen_uring.client.connection import without_source
from lumen_uring.client.region import Plan
from lumen_uring.errors import (
    BadRequest,
    ClientError,
    ConnectionFailed,
    DeadlinePassed,
    ProtocolError,
    UnknownModel,
)
from lumen_uring.protocol import native
from lumen_uring.protocol.convert import Array
from lumen_uring.protocol.describe import Description, Model, find_model, parse_description
from lumen_uring.protocol.native import Buffer, InferResult, ReplyHeader

_Reply = tuple[ReplyHeader, Array]
_T = TypeVar("_T")
_SCRATCH_BYTES: Final = 64 << 10
# Below this, joining header and payload for one send costs less than a second system call.
_JOIN_BYTES_MAX: Final = 64 << 10


class Link(asyncio.BufferedProtocol):
    """A connection and the requests in flight on it.

    Args:
        where: "host:port", for messages.
        max_reply_bytes: a reply that claims more ends the connection; bytes.
        credential: sent with each request; of native.pack_credential.
        shares: tensors of numbers go through a region (region.py).
    """

    def __init__(
        self, where: str, max_reply_bytes: int, credential: bytes = b"", shares: bool = False
    ) -> None:
        self._where = where
        self._max_reply_bytes = max_reply_bytes
        self._credential = credential
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, asyncio.Future[_Reply]] = {}
        self._forgotten: set[int] = set()
        self._next_id = 1
        self._writable = asyncio.Event()
        self._writable.set()
        # While a region is handed over no other request is sent.
        self._unhindered = asyncio.Event()
        self._unhindered.set()
        self._sharing = Sharing(self._hand_over) if shares else None
        # Of requests whose tensors are in a region.
        self._places: dict[int, tuple[Plan, Place]] = {}
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._have = 0
        # The reply being received straight into its own memory, and its bytes so far.
        self._large: _Reply | None = None
        self._large_have = 0
        self._describing = asyncio.Lock()
        self._description: Description | None = None
        self.ended: ClientError | None = None
        self.last_heard_s = 0.0

    async def exchange(
        self,
        kind: int,
        encoding: int = 0,
        model_index: int = 0,
        buffers: Sequence[Buffer] = (),
        timeout_us: int = 0,
        rows: int = 0,
        flags: int = 0,
        place: tuple[Plan, Place] | None = None,
    ) -> _Reply:
        """Sends a request and waits for its reply; other requests run at the same time.

        Args:
            place: where its tensors are in a region, of `_place`; it is free after the reply.

        Raises:
            ClientError: the server's status, or how the connection ended.
        """
        await self._may_send()
        try:
            number = self._send(kind, encoding, model_index, buffers, timeout_us, rows, flags)
        except ClientError:
            if place is not None and self._sharing is not None:
                self._sharing.free(place[1])  # nothing was sent
            raise
        if place is not None:
            self._places[number] = place
        return await self._reply(number, encoding)

    def _is_clear(self) -> bool:
        return self._writable.is_set() and self._unhindered.is_set()

    async def _may_send(self) -> None:
        while not self._is_clear():
            await self._writable.wait()
            await self._unhindered.wait()

    async def _place(self, sharing: Sharing, plan: Plan) -> Place:
        """Takes a place for a request that is sent at once: before another region is handed over,
        in which its places would be others."""
        while True:
            await self._may_send()
            place = await sharing.take(plan.bytes)
            if self._is_clear():
                plan.move(place.offset)
                return place
            sharing.free(place)

    def _send(
        self,
        kind: int,
        encoding: int = 0,
        model_index: int = 0,
        buffers: Sequence[Buffer] = (),
        timeout_us: int = 0,
        rows: int = 0,
        flags: int = 0,
    ) -> int:
        """Sends a request and returns its number."""
        buffers, credential = native.with_credential(kind, self._credential, buffers)
        flags |= credential
        size = native.total_bytes(buffers)
        if self.ended is not None or self._transport is None:
            raise self.ended or ConnectionFailed(f"No connection to {self._where}.")
        number = self._next_id
        packed = native.pack_request(
            native.RequestHeader(kind, encoding, model_index, number, size, timeout_us, rows, flags)
        )
        self._next_id += 1
        self._pending[number] = self._loop.create_future()
        if size <= _JOIN_BYTES_MAX:
            self._transport.write(b"".join((packed, *buffers)))
        else:
            self._transport.write(packed)
            for buffer in buffers:
                self._transport.write(buffer)
        return number

    async def _reply(self, number: int, encoding: int = 0) -> _Reply:
        try:
            header, payload = await self._pending[number]
        except asyncio.CancelledError:
            if self._pending.pop(number, None) is not None:
                self._forgotten.add(number)
            raise
        if header.status != 0:
            if may_be_stale(header, encoding):
                self._description = None
            raise refusal(header, payload)
        return header, payload

    async def describe(self, stale: Description | None = None) -> Description:
        """Fetches the describe document once for this connection.

        Args:
            stale: a document that this gave before, to be replaced.

        Raises:
            ClientError: no reply, or not the document expected.
        """
        async with self._describing:
            if self._description is None or self._description is stale:
                _header, payload = await self.exchange(native.KIND_DESCRIBE)
                try:
                    self._description = parse_description(payload.data)
                except ProtocolError as error:
                    self.end(error)
                    raise
            return self._description

    async def fitted(self, name: str, make: Callable[[Model], Awaitable[_T]]) -> tuple[Model, _T]:
        """Finds a model and makes something for it: once more with a new document where the kept
        one knows no such model, or its shapes do not fit, since models come and go.

        Args:
            name: of the model.
            make: makes it, and may raise BadRequest.

        Raises:
            ClientError: no such model, or what `make` raised.
        """
        kept = self._description
        described = await self.describe()
        try:
            entry = find_model(described.models, name)
            return entry, await make(entry)
        except (BadRequest, UnknownModel):
            if described is not kept:
                raise
        entry = find_model((await self.describe(stale=described)).models, name)
        return entry, await make(entry)

    async def infer(
        self, model: Model, encoding: int, buffers: Sequence[Buffer], rows: int, timeout_us: int
    ) -> InferResult:
        """Sends one packed infer request and unpacks its reply.

        Raises:
            ClientError: the server's status, or how the connection ended.
        """
        flags = payloads.request_flags(model)
        place = None
        if self._sharing is not None:
            plan = region.plan(model, encoding, buffers, rows)
            if plan is not None:
                place = plan, await self._place(self._sharing, plan)
                buffers = plan.put(place[1].pool.region, buffers)
                flags |= native.FLAG_REGION
        header, payload = await self.exchange(
            native.KIND_INFER, encoding, model.index, buffers, timeout_us, rows, flags, place
        )
        try:
            return payloads.unpack_outputs(model, header, payload)
        except ProtocolError as error:
            self.end(error)
            raise

    async def _hand_over(self, fd: int) -> None:
        """Gives a region to the server: docs/PROTOCOL.md, "A region"."""
        self._unhindered.clear()
        try:
            number = self._send(native.KIND_REGION)
            await self._reply(number)
            assert self._transport is not None
            self._pending[number] = self._loop.create_future()
            # All that was sent before has been read, so that there is room for a byte.
            taken = self._transport.get_extra_info("socket")
            try:
                with socket.socket(fileno=os.dup(taken.fileno())) as own:
                    socket.send_fds(own, [b"\0"], [fd])
            except OSError as error:
                self.end(ConnectionFailed(f"{self._where} took no descriptor ({error})."))
            await self._reply(number)
        finally:
            self._unhindered.set()

    def end(self, error: ClientError) -> None:
        """Closes the connection; every request in flight gets the error. May be called twice."""
        if self.ended is None:
            self.ended = error
        self._let_go()
        if self._sharing is not None:
            self._sharing.wake()
        self._writable.set()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(self.ended)
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Lets go of the socket when its event loop cannot: it is closed, or the parent's.

        In a forked child the transport must not close: it would take the socket out of the loop's
        epoll set, which the parent still uses. Instead its descriptor becomes /dev/null.
        """
        self.ended = ConnectionFailed("The connection belongs to another event loop.")
        self._let_go()
        taken = self._transport.get_extra_info("socket") if self._transport is not None else None
        if taken is None or taken.fileno() < 0:
            return
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nowhere, taken.fileno(), inheritable=False)
        os.close(nowhere)

    def _let_go(self) -> None:
        """Of shared memory."""
        places, self._places = self._places, {}
        for _plan, place in places.values():
            place.pool.free(place)
        if self._sharing is not None:
            self._sharing.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        reason = f" ({without_source(str(exc))})" if exc else ""
        self.end(ConnectionFailed(f"{self._where} closed the connection{reason}."))

    def pause_writing(self) -> None:
        """Called by the event loop when the socket's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the event loop: where the next bytes go."""
        if self._large is not None:
            return self._large[1].data[self._large_have :]
        return self._scratch[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop: bytes have arrived in get_buffer's memory."""
        self.last_heard_s = self._loop.time()
        if self._large is not None:
            self._large_have += nbytes
            if self._large_have == len(self._large[1]):
                reply, self._large = self._large, None
                self._deliver(*reply)
            return
        self._have += nbytes
        try:
            self._cut()
        except ProtocolError as error:
            self.end(error)

    def _cut(self) -> None:
        """Takes every reply out of the scratch buffer, and begins a reply that is larger."""
        at = 0
        while self._have - at >= native.REPLY_BYTES:
            header = native.unpack_reply(self._scratch[at : at + native.REPLY_BYTES])
            check_size(header, self._max_reply_bytes)
            begin = at + native.REPLY_BYTES
            there = min(self._have - begin, header.payload_bytes)
            payload = np.empty(header.payload_bytes, np.uint8)
            payload.data[:there] = self._scratch[begin : begin + there]
            at = begin + there
            if there < header.payload_bytes:
                self._large, self._large_have = (header, payload), there
                break
            self._deliver(header, payload)
        left = self._have - at
        self._scratch[:left] = bytes(self._scratch[at : self._have])
        self._have = left

    def _deliver(self, header: ReplyHeader, payload: Array) -> None:
        place = self._places.pop(header.id, None)
        if place is not None:
            payload = self._taken(header, payload, *place)
        future = self._pending.pop(header.id, None)
        if future is not None:
            if not future.done():
                future.set_result((header, payload))
        elif header.id in self._forgotten:
            self._forgotten.remove(header.id)
        elif refuses_header(header):  # after which it closes the connection
            self.end(refusal(header, payload))
        else:
            self.end(ProtocolError(f"{self._where} answered request {header.id}, never sent."))

    def _taken(self, header: ReplyHeader, payload: Array, plan: Plan, place: Place) -> Array:
        """The payload with the outputs that are in the region, whose place is free then."""
        assert self._sharing is not None
        if header.status == 0:
            payload = plan.payload(place.pool.region, payload)
        if header.status == DeadlinePassed.status:
            self._sharing.leave(place)
        else:
            self._sharing.free(place)
        return payload
