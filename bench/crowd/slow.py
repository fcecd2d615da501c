"""`make slow`: what slow clients cost a decent one.

A canary asks at a steady rate, over native frames and over HTTP, and its latency is counted from
when each request was due. In turns, in one run, it is alone or beside an attack: slowhttptest's
slow heads (-H), bodies (-B) and reading (-X) where that program is installed, and slow native
clients (slow_attack.py) that send headers, bodies or the ends of bodies a byte a second, read
replies so, or never.
After each attack the server has to be back where it was: connections, slots, descriptors; memory
is told. The attackers' CPU time must not count as the server's weakness, since attackers sit
elsewhere: they are scheduled as idle (they get a core that nobody else wants, and lose it at once),
what they used is in the report, and in a third phase they attack another server on this machine
("neighbour"): what the canary notices then is the machine, not the server.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.common import mlp
from bench.common.local_server import ROOT, LocalServer, local_server, squeezenet
from bench.common.measure import Measured, Shape, machine, measure
from bench.crowd.c10k import pooled, say, spread
from bench.report.rules import middle
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.snapshot import delta
from lumen_uring.ring.stats import read, stats_path

_HTTP_TOOL: Final = "slowhttptest"
_RAMP_S: Final = 10.0
_SETTLE_S: Final = 10.0
_COUNTERS: Final = (
    "connections_evicted",
    "connections_timed_out",
    "slot_waits",
    "body_waits",
    "requests_refused",
    "requests_gone",
)
_BOUND: Final = 2.0


@dataclass(frozen=True, slots=True)
class Work:
    """A model and its canary.

    Args:
        encoding: 0 tensors, 1 rgb8.
        body_bytes: of one request.
        rate: of the canary; requests a second.
    """

    encoding: int
    body_bytes: int
    rate: float


WORKLOADS: Final = {
    "squeezenet": Work(1, 224 * 224 * 3, 40.0),
    "mlp": Work(0, 4 * mlp.INPUTS, 400.0),
}
NATIVE: Final = {
    "native-header": "header",
    "native-body": "body",
    "native-most": "most",
    "native-read": "read",
    "native-never": "never",
    "native-mixed": "header,body,most,read,never",
}
HTTP: Final = ("http-headers", "http-body", "http-read")
ATTACKS: Final = (*HTTP, *NATIVE, "mixed")


def ratio(beside: Histogram, quiet: Histogram, percent: float) -> float | None:
    """A percentile beside an attack ÷ alone; None where one of them has no answers."""
    value = beside.percentile_ns(percent) / quiet.percentile_ns(percent)
    return None if math.isnan(value) else value


@dataclass(slots=True)
class Turns:
    """The phases of one attack and one protocol: quiet, beside it, beside one on a neighbour."""

    rate: float
    quiet: list[Measured] = field(default_factory=list)
    beside: list[Measured] = field(default_factory=list)
    neighbour: list[Measured] = field(default_factory=list)

    def missing(self, phase: Measured) -> int:
        """Requests that were due and had no answer when the phase was over, beyond chance."""
        due = self.rate * phase.load.seconds
        return max(0, round(due - 5 * due**0.5) - phase.load.requests - phase.load.errors)

    def figures(self) -> dict[str, Any]:
        """Ratios by round and over all, latencies in µs, errors."""

        quiet, beside = pooled(self.quiet), pooled(self.beside)
        phases = (*self.quiet, *self.beside, *self.neighbour)
        pairs = zip(self.beside, self.quiet, strict=True)
        rounds = [ratio(a.load.histogram, b.load.histogram, 99) for a, b in pairs]
        return {
            "p99_ratio": ratio(beside, quiet, 99),
            "p99_ratios": rounds,
            "p99_ratio_median": middle([each for each in rounds if each is not None]),
            "p50_ratio": ratio(beside, quiet, 50),
            "neighbour_p99_ratio": ratio(pooled(self.neighbour), quiet, 99),
            **{f"quiet_{name}_us": value for name, value in spread(quiet).items()},
            **{f"beside_{name}_us": value for name, value in spread(beside).items()},
            "requests": sum(phase.load.requests for phase in self.beside),
            "errors": sum(phase.load.errors for phase in phases),
            "unanswered": sum(self.missing(phase) for phase in phases),
        }


# ---- attacking ----


def http_words(attack: str, port: int, model: str, work: Work, count: int) -> list[str]:
    """The command line of slowhttptest."""
    url = f"http://127.0.0.1:{port}"
    infer = f"{url}/v2/models/{model}/infer"
    how = {
        "http-headers": ["-H", "-i", "1", "-x", "8", "-u", f"{url}/v2"],
        "http-body": ["-B", "-i", "1", "-x", "2", "-s", str(work.body_bytes), "-u", infer],
        "http-read": ["-X", "-w", "256", "-y", "512", "-n", "1", "-z", "1", "-k", "20", "-u", url],
    }[attack]
    return [_HTTP_TOOL, *how, "-c", str(count), "-r", "500", "-l", "3600", "-p", "10", "-v", "0"]


@contextmanager
def attacking(
    attack: str, server: LocalServer, model: str, options: argparse.Namespace
) -> Iterator[list[dict[str, Any]]]:
    """Runs an attack from when everybody is in, to the end of the block.

    Yields:
        A list to which the native clients' own account is added at the end.
    """
    work, count, account = WORKLOADS[model], options.connections, []
    has_http = shutil.which(_HTTP_TOOL) is not None
    parts: Sequence[str] = (attack,)
    if attack == "mixed":
        parts = (*(HTTP if has_http else ()), "native-mixed")
        count //= len(parts)
    processes: list[tuple[str, subprocess.Popen[str]]] = []
    try:
        for part in parts:
            if part in NATIVE:
                words = [sys.executable, str(ROOT / "bench/crowd/slow_attack.py"),
                         f"--port={server.port}", f"--kinds={NATIVE[part]}",
                         f"--connections={count}", f"--encoding={work.encoding}",
                         f"--body-bytes={work.body_bytes}"]  # fmt: skip
            else:
                words = http_words(part, server.port, model, work, count)
            processes.append(
                (part, subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True,
                                        preexec_fn=yield_cores))
            )  # fmt: skip
        for part, process in processes:
            if part in NATIVE and process.stdout is not None:
                process.stdout.readline()
        time.sleep(1.0 if attack in NATIVE else 3.0)
        yield account
    finally:
        for part, process in processes:
            end(part, process, account)


def yield_cores() -> None:
    """Of an attacker: it takes what the others leave, at no cost to them when they wake."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def end(part: str, process: subprocess.Popen[str], account: list[dict[str, Any]]) -> None:
    """Ends one process of an attack, and takes its account."""
    times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    if part in NATIVE:
        said, _ = process.communicate()
        lines = said.splitlines()
        if lines:
            account.append({"part": part, **json.loads(lines[-1]), "cpu_s": cpu_s})
    else:
        process.kill()
        process.communicate()
        account.append({"part": part, "cpu_s": cpu_s})


# ---- measuring ----


def state(server: LocalServer) -> dict[str, int]:
    """What the server holds: connections, slots, descriptors, resident bytes."""
    gauges = read(stats_path(server.port)).gauges["io"]
    status = Path(f"/proc/{server.pid}/status").read_text()
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return {
        "connections": gauges["connections_open"],
        "slots": gauges["slots_in_use"],
        "fds": len(os.listdir(f"/proc/{server.pid}/fd")),
        "rss_bytes": int(rss.split()[1]) * 1024,
    }


def settle(server: LocalServer, before: dict[str, int]) -> dict[str, Any]:
    """Waits until nothing of the attack is left; tells what is, and what memory grew by."""
    until_s = time.monotonic() + _SETTLE_S
    held = ("connections", "slots", "fds")
    now = state(server)
    while any(now[name] > before[name] for name in held) and time.monotonic() < until_s:
        time.sleep(0.05)
        now = state(server)
    left = {name: now[name] - before[name] for name in held if now[name] > before[name]}
    return {"left": left, "rss_growth_bytes": now["rss_bytes"] - before["rss_bytes"]}


def canary(server: LocalServer, model: str, protocol: str, seconds: float) -> Measured:
    """One phase of it."""
    rate = WORKLOADS[model].rate
    shape = Shape(
        model=model, connections=4, seconds=seconds, warmup_s=0.3, rate=rate, protocol=protocol
    )
    return measure(server, shape)


def measure_model(
    model: str,
    server: LocalServer,
    neighbour: LocalServer,
    attacks: Sequence[str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """All attacks on one server, in turns with quiet phases and with the same on its neighbour."""
    protocols = options.protocols.split(",")
    rate = WORKLOADS[model].rate
    turns = {(attack, protocol): Turns(rate) for attack in attacks for protocol in protocols}
    others: dict[str, dict[str, Any]] = {
        attack: {"server": dict.fromkeys(_COUNTERS, 0), "left": {}, "rss_growth_bytes": 0,
                 "attackers": [], "attackers_cores": 0.0} for attack in attacks
    }  # fmt: skip
    for protocol in protocols:  # what is done once is done before
        canary(server, model, protocol, 1.0)
    settle(server, {**state(server), "connections": 0, "slots": 0})
    before, neighbour_before = state(server), state(neighbour)
    for index in range(options.rounds):
        for attack in attacks:
            say(f"{model}, round {index + 1} of {options.rounds}: {attack}")
            for protocol in protocols:
                turns[attack, protocol].quiet.append(
                    canary(server, model, protocol, options.seconds)
                )
            counted, began_s = read(stats_path(server.port)), time.monotonic()
            with attacking(attack, server, model, options) as account:
                for protocol in protocols:
                    turns[attack, protocol].beside.append(
                        canary(server, model, protocol, options.seconds)
                    )
                happened = delta(read(stats_path(server.port)), counted).counters["io"]
            took_s, after = time.monotonic() - began_s, settle(server, before)
            found = others[attack]
            for name in _COUNTERS:
                found["server"][name] += happened.get(name, 0)
            found["left"] = found["left"] or after["left"]
            found["rss_growth_bytes"] = after["rss_growth_bytes"]
            found["attackers"] = account
            found["attackers_cores"] = sum(each["cpu_s"] for each in account) / took_s
            with attacking(attack, neighbour, model, options):
                for protocol in protocols:
                    turns[attack, protocol].neighbour.append(
                        canary(server, model, protocol, options.seconds)
                    )
            settle(neighbour, neighbour_before)  # or the next quiet phase is not
    return {
        attack: {
            **{protocol: turns[attack, protocol].figures() for protocol in protocols},
            **others[attack],
        }
        for attack in attacks
    }


# ---- telling ----


def table(results: dict[str, dict[str, Any]], protocols: Sequence[str]) -> str:
    """For people."""
    lines = [
        f"{'p99 beside / quiet':>46}{'neighbour':>10}{'quiet p99':>12}{'beside':>10}{'p50':>7}"
        f"{'errors':>8}  "
        "what is left; cut off, waits for slots + bytes; attackers' cores"
    ]
    for model, attacks in results.items():
        for attack, found in attacks.items():
            for protocol in protocols:
                row = found[protocol]
                server = found["server"]
                left = found["left"] or f"nothing, {found['rss_growth_bytes'] / 1e6:+.1f} MB"
                worst = row["p99_ratio"] or math.inf
                lines.append(
                    f"{model:11}{attack:15}{protocol:7}{worst:10.2f}"
                    f"{' ' if worst <= _BOUND else '!'}"
                    f"{row['neighbour_p99_ratio'] or math.inf:9.2f}"
                    f"{(row['quiet_p99_us'] or math.inf) / 1e3:10.2f}ms"
                    f"{(row['beside_p99_us'] or math.inf) / 1e3:8.2f}ms"
                    f"{row['p50_ratio'] or math.inf:7.2f}"
                    f"{row['errors'] + row['unanswered']:8}  {left}; "
                    f"{server['connections_evicted']}, {server['slot_waits']}"
                    f"+{server['body_waits']}; {found['attackers_cores']:.2f}"
                )
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    found.add_argument("--workloads", default=",".join(WORKLOADS), help="(%(default)s)")
    found.add_argument("--attacks", default=",".join(ATTACKS), help="(%(default)s)")
    found.add_argument("--protocols", default="native,http", help="of the canary (%(default)s)")
    found.add_argument("--connections", type=int, default=1000, help="of an attack (%(default)s)")
    found.add_argument("--seconds", type=float, default=4.0, help="of each phase (%(default)s)")
    found.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    found.add_argument("--set", action="append", default=[], help="passed on to the server")
    found.add_argument("--json", action="store_true", help="as one JSON object")
    return found


def chosen(text: str, known: Sequence[str], option: str) -> list[str]:
    """The names in a list.

    Raises:
        SystemExit: one of them is unknown.
    """
    names = text.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"{option}: expected some of {', '.join(known)}, found {name!r}")
    return names


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints; 1 where the canary had errors or something was left behind."""
    options = parser().parse_args(arguments)
    attacks = chosen(options.attacks, ATTACKS, "--attacks")
    protocols = chosen(options.protocols, ("native", "http"), "--protocols")
    notes = []
    if shutil.which(_HTTP_TOOL) is None and {*attacks} & {*HTTP, "mixed"}:
        attacks = [attack for attack in attacks if attack not in HTTP]
        notes.append(f"{_HTTP_TOOL} is not installed: its attacks are left out")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in chosen(options.workloads, tuple(WORKLOADS), "--workloads"):
            small = mlp.write(Path(folder) / "mlp.onnx") if model == "mlp" else squeezenet()
            words = [f"--model={model}={small}", *(f"--set={each}" for each in options.set)]
            with local_server(*words) as server, local_server(*words) as neighbour:
                results[model] = measure_model(model, server, neighbour, attacks, options)
    say("")
    bad = [
        f"{model}, {attack}"
        for model, found in results.items()
        for attack, row in found.items()
        if row["left"]
        or any(row[protocol]["errors"] + row[protocol]["unanswered"] for protocol in protocols)
    ]
    if options.json:
        about = {"machine": machine(), "connections": options.connections, "notes": notes}
        print(json.dumps({**about, "results": results, "failed": bad}, indent=1))
    else:
        print(table(results, protocols))
        for note in notes:
            print(note)
        if bad:
            print(f"Errors of the canary, or things left behind: {'; '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
