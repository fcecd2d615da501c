"""`make http-live`: a small HTTP reply from Lumen beside one from nginx, over equal connections.

A developer's tool. GET /v2/health/live is answered by Lumen's I/O thread alone: with it, what is
left is the HTTP itself, and nginx is what that may cost at most. Both servers run on the same core,
each with one thread for it; wrk runs on another. They take turns within each round; ratios are made
inside a round. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bench.common import oip
from bench.common.local_server import local_server
from bench.common.measure import machine
from bench.common.options import add_rounds
from bench.common.places import Place, find, pinned
from bench.peers import wrk
from bench.peers.install import PeerMissingError
from bench.peers.nginx import nginx
from bench.peers.servers import session_cpu_s
from bench.report.rules import Ratio, amount, middle, paired, plural, table

TARGETS: Final = ("lumen", "nginx")
FIGURES: Final = ("throughput_rps", "p50", "p99", "cpu_us_per_request", "client_share", "errors")
_SETTINGS: Final = (
    "server.io_threads=1",
    "engine.queue_type=mpmc",
    "engine.thread_count=1",
)
_BUSY: Final = 0.9
_HEADS: Final = (
    *("connections", "", "requests/s", "p50 µs", "p99 µs", "CPU µs", "wrk's core", "errors"),
    "requests/s, Lumen ÷ nginx",
)


@contextmanager
def both(place: Place, settings: Sequence[str]) -> Iterator[dict[str, tuple[int, int]]]:
    """Starts both servers.

    Args:
        place: whose server cores both get.
        settings: of Lumen.

    Yields:
        For each its process id, the leader of its session, and its port.

    Raises:
        PeerMissingError: nginx is not here.
    """
    arguments = [f"--set={setting}" for setting in settings]
    with (
        nginx(oip.LIVE, place.server) as peer,
        local_server(*arguments, cores=place.server) as server,
    ):
        yield {"lumen": (server.pid, server.port), "nginx": peer}


def turn(pid: int, port: int, connections: int, options: argparse.Namespace) -> dict[str, float]:
    """Loads one server once.

    Args:
        pid: the leader of its session.
        port: of it.
        connections: each has one request at a time.
        options: as the command line gave them.

    Returns:
        FIGURES; latencies in µs.
    """
    url = f"http://127.0.0.1:{port}{oip.LIVE}"
    if options.warmup:
        wrk.load(url, b"", {}, connections, options.warmup)
    before_s = session_cpu_s(pid)
    found = wrk.load(url, b"", {}, connections, options.seconds)
    cpu_s = session_cpu_s(pid) - before_s
    rates = {
        "throughput_rps": found["requests"] / found["seconds"],
        "cpu_us_per_request": cpu_s * 1e6 / max(1, found["requests"]),
    }
    return {**rates, **{name: found[name] for name in FIGURES if name in found}}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs all rounds.

    Args:
        options: as the command line gave them.

    Returns:
        Everything under stable names; a list has an entry per round.

    Raises:
        PeerMissingError: nginx or wrk is not here.
        RuntimeError: one of them gives another reply than 200 with the body of LIVE.
    """
    if not wrk.found():
        raise PeerMissingError(f"{wrk.MISSING}.")
    place = find("one-core")
    rows: dict[tuple[int, str], dict[str, list[float]]] = {
        (count, target): {name: [] for name in FIGURES}
        for count in options.connections
        for target in TARGETS
    }
    with both(place, [*_SETTINGS, *options.set]) as servers, pinned(place.client_cores):
        replies = {
            name: len(oip.whole_reply(port, oip.LIVE, oip.LIVE_BODY))
            for name, (_, port) in servers.items()
        }
        for number in range(options.rounds):
            for count in options.connections:
                for target in random.Random(f"{number} {count}").sample(TARGETS, len(TARGETS)):
                    step = f"round {number + 1}/{options.rounds}: {target}, {count} connections"
                    print(step, file=sys.stderr)
                    figures = turn(*servers[target], count, options)
                    for name, values in rows[count, target].items():
                        values.append(figures[name])
    return {
        "machine": machine(),
        "place": place.words,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "reply_bytes": replies,
        "rows": [
            {"connections": count, "target": target, **figures}
            for (count, target), figures in rows.items()
        ],
    }


def ratio(rows: Sequence[Mapping[str, Any]], connections: int) -> Ratio | None:
    """Lumen's requests a second to nginx's."""
    found = {
        row["target"]: row["throughput_rps"] for row in rows if row["connections"] == connections
    }
    return paired(found["lumen"], found["nginx"])


def report(results: Mapping[str, Any]) -> str:
    """Makes text of the results.

    Args:
        results: as `measure` gives them.

    Returns:
        Markdown.
    """
    about, replies = results["machine"], results["reply_bytes"]
    cells = []
    for row in results["rows"]:
        share = middle(row["client_share"]) or 0.0
        line = [str(row["connections"]), row["target"]]
        line += [amount(middle(row[name])) for name in FIGURES[:4]]
        line += [f"{share:.0%}", str(round(sum(row["errors"]))), ""]
        made = ratio(results["rows"], row["connections"])
        if row["target"] == "lumen" and made:
            line[-1] = f"{made.middle:.2f} ({made.low:.2f}-{made.high:.2f})"
        cells.append(line)
    parts = [
        f"{about['cpu']}, Linux {about['kernel']}, {about['date']}; {results['place']}; "
        f"{plural(results['rounds'], 'round')} of {results['seconds']:g} s, medians. Replies have "
        f"{replies['lumen']} bytes (Lumen) and {replies['nginx']} (nginx). Target: the ratio at "
        "least 1.00.",
        table(_HEADS, cells),
    ]
    if any((middle(row["client_share"]) or 0.0) > _BUSY for row in results["rows"]):
        parts.append(
            f"Where wrk used more than {_BUSY:.0%} of its core, requests/s are its own limit: "
            "there the server's CPU µs are what to compare."
        )
    return "\n\n".join(parts)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    add_rounds(found, rounds=5, seconds=3.0, warmup=1.0, connections=[1, 16, 64, 256])
    found.add_argument("--set", action="append", default=[], help="passed on to Lumen")
    found.add_argument("--json", action="store_true", help="as one JSON object")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    options = parser().parse_args(arguments)
    try:
        results = measure(options)
    except (PeerMissingError, RuntimeError, OSError) as error:
        print(f"http_live: {error}", file=sys.stderr)
        return 1
    print(json.dumps(results, indent=1) if options.json else report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
