"""Exports the spans of requests to an OpenTelemetry collector, with vLLM's attributes.

    llm_request             one for each choice, from the request's arrival to the choice's end
      prepare               the prompt is read and tokenized
      queue                 the sequence waits to be scheduled for the first time
      prefill               from there to its first token
      decode                from its first token to its last one
      preempted             within prefill or decode: the sequence waits for blocks that it lost

The module is imported only if tracing is enabled.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace import (
    Tracer as OpenTelemetryTracer,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock_engine.server.async_engine import now_s
from penstock_engine.server.generation.generator import Choice
from penstock_engine.server.requests.completion_request import GenerationRequest
from penstock_engine.telemetry.traces import close, make_provider, make_tracer

SPAN_NAME = "llm_request"

Value = str | int | float


class Interval(NamedTuple):
    """Part of a choice's time, on now_s()'s clock."""

    name: str
    start_s: float
    end_s: float


class Tracer:
    """Creates spans and exports them in the background.

    OTEL_* environment variables set the service's name, the sampler and headers for the collector.
    """

    def __init__(self, endpoint: str | None) -> None:
        """endpoint: URL that accepts OTLP over HTTP; None: that of the OTEL_* variables."""
        self._provider = make_provider("penstock-engine", endpoint)
        self._tracer = make_tracer(self._provider, "penstock.engine")
        self._propagator = TraceContextTextMapPropagator()

    def start(
        self,
        headers: Mapping[str, str],
        request_id: str,
        model: str,
        request: GenerationRequest,
        choices: Sequence[Choice],
    ) -> "RequestSpans":
        """Starts the span of each choice, in the trace of the request's W3C headers if they have one."""
        context = self._propagator.extract(dict(headers))
        clock_offset_ns = time.time_ns() - int(now_s() * 1e9)
        spans = {c.sequence_id: self._start_span(context, c, clock_offset_ns) for c in choices}
        return RequestSpans(self._tracer, spans, request_id, model, request, clock_offset_ns)

    def _start_span(self, context: Context, choice: Choice, clock_offset_ns: int) -> Span:
        start_ns = clock_offset_ns + int(choice.record.arrival_s * 1e9)
        span = self._tracer.start_span(SPAN_NAME, context, SpanKind.SERVER, start_time=start_ns)
        if span.is_recording():
            choice.record.trace_id = format_trace_id(span.get_span_context().trace_id)
        return span

    def flush(self) -> None:
        self._provider.force_flush()

    def close(self) -> None:
        """Exports the remaining spans, which may take some seconds."""
        close(self._provider)


@dataclass(frozen=True, slots=True)
class RequestSpans:
    """The spans of one request.

    by_choice: by the id of the choice's sequence. clock_offset_ns: Unix time less now_s().
    """

    tracer: OpenTelemetryTracer
    by_choice: Mapping[str, Span]
    request_id: str
    model: str
    request: GenerationRequest
    clock_offset_ns: int

    def end(self, choice: Choice, finish_reason: str) -> None:
        """Ends the span of a choice now, and adds those of its phases."""
        span = self.by_choice[choice.sequence_id]
        if not span.is_recording():
            return
        end_s = now_s()
        attributes: dict[str, Value] = {
            "gen_ai.request.id": self.request_id,
            "gen_ai.request.max_tokens": choice.sampling.max_tokens,
            "gen_ai.request.n": self.request.n,
            "gen_ai.request.temperature": choice.sampling.temperature,
            "gen_ai.request.top_p": choice.sampling.top_p,
            "gen_ai.response.model": self.model,
            "gen_ai.usage.completion_tokens": choice.completion_tokens,
            "gen_ai.usage.prompt_tokens": len(choice.prompt),
            "gen_ai.latency.e2e": end_s - choice.record.arrival_s,
        }
        span.set_attributes(attributes | _latencies(choice))
        if finish_reason == "error":
            span.set_status(StatusCode.ERROR)
        context = set_span_in_context(span)
        for name, start_s, phase_end_s in _phases(choice, end_s):
            phase = self.tracer.start_span(name, context, start_time=self._unix_ns(start_s))
            phase.end(self._unix_ns(phase_end_s))
        span.end(self._unix_ns(end_s))

    def _unix_ns(self, at_s: float) -> int:
        return self.clock_offset_ns + int(at_s * 1e9)


def _phases(choice: Choice, end_s: float) -> Iterator[Interval]:
    """Yields the phases that the choice has reached. end_s: when it ended."""
    arrival_s, event, last_s = (
        choice.record.arrival_s,
        choice.last_event,
        choice.record.last_token_s,
    )
    if event is None:
        yield Interval("prepare", arrival_s, end_s)
        return
    yield Interval("prepare", arrival_s, event.queued_s)
    yield Interval("queue", event.queued_s, event.scheduled_s or end_s)
    if event.scheduled_s is not None:
        yield Interval("prefill", event.scheduled_s, event.first_token_s or end_s)
    if event.first_token_s is not None:
        yield Interval("decode", event.first_token_s, last_s or end_s)
    for start_s, resumed_s in event.pauses:
        yield Interval("preempted", start_s, resumed_s)


def _latencies(choice: Choice) -> dict[str, Value]:
    """Returns the latencies in seconds of the phases that the choice has reached."""
    event, last_s = choice.last_event, choice.record.last_token_s
    if event is None or event.scheduled_s is None:
        return {}
    latencies: dict[str, Value] = {
        "gen_ai.latency.time_in_queue": event.scheduled_s - event.queued_s
    }
    if event.first_token_s is None or last_s is None:
        return latencies
    return latencies | {
        "gen_ai.latency.time_to_first_token": event.first_token_s - choice.record.arrival_s,
        "gen_ai.latency.time_in_model_prefill": event.first_token_s - event.scheduled_s,
        "gen_ai.latency.time_in_model_decode": last_s - event.first_token_s,
        "gen_ai.latency.time_in_model_inference": last_s - event.scheduled_s,
    }
