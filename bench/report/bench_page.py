"""Makes docs/BENCHMARKS.md of a benchmark's results: a pure function from figures to text.

Called by bench.py and tests/test_bench.py. Every number on the page comes from the
results; what the figures say about each mode is worked out by rules (`verdict`); what people add
stands between two markers and is kept. It must never round a difference away or call one real that
the rounds do not show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bench.report.rules import (
    BASE,
    Results,
    amount,
    find,
    middle,
    modes,
    paired,
    peak,
    plural,
    present,
    rules,
    saturated,
    table,
)

BEGIN: Final = "<!-- by hand: kept when this page is made anew -->"
END: Final = "<!-- end of what is by hand -->"
_BY_HAND: Final = """\
What the figures cannot show: `scq` is lock-free in the strict sense, `mpmc` is not (a producer
stopped half-way hides the cells behind it), and `spsc` is wait-free but has one worker only.
`inline` receives nothing on a core while that core runs a model. `batched` helps only a model that
runs four rows in less time than four times one."""

# The first Lumen (C++17, TCP and poll): 800 requests of SqueezeNet. Round trip mean, p50, p99,
# connect mean, p99; ms.
SEED: Final[Mapping[tuple[str, str], tuple[float, float, float, float, float]]] = {
    ("mpmc", "lumen_arena"): (21.78, 21.54, 33.26, 0.04, 0.12),
    ("mpmc", "standard"): (22.09, 22.38, 35.75, 0.05, 0.21),
    ("naive", "standard"): (19.08, 20.78, 31.66, 0.10, 0.23),
    ("naive", "lumen_arena"): (21.32, 20.92, 32.31, 0.12, 0.46),
    ("batched", "standard"): (18.84, 20.74, 31.98, 0.11, 0.28),
    ("batched", "lumen_arena"): (22.15, 21.32, 43.37, 0.14, 0.55),
    ("spsc", "lumen_arena"): (31.33, 31.46, 41.94, 0.08, 0.18),
    ("spsc", "standard"): (31.75, 31.53, 42.72, 0.08, 0.21),
}
_SEED_CONNECTIONS: Final = 4
_UNITS: Final = {"squeezenet": ("ms", 1e3), "mlp": ("µs", 1.0)}
_MODELS: Final = {
    "squeezenet": "SqueezeNet 1.1, fp32, requests of 150,528 bytes of rgb8",
    "mlp": "A perceptron 64-64-8, fp32, requests of 256 bytes",
}
_WAITS_HEADS: Final = (
    *("mode", "half: mean", "p99", "saturated: mean", "p99", "connect: mean", "p99"),
    *("answered: mean", "p99", "half: round trip p50", "p99"),
)
_SPREAD: Final = ("mean", "p50", "p99", "p999")


def page(results: Results, plots: Sequence[str], before: str) -> str:
    """Makes the page.

    Args:
        results: as bench.py writes them.
        plots: file names in docs/benchmarks/.
        before: the page as it was, for what people wrote on it; empty when there was none.

    Returns:
        Markdown.
    """
    parts = ["# Benchmarks", _intro(results), _machine(results)]
    for workload in present(results, "workload"):
        parts += _workload(results, workload, plots)
    parts += ["## Beside the first Lumen's figures", _beside_seed(results)]
    parts += ["## Which mode when", rules(results)]
    parts += [f"{BEGIN}\n{by_hand(before)}\n{END}", "## How it was measured", _method(results)]
    if results["failures"]:
        failed = "\n".join(f"- {failure}" for failure in results["failures"])
        parts += ["## What failed", failed]
    return "\n\n".join(part for part in parts if part) + "\n"


def by_hand(before: str) -> str:
    """What people wrote between the markers of an earlier page, or what stands there at first."""
    _, found, rest = before.partition(BEGIN)
    text, closed, _ = rest.partition(END)
    return text.strip() if found and closed else _BY_HAND


# ---- tables ----


def _time(value_us: float | None, divisor: float) -> str:
    if value_us is None:
        return "-"
    value = value_us / divisor
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _name(mode: tuple[str, str]) -> str:
    return f"{mode[0]}, {mode[1]}"


def _workload(results: Results, workload: str, plots: Sequence[str]) -> list[str]:
    unit, divisor = _UNITS.get(workload, ("µs", 1.0))
    counts = results["connections"]
    pictures = [
        f"![{plot.removesuffix('.svg')}](benchmarks/{plot})" for plot in plots if workload in plot
    ]
    return [
        f"## {workload}",
        f"{_MODELS.get(workload, workload)}.",
        "Requests a second over so many connections (median of the rounds), the best of them "
        "against the default's (median of the rounds' ratios, smallest to largest), and the "
        f"server's CPU time per request, in µs, over {saturated(results)} connections:",
        _throughput(results, workload),
        f"Round trip in {unit}, all rounds together, mean / p50 / p99 / p99.9, over so many "
        "connections:",
        table(
            ["mode", *map(str, counts)],
            _rows(results, lambda mode: _trips(results, workload, mode, divisor)),
        ),
        "Time in the queue, from published to popped, in µs: at half of the best throughput (open "
        f"loop, Poisson arrivals) and saturated ({saturated(results)} connections). Then what a "
        "new connection takes on an idle server, until connected and until a first ping is "
        "answered; last, the round trip at half of the best throughput:",
        table(
            _WAITS_HEADS,
            _rows(results, lambda mode: _waits(results, workload, mode)),
        ),
        "\n".join(pictures),
    ]


def _rows(results: Results, cells: Callable[[tuple[str, str]], list[str]]) -> list[list[str]]:
    return [[_name(mode), *cells(mode)] for mode in modes(results)]


def _throughput(results: Results, workload: str) -> str:
    counts = results["connections"]
    base = peak(results, workload, BASE)

    def cells(mode: tuple[str, str]) -> list[str]:
        found = [find(results, workload, mode, count) for count in counts]
        rates = [amount(middle(cell["throughput_rps"])) if cell else "-" for cell in found]
        best = peak(results, workload, mode)
        against = "-"
        if best and base and (ratio := paired(best["throughput_rps"], base["throughput_rps"])):
            against = f"{ratio.middle:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"
        busy = find(results, workload, mode, saturated(results))
        cpu = middle(busy["cpu_us_per_request"]) if busy else None
        batch = busy["rows_per_run"] if busy else None
        return [*rates, against, _time(cpu, 1.0), "-" if batch is None else f"{batch:.2f}"]

    return table(
        ["mode", *map(str, counts), "÷ default", "CPU", "rows per Run"], _rows(results, cells)
    )


def _trips(results: Results, workload: str, mode: tuple[str, str], divisor: float) -> list[str]:
    cells = []
    for count in results["connections"]:
        cell = find(results, workload, mode, count)
        spread = (cell and cell["latency_us"]) or {}
        cells.append(" / ".join(_time(spread.get(name), divisor) for name in _SPREAD))
    return cells


def _connects(results: Results, workload: str, mode: tuple[str, str]) -> Mapping[str, Any]:
    for found in results["connects"]:
        if (found["workload"], found["queue"], found["allocator"]) == (workload, *mode):
            return dict(found)
    return {}


def _waits(results: Results, workload: str, mode: tuple[str, str]) -> list[str]:
    half = find(results, workload, mode, None) or {}
    busy = find(results, workload, mode, saturated(results)) or {}
    connects = _connects(results, workload, mode)
    spreads = [
        (half.get("queue_us"), ("mean", "p99")),
        (busy.get("queue_us"), ("mean", "p99")),
        (connects.get("connect_us"), ("mean", "p99")),
        (connects.get("answer_us"), ("mean", "p99")),
        (half.get("latency_us"), ("p50", "p99")),
    ]
    return [_time((spread or {}).get(name), 1.0) for spread, names in spreads for name in names]


def _beside_seed(results: Results) -> str:
    if "squeezenet" not in present(results, "workload"):
        return "SqueezeNet was not measured."
    note = (
        "The table that the first Lumen published (C++17, TCP and poll, 8 cores): SqueezeNet, 800 "
        f"requests. Ours: {_SEED_CONNECTIONS} connections, {results['machine']['cores']} cores "
        "that the load generator shares. The machines differ, and so may what was counted: compare "
        "shapes, never digits. Its mutex is our `naive`, its heap our `standard`. Figures in ms, "
        "the first Lumen's first:"
    )
    rows = []
    for mode, seed in SEED.items():
        cell = find(results, "squeezenet", mode, _SEED_CONNECTIONS)
        trip = (cell and cell["latency_us"]) or {}
        connect = _connects(results, "squeezenet", mode).get("connect_us") or {}
        ours = [trip.get("mean"), trip.get("p50"), trip.get("p99")]
        ours += [connect.get("mean"), connect.get("p99")]
        pairs = zip(seed, ours, strict=True)
        rows.append([_name(mode), *(f"{theirs:.2f} / {_time(us, 1e3)}" for theirs, us in pairs)])
    heads = ["mode", "round trip mean", "p50", "p99", "connect mean", "p99"]
    return note + "\n\n" + table(heads, rows)


# ---- words around them ----


def _intro(results: Results) -> str:
    return (
        f"Made by `make bench` on {results['machine']['date']}: "
        f"{plural(results['rounds'], 'round')}, "
        f"{results['seconds']:g} s per figure. Every figure is in [results.json]"
        "(benchmarks/results.json); this page is made of it."
    )


def _machine(results: Results) -> str:
    machine = results["machine"]
    kind = "virtual machine" if machine["virtual"] else "machine"
    clock = ""  # unknown of older results
    if "governor" in machine:
        clock = f"Frequency governor: {machine['governor']}; turbo: {machine['turbo']}. "
    return (
        f"{kind.capitalize()}: {machine['cpu']}, {machine['cores']} cores, Linux "
        f"{machine['kernel']}, ONNX Runtime {machine['onnxruntime']}, Python {machine['python']}. "
        f"{clock}The load generator runs on the same cores as the server."
    )


def _method(results: Results) -> str:
    closed = [cell for cell in results["cells"] if cell["loop"] == "closed"]
    shares = [cell["generator_share"] for cell in closed if cell["generator_share"] is not None]
    errors = sum(cell["errors"] for cell in results["cells"])
    late = sum(cell["late"] for cell in results["cells"] if cell["loop"] == "open")
    asked = sum(cell["requests"] for cell in results["cells"] if cell["loop"] == "open")
    return "\n".join(
        [
            "- In each round every mode gets a server of its own, in an order shuffled anew (seed "
            f"{results['seed']}), so that a machine's drift hits all alike.",
            f"- Before each figure {results['warmup_s']:g} s are not counted. Closed loop: each "
            "connection sends its next request when it has its answer. Open loop: a request's time "
            "counts from when it was due.",
            "- Percentiles are of all rounds' requests together; throughput and CPU are medians of "
            "the rounds. A p99.9 of fewer than 1,000 requests is their largest.",
            "- `spsc` has one worker, all others one per core. `batched` collects up to 4 requests "
            "for at most 500 µs. `inline` has an I/O thread per core and no queue: what waits "
            "there waits unread in its socket, where no server can time it. Its time in the "
            "queue is not to be compared with the others'.",
            f"- The load generator used {max(shares, default=0):.0%} of a core at most; errors: "
            f"{errors}; of {asked:,} open-loop requests {late:,} were sent more than 1 ms late.",
        ]
    )
