"""The statistics reader, on files built by hand after c/include/lumen_stats.h."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import gc
import math
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_uring.commands.stats import as_json
from lumen_uring.errors import StatsError
from lumen_uring.ring.histogram import Histogram, bucket_of, bucket_range
from lumen_uring.ring.snapshot import delta, merge
from lumen_uring.ring.stats import _open as open_stats
from lumen_uring.ring.stats import read, stats_path

BUCKETS, SUB_BITS, UNIT_BITS = 40, 2, 3
FIELDS = [
    # name, kind, offset, count, role; the two "requests" lie at different places
    ("requests", 0, 16, 1, 0),
    ("connections_open", 1, 24, 1, 0),
    ("requests", 0, 32, 1, 1),
    ("total", 2, 64, BUCKETS, 255),
    ("later_kind", 9, 40, 1, 255),
    # Of each model a row: its words, then its histogram.
    ("model_ok", 4, 64 + 8 * BUCKETS, 1, 1),
    ("model_infer_ns", 4, 72 + 8 * BUCKETS, 1, 1),
    ("model_last_ms", 5, 80 + 8 * BUCKETS, 1, 1),
    ("model_refused", 4, 64 + 8 * BUCKETS, 1, 0),
    ("model_total", 3, 88 + 8 * BUCKETS, 1 + 8, 255),
]
OF_MODELS = 64 + 8 * BUCKETS
MODEL_BUCKETS, MODEL_SUB_BITS, MODEL_UNIT_BITS, MODEL_STRIDE = 8, 1, 4, 96
TIMES_OF_MODELS = OF_MODELS + 24
BLOCK_BYTES = OF_MODELS + 2 * MODEL_STRIDE
MODELS = ["digits", "b"]
NAME_BYTES = 16
HEADER = "<8sIIQQQIIIIIIQIIQIIIIIIQII"
MODELS_OFFSET = 128 + 48 * len(FIELDS)
BLOCKS_OFFSET = 1024
assert MODELS_OFFSET + len(MODELS) * NAME_BYTES <= BLOCKS_OFFSET


def block(role: int, index: int, words: dict[int, int], histogram: dict[int, int]) -> bytes:
    data = bytearray(BLOCK_BYTES)
    struct.pack_into("<IIii", data, 0, role, index, 6 + index if role else -1, 100 + index)
    for offset, value in words.items():
        struct.pack_into("<Q", data, offset, value)
    for bucket, count in histogram.items():
        struct.pack_into("<Q", data, 64 + 8 * bucket, count)
    return bytes(data)


BLOCKS = [
    block(0, 0, {16: 10, 24: 3, OF_MODELS + MODEL_STRIDE: 2}, {0: 1}),
    block(
        1,
        0,
        {32: 4, OF_MODELS: 4, OF_MODELS + 8: 9000, OF_MODELS + 16: 7},
        {0: 2, 10: 1},
    ),
    block(
        1,
        1,
        {32: 5, OF_MODELS: 2, OF_MODELS + 16: 5, OF_MODELS + MODEL_STRIDE + 16: 1},
        {39: 2**40},
    ),
]


def build(blocks: list[bytes] = BLOCKS, **changed: object) -> bytes:
    values = {
        "magic": b"LMNSTAT1",
        "version": 6,
        "field_count": len(FIELDS),
        "fields_offset": 128,
        "blocks_offset": BLOCKS_OFFSET,
        "file_bytes": BLOCKS_OFFSET + len(blocks) * BLOCK_BYTES,
        "block_count": len(blocks),
        "block_bytes": BLOCK_BYTES,
        "buckets": BUCKETS,
        "sub_bits": SUB_BITS,
        "unit_bits": UNIT_BITS,
        "pid": 42,
        "start": 7_000,
        "state": 1,
        "port": 8000,
        "models_offset": MODELS_OFFSET,
        "model_count": len(MODELS),
        "model_name_bytes": NAME_BYTES,
        "model_buckets": MODEL_BUCKETS,
        "model_sub_bits": MODEL_SUB_BITS,
        "model_unit_bits": MODEL_UNIT_BITS,
        "model_stride": MODEL_STRIDE,
        "experts_offset": 0,
        "experts_max": 0,
        "naming": 0,
        **changed,
    }
    header = struct.pack(HEADER, *values.values())
    fields = b"".join(struct.pack("<32sIIII", name.encode(), *rest) for name, *rest in FIELDS)
    start = (header.ljust(128, b"\0") + fields).ljust(MODELS_OFFSET, b"\0")
    names = b"".join(name.encode().ljust(NAME_BYTES, b"\0") for name in MODELS)
    return (start + names).ljust(BLOCKS_OFFSET, b"\0") + b"".join(blocks)


def write(directory: Path, data: bytes, name: str = "stats") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


def test_reads_what_the_file_describes(tmp_path: Path) -> None:
    snapshot = read(write(tmp_path, build()))
    assert (snapshot.pid, snapshot.port, snapshot.state) == (42, 8000, "ready")
    assert snapshot.counters == {"io": {"requests": 10}, "worker": {"requests": 9}}
    assert snapshot.gauges == {"io": {"connections_open": 3}, "worker": {}}
    assert [(t.role, t.index, t.cpu, t.tid) for t in snapshot.threads] == [
        ("io", 0, -1, 100),
        ("worker", 0, 6, 100),
        ("worker", 1, 7, 101),
    ]
    assert snapshot.threads[1].counters == {"requests": 4}
    total = snapshot.histograms["total"]
    assert total.counts.dtype == np.uint64
    assert total.count == 4 + 2**40
    assert total.counts[0] == 3
    assert snapshot.models == {
        "digits": {"refused": 0, "ok": 6, "infer_ns": 9000, "last_ms": 7},
        "b": {"refused": 2, "ok": 0, "infer_ns": 0, "last_ms": 1},
    }


def test_each_models_histogram(tmp_path: Path) -> None:
    second = TIMES_OF_MODELS + MODEL_STRIDE
    blocks = [
        block(0, 0, {second: 500, second + 8: 1}, {}),
        # The sum of the values, then the buckets.
        block(1, 0, {TIMES_OF_MODELS: 40, TIMES_OF_MODELS + 8 + 8 * 2: 1}, {}),
        block(1, 1, {second: 7, second + 8: 2, second + 8 + 8 * 7: 3}, {}),
    ]
    snapshot = read(write(tmp_path, build(blocks)))
    total = snapshot.model_histograms["digits"]["total"]
    assert (total.counts.tolist(), total.sum_ns) == ([0, 0, 1, 0, 0, 0, 0, 0], 40)
    assert (total.sub_bits, total.unit_bits) == (MODEL_SUB_BITS, MODEL_UNIT_BITS)
    assert total.mean_ns() == 40
    other = snapshot.model_histograms["b"]["total"]
    assert (other.counts.tolist(), other.sum_ns) == ([3, 0, 0, 0, 0, 0, 0, 3], 507)
    blocks[2] = block(1, 1, {second: 20, second + 8: 3, second + 8 + 8 * 7: 3}, {})
    change = delta(read(write(tmp_path, build(blocks))), snapshot)
    assert change.model_histograms["b"]["total"].counts.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert change.model_histograms["b"]["total"].sum_ns == 13
    both = merge([snapshot, snapshot]).model_histograms["b"]["total"]
    assert (both.count, both.sum_ns) == (12, 1014)


def test_a_snapshot_does_not_move_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, build())
    snapshot = read(path)
    with path.open("r+b") as file:
        file.seek(BLOCKS_OFFSET + 64)
        file.write(struct.pack("<Q", 1000))
    assert snapshot.histograms["total"].counts[0] == 3
    assert read(path).histograms["total"].counts[0] == 1002


def test_the_difference_of_two_readings(tmp_path: Path) -> None:
    earlier = read(write(tmp_path, build()))
    later_blocks = [
        block(0, 0, {16: 15, 24: 1, OF_MODELS + MODEL_STRIDE: 3}, {0: 1, 5: 7}),
        *BLOCKS[1:],
    ]
    later = read(write(tmp_path, build(later_blocks)))
    change = delta(later, earlier)
    assert change.counters == {"io": {"requests": 5}, "worker": {"requests": 0}}
    assert change.gauges["io"] == {"connections_open": 1}
    assert change.histograms["total"].count == 7
    assert change.models["b"] == {"refused": 1, "ok": 0, "infer_ns": 0, "last_ms": 1}
    with pytest.raises(StatsError, match="went down"):
        delta(earlier, later)
    restarted = read(write(tmp_path, build(start=8_000)))
    with pytest.raises(StatsError, match="restarted"):
        delta(restarted, earlier)


def test_what_a_difference_takes_from_which_reading(tmp_path: Path) -> None:
    """Of each thread and each model: counters and times of the span, gauges of its end."""
    second = TIMES_OF_MODELS + MODEL_STRIDE
    first_words = {
        32: 4,
        OF_MODELS: 10,
        OF_MODELS + MODEL_STRIDE: 20,
        OF_MODELS + 16: 500,
        second: 90,
    }
    later_words = {
        32: 7,
        OF_MODELS: 15,
        OF_MODELS + MODEL_STRIDE: 26,
        OF_MODELS + 16: 400,
        second: 97,
    }
    io = block(0, 0, {16: 10, 24: 9}, {3: 1})
    earlier = read(
        write(tmp_path, build([io, block(1, 0, {**first_words, second + 8: 1}, {7: 2})]))
    )
    new = block(1, 1, {32: 100, OF_MODELS: 1000}, {7: 50})
    now = block(1, 0, {**later_words, second + 8: 3}, {7: 5})
    later = read(write(tmp_path, build([block(0, 0, {16: 12, 24: 4}, {3: 2}), now, new])))
    later = dataclasses.replace(later, is_alive=True)
    change = delta(later, earlier)
    assert (change.is_alive, change.pid, change.port, change.state) == (True, 42, 8000, "ready")
    assert change.start_realtime_ns == 7_000
    io_thread, old_thread, new_thread = change.threads
    assert (io_thread.counters, io_thread.gauges) == ({"requests": 2}, {"connections_open": 4})
    assert old_thread.counters == {"requests": 3}
    assert (old_thread.role, old_thread.index, old_thread.cpu, old_thread.tid) == (
        "worker", 0, 6, 100,
    )  # fmt: skip
    assert old_thread.model_counters == {
        "digits": {"ok": 5, "infer_ns": 0}, "b": {"ok": 6, "infer_ns": 0},
    }  # fmt: skip
    assert old_thread.model_gauges == {"digits": {"last_ms": 400}, "b": {"last_ms": 0}}
    of_b = old_thread.model_histograms["b"]["total"]
    assert (of_b.sum_ns, of_b.counts.tolist()) == (7, [2, 0, 0, 0, 0, 0, 0, 0])
    assert old_thread.histograms["total"].counts[7] == 3
    # A thread that was not there before counts from nothing.
    assert new_thread.counters == {"requests": 100}
    assert change.counters == {"io": {"requests": 2}, "worker": {"requests": 103}}
    assert change.models["digits"]["ok"] == 1005
    assert change.histograms["total"].counts[7] == 53
    assert change.histograms["total"].counts[3] == 1
    assert delta(later, later).counters == {"io": {"requests": 0}, "worker": {"requests": 0}}
    with pytest.raises(StatsError, match="'requests' went down"):
        delta(earlier, later)
    # A histogram that lost one value while another bucket grew is of another run too.
    lost = read(write(tmp_path, build([io, block(1, 0, later_words, {7: 1, 8: 100})])))
    with pytest.raises(StatsError, match="A histogram's count went down"):
        delta(lost, earlier)


def test_a_server_without_models(tmp_path: Path) -> None:
    blocks = [data[:OF_MODELS] for data in BLOCKS]
    data = build([data.ljust(BLOCK_BYTES, b"\0") for data in blocks], model_count=0)
    snapshot = read(write(tmp_path, data))
    assert (snapshot.models, snapshot.model_histograms) == ({}, {})
    assert snapshot.counters == {"io": {"requests": 10}, "worker": {"requests": 9}}


def test_a_models_name_ends_where_it_ends(tmp_path: Path) -> None:
    data = bytearray(build())
    data[MODELS_OFFSET + 3 : MODELS_OFFSET + 8] = b"\0rest"
    data[MODELS_OFFSET + NAME_BYTES : MODELS_OFFSET + 2 * NAME_BYTES] = b"0123456789abcdef"
    assert list(read(write(tmp_path, bytes(data))).models) == ["dig", "0123456789abcdef"]


def test_names_of_states_and_a_state_of_the_future(tmp_path: Path) -> None:
    names = ["starting", "ready", "draining", "stopped", "unknown (4)"]
    assert [read(write(tmp_path, build(state=at))).state for at in range(5)] == names
    assert not read(write(tmp_path, build())).is_alive  # a copy, which no server holds


def test_whether_a_server_holds_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, build())
    asked = os.open(path, os.O_RDONLY)
    for kind, alive in ((fcntl.F_WRLCK, True), (fcntl.F_RDLCK, False), (fcntl.F_UNLCK, False)):
        with path.open("r+b") as held:
            lock = struct.pack("hhlli", kind, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(held, fcntl.F_OFD_SETLK, lock)
            assert read(path).is_alive is alive
            assert read(path, asked).is_alive is alive
        assert read(path).is_alive is False
    assert os.fstat(asked).st_size == path.stat().st_size  # it stays open
    os.close(asked)
    descriptor = open_stats(path)
    assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    gc.collect()
    opened = len(os.listdir("/proc/self/fd"))
    read(path)
    with pytest.raises(StatsError):
        read(write(tmp_path, b"x" * 200, "other"))
    assert len(os.listdir("/proc/self/fd")) <= opened


def test_files_of_several_servers_merge(tmp_path: Path) -> None:
    one = read(write(tmp_path, build(), "one"))
    two = read(write(tmp_path, build(pid=43, state=2, start=6_000), "two"))
    both = merge([one, two])
    assert both.counters == {"io": {"requests": 20}, "worker": {"requests": 18}}
    assert both.histograms["total"].count == 2 * one.histograms["total"].count
    assert (both.pid, both.port, both.state, both.start_realtime_ns) == (0, 0, "mixed", 6_000)
    assert len(both.threads) == 6
    assert both.models["digits"] == {"refused": 0, "ok": 12, "infer_ns": 18000, "last_ms": 7}
    assert merge([one]) is one
    other = read(write(tmp_path, build(sub_bits=3), "other"))
    with pytest.raises(StatsError, match="cannot be combined"):
        merge([one, other])
    with pytest.raises(StatsError, match="Nothing to merge"):
        merge([])


@pytest.mark.parametrize(
    "changed",
    [
        {"magic": b"LMNSTAT2"},
        {"version": 2},
        {"version": 7},
        {"experts_offset": 2**63, "experts_max": 8},
        {"experts_offset": 128, "experts_max": 8},  # no indexes of models
        {"model_buckets": 9},
        {"model_sub_bits": 60},
        {"model_unit_bits": 60},
        {"model_stride": 84},
        {"model_stride": 104},
        {"model_stride": 64},
        {"field_count": 2**32 - 1},
        {"fields_offset": 2**64 - 8},
        {"blocks_offset": 2**63},
        {"blocks_offset": BLOCKS_OFFSET + 4},
        {"models_offset": 2**63},
        {"models_offset": BLOCKS_OFFSET + 3 * BLOCK_BYTES - 2 * NAME_BYTES + 1},
        {"file_bytes": BLOCKS_OFFSET + 3 * BLOCK_BYTES + 1},
        {"version": 0},
        {"sub_bits": 17},
        {"unit_bits": 17},
        {"model_sub_bits": 17},
        {"model_unit_bits": 17},
        {"fields_offset": BLOCKS_OFFSET + 3 * BLOCK_BYTES - 48 * len(FIELDS) + 8},
        {"block_bytes": BLOCK_BYTES - 16},
        {"block_bytes": BLOCK_BYTES + 4, "block_count": 2},
        {"model_count": 4},
        {"model_count": 4, "model_stride": 24},
        {"model_count": 2**32 - 1, "model_name_bytes": 0},
        {"model_name_bytes": 2**32 - 1},
        {"file_bytes": 10**6},
        {"block_count": 4},
        {"block_count": 2**32 - 1, "block_bytes": 0},
        {"block_bytes": 15},
        {"block_bytes": 72},
        {"buckets": 41},
        {"sub_bits": 60},
        {"unit_bits": 60},
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(StatsError, match="stats"):
        read(write(tmp_path, build(**changed)))


@pytest.mark.parametrize("size", [0, 7, 95, 96, 300, 1100])
def test_cut_files_are_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(StatsError, match=r"no statistics file|damaged"):
        read(write(tmp_path, build()[:size]))


@given(st.binary(min_size=1, max_size=40), st.integers(0, BLOCKS_OFFSET - 1))
def test_any_damage_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    data = bytearray(build())
    data[at : at + len(junk)] = junk
    path = write(tmp_path_factory.getbasetemp(), bytes(data), "damaged")
    with contextlib.suppress(StatsError):
        read(path)


def test_a_row_that_gets_another_models_name_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is odd meanwhile. A server that died then leaves it so."""
    monkeypatch.setattr("lumen_uring.ring.stats._TRIES_MAX", 3)
    assert read(write(tmp_path, build(naming=2))).models.keys() == set(MODELS)
    with pytest.raises(StatsError, match="its names never stop changing"):
        read(write(tmp_path, build(naming=3)))


def test_counters_of_experts_have_their_names(tmp_path: Path) -> None:
    """A model may be an expert twice; what has no expert is no figure."""
    fields = [(f"model_expert_{place}", 4, 16, 1, 1) for place in range(3)]
    whole = build([block(1, 0, {16: 5, 16 + MODEL_STRIDE: 7}, {})])
    data = bytearray(whole[: BLOCKS_OFFSET - 24] + struct.pack("<6I", 2, 2, 0, 0, 0, 1))
    data += whole[BLOCKS_OFFSET:]
    struct.pack_into("<I", data, 12, len(fields))
    for place, (name, *rest) in enumerate(fields):
        struct.pack_into("<32sIIII", data, 128 + 48 * place, name.encode(), *rest)
    struct.pack_into("<QI", data, 112, BLOCKS_OFFSET - 24, 3)
    models = read(write(tmp_path, bytes(data))).models
    assert models == {"digits": {"expert:b": 10}, "b": {"expert:digits": 7}}


def test_a_missing_file_says_that_no_server_runs(tmp_path: Path) -> None:
    with pytest.raises(StatsError, match="no server with this port runs here"):
        read(tmp_path / "lumen-1")
    assert stats_path(8000) == Path("/dev/shm/lumen-8000")


LAYOUTS = st.tuples(st.integers(0, 10), st.integers(0, 10))


@given(st.integers(0, 2**63 - 1), LAYOUTS)
def test_each_value_lies_in_its_bucket(value: int, layout: tuple[int, int]) -> None:
    low, width = bucket_range(bucket_of(value, *layout), *layout)
    assert low <= value < low + width
    if value >= 1 << sum(layout):
        assert width <= value / 2 ** layout[0]


@given(st.integers(0, 5000), LAYOUTS)
def test_buckets_follow_each_other_without_gaps(bucket: int, layout: tuple[int, int]) -> None:
    low, width = bucket_range(bucket, *layout)
    assert bucket_range(bucket + 1, *layout)[0] == low + width
    assert bucket_of(low, *layout) == bucket
    assert bucket_of(low + width - 1, *layout) == bucket


@given(st.lists(st.integers(0, 2**36), min_size=1, max_size=60), st.floats(0, 100))
def test_percentiles_are_the_nearest_rank_within_a_bucket(
    values: list[int], percent: float
) -> None:
    layout = (7, 4)
    counts = np.zeros(8192, np.uint64)
    for value in values:
        counts[bucket_of(value, *layout)] += np.uint64(1)
    histogram = Histogram(counts, *layout)
    rank = max(1, math.ceil(round(percent / 100 * len(values), 6)))
    exact = sorted(values)[rank - 1]
    assert abs(histogram.percentile_ns(percent) - exact) <= max(8, exact / 128)
    mean = sum(values) / len(values)
    assert abs(histogram.mean_ns() - mean) <= max(8, mean / 128)
    assert histogram.count == len(values)


@pytest.mark.parametrize(
    ("percent", "count", "rank"),
    [
        (99.9, 1000, 999),
        (99.9, 2000, 1998),
        (99, 100, 99),
        (55, 100, 55),
        (0, 10, 1),
        (100, 10, 10),
    ],
)
def test_ranks_are_not_rounded_up_by_binary_fractions(
    percent: float, count: int, rank: int
) -> None:
    one_in_each = Histogram(np.ones(count, np.uint64), 7, 4)
    assert one_in_each.percentile_ns(percent) == one_in_each.midpoint_ns(rank - 1)


def test_histograms_to_the_nanosecond() -> None:
    """Four buckets to a power of two, the first ones 8 ns wide."""
    counts = np.zeros(20, np.uint64)
    counts[[0, 3, 5, 12]] = 1, 2, 3, 4
    histogram = Histogram(counts, 2, 3)
    ranges = {
        0: (0, 8),
        3: (24, 8),
        4: (32, 8),
        5: (40, 8),
        8: (64, 16),
        12: (128, 32),
        15: (224, 32),
    }
    for bucket, (low, width) in ranges.items():
        assert bucket_range(bucket, 2, 3) == (low, width)
        assert histogram.midpoint_ns(bucket) == low + (width - 1) / 2
        assert [bucket_of(low - 1 + at, 2, 3) for at in (1, width, width + 1)] == [
            bucket, bucket, bucket + 1,
        ]  # fmt: skip
    middles = {0: 3.5, 3: 27.5, 5: 43.5, 12: 143.5}
    assert histogram.mean_ns() == (3.5 + 2 * 27.5 + 3 * 43.5 + 4 * 143.5) / 10
    found = {percent: histogram.percentile_ns(percent) for percent in (0, 10, 11, 30, 31, 60, 61)}
    expected = dict(zip(found, (0, 0, 3, 3, 5, 5, 12), strict=True))
    assert found == {percent: middles[bucket] for percent, bucket in expected.items()}
    # The sum, where it is known, is exact, and is known of a whole only if of both parts.
    exact = Histogram(counts, 2, 3, 1001)
    assert exact.mean_ns() == 100.1
    twice = exact.plus(Histogram(counts, 2, 3, 9))
    assert (twice.sum_ns, twice.count, twice.counts[12]) == (1010, 20, 8)
    rest = twice.minus(exact)
    assert (rest.sum_ns, rest.counts.tolist()) == (9, counts.tolist())
    assert (rest.sub_bits, rest.unit_bits) == (2, 3)
    for one, other in ((exact, histogram), (histogram, exact)):
        assert (one.plus(other).sum_ns, one.minus(other).sum_ns) == (None, None)
    less = counts.copy()
    less[[0, 3]] = 50, 1  # one bucket has lost a value, whatever the others have
    for earlier in (Histogram(less, 2, 3), Histogram(counts, 2, 4), Histogram(counts, 1, 3)):
        with pytest.raises(StatsError):
            Histogram(np.minimum(less, counts), 2, 3).minus(earlier)
    for other in (Histogram(counts, 2, 4), Histogram(counts, 1, 3), Histogram(counts[1:], 2, 3)):
        with pytest.raises(StatsError, match="cannot be combined"):
            histogram.plus(other)


def test_an_empty_histogram_has_no_mean() -> None:
    empty = Histogram(np.zeros(8, np.uint64), 2, 0)
    assert empty.count == 0
    assert math.isnan(empty.mean_ns())
    assert math.isnan(empty.percentile_ns(50))
    with pytest.raises(ValueError, match="percent"):
        empty.percentile_ns(101)


def test_what_lumen_stats_makes_of_the_figures(tmp_path: Path) -> None:
    """No two figures are the same, so that one in another's place is seen."""
    counts = np.zeros(1728, np.uint64)
    for us in range(1, 2001):  # 1 µs to 2 ms, each once
        counts[bucket_of(us * 1000, 6, 4)] += 1
    of_model = {
        "ok": 10, "failed": 20, "expired": 300, "gone": 4000, "refused": 50_000, "bad": 600_000,
        "rows": 7, "queue_ns": 50_000, "infer_ns": 123_000,
    }  # fmt: skip
    snapshot = dataclasses.replace(
        read(write(tmp_path, build())),
        histograms={"odd": Histogram(counts, 6, 4), "infer": Histogram(counts * 0, 6, 4)},
        models={"m": of_model},
    )
    found = as_json(snapshot)
    assert list(found["stages"]) == ["infer", "odd"]  # in the order of a request's life
    odd = found["stages"]["odd"]
    expected = {"mean_us": 1000.5, "p50_us": 1000, "p99_us": 1980, "p999_us": 1998}
    assert odd.pop("count") == 2000
    assert odd == {name: pytest.approx(value, rel=0.008) for name, value in expected.items()}
    assert set(found["stages"]["infer"].values()) == {0, None}
    model = found["models"]["m"]
    assert (model["requests"], model["errors"]) == (654_330, 654_320)
    assert (model["mean_queue_us"], model["mean_infer_us"]) == (5, 12.3)
    assert model["rows"] == 7
