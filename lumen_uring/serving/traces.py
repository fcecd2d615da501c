"""Sends the requests that the C library has recorded on: spans in OTLP, by OpenTelemetry's own SDK.

Used by server.py. A thread of its own takes them and sends them; who receives them, or does not,
keeps no request waiting. OTEL_EXPORTER_OTLP_HEADERS and its kin are the SDK's.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from lumen_uring import __version__
from lumen_uring.errors import ConfigError
from lumen_uring.guard import Guard
from lumen_uring.metrics.exemplars import Exemplars
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.traces import KINDS, LumenSpan
from lumen_uring.settings.traces import TracesConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_EVERY_S: Final = 2.0
_TIMEOUT_S: Final = 5  # of one message, its repetitions included
_AT_ONCE: Final = 2048  # spans in a message
_MISSING: Final = (
    "traces.endpoint: OpenTelemetry's SDK is not installed: "
    "pip install 'lumen-uring[traces]', or opentelemetry-sdk and "
    "opentelemetry-exporter-otlp-proto-http"
)


class Exporter:
    """Has an engine record requests and sends their spans on, if the settings name an endpoint. As
    a context: from before the engine's start until it serves nobody any more.

    Args:
        config: the settings of traces.
        engine: is open, and not started.
        guard: of the server's threads; it has the log.

    Raises:
        ConfigError: OpenTelemetry's SDK is missing.
    """

    def __init__(self, config: TracesConfig, engine: Engine, guard: Guard) -> None:
        self._config = config
        self._engine = engine
        self._guard = guard
        self._ending = threading.Event()
        self.exemplars = Exemplars()
        self._lost = 0
        self._is_failing = False
        self._made = None if config.endpoint is None else _Made(config)
        self._thread = guard.thread("lumen-traces", self._run, daemon=True) if self._made else None

    def __enter__(self) -> Exporter:
        if self._thread is not None:
            self._engine.set_traces(self._config.share, self._config.per_second)
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._thread is None:
            return
        self._ending.set()
        self._thread.join(2 * _TIMEOUT_S)
        if not self._thread.is_alive():
            with self._guard.part("lumen-traces"):
                self._send()

    def _run(self) -> None:
        while not self._ending.wait(_EVERY_S):
            self._send()

    def _send(self) -> None:
        assert self._made is not None
        while True:
            taken, lost = self._engine.take_spans()
            if lost > self._lost:
                self._guard.log(
                    "warning",
                    f"traces: {lost - self._lost} requests were recorded and not sent: there were "
                    "more than could be taken; traces.per_second bounds them.",
                )
                self._lost = lost
            if not taken:
                return
            for one in taken:
                self.exemplars.note(one)
            spans = [span for one in taken for span in self._made.spans(one)]
            for at in range(0, len(spans), _AT_ONCE):
                self._note(self._made.send(spans[at : at + _AT_ONCE]))

    def _note(self, is_sent: bool) -> None:
        """Logs when it begins to fail, and when it works again."""
        if is_sent == (not self._is_failing):
            return
        self._is_failing = not is_sent
        if is_sent:
            self._guard.log("info", f"traces: {self._config.endpoint} takes spans again.")
        else:
            self._guard.log(
                "warning",
                f"traces: {self._config.endpoint} takes no spans; those of the meantime are lost.",
            )


class _Made:
    """What the SDK is asked for: built once."""

    def __init__(self, config: TracesConfig) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import ReadableSpan
            from opentelemetry.sdk.trace.export import SpanExportResult
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError as error:
            raise ConfigError(f"{_MISSING} ({error}).") from None
        self._trace = trace
        self._span = ReadableSpan
        self._success = SpanExportResult.SUCCESS
        self._flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        self._resource = Resource.create({"service.name": config.service})
        self._scope = InstrumentationScope("lumen", __version__)
        self._exporter: Any = OTLPSpanExporter(endpoint=config.endpoint, timeout=_TIMEOUT_S)
        self._random = random.Random()

    def send(self, spans: Sequence[ReadableSpan]) -> bool:
        """Sends spans; False: they are lost."""
        return bool(self._exporter.export(spans) == self._success)

    def spans(self, one: LumenSpan) -> Iterator[ReadableSpan]:
        """The span of a request, and of each of its stages that took time; or of a step."""
        trace, model = int.from_bytes(bytes(one.trace), "big"), one.model.decode("utf-8", "replace")
        if one.kind == KINDS.index("step"):
            yield self._below(model, trace, one.parent, one.started_ns, one.total_ns)
            return
        own = self._context(trace, one.span)
        parent = self._context(trace, one.parent, is_remote=True) if one.parent else None
        attributes: dict[str, Any] = {
            "lumen.model": model,
            "lumen.kind": KINDS[one.kind],
            "lumen.status": one.status,
            "network.protocol.name": one.dialect.decode(),
            "http.request.body.size": one.bytes,
        }
        if one.is_http and one.code:
            attributes["http.response.status_code"] = one.code
        if one.kind == KINDS.index("run"):
            attributes |= {"lumen.rows": one.rows, "lumen.cores": one.width}
            attributes |= {"lumen.batch_rows": one.batch_rows}
        yield self._made(model, own, parent, one.started_ns, one.total_ns, attributes,
                         self._trace.SpanKind.SERVER, one.status != 0)  # fmt: skip
        at = one.started_ns
        for name, took_ns in _stages(one):
            if took_ns > 0:
                yield self._below(name, trace, one.span, at, took_ns)
            at += took_ns

    def _below(self, name: str, trace: int, parent: int, at_ns: int, took_ns: int) -> ReadableSpan:
        """A span without attributes, below that of its request."""
        kind = self._trace.SpanKind.CLIENT if name == "upstream" else None
        own = self._context(trace, self._random.getrandbits(64) or 1)
        return self._made(
            name, own, self._context(trace, parent), at_ns, took_ns, None, kind, False
        )

    def _context(self, trace: int, span: int, is_remote: bool = False) -> Any:
        return self._trace.SpanContext(trace, span, is_remote, self._flags)

    def _made(
        self,
        name: str,
        context: Any,
        parent: Any,
        start_ns: int,
        took_ns: int,
        attributes: dict[str, Any] | None,
        kind: Any,
        is_error: bool,
    ) -> ReadableSpan:
        code = self._trace.StatusCode.ERROR if is_error else self._trace.StatusCode.UNSET
        return self._span(
            name=name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=kind or self._trace.SpanKind.INTERNAL,
            status=self._trace.Status(code),
            start_time=start_ns,
            end_time=start_ns + took_ns,
            instrumentation_scope=self._scope,
        )


def _stages(one: LumenSpan) -> tuple[tuple[str, int], ...]:
    is_far = one.kind == KINDS.index("upstream")
    return (
        ("receive", one.receive_ns),
        ("wait", one.queue_ns),
        ("prepare", one.preprocess_ns),
        ("upstream" if is_far else "run", one.infer_ns),
        ("answer" if is_far else "send", one.send_ns),
    )
