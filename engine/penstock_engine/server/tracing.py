"""Exports one span per choice to an OpenTelemetry collector, with vLLM's attributes.

The module is imported only if tracing is enabled.
"""

import time
from collections.abc import Mapping
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock_engine.server.async_engine import now_s
from penstock_engine.server.generation import Choice
from penstock_engine.server.schemas import GenerationRequest

SPAN_NAME = "llm_request"
EXPORT_TIMEOUT_S = 5

Value = str | int | float


class Tracer:
    """Creates spans and exports them in the background.

    OTEL_* environment variables set the service's name, the sampler and headers for the collector.
    """

    def __init__(self, endpoint: str) -> None:
        """endpoint: URL that accepts OTLP over HTTP, such as http://collector:4318/v1/traces."""
        # Attributes from the environment override the service name given here.
        resource = Resource.create({"service.name": "penstock-engine"}).merge(Resource.create())
        self._provider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("penstock.engine", version("penstock"))
        self._propagator = TraceContextTextMapPropagator()

    def context(self, headers: Mapping[str, str]) -> Context:
        """Returns the trace context in a request's W3C headers."""
        return self._propagator.extract(dict(headers))

    def record_span(
        self,
        context: Context,
        request_id: str,
        model: str,
        request: GenerationRequest,
        choice: Choice,
        finish_reason: str,
    ) -> None:
        """Creates the span of a finished choice, from the request's arrival until now."""
        end_ns = time.time_ns()
        e2e_s = now_s() - choice.record.arrival_s
        span = self._tracer.start_span(
            SPAN_NAME, context, SpanKind.SERVER, start_time=end_ns - int(e2e_s * 1e9)
        )
        attributes: dict[str, Value] = {
            "gen_ai.request.id": request_id,
            "gen_ai.request.max_tokens": choice.sampling.max_tokens,
            "gen_ai.request.n": request.n,
            "gen_ai.request.temperature": choice.sampling.temperature,
            "gen_ai.request.top_p": choice.sampling.top_p,
            "gen_ai.response.model": model,
            "gen_ai.usage.completion_tokens": choice.completion_tokens,
            "gen_ai.usage.prompt_tokens": len(choice.prompt),
            "gen_ai.latency.e2e": e2e_s,
        }
        span.set_attributes(attributes | _latencies(choice))
        if finish_reason == "error":
            span.set_status(StatusCode.ERROR)
        span.end(end_ns)

    def flush(self) -> None:
        self._provider.force_flush()

    def close(self) -> None:
        """Exports the remaining spans, which may take seconds."""
        self._provider.shutdown()


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
