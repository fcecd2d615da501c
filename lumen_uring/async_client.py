"""A client of the native protocol for asyncio: one connection, many requests in flight on it.

Called from coroutines of one event loop. Requests are pipelined and replies matched by id, in
whatever order they come; large replies are received straight into memory of their own. A request
that was given up leaves its id behind, so that its late reply is read and forgotten.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from lumen_uring import native, payloads, pictures
from lumen_uring.async_link import Link
from lumen_uring.connection import connect_sentence, unix_path, where
from lumen_uring.convert import Array
from lumen_uring.describe import Model, find_model
from lumen_uring.errors import ConnectionFailed, RequestTimeout
from lumen_uring.native import InferResult
from lumen_uring.pictures import Picture

_T = TypeVar("_T")
_CLOSED: Final = "The client was closed."


class AsyncClient:
    """Talks to one Lumen server.

    May be used after os.fork, and by one event loop after another: in a child, and once the loop
    it was used with is closed, it opens a connection of its own with its first call.

    Args:
        host: name or address of the server, or unix:PATH of its unix socket.
        port: its port, 1..65535; a unix socket has none.
        timeout_s: the longest that any one call may take, connecting included; seconds, above 0.
        max_reply_bytes: a reply that claims more is refused; bytes.
        token: of this client's key, where the server has keys; at most 32 characters.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        timeout_s: float = 10.0,
        max_reply_bytes: int = 1 << 30,
        token: str | None = None,
    ) -> None:
        if not 0 < port <= 65535:
            raise ValueError(f"port: expected 1..65535, found {port}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: expected seconds above 0, found {timeout_s}")
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._max_reply_bytes = max_reply_bytes
        self._credential = native.pack_credential(token)
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting = asyncio.Lock()
        self._opening: asyncio.Task[Link] | None = None
        self._closed = False
        _clients.add(self)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; may be called twice. Afterwards every call raises ValueError.

        Calls in flight fail with ConnectionFailed, also those that are still connecting.
        """
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        link, self._link = self._link, None
        if link is not None:
            if self._loop is asyncio.get_running_loop():
                link.end(ConnectionFailed(_CLOSED))
            else:
                link.abandon()

    async def ping(self) -> float:
        """Asks the server for a sign of life.

        Returns:
            The round trip in seconds.

        Raises:
            ClientError: no server, no reply in time, or not a Lumen server.
        """

        async def work(link: Link) -> float:
            start = time.perf_counter()
            await link.exchange(native.KIND_PING)
            return time.perf_counter() - start

        return await self._call(work)

    async def describe(self) -> dict[str, Any]:
        """Asks what the server serves; the answer is kept for as long as the connection.

        Returns:
            The document of docs/PROTOCOL.md: "server" and "models".

        Raises:
            ClientError: no server, no reply in time, or not a Lumen server.
        """

        async def work(link: Link) -> dict[str, Any]:
            return (await link.describe()).document

        return await self._call(work)

    async def models(self) -> dict[str, Model]:
        """As describe, checked and typed.

        Returns:
            The models by name.

        Raises:
            ClientError: no server, no reply in time, or not a Lumen server.
        """

        async def work(link: Link) -> dict[str, Model]:
            return dict((await link.describe()).models)

        return await self._call(work)

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        timeout_us: int = 0,
        rows: int | None = None,
    ) -> InferResult:
        """Runs a model on tensors; arguments, result and errors as Client.infer.

        Args:
            model: its name.
            inputs: for each input, numbers of the model's shape with the rows first: arrays, or
                lists. Other types are converted where nothing is lost but by rounding to a float;
                an integer that does not fit, or a float for an integer, is refused.
                Arrays must stay unchanged until this returns.
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.
            rows: how many rows the arrays must have; None takes what they have.

        Returns:
            Outputs by name, each [rows, ...]; rows; the server's timings.

        Raises:
            BadRequest: an input's name, dtype or shape is wrong; nothing was sent.
            ClientError: what the server answered, or how the connection failed.
        """

        async def work(link: Link) -> InferResult:
            entry = find_model((await link.describe()).models, model)
            buffers, used = payloads.pack_inputs(entry, inputs, rows)
            return await link.infer(entry, native.ENCODING_TENSORS, buffers, used, timeout_us)

        return await self._call(work)

    async def infer_rgb8(
        self,
        model: str,
        image: Array | Picture | Sequence[Picture],
        *,
        timeout_us: int = 0,
        rows: int | None = None,
    ) -> InferResult:
        """Runs a model on pictures; arguments, result and errors as Client.infer_rgb8.

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

        async def work(link: Link) -> InferResult:
            entry = find_model((await link.describe()).models, model)
            pixels = image
            if not isinstance(pixels, np.ndarray):
                # Decoding takes milliseconds, in which the event loop has other work.
                pixels = await asyncio.to_thread(pictures.pixels, entry, pixels)
            buffers, used = payloads.pack_rgb8(entry, pixels, rows)
            return await link.infer(entry, native.ENCODING_RGB8, buffers, used, timeout_us)

        return await self._call(work)

    async def _call(self, work: Callable[[Link], Awaitable[_T]]) -> _T:
        """Runs one call on a live connection within the timeout."""
        if self._closed:
            raise ValueError("this AsyncClient is closed")
        self._enter_loop()
        start_s = asyncio.get_running_loop().time()

        async def whole() -> _T:
            return await work(await self._linked())

        try:
            return await asyncio.wait_for(whole(), self._timeout_s)
        except asyncio.TimeoutError:
            timeout = RequestTimeout(
                f"{where(self._host, self._port)} did not answer within {self._timeout_s:g} s."
            )
            # One slow request must not end its neighbours, but a peer that has been silent
            # all the while is gone: the next call gets a new connection.
            if self._link is not None and self._link.last_heard_s < start_s:
                self._link.end(timeout)
            raise timeout from None

    async def _linked(self) -> Link:
        if self._link is not None and self._link.ended is None:
            return self._link
        async with self._connecting:
            if self._link is None or self._link.ended is not None:
                self._link = await self._open()
            return self._link

    async def _open(self) -> Link:
        """Connects, in a task of its own so that close can end it."""
        if self._closed:
            raise ConnectionFailed(_CLOSED)
        self._opening = asyncio.create_task(self._connect())
        try:
            link = await self._opening
        except asyncio.CancelledError:
            if self._closed:
                raise ConnectionFailed(_CLOSED) from None
            raise
        finally:
            self._opening = None
        if self._closed:
            link.end(ConnectionFailed(_CLOSED))
            raise ConnectionFailed(_CLOSED)
        return link

    def _enter_loop(self) -> None:
        """Forgets what belongs to a loop that is closed; two that run cannot share a client."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                "this AsyncClient is used by another event loop that is still open: "
                "give each loop a client of its own"
            )
        if self._link is not None:
            self._link.abandon()
        self._loop, self._link, self._connecting = loop, None, asyncio.Lock()

    async def _connect(self) -> Link:
        loop = asyncio.get_running_loop()
        path = unix_path(self._host)

        def link() -> Link:
            name = where(self._host, self._port)
            return Link(name, self._max_reply_bytes, self._credential)

        try:
            if path is not None:
                return (await loop.create_unix_connection(link, path))[1]
            return (await loop.create_connection(link, self._host, self._port))[1]
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(connect_sentence(self._host, self._port, error)) from None

    def _after_fork(self) -> None:
        """In a forked child: neither the loop nor the connection is this process' own."""
        link, self._link = self._link, None
        self._loop, self._opening = None, None
        if link is not None:
            link.abandon()


_clients: weakref.WeakSet[AsyncClient] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
