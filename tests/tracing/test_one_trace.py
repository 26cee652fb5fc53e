"""A streamed request through gateway and engine makes one trace, whose spans nest and add up."""

import asyncio
import json
import logging
import time
from itertools import pairwise
from typing import Any

import pytest
from tests.gateway.support.engine_stub import Engine, answer
from tests.gateway.support.services import service
from tests.support.span_sink import SpanSink, attributes, contains, duration_s

from penstock.gateway.telemetry.tracing import RequestTracer
from penstock_engine.contract.wire import REQUEST_ID_HEADER

NUM_REQUESTS = 10
REQUEST_ID = f"request-{NUM_REQUESTS - 1}"
ACCESS_LOG = "penstock.gateway.telemetry.access_log"
GATEWAY_PHASES = ["receive", "route", "wait", "connect", "first_byte", "stream"]
ENGINE_PHASES = ["prepare", "queue", "prefill", "decode"]


async def test_a_streamed_request_is_one_trace(
    launch: Any,
    start_gateway: Any,
    span_sink: SpanSink,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOG)
    client, process = launch("--otlp-traces-endpoint", span_sink.url)
    engine = Engine("engine-0", "r1", answer, port=client.base_url.port)
    tracer = RequestTracer()
    front = await start_gateway(tracer=tracer)
    front.publish(service(engine, served_name="soup"))
    client_s = await send_requests(front)
    await front.idle()
    tracer.close()
    process.terminate()  # exports the rest of its spans
    await asyncio.to_thread(process.join)

    requests = {
        attributes(span)["gen_ai.request.id"]: span
        for span in span_sink.named("POST /v1/completions")
    }
    request = requests[REQUEST_ID]
    spans = [span for span in span_sink.spans if span.trace_id == request.trace_id]
    by_name = {span.name: span for span in spans}
    assert len(by_name) == len(spans)
    assert by_name.keys() == {
        request.name, "attempt", "llm_request", *GATEWAY_PHASES, *ENGINE_PHASES,
    }  # fmt: skip
    check_nesting(span_sink, request, by_name)
    # The id of the request leads from the gateway's line to the engine's, and to the trace.
    lines = [r.fields for r in caplog.records if r.name == ACCESS_LOG]
    (access,) = [each for each in lines if each["request_id"] == REQUEST_ID]
    engine_logs = tmp_path_factory.getbasetemp().glob("engine*/log")
    log = max(engine_logs, key=lambda path: path.stat().st_mtime)
    lines = [json.loads(each) for each in log.read_text().splitlines()]
    (line,) = [each for each in lines if each.get("request_id") == REQUEST_ID]
    trace_id = request.trace_id.hex()
    assert (access["trace_id"], line["trace_id"]) == (trace_id, trace_id)
    assert access["completion_tokens"] == line["completion_tokens"] == 40
    in_gateway_s = sum(duration_s(by_name[name]) for name in GATEWAY_PHASES)
    assert in_gateway_s == pytest.approx(duration_s(request), abs=1e-6)
    beyond_ms = [1e3 * (client_s[name] - duration_s(requests[name])) for name in client_s]
    assert min(beyond_ms) > 0
    with capsys.disabled():
        print_times(beyond_ms, request, by_name)


async def send_requests(front: Any) -> dict[str, float]:
    """Send NUM_REQUESTS streamed requests, one after the other. Returns each one's time by its id."""
    body = {"prompt": "The engine", "max_tokens": 40, "ignore_eos": True, "stream": True}
    client_s: dict[str, float] = {}
    for number in range(NUM_REQUESTS):
        request_id = f"request-{number}"
        started_s = time.perf_counter()
        async with front.client.post(
            front.url + "/v1/completions",
            json=body | {"model": "soup", "stream_options": {"include_usage": True}},
            headers={REQUEST_ID_HEADER: request_id},
        ) as got:
            assert got.status == 200
            text = await got.read()
        client_s[request_id] = time.perf_counter() - started_s
        assert text.endswith(b"data: [DONE]\n\n")
    return client_s


def check_nesting(span_sink: SpanSink, request: Any, by_name: dict[str, Any]) -> None:
    """Check the parents of the spans, their services, and that phases follow each other without gaps."""
    assert by_name["llm_request"].parent_span_id == by_name["attempt"].span_id
    assert {by_name[name].parent_span_id for name in ENGINE_PHASES} == {
        by_name["llm_request"].span_id
    }
    services = {span.span_id: name for name, span in span_sink.spans_with_service}
    assert services[request.span_id] == "penstock-gateway"
    assert services[by_name["llm_request"].span_id] == "penstock-engine"
    # Both processes read the same clock.
    assert contains(request, by_name["attempt"])
    assert by_name["llm_request"].start_time_unix_nano > by_name["connect"].start_time_unix_nano
    for names in (GATEWAY_PHASES, ENGINE_PHASES):
        for before, after in pairwise(names):
            end_ns = by_name[before].end_time_unix_nano
            assert end_ns == by_name[after].start_time_unix_nano


def print_times(beyond_ms: list[float], request: Any, by_name: dict[str, Any]) -> None:
    print("\nclient less gateway:", *(f"{each:.2f}" for each in beyond_ms), "ms")
    for name in (request.name, *GATEWAY_PHASES, "llm_request", *ENGINE_PHASES):
        print(f"{name:22} {duration_s(by_name[name]) * 1e3:8.2f} ms")
