"""The metrics page of a real server: its names, its account, its health and its end."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import re
import socket
import struct
import threading
from contextlib import closing
from pathlib import Path

import graphs
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Server, eventually, run
from prometheus_client.parser import text_string_to_metric_families

from lumen_uring.metrics import make_registry, render
from lumen_uring.metrics_server import Facts
from lumen_uring.ring import structs
from lumen_uring.ring.stats import read

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        number: int = holder.getsockname()[1]
        return number


def get(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=wire.TIMEOUT_S)) as to:
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


def account(values: Values) -> tuple[float, float]:
    """What was accepted, and what has ended or is in flight."""
    ends = [
        of(values, "lumen_requests_total", outcome=outcome)
        for outcome in ("ok", "error", "shed", "client_gone")
    ]
    return (
        of(values, "lumen_requests_accepted_total"),
        sum(ends) + of(values, "lumen_requests_in_flight"),
    )


@pytest.fixture
def watched(serve: Serve, model_files: Path) -> tuple[Server, int]:
    port = free_port()
    models = [
        {"name": "double", "path": graphs.double(model_files / "watched_double.onnx")},
        {"name": "other", "path": graphs.double(model_files / "watched_other.onnx")},
        {"name": "gather", "path": graphs.gather(model_files / "watched_gather.onnx")},
    ]
    server = serve(
        {
            "server": {"metrics_port": port},
            "engine": {"thread_count": 2},
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
        assert connection.ask(bad).status == wire.INFERENCE_FAILED
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
    assert of_model(values, "request_failure", "gather", reason="BACKEND") == 1
    assert of_model(values, "request_success", "other") == 0
    assert of_model(values, "pending_request_count", "double") == 0
    for stage in ("queue", "compute_infer"):
        duration = of_model(values, f"{stage}_duration_us", "double")
        assert 0 <= duration <= of_model(values, "request_duration_us", "double")
    assert of(values, "lumen_protocol_requests_total", protocol="native") == of(
        values, "lumen_requests_accepted_total"
    )
    assert of(values, "lumen_requests_in_flight") == 0
    accepted, known = account(values)
    assert accepted == known == server.figures().requests
    # The five answers and the failed one; the late one where it was not refused at once.
    refused = server.figures().io["requests_refused"]
    assert of(values, "lumen_request_duration_seconds_count", stage="total") == 7 - refused
    assert of(values, "lumen_model_last_answer_seconds", model="double") > 1.7e9
    assert of(values, "lumen_model_last_answer_seconds", model="other") == 0
    shown = run(["stats", "--port", str(server.port)], cache).stdout
    assert re.search(r"double +7 +10 +2 ", shown), shown


# Figures that are not on the page, and why.
NOT_EXPORTED = {
    ("worker", "rows"): "the sum of model_rows, which nv_inference_count shows",
    ("worker", "model_failed_ns"): "for /v2/models/stats; lumen_model_duration_seconds has all",
}


def numbers(path: Path) -> Values:
    """The page of a statistics file, as numbers; without the machine's own."""
    facts = Facts("1", "1", workers=1, io_threads=1, slots=1)
    text = render(make_registry(lambda: read(path), facts), "")[1].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not family.name.startswith(("nv_cpu", "process_"))
    }


def test_every_figure_of_the_file_is_on_the_page(zoo: Server, tmp_path: Path) -> None:
    """Each word of a real file in turn, made larger: something on the page must change."""
    data = bytearray(zoo.stats_path.read_bytes())
    header = structs.LumenStatsHeader.from_buffer_copy(data)
    blocks = [
        header.blocks_offset + index * header.block_bytes for index in range(header.block_count)
    ]
    # Nothing counted and no gauge set: the page is all zeros.
    for at in blocks:
        begin = at + ctypes.sizeof(structs.LumenStatsBlock)
        data[begin : at + header.block_bytes] = bytes(at + header.block_bytes - begin)
    fields = [
        structs.LumenStatsField.from_buffer_copy(
            data, header.fields_offset + index * ctypes.sizeof(structs.LumenStatsField)
        )
        for index in range(header.field_count)
    ]
    # But for requests that wait for their answer: what takes one away must be seen too.
    queued = next(field for field in fields if field.name == b"model_queued")
    struct.pack_into("<Q", data, blocks[0] + queued.offset, 10_000_000)
    path = tmp_path / "stats"
    path.write_bytes(data)
    before = numbers(path)
    silent = set()
    for field in fields:
        both = field.role == structs.ROLE_BOTH
        roles = list(structs.ROLES) if both else [field.role]
        for role in roles:
            at = next(
                begin
                for begin in blocks
                if structs.LumenStatsBlock.from_buffer_copy(data, begin).role == role
            )
            # A histogram's bucket in the middle, and a million units of what counts time.
            word = 40 if field.kind >= structs.FIELD_HISTOGRAM else 0
            changed = bytearray(data)
            struct.pack_into("<Q", changed, at + field.offset + 8 * word, 1_000_000)
            path.write_bytes(changed)
            if numbers(path) == before:
                silent.add((structs.ROLES[role], field.name.decode()))
    assert silent == set(NOT_EXPORTED)


def test_the_account_balances_under_load(watched: tuple[Server, int]) -> None:
    server, port = watched
    stop = threading.Event()
    row = np.ones((1, 16), np.float32).tobytes()

    def load(model: int) -> None:
        with server.connect() as connection:
            while not stop.is_set():
                assert connection.ask(wire.frame(row, model=model)).status == 0

    threads = [
        threading.Thread(target=load, args=(server.models[name],)) for name in ("double", "other")
    ]
    for thread in threads:
        thread.start()
    try:
        before = scrape(port)
        for _ in range(30):
            values = scrape(port)
            accepted, known = account(values)
            assert accepted == known
            assert 0 <= of(values, "lumen_requests_in_flight") <= 64
            for key, value in values.items():
                grows = key[0].endswith(("_total", "_us", "_bucket", "_count", "_success"))
                if grows and "pending" not in key[0]:
                    assert value >= before.get(key, 0), key
            before = values
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_health_follows_the_server(watched: tuple[Server, int]) -> None:
    server, port = watched
    assert get(port, "/healthz") == (200, "ok")
    assert f"http://127.0.0.1:{port}/metrics" in server.output
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
    for name, expected in {"scraper.example": 200, "evil.example": 403}.items():
        with closing(http.client.HTTPConnection("127.0.0.3", port, timeout=wire.TIMEOUT_S)) as to:
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
        # Where somebody else has it already, all the better.
        with contextlib.suppress(OSError):
            holder.bind(("127.0.0.1", 8002))
            holder.listen()
        servers = [serve({"models": models}) for _ in range(2)]
        found = [re.search(r"metrics  http://127\.0\.0\.1:(\d+)/", s.output) for s in servers]
        # Other servers of this machine may have taken all of them: then a note says so.
        for server, match in zip(servers, found, strict=True):
            assert match or "note     no metrics page: all ports from 8002" in server.output
        ports = [int(match.group(1)) for match in found if match]
        assert len(set(ports)) == len(ports)
        for port in ports:
            assert 8002 < port <= 8017
            assert get(port, "/healthz") == (200, "ok")
            assert of(scrape(port), "lumen_ready") == 1
    off = serve({"server": {"metrics_port": 0}, "models": models})
    assert "metrics  none" in off.output
    assert "no metrics page" not in off.output
