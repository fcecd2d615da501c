"""The region of one pipelined connection, in which its requests in flight have a place each.

Used by async_link.py alone, on its event loop's thread. Where there is no room, a larger region
takes the first one's place; where the server has no memory for that, a request waits for the end of
others, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lumen_uring.client.region import Region
from lumen_uring.errors import ClientError, ConnectionFailed


class Place:
    """Bytes of a region that one request has to itself.

    Args:
        pool: whose they are.
        offset, size: bytes, of the region.
    """

    __slots__ = ("offset", "pool", "size")

    def __init__(self, pool: Pool, offset: int, size: int) -> None:
        self.pool = pool
        self.offset = offset
        self.size = size


class Pool:
    """A region and the places in it.

    Args:
        size: at least so many bytes.
    """

    def __init__(self, size: int) -> None:
        self.region = Region(size)
        self._places: list[Place] = []  # by their offsets
        self._retired = False

    def take(self, size: int) -> Place | None:
        """The first place of so many bytes, or None; a multiple of the alignment."""
        begin = index = 0
        while index < len(self._places) and self._places[index].offset - begin < size:
            begin = self._places[index].offset + self._places[index].size
            index += 1
        if begin + size > self.region.size:
            return None
        taken = Place(self, begin, size)
        self._places.insert(index, taken)
        return taken

    def free(self, place: Place) -> None:
        """The place is no request's any more."""
        self._places.remove(place)
        if self._retired and not self._places:
            self.region.close()

    def retire(self) -> None:
        """Lets go of the region with its last place."""
        self._retired = True
        if not self._places:
            self.region.close()


class Sharing:
    """The region that a connection has, and those that it had.

    Args:
        hand_over: gives a descriptor to the server; ClientError where it is not taken.
    """

    def __init__(self, hand_over: Callable[[int], Awaitable[None]]) -> None:
        self._hand_over = hand_over
        self._pool: Pool | None = None
        self._least = 0  # bytes of a region
        self._is_most = False
        self._closed = False
        self._order = asyncio.Lock()
        self._room = asyncio.Event()
        self._renewal: asyncio.Task[ClientError | None] | None = None

    async def take(self, size: int) -> Place:
        """A place of so many bytes in the region that the server has.

        Raises:
            ClientError: the server takes no region that is large enough, or the connection ended.
        """
        async with self._order:
            place = None
            while place is None:
                if self._pool is not None:
                    place = self._pool.take(size)
                if place is None:
                    await self._more(size)
        return place

    def free(self, place: Place) -> None:
        """A request is over: nobody uses its place."""
        place.pool.free(place)
        self._room.set()

    def leave(self, place: Place) -> None:
        """A model may still be writing there: the next request has another region."""
        if place.pool is self._pool:
            self._pool = None
            place.pool.retire()
        self.free(place)

    def close(self) -> None:
        """Lets go of the memory."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.retire()

    def wake(self) -> None:
        """Ends the waiting, after close."""
        self._room.set()

    async def _more(self, size: int) -> None:
        """Waits until there may be room."""
        pool = self._pool
        fits = pool is not None and size <= pool.region.size
        if fits and self._is_most and self._renewal is None:
            self._room.clear()
            await self._room.wait()
            return
        renewal = self._renewal
        mine = renewal is None
        if renewal is None:
            wanted = max(size, self._least if pool is None else 2 * pool.region.size)
            renewal = self._renewal = asyncio.create_task(self._renew(Pool(wanted)))
        # Who is cancelled leaves it to the next: a descriptor cannot be handed over by halves.
        refused = await asyncio.shield(renewal)
        self._renewal = None
        if refused is not None and mine and not fits:
            raise refused

    async def _renew(self, pool: Pool) -> ClientError | None:
        """Hands a region over; returns why it was not taken."""
        try:
            await self._hand_over(pool.region.fd)
        except ClientError as error:
            pool.retire()
            self._is_most = True
            return error
        if self._closed:
            pool.retire()
            return ConnectionFailed("The connection was closed.")
        before, self._pool, self._least = self._pool, pool, pool.region.size
        if before is not None:
            before.retire()
        return None
