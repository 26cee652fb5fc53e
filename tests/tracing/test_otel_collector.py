"""A real OpenTelemetry collector accepts the spans of gateway and engine, as one trace."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.support.engine_stub import Engine, answer
from tests.gateway.support.services import service
from tests.support.tools.otel_collector import ensure_otel_collector
from tests.tracing.otel_collector import WrittenSpan, running_otel_collector

from penstock.gateway.telemetry.tracing import RequestTracer

pytestmark = pytest.mark.slow

BODY = {"model": "soup", "prompt": "The engine", "max_tokens": 5, "stream": True}
PARENTS = {
    "receive": "POST /v1/completions",
    "route": "POST /v1/completions",
    "wait": "POST /v1/completions",
    "attempt": "POST /v1/completions",
    "connect": "attempt",
    "first_byte": "attempt",
    "stream": "attempt",
    "llm_request": "attempt",
    "prepare": "llm_request",
    "queue": "llm_request",
    "prefill": "llm_request",
    "decode": "llm_request",
}


@pytest.fixture(scope="session")
def otelcol() -> Path:
    return ensure_otel_collector(print)  # a build takes longer than any test may


async def test_a_collector_receives_one_trace_of_gateway_and_engine(
    otelcol: Path,
    launch: Any,
    start_gateway: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with running_otel_collector(otelcol, tmp_path) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        client, engine = launch("--otlp-traces-endpoint", f"{collector.url}/v1/traces")
        tracer = RequestTracer()
        front = await start_gateway(tracer=tracer)
        served = Engine("engine-0", "r1", answer, port=client.base_url.port)
        front.publish(service(served, served_name="soup"))
        async with front.client.post(front.url + "/v1/completions", json=BODY) as got:
            assert got.status == 200
            await got.read()
        await front.idle()
        tracer.close()
        engine.terminate()  # exports the rest of its spans
        await asyncio.to_thread(engine.join)
    assert_one_trace(collector.spans())


def assert_one_trace(spans: list[WrittenSpan]) -> None:
    """Assert that all spans are in one trace, with those of gateway and engine in PARENTS."""
    names = {span.span_id: span.name for span in spans}
    parents = {span.name: names.get(span.parent_id) for span in spans}
    assert parents == PARENTS | {"POST /v1/completions": None}
    assert len(spans) == len(parents)
    assert len({span.trace_id for span in spans}) == 1
    services = {span.name: span.service for span in spans}
    assert services["POST /v1/completions"] == "penstock-gateway"
    assert services["llm_request"] == "penstock-engine"
