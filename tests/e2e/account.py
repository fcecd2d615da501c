"""Checks an idle server's figures against each other and against the clients' own counts.

Used by harness.py after every case. Two things that are counted at different places (a thread's
word, a model's word, a histogram) must agree, whatever the clients did. Where all connections were
the tests' own and none was cut, bytes and outcomes must equal what these clients counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wire import Tally

from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.snapshot import Snapshot

# Each refusal of an I/O thread is in one of these words, beside the one that counts them all.
_ERRORS = ("bad", "unknown_model", "too_large", "unauthorised")
_SHED = ("overloaded", "late", "limited", "draining", "unready")
# The reason behind each status of a native reply; 8 is a model that failed.
_REASONS = {
    1: "bad",
    2: "unknown_model",
    3: "too_large",
    4: "overloaded",
    5: "late",
    6: "unauthorised",
    7: "limited",
    8: "failed",
    9: "draining",
}
_BUCKET = 1 / 64  # the width of a bucket of a stage's histogram, as part of its value
_UNIT_NS = 16  # and below 1 µs


def problems(snapshot: Snapshot, tally: Tally) -> list[str]:
    """Sentences, none where all is well.

    Args:
        snapshot: of an idle server.
        tally: what the tests' clients counted on it.
    """
    return [*_of_words(snapshot), *_of_histograms(snapshot), *_of_clients(snapshot, tally)]


def is_exact(snapshot: Snapshot, tally: Tally) -> bool:
    """Whether the clients saw all there was: every connection was theirs, every request was
    answered, every answer was read, and no connection was cut: by its client, or by the server,
    which may not have read all that was sent."""
    io, worker = snapshot.counters["io"], snapshot.counters["worker"]
    return (
        io["connections_accepted"] == tally.connections
        and not tally.cut
        and io["connections_evicted"] + io["connections_timed_out"] == 0
        and io["requests_gone"] + worker["requests_gone"] == 0
        and io["requests"] == tally.native.total() + tally.http.total()
    )


def _equal(what: str, found: float, expected: float) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found}, expected {expected}"


def _models(snapshot: Snapshot, word: str) -> int:
    return sum(values[word] for values in snapshot.models.values())


def _of_words(snapshot: Snapshot) -> Iterator[str]:
    io, worker = snapshot.counters["io"], snapshot.counters["worker"]
    protocols = sum(io[f"{name}_requests"] for name in ("native", "http", "http2", "grpc"))
    yield from _equal("requests of all protocols", protocols, io["requests"])
    errors = sum(io[f"requests_{name}"] for name in _ERRORS)
    yield from _equal("errors by reason", errors, io["requests_error"])
    shed = sum(io[f"requests_{name}"] for name in _SHED)
    yield from _equal("refused by reason", shed, io["requests_refused"])
    for of_models, of_thread in (
        ("expired", "requests_expired"),
        ("gone", "requests_gone"),
        ("rows", "rows"),
        ("runs", "runs"),
    ):
        elsewhere = io["upstream_gone"] if of_models == "gone" else 0
        yield from _equal(of_models, _models(snapshot, of_models), worker[of_thread] + elsewhere)
    answered = worker["requests_ok"] + io["cache_hits"] + io["upstream_ok"]
    yield from _equal("ok", _models(snapshot, "ok"), answered)
    for word in ("hits", "misses"):
        yield from _equal(f"cache {word}", _models(snapshot, f"cache_{word}"), io[f"cache_{word}"])
    unfit = worker["requests_bad"] + worker["requests_too_large"]
    refused = unfit + worker["requests_overloaded"]
    yield from _equal("unfit bodies, busy sequences", _models(snapshot, "unfit"), refused)
    failed = worker["requests_error"] - unfit + io["upstream_failed"] + io["upstream_fallen"]
    yield from _equal("failed", _models(snapshot, "failed"), failed)
    elsewhere = sum(io[f"upstream_{end}"] for end in ("ok", "failed", "gone", "fallen"))
    yield from _equal("requests of upstreams", elsewhere, io["upstream_requests"])
    for model, values in snapshot.models.items():
        left = sum(values[w] for w in ("ok", "failed", "unfit", "expired", "gone", "overdue"))
        yield from _equal(f"{model}: handed to the workers", values["queued"], left)
        if values["failed_ns"] and not values["failed"]:
            yield f"{model}: a time of failures, and no failure"
    if worker["batches"] > worker["runs"]:
        yield f"{worker['batches']} batches in {worker['runs']} runs"
    for gauge in ("in_flight", "connections_open", "connections_parked", "slots_in_use"):
        yield from _equal(gauge, snapshot.gauges["io"][gauge], 0)
    yield from _equal("closed", io["connections_closed"], io["connections_accepted"])


def _sum_ns(histogram: Histogram) -> float:
    return histogram.mean_ns() * histogram.count if histogram.count else 0.0


def _of_histograms(snapshot: Snapshot) -> Iterator[str]:
    """Each request that a worker or an upstream replied to is in them once, with the same times
    everywhere. A cached answer has no time in a queue or a model."""
    worker, stages = snapshot.counters["worker"], snapshot.histograms
    hits = snapshot.counters["io"]["cache_hits"]
    words = ("ok", "error", "overloaded", "expired")
    replied = sum(worker[f"requests_{word}"] for word in words)
    replied += sum(snapshot.counters["io"][f"upstream_{end}"] for end in ("ok", "failed", "fallen"))
    yield from _equal("receive's histogram", stages["receive"].count, replied + hits)
    for stage in ("queue", "preprocess", "infer"):
        yield from _equal(f"{stage}'s histogram", stages[stage].count, replied)
    yield from _equal("send's histogram", stages["send"].count, stages["total"].count)
    if stages["total"].count > replied + hits:
        yield f"{stages['total'].count} requests were sent, {replied + hits} had a reply"
    for model, values in snapshot.models.items():
        own = snapshot.model_histograms[model]
        of_model = values["cache_hits"]
        ends = sum(values[word] for word in ("ok", "failed", "unfit", "expired")) - of_model
        yield from _equal(f"{model}: queue's histogram", own["queue"].count, ends)
        yield from _equal(f"{model}: infer's histogram", own["infer"].count, ends)
        lasted = values["ok"] + values["failed"]  # the words know the time of these
        whole = (
            own["total"].count == ends + of_model == lasted
            and not snapshot.counters["io"]["replies_queued"]
        )
        if whole:
            expected = values["ok_ns"] + values["failed_ns"]
            yield from _equal(f"{model}: total, ns", own["total"].sum_ns or 0, expected)
        if ends == values["ok"] - of_model:  # the words know only these
            for stage in ("queue", "infer"):
                yield from _equal(
                    f"{model}: {stage}", own[stage].sum_ns or 0, values[f"{stage}_ns"]
                )
    for stage in ("queue", "infer", "total"):
        every = [of_stages[stage] for of_stages in snapshot.model_histograms.values()]
        count = sum(histogram.count for histogram in every)
        yield from _equal(f"{stage} of all models", count, stages[stage].count)
        exact = sum(histogram.sum_ns or 0 for histogram in every)
        yield from _near(f"{stage} of all models, ns", _sum_ns(stages[stage]), exact, count)
    if stages["total"].count == replied and not hits:  # none was lost between its Run and its end
        parts = sum(_sum_ns(stages[s]) for s in ("receive", "queue", "preprocess", "infer", "send"))
        yield from _near("the stages together, ns", parts, _sum_ns(stages["total"]), 5 * replied)


def _near(what: str, found: float, expected: float, count: int) -> Iterator[str]:
    # Above 68 s a histogram knows no more than that.
    if expected < 68e9 and abs(found - expected) > 2 * _BUCKET * expected + count * _UNIT_NS:
        yield f"{what}: {found}, expected about {expected}"


def _of_clients(snapshot: Snapshot, tally: Tally) -> Iterator[str]:
    io, worker = snapshot.counters["io"], snapshot.counters["worker"]
    sent, received = io["bytes_in"], io["bytes_out"] + worker["bytes_out"]
    if received < tally.received:
        yield f"bytes out: {received}, a client received {tally.received}"
    if io["connections_accepted"] == tally.connections and sent > tally.sent:
        yield f"bytes in: {sent}, the clients sent {tally.sent}"
    ok = tally.native[0] + sum(n for code, n in tally.http.items() if code < 300)
    answered = io["requests_ok"] + worker["requests_ok"]
    if answered < ok:
        yield f"ok: {answered}, the clients saw {ok}"
    for status, name in _REASONS.items():
        if (counted := _reason(snapshot, name)) < tally.native[status]:
            yield f"{name}: {counted}, the clients saw {tally.native[status]}"
    if not is_exact(snapshot, tally):
        return
    yield from _equal("bytes in", sent, tally.sent)
    yield from _equal("bytes out", received, tally.received)
    yield from _equal("native requests", io["native_requests"], tally.native.total())
    yield from _equal("HTTP requests", io["http_requests"], tally.http.total())
    yield from _equal("ok", answered, ok)
    # HTTP has fewer words: these groups of reasons share their codes.
    for codes, names in (
        ((429,), ("limited",)),
        ((503,), ("overloaded", "late", "draining", "unready")),
        ((500,), ("failed",)),
    ):
        seen = sum(tally.http[code] for code in codes)
        seen += sum(tally.native[status] for status, name in _REASONS.items() if name in names)
        yield from _equal(" + ".join(names), sum(_reason(snapshot, n) for n in names), seen)


def _reason(snapshot: Snapshot, name: str) -> int:
    io, worker = snapshot.counters["io"], snapshot.counters["worker"]
    if name == "failed":
        return _models(snapshot, "failed")
    also: Counter[str] = Counter(
        late=worker["requests_expired"],
        bad=worker["requests_bad"],
        overloaded=worker["requests_overloaded"],
        too_large=worker["requests_too_large"],
    )
    return io[f"requests_{name}"] + also[name]
