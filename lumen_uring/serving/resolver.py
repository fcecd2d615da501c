"""Where upstreams are, as time goes by: names of hosts are looked up again and again.

Used by server.py and main_loop.py. A look-up may take seconds: each has a thread of its own, and
the main thread takes what it has found. What cannot be looked up leaves the addresses as they are.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Mapping, Sequence
from functools import partial

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.guard import Guard
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.upstreams import Address
from lumen_uring.serving import upstreams
from lumen_uring.settings.upstreams import UpstreamConfig

Found = Sequence[Address] | str  # or why there are none


class Resolver:
    """Looks up the hosts of upstreams, and has the engine follow.

    Args:
        engine: that has the upstreams.
        configs: their settings.
        guard: of the server's threads; it has the log.
    """

    def __init__(
        self,
        engine: Engine,
        configs: Mapping[str, UpstreamConfig],
        guard: Guard,
    ) -> None:
        self._engine = engine
        self._guard = guard
        self._followed = [_Followed(name, config) for name, config in configs.items()]
        self._found: queue.SimpleQueue[tuple[_Followed, UpstreamConfig, Found]]
        self._found = queue.SimpleQueue()

    def change(self, configs: Mapping[str, UpstreamConfig]) -> None:
        """Takes the settings of a reload: their hosts are looked up at the next look.

        Args:
            configs: of the same upstreams.
        """
        for one in self._followed:
            if one.config != configs[one.name]:
                one.config, one.next_s = configs[one.name], 0.0

    def look(self) -> None:
        """Begins the look-ups that are due, and takes what others have found. Does not wait."""
        now_s = time.monotonic()
        for one in self._followed:
            if not one.is_asked and now_s >= one.next_s:
                ask = partial(self._ask, one, one.config)
                self._guard.thread("lumen-resolve", ask, daemon=True, again=False).start()
                one.is_asked = True
                one.wait_from(now_s)
        while not self._found.empty():
            one, config, found = self._found.get()
            one.is_asked = False
            if config == one.config:  # or a reload has come between
                self._take(one, found)

    def _ask(self, one: _Followed, config: UpstreamConfig) -> None:
        try:
            found: Found = upstreams.addresses(one.name, config)
        except ConfigError as error:
            found = str(error)
        except Exception as error:
            found = f"upstreams.{one.name}.urls: {type(error).__name__}: {error}"
        self._found.put((one, config, found))

    def _take(self, one: _Followed, found: Found) -> None:
        why = found if isinstance(found, str) else ""
        if not isinstance(found, str) and set(found) != set(self._engine.addresses_of(one.name)):
            try:
                if not self._engine.move_upstream(one.name, found):
                    one.next_s = 0.0  # until there is a place
                    return
                places = ", ".join(f"{place.ip}:{place.port}" for place in found)
                self._guard.log("info", f"Upstream {one.name} is at {places} now.")
            except EngineError as error:
                why = str(error)
        if why and why != one.why:
            self._guard.log("warning", f"{why}; the addresses of before stay.")
        one.why = why


class _Followed:
    """An upstream, and when its hosts are looked up next."""

    def __init__(self, name: str, config: UpstreamConfig) -> None:
        self.name = name
        self.config = config
        self.is_asked = False
        self.why = ""  # the last look-up failed
        self.wait_from(time.monotonic())

    def wait_from(self, now_s: float) -> None:
        self.next_s = now_s + self.config.resolve if self.config.resolve else math.inf
