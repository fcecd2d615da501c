"""The server's second port: /metrics, /healthz and /debug/pprof/profile.

Started by server.py. Its thread (metrics/http.py) reads the statistics file only for a request, so
it costs nothing between scrapes. It answers no preflight and sends no CORS headers: no web page can
read it or start a profile.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from lumen_uring.errors import MetricsError, StatsError
from lumen_uring.metrics import flamegraph
from lumen_uring.metrics.facts import Facts
from lumen_uring.metrics.http import Answer, HttpLoop, Request, Shared, Slow
from lumen_uring.metrics.profiling import SECONDS_MAX, Profile, Profiler
from lumen_uring.ring.site import refusal

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from lumen_uring.ring.snapshot import Snapshot

FIRST_PORT: Final = 8002
LAST_PORT: Final = 8017
_BACKLOG: Final = 128
_PROFILE_S: Final = 5
_REFUSED_HOSTS_MAX: Final = 16  # so many names are logged
# Headers of a proxy, whose clients may be on any machine.
FORWARDING: Final = frozenset({"forwarded", "via", "x-forwarded-for", "x-real-ip"})


class MetricsServer:
    """Listens from the constructor on, answers from `start` on.

    Args:
        host: the address to listen on.
        port: 0 lets the kernel choose, see `port`.
        hosts: names that a request's Host may have besides localhost and addresses; "*" allows all.

    Raises:
        MetricsError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, hosts: Sequence[str] = ()) -> None:
        self._open(_listen(host, port), host, hosts)

    @classmethod
    def on_free_port(cls, host: str, hosts: Sequence[str], taken: Collection[int]) -> MetricsServer:
        """Listens on the first free port from 8002 to 8017, so that two servers each have a page.

        Args:
            host: the address to listen on.
            hosts: as of MetricsServer.
            taken: the other ports of the server, which it opens later; they are skipped.

        Raises:
            MetricsError: no port is free, or the address is not of this machine.
        """
        for port in range(FIRST_PORT, LAST_PORT + 1):
            if port in taken:
                continue
            try:
                listener = _listen(host, port)
            except MetricsError as error:
                cause = error.__context__
                if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
                    continue
                raise
            page = cls.__new__(cls)
            page._open(listener, host, hosts)
            return page
        raise MetricsError(
            f"no metrics page: all ports from {FIRST_PORT} to {LAST_PORT} on {host} are in use; "
            "choose another server.metrics_port, or 0 for none"
        )

    def _open(self, listener: socket.socket, host: str, hosts: Sequence[str]) -> None:
        self._socket = listener
        self._hosts = tuple(hosts)
        self.port: int = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/metrics"
        self._loop: HttpLoop | None = None
        self._profiler: Profiler | None = None
        self._running: Profile | None = None
        self._stats_fd = -1
        self._refused_hosts: set[str] = set()

    def start(self, stats_path: Path, facts: Facts, pid: int) -> None:
        """Answers from now on.

        Args:
            stats_path: of the statistics file.
            facts: of the server.
            pid: whose stacks are sampled.
        """
        self._stats_path = stats_path
        self._facts = facts
        self._profiler = Profiler(pid)
        self._registry: CollectorRegistry | None = None
        if stats_path != Path():
            # Kept open: the figures can still be read when a clean-up removes the file.
            self._stats_fd = os.open(stats_path, os.O_RDONLY | os.O_CLOEXEC)
        self._loop = HttpLoop(self._socket, self._answer, facts.guard)
        self._loop.start()

    def set_hosts(self, hosts: Sequence[str]) -> None:
        """Sets the names that a request's Host may have.

        Args:
            hosts: as at the start.
        """
        self._hosts = tuple(hosts)

    def close(self) -> None:
        """Stops listening and ends a running profile; may be called twice."""
        if self._profiler is not None:
            self._profiler.close()
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        self._socket.close()
        if self._stats_fd >= 0:
            os.close(self._stats_fd)
            self._stats_fd = -1

    # ---- one request ----

    def _answer(self, request: Request, shared: Shared) -> Answer | Slow:
        pages = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/debug/pprof/profile": self._profile,
        }
        host = request.headers.get("host")
        refused = refusal(self._hosts, host, request.headers.get("origin"))
        if refused == 421:
            self._say_host(host or "")
            return Answer(421, b"The name in Host is not in server.hosts: add it there.\n")
        if refused:
            return Answer(403, b"A web page of another site may not read this.\n")
        page = pages.get(request.path)
        if page is None:
            return Answer(404, b"No such page: use /metrics, /healthz or /debug/pprof/profile.\n")
        if request.method not in ("GET", "HEAD"):
            return Answer(405, b"Expected the method GET or HEAD.\n")
        if request.method == "HEAD" and page == self._profile:
            return Answer(405, b"Expected the method GET: a profile takes seconds to make.\n")
        try:
            return page(request, shared)
        except StatsError as error:
            return Answer(503, f"{error}\n".encode())

    def _say_host(self, host: str) -> None:
        """Logs a name that is refused, once each: a scraper shows no more than 421."""
        if host in self._refused_hosts or len(self._refused_hosts) >= _REFUSED_HOSTS_MAX:
            return
        self._refused_hosts.add(host)
        self._facts.guard.log(
            "warning",
            f"The metrics page was asked for as {host[:80]!r}, which is refused (421): add the "
            "name to server.hosts.",
        )

    def _snapshot(self) -> Snapshot:
        # Imported at the first request, on this thread: numpy starts threads, which must inherit
        # this thread's mask of signals; and importing it would slow down the server's start.
        from lumen_uring.ring.stats import read

        if self._stats_fd < 0:
            raise StatsError("This server has no statistics file: /dev/shm is not writable.")
        return read(self._stats_path, self._stats_fd)

    # ---- the pages ----

    def _metrics(self, request: Request, shared: Shared) -> Answer:
        # Late for the same reasons as in _snapshot.
        from lumen_uring.metrics.values import make_registry, media_type, render

        if self._registry is None:
            self._registry = make_registry(self._snapshot, self._facts)
        # Scrapes that arrive together share one page.
        accept = request.headers.get("accept", "")
        kind = media_type(accept)
        if kind not in shared:
            shared[kind] = Answer(200, render(self._registry, accept)[1], kind)
        return shared[kind]

    def _healthz(self, _request: Request, _shared: Shared) -> Answer:
        state = self._snapshot().state
        return Answer(200, b"ok") if state == "ready" else Answer(503, state.encode())

    def _profile(self, request: Request, _shared: Shared) -> Answer | Slow:
        if not _is_loopback(request.peer) or FORWARDING & request.headers.keys():
            return Answer(403, b"Only a client on this machine may take a profile.\n")
        if _comes_from_a_page(request):
            return Answer(403, b"A web page may not take a profile: type the address yourself.\n")
        query = parse_qs(request.query, keep_blank_values=True)
        seconds = query.get("seconds", [str(_PROFILE_S)])[-1]
        form = query.get("format", ["svg"])[-1]
        whole = seconds.isascii() and seconds.isdecimal() and len(seconds) < 4
        if not whole or not 1 <= int(seconds) <= SECONDS_MAX:
            return Answer(400, f"seconds: expected 1..{SECONDS_MAX}\n".encode())
        if form not in ("svg", "folded"):
            return Answer(400, b"format: expected svg | folded\n")
        # Checked here, on the page's only thread: many requests start one thread at most.
        running = self._running
        if running is not None and not running.is_over:
            return Answer(409, b"A profile is already running: ask again when it has ended.\n")
        assert self._profiler is not None
        self._running = profile = self._profiler.begin(int(seconds))
        return Slow(lambda: self._make_profile(profile, form), profile.cancel)

    def _make_profile(self, profile: Profile, form: str) -> Answer:
        seconds = profile.seconds
        try:
            stacks = profile.take()
        except MetricsError as error:
            return Answer(501, f"{error}\n".encode())
        if form == "folded":
            return Answer(200, flamegraph.folded(stacks).encode())
        title = f"Lumen {self._facts.version}, {seconds} s"
        return Answer(200, flamegraph.svg(stacks, title).encode(), "image/svg+xml")


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise MetricsError(
            f"no metrics page on {host}:{port} ({error.strerror}): "
            "choose another server.metrics_port, or 0 for none"
        ) from None
    return listener


def _comes_from_a_page(request: Request) -> bool:
    """Whether a web page, and no person, made the browser send the request; a typed address and a
    followed link of a page on this machine are a person's."""
    site = request.headers.get("sec-fetch-site", "none")
    mode = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
    followed = site == "same-site" and mode == ("navigate", "document")
    return "origin" in request.headers or not (site in ("none", "same-origin") or followed)


def _is_loopback(peer: str) -> bool:
    address = ipaddress.ip_address(peer.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
