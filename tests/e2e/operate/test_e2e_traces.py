"""Traces: which requests are recorded, what is said of them, and that nobody waits for it.

What receives them is the test's own; the spans come through OpenTelemetry's SDK.
"""

from __future__ import annotations

import gzip
import http.server
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import graphs
import http2
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Server, eventually
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from operating import free_port
from upstreams import Peer, Request, plain, upstream
from web import Http

from lumen_uring.errors import ConfigError
from lumen_uring.guard import Guard
from lumen_uring.ring.engine import Engine
from lumen_uring.serving.traces import Exporter
from lumen_uring.settings.traces import TracesConfig

pytestmark = pytest.mark.once  # what is recorded is the same on both backends

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-"
SERVER, CLIENT = 2, 3  # kinds of spans, as OTLP has them
X = np.arange(16, dtype="<f4").reshape(1, 16)


class Collector:
    """Receives OTLP over HTTP."""

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def _take(self, body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.services.add(named["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans

    @property
    def requests(self) -> list[Any]:
        """The spans of requests, without their stages."""
        return [span for span in self.spans if span.kind == SERVER]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    one = Collector(port)
    try:
        yield one
    finally:
        one.close()


def settings(tmp_path: Path, endpoint: str, **traces: object) -> dict[str, Any]:
    model = {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))}
    return {"models": [model], "traces": {"endpoint": endpoint, **traces}}


def infer(*fields: str) -> bytes:
    return web.infer("double", {"x": X}, headers=fields)


def chat(*fields: str) -> bytes:
    return web.post("/v1/chat/completions", b'{"model": "chat"}', *fields)


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def ask(server: Server, *fields: str) -> web.Answer:
    with Http(server.port) as peer:
        return peer.query(infer(*fields))


def test_requests_of_each_protocol(serve: Serve, tmp_path: Path) -> None:
    """Each has a span, and one for each stage that took time: they follow each other, and none is
    outside of it."""
    with collector() as seen:
        server = serve(settings(tmp_path, seen.endpoint, share=1.0, service="here"))
        answers = [ask(server)]
        with http2.Http2(server.port) as peer2:
            answers.append(peer2.query(infer()))
        with server.connect() as native:
            assert native.ask(wire.frame(X.tobytes())).status == 0
        eventually(lambda: len(seen.requests) == 3, "three spans")
        assert seen.services == {"here"}
        protocols = [attributes(span)["network.protocol.name"] for span in seen.requests]
        assert sorted(protocols) == ["http", "http", "native"]
        for span in seen.requests:
            found = attributes(span)
            assert (span.name, found["lumen.model"], found["lumen.kind"]) == (
                "double",
                "double",
                "run",
            )
            assert (found["lumen.status"], found["lumen.rows"]) == (0, 1)
            assert not span.parent_span_id
            stages = [one for one in seen.spans if one.parent_span_id == span.span_id]
            assert {one.name for one in stages} >= {"run", "send"}
            at = span.start_time_unix_nano
            for one in stages:
                assert one.trace_id == span.trace_id
                assert at <= one.start_time_unix_nano < one.end_time_unix_nano
                at = one.end_time_unix_nano
            assert at == span.end_time_unix_nano
        for answer in answers:
            _, trace, own, flags = answer.headers["traceresponse"].split("-")
            assert flags == "01"
            assert (trace, own) in [
                (span.trace_id.hex(), span.span_id.hex()) for span in seen.requests
            ]
        ids = {span.span_id for span in seen.spans}
        assert len(ids) == len(seen.spans)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_the_steps_of_an_ensemble(serve: Serve, tmp_path: Path, batch_size: int) -> None:
    """Each is a span with its model's name, within its request's, one behind the other."""
    with collector() as seen:
        document = settings(tmp_path, seen.endpoint, share=1.0)
        steps = [
            {"model": "double", "outputs": {"y": "z"}},
            {"model": "double", "inputs": {"x": "z"}},
        ]
        document["ensembles"] = [{"name": "four", "steps": steps, "batch_size": batch_size}]
        server = serve(document)
        with Http(server.port) as peer:
            for _ in range(2):
                answer = peer.query(web.infer("four", {"x": X}))
                assert np.array_equal(answer.outputs["y"].data, 4 * X[0])
        eventually(lambda: len(seen.requests) == 2, "two spans")
        for span in seen.requests:
            below = [one for one in seen.spans if one.parent_span_id == span.span_id]
            (run,) = [one for one in below if one.name == "run"]
            at = run.start_time_unix_nano
            taken = [one for one in below if one.name == "double"]
            assert len(taken) == 2
            for one in taken:
                assert at <= one.start_time_unix_nano <= one.end_time_unix_nano
                at = one.end_time_unix_nano
            assert at <= run.end_time_unix_nano


def test_the_metrics_page_names_requests(serve: Serve, tmp_path: Path) -> None:
    """As OpenMetrics: of each bucket the last one that is recorded."""
    with collector() as seen:
        document = settings(tmp_path, seen.endpoint, share=1.0)
        port = free_port()
        document["server"] = {"metrics_port": port}
        server = serve(document)
        trace = ask(server).headers["traceresponse"].split("-")[1]
        eventually(lambda: len(seen.requests) == 1, "a span")
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Accept": "application/openmetrics-text"}
        )
        with urllib.request.urlopen(asked, timeout=wire.TIMEOUT_S) as page:
            lines = page.read().decode().splitlines()
        named = [line.split("{")[0] for line in lines if f'trace_id="{trace}"' in line]
        assert named.count("lumen_model_duration_seconds_bucket") == 3
        assert named.count("lumen_request_duration_seconds_bucket") >= 3


def test_whose_requests_are_recorded(serve: Serve, tmp_path: Path) -> None:
    """A client's flag decides; without one its share does. What is no traceparent says nothing."""
    with collector() as seen:
        server = serve(settings(tmp_path, seen.endpoint, share=0.0))
        assert "traceresponse" not in ask(server).headers
        assert "traceresponse" not in ask(server, f"traceparent: {PARENT}00").headers
        for wrong in (
            PARENT + "0g",
            PARENT[:-1],
            f"ff{PARENT[2:]}01",
            f"00-{'0' * 32}-{'1' * 16}-01",
        ):
            assert "traceresponse" not in ask(server, f"traceparent: {wrong}").headers
        said = ask(server, f"traceparent: {PARENT}01").headers["traceresponse"]
        assert said.startswith(f"00-{TRACE}-")
        eventually(lambda: len(seen.requests) == 1, "a span")
        (span,) = seen.requests
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "00f067aa0ba902b7")


def test_an_upstream_hears_of_it(serve: Serve, tmp_path: Path) -> None:
    """Its parent is the span of the request here, which has one for the time there."""
    heard: list[str | None] = []

    def script(request: Request, peer: Peer) -> None:
        heard.append(request.header("traceparent"))
        peer.send(plain(b"{}"))

    with collector() as seen, upstream(script) as up:
        document = settings(tmp_path, seen.endpoint, share=0.0)
        document["upstreams"] = {"up": {"urls": [up.url], "models": {"chat": "there"}}}
        server = serve(document)
        with Http(server.port) as peer:
            answer, _ = (
                peer.query(chat(f"traceparent: {PARENT}{flags}")) for flags in ("01", "00")
            )
        assert heard == [answer.headers["traceresponse"], f"{PARENT}00"]
        eventually(lambda: len(seen.requests) == 1, "a span")
        (span,) = seen.requests
        assert attributes(span)["lumen.kind"] == "upstream"
        assert [one.name for one in seen.spans if one.kind == CLIENT] == ["upstream"]


def test_a_request_that_fails(serve: Serve, tmp_path: Path) -> None:
    with collector() as seen:
        document = settings(tmp_path, seen.endpoint, share=1.0)
        with upstream() as gone:
            url = gone.url
        document["upstreams"] = {"up": {"urls": [url], "models": {"chat": "there"}}}
        server = serve(document)
        url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
        with pytest.raises(urllib.error.HTTPError, match="502"):
            urllib.request.urlopen(url, b'{"model": "chat"}', timeout=wire.TIMEOUT_S)
        eventually(lambda: len(seen.requests) == 1, "a span")
        assert seen.requests[0].status.code == 2  # ERROR


def test_so_many_a_second(serve: Serve, tmp_path: Path) -> None:
    """Whoever asks for it."""
    with collector() as seen:
        document = settings(tmp_path, seen.endpoint, share=1.0, per_second=3)
        document["server"] = {"io_threads": 1}
        server = serve(document)
        with Http(server.port) as peer:
            answers = [peer.query(infer(f"traceparent: {PARENT}01")) for _ in range(200)]
        told = [one for one in answers if "traceresponse" in one.headers]
        assert 3 <= len(told) < 100
        eventually(lambda: len(seen.requests) == len(told), "as many spans")


def test_nobody_takes_them_and_then_somebody(serve: Serve, tmp_path: Path) -> None:
    """The server serves, says so once each time, and ends in its time."""
    with collector() as seen:
        port = seen.port
    server = serve(settings(tmp_path, f"http://127.0.0.1:{port}/v1/traces", share=1.0))
    for _ in range(5):
        assert ask(server).code == 200
    eventually(lambda: "takes no spans" in server.errors + server.output, "a line in the log")
    with collector(port) as seen:

        def arrives() -> bool:
            ask(server)
            return bool(seen.requests)

        eventually(arrives, "a span")
        eventually(
            lambda: "takes spans again" in server.errors + server.output, "a line in the log"
        )
        assert (server.errors + server.output).count("takes no spans") == 1
        server.stop()


def test_what_is_left_is_sent_at_the_end(serve: Serve, tmp_path: Path) -> None:
    with collector() as seen:
        server = serve(settings(tmp_path, seen.endpoint, share=1.0))
        for _ in range(20):
            ask(server)
        server.stop()
        assert len(seen.requests) == 20


def test_settings_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL for which the SDK is missing; without one nobody asks for it."""
    engine, guard = cast(Engine, None), Guard(lambda *_: None)  # which is not asked
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with Exporter(TracesConfig(), engine, guard):
        pass
    with pytest.raises(ConfigError, match="pip install 'lumen-uring"):
        Exporter(TracesConfig(endpoint="http://127.0.0.1:1/v1/traces"), engine, guard)
