"""Exports the spans of requests to an OpenTelemetry collector, as parents of the engines' spans.

    POST /v1/chat/completions     from the head of the request to the end of its answer
      receive, route, wait        the phases before there is an endpoint
      attempt                     one for each endpoint that is tried
        connect, first_byte, stream
        llm_request               the engine's own span

The module is imported only if tracing is enabled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from multidict import CIMultiDict
from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace import Tracer as OpenTelemetryTracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.clients.machine.clock import unix_time
from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint
from penstock.gateway.apis.response_usage import ResponseUsage
from penstock.gateway.http.headers import RawHeaders
from penstock.gateway.request_lifecycle.timeline import Interval, RequestPhase
from penstock.gateway.telemetry.access_log import AccessLine
from penstock.gateway.upstream.upstream import UpstreamRequest
from penstock_engine.telemetry.traces import close, make_provider, make_tracer

# Phases of an attempt; the first one starts it.
ATTEMPT_PHASES = (RequestPhase.CONNECT, RequestPhase.FIRST_BYTE, RequestPhase.STREAM)
W3C_HEADERS = (b"traceparent", b"tracestate")

PROPAGATOR = TraceContextTextMapPropagator()


class RequestTracer:
    """Creates spans and exports them in the background. OTEL_* environment variables configure it."""

    def __init__(self) -> None:
        self._provider = make_provider("penstock-gateway")
        self._tracer = make_tracer(self._provider, "penstock.gateway")

    def start(
        self, line: AccessLine, headers: RawHeaders, started_s: float, now_s: float
    ) -> "RequestTrace":
        """Start the span of a request, in the trace of its W3C headers if it has one.

        started_s, now_s: when its head was read, and now, on the same monotonic clock.
        """
        carrier = {
            name.decode(): value.decode("latin-1") for name, value in headers if name in W3C_HEADERS
        }
        clock_offset_ns = int((unix_time() - now_s) * 1e9)
        span = self._tracer.start_span(
            f"{line.method} {line.route}",
            PROPAGATOR.extract(carrier),
            SpanKind.SERVER,
            {"http.request.method": line.method, "http.route": line.route},
            start_time=clock_offset_ns + int(started_s * 1e9),
        )
        return RequestTrace(self._tracer, span, clock_offset_ns)

    def flush(self) -> None:
        self._provider.force_flush()

    def close(self) -> None:
        """Export the remaining spans, which may take some seconds."""
        close(self._provider)


@dataclass(slots=True)
class RequestTrace:
    """The spans of one request. clock_offset_ns: Unix time minus the gateway's monotonic clock."""

    tracer: OpenTelemetryTracer
    span: Span
    clock_offset_ns: int
    attempts: list[Span] = field(default_factory=list)

    @property
    def trace_id(self) -> str:
        """The id of the trace; empty if it is not recorded."""
        if not self.span.is_recording():
            return ""
        return format_trace_id(self.span.get_span_context().trace_id)

    def start_attempt(
        self, request: UpstreamRequest, endpoint: Endpoint, now_s: float
    ) -> UpstreamRequest:
        """Start the span of an attempt. Returns the request with that span as its parent."""
        span = self.tracer.start_span(
            "attempt",
            self._context,
            SpanKind.CLIENT,
            {
                "http.request.method": request.method,
                "http.request.resend_count": len(self.attempts),
                "server.address": endpoint.address,
                "penstock.pod": endpoint.pod,
                "penstock.revision": endpoint.revision,
            },
            start_time=self._unix_ns(now_s),
        )
        self.attempts.append(span)
        return replace(request, headers=_with_parent(request.headers, span))

    def headers_for_copy(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of a mirrored copy, with the request's span as its parent."""
        return _with_parent(headers, self.span)

    def fail_attempt(self, failure: Ending, now_s: float) -> None:
        """End the span of the attempt that failed."""
        span = self.attempts[-1]
        span.set_attribute("error.type", failure.value)
        span.set_status(StatusCode.ERROR)
        span.end(self._unix_ns(now_s))

    def end(
        self,
        line: AccessLine,
        status: int,
        intervals: list[Interval],
        usage: ResponseUsage | None,
    ) -> None:
        """End the request's span, and add those of its phases."""
        if not self.span.is_recording():
            return
        end_ns = self._unix_ns(intervals[-1].end_s)
        self._add_phases(intervals)
        for attempt in self.attempts:
            if attempt.is_recording():
                attempt.end(end_ns)
        attributes: dict[str, str | int | None] = {
            "http.response.status_code": status,
            "gen_ai.request.id": line.request_id,
            "gen_ai.usage.prompt_tokens": None if usage is None else usage.prompt_tokens,
            "gen_ai.usage.completion_tokens": None if usage is None else usage.output_tokens,
            "penstock.tenant": line.tenant or None,
            "penstock.key": line.key or None,
            "penstock.service": line.service or None,
            "penstock.model_route": line.model_route or None,
            "penstock.fallback": line.fallback or None,
            "penstock.adapter": line.adapter or None,
            "penstock.revision": line.revision or None,
            "penstock.reason": line.reason or None,
        }
        self.span.set_attributes(
            {name: value for name, value in attributes.items() if value is not None}
        )
        if status >= 500 or (status == 200 and line.reason):
            self.span.set_status(StatusCode.ERROR)
        self.span.end(end_ns)

    def _add_phases(self, intervals: list[Interval]) -> None:
        attempts = iter(self.attempts)
        attempt_context = self._context
        for phase, start_s, end_s in intervals:
            if phase is RequestPhase.CONNECT:
                attempt_context = set_span_in_context(next(attempts))
            parent = attempt_context if phase in ATTEMPT_PHASES else self._context
            span = self.tracer.start_span(phase.value, parent, start_time=self._unix_ns(start_s))
            span.end(self._unix_ns(end_s))

    @property
    def _context(self) -> Context:
        return set_span_in_context(self.span)

    def _unix_ns(self, at_s: float) -> int:
        return self.clock_offset_ns + int(at_s * 1e9)


def _with_parent(headers: Mapping[str, str], span: Span) -> Mapping[str, str]:
    """Replace the client's trace headers, which may be malformed, by those of the span."""
    changed = CIMultiDict(headers)
    for name in W3C_HEADERS:
        changed.popall(name.decode(), None)
    PROPAGATOR.inject(changed, set_span_in_context(span))
    return changed
