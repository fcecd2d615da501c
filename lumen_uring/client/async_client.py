"""A client of the native protocol for asyncio: one connection, many requests in flight on it.

Called from coroutines of one event loop. Requests are pipelined; replies come in any order and are
matched by id. Large replies are received straight into memory of their own. The id of a cancelled
request is kept, so that its late reply is read and dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lumen_uring.client import payloads, tls
from lumen_uring.client.async_link import Link
from lumen_uring.client.base import CLOSED
from lumen_uring.client.connection import connect_sentence, unix_path, where
from lumen_uring.client.texts import AsyncTextClient
from lumen_uring.errors import ConnectionFailed, RequestTimeout
from lumen_uring.pictures import files as pictures
from lumen_uring.pictures.files import Picture
from lumen_uring.protocol import native
from lumen_uring.protocol.convert import Array
from lumen_uring.protocol.describe import Model
from lumen_uring.protocol.native import Buffer, InferResult

_T = TypeVar("_T")
_Packed = tuple[list[Buffer], int]


class AsyncClient(AsyncTextClient):
    """Talks to one Lumen server.

    It works after os.fork, and with one event loop after another: a child's copy, and a client
    whose loop is closed, opens a new connection at its next call.

    Its arguments are those of ClientBase.
    """

    def _set_up(self) -> None:
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting = asyncio.Lock()
        self._opening: asyncio.Task[Link] | None = None

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
                link.end(ConnectionFailed(CLOSED))
            else:
                link.abandon()

    async def ping(self) -> float:
        """Asks the server for a sign of life and times it, as Client.ping."""

        async def work(link: Link) -> float:
            start = time.perf_counter()
            await link.exchange(native.KIND_PING)
            return time.perf_counter() - start

        return await self._call(work)

    async def describe(self) -> dict[str, Any]:
        """Asks what the server serves, as Client.describe."""

        async def work(link: Link) -> dict[str, Any]:
            return (await link.describe()).document

        return await self._call(work)

    async def models(self) -> dict[str, Model]:
        """Asks for the models by name, as Client.models."""

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

        The arrays must stay unchanged until this returns.
        """

        async def pack(entry: Model) -> _Packed:
            return payloads.pack_inputs(entry, inputs, rows)

        async def work(link: Link) -> InferResult:
            entry, (buffers, used) = await link.fitted(model, pack)
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

        Pictures are decoded on another thread. Arrays must stay unchanged until this returns.
        """

        async def pack(entry: Model) -> _Packed:
            pixels = image
            if not isinstance(pixels, np.ndarray):
                # Decoding takes milliseconds, in which the event loop has other work.
                pixels = await asyncio.to_thread(pictures.pixels, entry, pixels)
            return payloads.pack_rgb8(entry, pixels, rows)

        async def work(link: Link) -> InferResult:
            entry, (buffers, used) = await link.fitted(model, pack)
            return await link.infer(entry, native.ENCODING_RGB8, buffers, used, timeout_us)

        return await self._call(work)

    async def infer_images(
        self, model: str, images: Picture | Sequence[Picture], *, timeout_us: int = 0
    ) -> InferResult:
        """Runs a model on files of pictures; arguments, result and errors as Client.infer_images.

        Paths are read in a thread.
        """
        if isinstance(images, bytes):
            files = [images]
        else:
            files = await asyncio.to_thread(pictures.files, images)

        async def pack(entry: Model) -> _Packed:
            return payloads.pack_images(entry, files)

        async def work(link: Link) -> InferResult:
            entry, (buffers, used) = await link.fitted(model, pack)
            return await link.infer(entry, native.ENCODING_IMAGE, buffers, used, timeout_us)

        return await self._call(work)

    async def _made_for(self, model: str, make: Callable[[Model], _T]) -> tuple[Model, _T]:
        async def made(entry: Model) -> _T:
            return make(entry)

        return await self._call(lambda link: link.fitted(model, made))

    async def _call(self, work: Callable[[Link], Awaitable[_T]]) -> _T:
        """Runs one call on a live connection within the timeout."""
        self._check_open()
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
            # One slow request must not end the others on this connection. A peer that sent nothing
            # since the call began is gone: the next call gets a new connection.
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
            raise ConnectionFailed(CLOSED)
        self._opening = asyncio.create_task(self._connect())
        try:
            link = await self._opening
        except asyncio.CancelledError:
            if self._closed:
                raise ConnectionFailed(CLOSED) from None
            raise
        finally:
            self._opening = None
        if self._closed:
            link.end(ConnectionFailed(CLOSED))
            raise ConnectionFailed(CLOSED)
        return link

    def _enter_loop(self) -> None:
        """Drops the connection of a loop that is closed; two open loops cannot share a client."""
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
            return Link(name, self._max_reply_bytes, self._credential, self._shares)

        try:
            if path is not None:
                return (await loop.create_unix_connection(link, path))[1]
            # asyncio's own bound of a handshake, 60 s, might be the shorter one.
            handshake_s = self._timeout_s if self._tls is not None else None
            made = await loop.create_connection(
                link, self._host, self._port, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
            return made[1]
        except (OSError, UnicodeError) as error:
            sentence = connect_sentence if self._tls is None else tls.connect_sentence
            raise ConnectionFailed(sentence(self._host, self._port, error)) from None

    def _after_fork(self) -> None:
        """The loop and the connection belong to the parent."""
        link, self._link = self._link, None
        self._loop, self._opening = None, None
        if link is not None:
            link.abandon()
