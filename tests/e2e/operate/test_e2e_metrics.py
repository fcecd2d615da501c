"""The metrics page of a real server: its names, its account, its health and its end."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import http.client
import json
import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import account
import graphs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Server, eventually, run
from operating import free_port
from prometheus_client.parser import text_string_to_metric_families
from web import Http

from lumen_uring.metrics import stats_words
from lumen_uring.metrics.facts import Facts
from lumen_uring.metrics.values import make_registry, render
from lumen_uring.ring import stats_structs
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # figures and pages: the same on both backends

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


# The first scrape imports numpy and more: seconds of work, which a busy machine makes many.
PATIENCE_S = 120.0


def get(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as to:
        to.request("GET", path)
        response = to.getresponse()
        return response.status, response.read().decode()


def scrape(port: int) -> Values:
    status, text = get(port, "/metrics")
    assert status == 200
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives every counter a _total, which Triton's have not in the text.
            name = sample.name.removesuffix("_total" if sample.name.startswith("nv_") else "")
            found[(name, frozenset(sample.labels.items()))] = sample.value
    return found


def of(values: Values, name: str, **labels: str) -> float:
    return values[(name, frozenset(labels.items()))]


def of_model(values: Values, name: str, model: str, **labels: str) -> float:
    return of(values, f"nv_inference_{name}", model=model, version="1", **labels)


@pytest.fixture
def watched(serve: Serve, model_files: Path) -> tuple[Server, int]:
    port = free_port()
    models = [
        {"name": "double", "path": graphs.double(model_files / "watched_double.onnx")},
        {"name": "other", "path": graphs.double(model_files / "watched_other.onnx")},
        {"name": "gather", "path": graphs.gather(model_files / "watched_gather.onnx")},
        {
            "name": "wide",
            "path": graphs.nonzero(model_files / "watched_wide.onnx", 64),
            "max_output_bytes": 512,
        },
    ]
    server = serve(
        {
            "server": {"metrics_port": port},
            "engine": {"queue_type": "mpmc", "thread_count": 2},
            "models": [{**model, "path": str(model["path"])} for model in models],
        }
    )
    return server, port


def test_requests_are_counted_for_their_model(watched: tuple[Server, int], cache: Path) -> None:
    server, port = watched
    row = np.ones((1, 16), np.float32).tobytes()
    double = server.models["double"]
    with server.connect() as connection:
        for number in range(5):
            assert connection.ask(wire.frame(row * 2, model=double, rows=2, id=number)).status == 0
        assert connection.ask(wire.frame(b"short", model=double)).status == wire.BAD_REQUEST
        assert connection.ask(wire.frame(row, model=99)).status == wire.UNKNOWN_MODEL
        late = wire.frame(row, model=double, timeout_us=1)
        assert connection.ask(late).status == wire.DEADLINE
        assert connection.ask(wire.ping()).status == 0
        bad = wire.frame(np.int64(99).tobytes(), model=server.models["gather"])
        assert connection.ask(bad).status == wire.BAD_REQUEST
        large = wire.frame(np.ones((1, 64), "<f4").tobytes(), model=server.models["wide"])
        assert connection.ask(large).status == wire.INFERENCE_FAILED
    eventually(
        lambda: of_model(scrape(port), "request_duration_us", "double") > 0, "times are counted"
    )
    server.wait_until_idle()
    values = scrape(port)
    assert of_model(values, "request_success", "double") == 5
    assert of_model(values, "count", "double") == 10
    assert 1 <= of_model(values, "exec_count", "double") <= 5
    assert of_model(values, "request_failure", "double", reason="OTHER") == 1
    assert of_model(values, "request_failure", "double", reason="REJECTED") == 1
    assert of_model(values, "request_failure", "gather", reason="OTHER") == 1
    assert of_model(values, "request_failure", "wide", reason="BACKEND") == 1
    assert of_model(values, "request_success", "other") == 0
    assert of_model(values, "pending_request_count", "double") == 0
    for stage in ("queue", "compute_infer"):
        duration = of_model(values, f"{stage}_duration_us", "double")
        assert 0 <= duration <= of_model(values, "request_duration_us", "double")
    assert of(values, "lumen_protocol_requests_total", protocol="native") == of(
        values, "lumen_requests_accepted_total"
    )
    assert of(values, "lumen_requests_in_flight") == 0
    assert of(values, "lumen_requests_accepted_total") == server.figures().requests
    # The five answers and the two failed ones; the late one where it was not refused at once.
    refused = server.figures().io["requests_refused"]
    assert of(values, "lumen_request_duration_seconds_count", stage="total") == 8 - refused
    assert of(values, "lumen_model_last_answer_seconds", model="double") > 1.7e9
    assert of(values, "lumen_model_last_answer_seconds", model="other") == 0
    shown = run(["stats", "--port", str(server.port)], cache).stdout
    assert re.search(r"double +7 +10 +2 ", shown), shown


# Figures that are not on the page, and why.
NOT_EXPORTED = {
    ("worker", "rows"): "the sum of model_rows, which nv_inference_count shows",
    ("io", "upstream_requests"): "the sum of the outcomes, once nothing is in flight",
    ("io", "model_failed_ns"): "as the worker's:",
    ("worker", "model_failed_ns"): "for /v2/models/stats; lumen_model_duration_seconds has all",
}


HISTOGRAMS = (stats_structs.FIELD_HISTOGRAM, stats_structs.FIELD_MODEL_HISTOGRAM)


def lines(path: Path) -> list[str]:
    """The page of a statistics file, without the machine's own figures."""
    facts = Facts("1", "1", workers=1, io_threads=1, slots=1)
    text = render(make_registry(lambda: read(path), facts), "")[1].decode()
    return [line for line in text.splitlines() if not line.startswith(("nv_cpu", "process_"))]


def without_room(data: bytes) -> bytearray:
    """A statistics file without the room for rows of models that there are not."""
    header = stats_structs.LumenStatsHeader.from_buffer_copy(data)
    rows = [
        field
        for index in range(header.field_count)
        for field in [
            stats_structs.LumenStatsField.from_buffer_copy(
                data, header.fields_offset + index * ctypes.sizeof(stats_structs.LumenStatsField)
            )
        ]
        if field.kind > stats_structs.FIELD_HISTOGRAM
    ]
    used = min(field.offset for field in rows) + header.model_count * header.model_stride
    kept = bytearray(data[: header.blocks_offset])
    for index in range(header.block_count):
        at = header.blocks_offset + index * header.block_bytes
        kept += data[at : at + used]
    header.block_bytes, header.file_bytes = used, len(kept)
    kept[: ctypes.sizeof(header)] = bytes(header)
    return kept


def test_every_figure_of_the_file_is_on_the_page(
    watched: tuple[Server, int], tmp_path: Path
) -> None:
    """Each word of a real file in turn, made larger: something on the page must change."""
    data = without_room(watched[0].stats_path.read_bytes())
    header = stats_structs.LumenStatsHeader.from_buffer_copy(data)
    blocks = [
        header.blocks_offset + index * header.block_bytes for index in range(header.block_count)
    ]
    # Nothing counted and no gauge set: the page is all zeros.
    for at in blocks:
        begin = at + ctypes.sizeof(stats_structs.LumenStatsBlock)
        data[begin : at + header.block_bytes] = bytes(at + header.block_bytes - begin)
    fields = [
        stats_structs.LumenStatsField.from_buffer_copy(
            data, header.fields_offset + index * ctypes.sizeof(stats_structs.LumenStatsField)
        )
        for index in range(header.field_count)
    ]
    # The first model's experts are the second one, in every place.
    if header.experts_max:
        struct.pack_into(f"<{header.experts_max}I", data, header.experts_offset, *[2] * 8)
    # But for requests that wait for their answer: what takes one away must be seen too.
    queued = next(field for field in fields if field.name == b"model_queued")
    struct.pack_into("<Q", data, blocks[0] + queued.offset, 10_000_000)
    path = tmp_path / "stats"
    path.write_bytes(data)
    before = lines(path)
    silent = set()
    for field in fields:
        both = field.role == stats_structs.ROLE_BOTH
        roles = list(stats_structs.ROLES) if both else [field.role]
        for role in roles:
            at = next(
                begin
                for begin in blocks
                if stats_structs.LumenStatsBlock.from_buffer_copy(data, begin).role == role
            )
            # A histogram's bucket in the middle, and a million units of what counts time.
            word = 40 if field.kind in HISTOGRAMS else 0
            changed = bytearray(data)
            struct.pack_into("<Q", changed, at + field.offset + 8 * word, 1_000_000)
            path.write_bytes(changed)
            if lines(path) == before:
                silent.add((stats_structs.ROLES[role], field.name.decode()))
    assert silent == set(NOT_EXPORTED)


def test_lumen_stats_explains_every_figure(zoo: Server) -> None:
    snapshot = read(zoo.stats_path)
    figures = {
        (role, name)
        for values in (snapshot.counters, snapshot.gauges)
        for role, of_role in values.items()
        for name in of_role
    }
    assert figures == set(stats_words.FIGURES)
    assert set(snapshot.histograms) == set(stats_words.STAGES)


def rejected(values: Values) -> dict[str, float]:
    """The refusals by reason, without those that are 0."""
    return {
        dict(labels)["reason"]: value
        for (name, labels), value in values.items()
        if name == "lumen_requests_rejected_total" and value
    }


def test_figures_equal_what_the_clients_saw(watched: tuple[Server, int]) -> None:
    """Bytes, requests, outcomes, reasons and words per model, of both protocols, to the last."""
    server, port = watched
    row = np.ones((1, 16), np.float32)
    double, other = server.models["double"], server.models["other"]
    with server.connect() as native:
        for rows in (1, 3, 5):
            payload = np.ones((rows, 16), np.float32).tobytes()
            assert native.ask(wire.frame(payload, model=double, rows=rows)).status == wire.OK
        assert native.ask(wire.frame(row.tobytes(), model=other)).status == wire.OK
        assert native.ask(wire.ping()).status == wire.OK
        assert native.ask(wire.frame(kind=wire.DESCRIBE)).status == wire.OK
        for request, status in (
            (wire.frame(b"short", model=double), wire.BAD_REQUEST),
            (wire.frame(row.tobytes(), model=99), wire.UNKNOWN_MODEL),
            (wire.frame(row.tobytes(), model=double, timeout_us=1), wire.DEADLINE),
            (
                wire.frame(np.ones(64, "<f4").tobytes(), model=server.models["wide"]),
                wire.INFERENCE_FAILED,
            ),
        ):
            assert native.ask(request).status == status
    with Http(server.port) as http:
        for binary in (True, False):
            assert http.query(web.infer("double", {"x": row}, binary=binary)).code == 200
        for path, code in (
            ("/v2/health/ready", 200),
            ("/v2/models/stats", 200),
            ("/v2/models/none", 404),
            ("/v2/repository/models/double/load", 501),
        ):
            ask = web.post if path.endswith("load") else web.get
            assert http.query(ask(path)).code == code
        # A body of JSON whose numbers are none is the worker's to refuse.
        bad = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": ["a"] * 16}]}
        answer = http.query(web.post("/v2/models/other/infer", json.dumps(bad).encode()))
        assert answer.code == 400
    server.check_idle()  # bytes and outcomes: account.py
    assert account.is_exact(read(server.stats_path), server.tally)
    values = scrape(port)
    assert of(values, "lumen_network_bytes_total", direction="in") == server.tally.sent
    assert of(values, "lumen_network_bytes_total", direction="out") == server.tally.received
    replies = server.tally.native.total() + server.tally.http.total()
    assert of(values, "lumen_requests_accepted_total") == replies
    assert of(values, "lumen_protocol_requests_total", protocol="http") == 7
    # The harness asks for the description once, when it starts.
    ok = 4 + 2 + 1 + 2 + 2
    assert of(values, "lumen_requests_total", outcome="ok") == ok
    assert of(values, "lumen_requests_total", outcome="shed") == 1
    assert of(values, "lumen_requests_total", outcome="error") == replies - ok - 1
    assert rejected(values) == {
        "bad_request": 3,
        "unknown_model": 2,
        "deadline": 1,
    }
    for model, answered, rows, bad_ones in (("double", 5, 11, 1), ("other", 1, 1, 1)):
        assert of_model(values, "request_success", model) == answered
        assert of_model(values, "count", model) == rows
        assert of_model(values, "request_failure", model, reason="OTHER") == bad_ones
        assert of_model(values, "pending_request_count", model) == 0
    assert of_model(values, "request_failure", "wide", reason="BACKEND") == 1
    late = rejected_by_worker = server.figures().worker["requests_expired"]
    for model, count in (("double", 5 + late), ("other", 2), ("wide", 1)):
        for stage in ("queue", "infer", "total"):
            found = of(values, "lumen_model_duration_seconds_count", model=model, stage=stage)
            assert found == count, (model, stage)
    for stage in ("receive", "queue", "preprocess", "infer", "send", "total"):
        count = of(values, "lumen_request_duration_seconds_count", stage=stage)
        assert count == 8 + rejected_by_worker


def test_the_page_under_load(watched: tuple[Server, int]) -> None:
    """Counters never fall, and lie between what clients know to be answered and have asked."""
    server, port = watched
    stop = threading.Event()
    row = np.ones((1, 16), np.float32).tobytes()
    asked, answered = [0, 0], [0, 0]

    def load(client: int, model: int) -> None:
        with server.connect() as connection:
            while not stop.is_set():
                asked[client] += 1
                assert connection.ask(wire.frame(row, model=model)).status == wire.OK
                answered[client] += 1

    with ThreadPoolExecutor(2) as pool:
        loads = [
            pool.submit(load, client, server.models[name])
            for client, name in enumerate(("double", "other"))
        ]
        try:
            before = scrape(port)
            for _ in range(30):
                least = sum(answered)
                values = scrape(port)
                most = sum(asked)
                ok = [of_model(values, "request_success", name) for name in ("double", "other")]
                assert least <= sum(ok) <= most
                assert 1 + least <= of(values, "lumen_requests_accepted_total") <= 1 + most
                assert 0 <= of(values, "lumen_requests_in_flight") <= 2
                # An answered request holds its slot until the I/O thread's next turn.
                assert of(values, "lumen_requests_admitted") <= of(values, "lumen_slots")
                assert of(values, "lumen_connections_open") <= 2
                for key, value in values.items():
                    grows = key[0].endswith(("_total", "_us", "_bucket", "_count", "_success"))
                    if grows and "pending" not in key[0]:
                        assert value >= before.get(key, 0), key
                before = values
        finally:
            stop.set()
    for one in loads:
        one.result()  # what failed in a thread fails here
    server.check_idle()
    assert of(scrape(port), "lumen_requests_total", outcome="ok") == 1 + sum(answered)


STAGES = ("receive", "queue", "preprocess", "infer", "send")


def test_each_stage_has_its_own_time_everywhere(serve: Serve, tmp_path: Path) -> None:
    """The reply's head, the trace's columns, the words per model and the histograms are one
    request's stamps; and what takes long at the client is long in that stage."""
    port, trace = free_port(), tmp_path / "trace.csv"
    server = serve(
        {
            "server": {"metrics_port": port},
            "engine": {"queue_type": "mpmc", "thread_count": 1, "telemetry_csv_path": str(trace)},
            "models": [
                {"name": "slow", "path": str(graphs.slow(tmp_path / "slow.onnx"))},
                {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))},
            ],
        }
    )
    row = np.ones((1, 16), np.float32).tobytes()
    replies: dict[int, wire.Reply] = {}

    def slow(trips: int, number: int) -> bytes:
        return wire.frame(np.int64(trips).tobytes(), model=server.models["slow"], id=number)

    with server.connect() as connection, server.connect() as other:
        # Long in the model, and so long in the queue behind it.
        started_s = time.monotonic()
        connection.send(slow(5000, 1) + wire.frame(row, model=server.models["double"], id=2))
        replies |= connection.replies(2)
        elapsed_us = (time.monotonic() - started_s) * 1e6
        # Long in coming: half a request lies there, the I/O thread has seen it, nothing is said.
        request = wire.frame(row, model=server.models["double"], id=3)
        sent_s = time.monotonic()
        connection.send(request[:40])
        assert other.ask(wire.ping()).status == wire.OK
        seen_s = time.monotonic()
        connection.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)
        connection.socket.settimeout(wire.TIMEOUT_S)
        waited_us = (time.monotonic() - seen_s) * 1e6
        replies |= {3: connection.ask(request[40:])}
        received_us = (time.monotonic() - sent_s) * 1e6
    assert all(reply.status == wire.OK for reply in replies.values())
    receive, queue, preprocess, infer = replies[1].times_us
    assert infer == max(replies[1].times_us)
    assert receive + queue + preprocess + infer <= elapsed_us
    assert infer / 2 <= replies[2].times_us[1] <= elapsed_us
    assert waited_us <= replies[3].times_us[0] <= received_us
    server.check_idle()
    snapshot, values = read(server.stats_path), scrape(port)
    server.stop()
    rows = list(csv.DictReader(trace.open()))
    assert sorted(int(one["id"]) for one in rows) == [1, 2, 3]
    for one in rows:
        told = replies[int(one["id"])].times_us
        # Each is rounded by itself.
        found = tuple(int(one[f"{stage}_ns"]) / 1000 for stage in STAGES[:4])
        assert all(abs(a - b) <= 1 for a, b in zip(found, told, strict=True)), (found, told)
        assert sum(int(one[f"{stage}_ns"]) for stage in STAGES) == int(one["total_ns"])
        assert int(one["rows"]) == 1
        assert int(one["bytes"]) == (8 if one["model"] == "slow" else 64)
    for model in ("slow", "double"):
        own = [one for one in rows if one["model"] == model]
        words = snapshot.models[model]
        for stage, word in (
            ("queue", "queue_ns"),
            ("preprocess", "preprocess_ns"),
            ("infer", "infer_ns"),
            ("send", "send_ns"),
            ("total", "ok_ns"),
        ):
            expected = sum(int(one[f"{stage}_ns"]) for one in own)
            assert words[word] == expected, (model, stage)
            if stage in snapshot.model_histograms[model]:
                seconds = of(values, "lumen_model_duration_seconds_sum", model=model, stage=stage)
                assert seconds == pytest.approx(expected / 1e9, rel=1e-9)
        for name, word in (
            ("request", "ok_ns"),
            ("queue", "queue_ns"),
            ("compute_input", "preprocess_ns"),
            ("compute_infer", "infer_ns"),
            ("compute_output", "send_ns"),
        ):
            assert of_model(values, f"{name}_duration_us", model) == words[word] // 1000
    for stage in (*STAGES, "total"):
        seconds = of(values, "lumen_request_duration_seconds_sum", stage=stage)
        expected = sum(int(one[f"{stage}_ns"]) for one in rows) / 1e9
        assert seconds == pytest.approx(expected, rel=1 / 32, abs=1e-7), stage


def test_what_hangs_and_what_waits_is_shown(serve: Serve, tmp_path: Path) -> None:
    """The gauge of a model that does not return, the pending requests, and refusals of a full
    server; all go back when it returns. An overdue request is pending no more."""
    port = free_port()
    server = serve(
        {
            "server": {"metrics_port": port, "hang_seconds": 1, "max_in_flight": 3},
            "engine": {"queue_type": "mpmc", "thread_count": 1},
            "models": [{"name": "slow", "path": str(graphs.slow(tmp_path / "slow.onnx"))}],
        }
    )

    def slow(trips: int, number: int, timeout_us: int = 0) -> bytes:
        payload = np.int64(trips).tobytes()
        return wire.frame(payload, id=number, timeout_us=timeout_us)

    with server.connect() as connection, Http(server.port) as http, server.connect() as overdue:
        assert of(scrape(port), "lumen_worker_hangs") == 0
        # Overdue: the I/O thread answers in the worker's place, while the worker is in the model.
        # Some three seconds where others take half of one: long enough to be seen hanging.
        overdue.send(slow(180_000, 9, timeout_us=100_000))
        assert overdue.reply().status == wire.DEADLINE
        eventually(lambda: of(scrape(port), "lumen_worker_hangs") == 1, "the hang is shown", 60)
        connection.send(slow(1, 1))
        eventually(
            lambda: of_model(scrape(port), "pending_request_count", "slow") == 1, "one pending", 60
        )
        assert http.query(web.get("/v2/health/ready")).code == 503
        connection.send(b"".join(slow(1, number) for number in range(2, 8)))
        connection.socket.settimeout(600)  # the Run takes as long as the machine lets it
        connection.replies(7)
        eventually(lambda: of(scrape(port), "lumen_worker_hangs") == 0, "it has returned", 60)
    server.check_idle()
    values = scrape(port)
    assert of_model(values, "pending_request_count", "slow") == 0
    reasons = rejected(values)
    assert reasons.pop("unready") == 1
    assert reasons.pop("deadline") == 1
    assert 1 <= reasons.pop("overloaded") == server.tally.native[wire.OVERLOADED]
    assert reasons == {}


def test_health_follows_the_server(watched: tuple[Server, int]) -> None:
    server, port = watched
    assert get(port, "/healthz") == (200, "ok")
    assert f"http://127.0.0.1:{port}/metrics" in server.output
    with Http(server.port) as http:  # the page at / names it too
        assert f'href="http://127.0.0.1:{port}/metrics"'.encode() in http.query(web.get("/")).body
    silent = socket.create_connection(("127.0.0.1", port))
    eventually(lambda: get(port, "/healthz")[0] == 200, "health beside a silent client")
    # A client that never speaks keeps nothing from ending.
    server.terminate()
    server.expect_clean_end()
    silent.close()


def test_a_second_signal_ends_a_server_that_was_scraped(serve: Serve) -> None:
    port = free_port()
    server = serve(
        {
            "server": {"metrics_port": port, "drain_seconds": 600},
            "models": [{"name": "digits", "path": "builtin:digits"}],
        }
    )
    scrape(port)
    with server.connect() as connection:
        connection.send(wire.frame(bytes(256), id=1)[:50])
        eventually(lambda: server.figures().slots_in_use == 1, "half a request")
        server.terminate()
        eventually(lambda: "Draining" in server.output, "the drain")
        assert get(port, "/healthz") == (503, "draining")
        server.terminate()
        assert connection.expect_closed() == b""
    server.expect_clean_end()


def test_silent_clients_do_not_close_the_page(watched: tuple[Server, int]) -> None:
    _server, port = watched
    with contextlib.ExitStack() as stay:
        for _ in range(100):
            stay.enter_context(socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S))
        assert get(port, "/healthz") == (200, "ok")
        assert of(scrape(port), "lumen_ready") == 1


def test_the_page_is_where_it_is_asked_for_under_the_names_it_may_have(serve: Serve) -> None:
    """metrics_host is not server.host, and server.hosts hold for the page too."""
    port = free_port()
    serve(
        {
            "server": {
                "metrics_host": "127.0.0.3",
                "metrics_port": port,
                "hosts": ["scraper.example"],
            },
            "models": [{"name": "digits", "path": "builtin:digits"}],
        }
    )
    for name, expected in {"scraper.example": 200, "evil.example": 421}.items():
        with closing(http.client.HTTPConnection("127.0.0.3", port, timeout=PATIENCE_S)) as to:
            to.request("GET", "/metrics", headers={"Host": name})
            assert to.getresponse().status == expected
    with pytest.raises(ConnectionRefusedError):
        get(port, "/metrics")


def test_the_page_outlives_its_file(watched: tuple[Server, int]) -> None:
    """systemd-logind's RemoveIPC, or a person, may delete what lies in /dev/shm."""
    server, port = watched
    kept = server.stats_path.with_name(server.stats_path.name + "-kept")
    server.stats_path.rename(kept)
    try:
        assert get(port, "/healthz") == (200, "ok")
        assert of(scrape(port), "lumen_ready") == 1
    finally:
        kept.rename(server.stats_path)


def test_a_taken_port_is_a_note_unless_it_was_asked_for(serve: Serve, cache: Path) -> None:
    models = [{"name": "digits", "path": "builtin:digits"}]
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        done = run(
            ["--port", "0", "--set", f"server.metrics_port={taken}"],
            cache,
        )
    assert done.returncode == 1
    assert f"no metrics page on 127.0.0.1:{taken} (Address already in use)" in done.stderr
    assert "Traceback" not in done.stderr
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Where another server has 8002, it may give it back at any time: then ours may get it.
        first = 8002
        with contextlib.suppress(OSError):
            holder.bind(("127.0.0.1", 8002))
            holder.listen()
            first = 8003
        servers = [serve({"models": models}) for _ in range(2)]
        found = [re.search(r"metrics  http://127\.0\.0\.1:(\d+)/", s.output) for s in servers]
        # Other servers of this machine may have taken all of them: then a note says so.
        for server, match in zip(servers, found, strict=True):
            assert match or "note     no metrics page: all ports from 8002" in server.output
        ports = [int(match.group(1)) for match in found if match]
        assert len(set(ports)) == len(ports)
        for port in ports:
            assert first <= port <= 8017
            assert get(port, "/healthz") == (200, "ok")
            assert of(scrape(port), "lumen_ready") == 1
    off = serve({"server": {"metrics_port": 0}, "models": models})
    assert "metrics  none" in off.output
    assert "no metrics page" not in off.output
