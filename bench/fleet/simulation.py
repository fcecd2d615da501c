"""`python -m bench.fleet.simulation`: a fleet of any size, in virtual time: how long requests wait
and how many are lost, by how their balancer chooses.

A developer's tool: discrete events, seeded, in one process. Requests come at random (Poisson); each
takes a server's worker for a time of a lognormal distribution, times how slow the server is; what
waits does so in its order. Reports of load are made as in c/src/parts/load_meter.c, and used as by
Envoy 1.40 and HAProxy 2.6. A server that dies loses what it has; until the next health check, or
three connections in vain, requests are sent to it, find nobody and go to another. It knows no
network, no cost of the balancer, and no cores that servers share: balance.py has those for three
servers on one machine.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_MEAN_OVER_S: Final = 0.25  # load_meter.c
_REPORT_S: Final = 0.1
_ENVOY_S: Final = 0.5  # weight_update_period of deploy/envoy
_AGENT_S: Final = 1.0  # agent-inter of deploy/haproxy
_CHECK_S: Final = 1.0
_REFUSALS: Final = 3  # after so many connections in vain a server is left out
_TRIES: Final = 4  # of a request: one, and the retries of deploy/
_SPREAD: Final = 0.3  # of a service time's logarithm


@dataclass(slots=True)
class Server:
    """One server: what waits there, and what it says of its load."""

    slowness: float
    waiting: list[tuple[float, float]] = field(default_factory=list)  # came, takes
    head: int = 0  # of `waiting`, which is left
    busy: int = 0
    open: int = 0  # requests that the balancer has sent and not got back
    is_dead: bool = False
    is_out: bool = False  # the balancer knows
    refused: int = 0  # connections, since it is dead
    busy_s: float = 0.0
    last_s: float = 0.0
    answered: int = 0
    used: float = 0.0  # its workers
    queued: float = 0.0  # for each of them
    rate: float = 0.0
    reported_s: float = 0.0
    reported_busy_s: float = 0.0
    reported_answered: int = 0
    weight: float = 1.0

    def advance(self, now_s: float) -> None:
        """Counts the time up to now."""
        self.busy_s += (now_s - self.last_s) * self.busy
        self.last_s = now_s

    def report(self, now_s: float, workers: int) -> None:
        """Makes the figures of a report."""
        span_s = now_s - self.reported_s
        if span_s < _REPORT_S:
            return
        self.advance(now_s)
        lean = min(1.0, span_s / _MEAN_OVER_S)
        used = (self.busy_s - self.reported_busy_s) / span_s / workers
        queued = (len(self.waiting) - self.head) / workers
        rate = (self.answered - self.reported_answered) / span_s
        self.used += (used - self.used) * lean
        self.queued += (queued - self.queued) * lean
        self.rate += (rate - self.rate) * lean
        self.reported_s, self.reported_busy_s = now_s, self.busy_s
        self.reported_answered = self.answered


@dataclass(frozen=True, slots=True)
class Fleet:
    """The servers that are simulated, of which some are slow and some die."""

    servers: int
    workers: int = 1
    service_s: float = 0.005
    load: float = 0.7  # of what all can do
    slow: float = 0.0  # so many of them, as a share,
    slowness: float = 4.0  # take so many times as long
    dying: float = 0.0  # so many die in the second half
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Waits and losses, after a fifth of the time, in which loads are learnt."""

    p50_s: float
    p99_s: float
    lost: int
    requests: int
    slow_share: float  # of the answered requests, those of slow servers


class Simulation:
    """One run.

    Args:
        fleet: what is simulated.
        policy: of POLICIES.
        seed: of arrivals, service times, deaths and choices.
    """

    def __init__(self, fleet: Fleet, policy: str, seed: int = 1) -> None:
        self._fleet = fleet
        self._random = random.Random(seed)
        slow = round(fleet.servers * fleet.slow)
        self._servers = [
            Server(fleet.slowness if number < slow else 1.0) for number in range(fleet.servers)
        ]
        self._slow = slow
        self._policy = policy
        self._choose: Callable[[], int] = getattr(self, POLICIES[policy].__name__)
        self._events: list[tuple[float, int, str, int, float]] = []
        self._number = 0
        self._waits_s: list[float] = []
        self._lost = self._requests = self._by_slow = 0
        self._alive = list(range(fleet.servers))
        self._turn = 0
        self._heap: list[tuple[float, float, int]] = []
        self._order()

    def run(self) -> Outcome:
        """Simulates it.

        Returns:
            The outcome.
        """
        fleet, now_s = self._fleet, 0.0
        capacity = sum(1 / server.slowness for server in self._servers) * fleet.workers
        rate = capacity / fleet.service_s * fleet.load
        self._later(0.0, "arrive")
        for number in self._random.sample(range(fleet.servers), round(fleet.servers * fleet.dying)):
            self._later(fleet.seconds * (0.5 + self._random.random() / 2), "die", number)
        for period, kind in ((_CHECK_S, "check"), (self._period(), "weigh")):
            if period:
                self._later(period, kind)
        while self._events:
            now_s, _, kind, number, came_s = heapq.heappop(self._events)
            if kind == "arrive":
                if now_s < fleet.seconds:
                    self._later(now_s + self._random.expovariate(rate), "arrive")
                    self._arrive(now_s)
            elif kind == "end":
                self._end(now_s, number, came_s)
            elif kind == "die":
                self._die(number)
            elif now_s < fleet.seconds:
                self._check(now_s) if kind == "check" else self._weigh(now_s)
        self._waits_s.sort()
        count = len(self._waits_s)
        return Outcome(
            self._waits_s[count // 2],
            self._waits_s[min(count - 1, math.ceil(count * 0.99))],
            self._lost,
            self._requests,
            self._by_slow / count,
        )

    def _period(self) -> float:
        return {"orca": _ENVOY_S, "agent": _AGENT_S}.get(self._policy, 0.0)

    def _later(self, at_s: float, kind: str, number: int = -1, came_s: float = 0.0) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, self._number, kind, number, came_s))

    # ---- what happens ----

    def _arrive(self, now_s: float) -> None:
        self._requests += 1
        if not self._alive:
            self._lost += 1
            return
        for _ in range(_TRIES):
            number = self._choose()
            server = self._servers[number]
            if not server.is_dead:
                break
            server.refused += 1
            if server.refused == _REFUSALS:
                self._leave_out(number)
        else:
            self._lost += 1
            return
        server.open += 1
        self._touch(number)
        takes_s = self._fleet.service_s * server.slowness
        takes_s *= self._random.lognormvariate(-_SPREAD * _SPREAD / 2, _SPREAD)
        if server.busy < self._fleet.workers:
            self._begin(now_s, number, now_s, takes_s)
        else:
            server.waiting.append((now_s, takes_s))

    def _begin(self, now_s: float, number: int, came_s: float, takes_s: float) -> None:
        server = self._servers[number]
        server.advance(now_s)
        server.busy += 1
        self._later(now_s + takes_s, "end", number, came_s)

    def _end(self, now_s: float, number: int, came_s: float) -> None:
        server = self._servers[number]
        if server.is_dead:
            return
        server.advance(now_s)
        server.busy -= 1
        server.open -= 1
        self._touch(number)
        server.answered += 1
        if came_s > self._fleet.seconds / 5:
            self._waits_s.append(now_s - came_s)
            self._by_slow += number < self._slow
        if server.head < len(server.waiting):
            came_s, takes_s = server.waiting[server.head]
            server.head += 1
            if server.head > 64 and server.head * 2 > len(server.waiting):
                del server.waiting[: server.head]
                server.head = 0
            self._begin(now_s, number, came_s, takes_s)

    def _die(self, number: int) -> None:
        server = self._servers[number]
        server.is_dead = True
        self._lost += server.open

    def _check(self, now_s: float) -> None:
        """The balancer's health checks."""
        for number in [one for one in self._alive if self._servers[one].is_dead]:
            self._leave_out(number)
        self._later(now_s + _CHECK_S, "check")

    def _leave_out(self, number: int) -> None:
        self._servers[number].is_out = True
        self._alive.remove(number)

    def _weigh(self, now_s: float) -> None:
        """Takes the servers' reports: Envoy's weight is rate over use, the median of all for those
        that have none yet; HAProxy's is what the agent says (lumen_uring/metrics/agent.py)."""
        known = []
        for number in self._alive:
            server = self._servers[number]
            server.report(now_s, self._fleet.workers)
            if self._policy == "agent":
                server.weight = max(0.01, round(1 / (1 + server.used + server.queued), 2))
            elif server.used > 0 and server.rate > 0:
                server.weight = server.rate / server.used
                known.append(server.weight)
        if self._policy == "orca" and known:
            middle = sorted(known)[len(known) // 2]
            for number in self._alive:
                server = self._servers[number]
                if not (server.used > 0 and server.rate > 0):
                    server.weight = middle
        self._order()
        self._later(now_s + self._period(), "weigh")

    # ---- how a server is chosen ----

    def round_robin(self) -> int:
        """Each in its turn."""
        self._turn += 1
        return self._alive[self._turn % len(self._alive)]

    def two_choices(self) -> int:
        """The less busy of two at random: Envoy's least request."""
        one, other = (self._alive[int(self._random.random() * len(self._alive))] for _ in "12")
        return one if self._servers[one].open <= self._servers[other].open else other

    def least_connections(self) -> int:
        """The fewest open requests for its weight: HAProxy's leastconn, with agents or without."""
        while True:
            key, _, number = self._heap[0]
            if key == self._key(number) and not self._servers[number].is_out:
                return number
            heapq.heappop(self._heap)  # it is there once more, as it is now

    def weighted(self) -> int:
        """By weight, as evenly as can be: earliest deadline first, as Envoy's schedule."""
        while True:
            at, _, number = self._heap[0]
            server = self._servers[number]
            heapq.heapreplace(self._heap, (at + 1 / server.weight, 0.0, number))
            if not server.is_out:
                return number

    def _key(self, number: int) -> float:
        server = self._servers[number]
        return (server.open + 1) / server.weight

    def _touch(self, number: int) -> None:
        """Its open requests are others than before."""
        if self._choose == self.least_connections:
            entry = (self._key(number), self._random.random(), number)
            heapq.heappush(self._heap, entry)

    def _order(self) -> None:
        """All servers anew, by their weights."""
        keys = [
            1 / self._servers[one].weight * self._random.random()
            if self._choose == self.weighted
            else self._key(one)
            for one in self._alive
        ]
        self._heap = [
            (key, self._random.random(), one) for key, one in zip(keys, self._alive, strict=True)
        ]
        heapq.heapify(self._heap)


POLICIES: Final[dict[str, Callable[[Simulation], int]]] = {
    "round-robin": Simulation.round_robin,
    "leastconn": Simulation.least_connections,
    "least-request": Simulation.two_choices,
    "orca": Simulation.weighted,
    "agent": Simulation.least_connections,
}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, nargs="+", default=[3, 100, 10_000])
    parser.add_argument("--load", type=float, nargs="+", default=[0.7, 0.9])
    parser.add_argument("--slow", type=float, default=0.1, help="a share; of three it is one")
    parser.add_argument("--dying", type=float, default=0.01)
    parser.add_argument("--service-ms", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "servers  load  policy           p50 ms   p99 ms   lost of 1,000,000   slow servers' part"
    )
    for servers in options.servers:
        for load in options.load:
            for policy in POLICIES:
                fleet = Fleet(
                    servers,
                    service_s=options.service_ms / 1e3,
                    load=load,
                    slow=1 / 3 if servers == 3 else options.slow,
                    dying=0 if servers == 3 else options.dying,
                    seconds=max(3.0, min(20.0, 30_000 / servers)),
                )
                out = Simulation(fleet, policy, options.seed).run()
                print(
                    f"{servers:7}  {load:4.0%}  {policy:14} {out.p50_s * 1e3:8.2f} "
                    f"{out.p99_s * 1e3:8.2f} {out.lost / out.requests * 1e6:12.0f} "
                    f"{out.slow_share:20.1%}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
