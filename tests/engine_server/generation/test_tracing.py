"""Tests of tracing: the spans that a sink receives over a real socket."""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support.span_sink import (
    SpanSink,
    attributes,
    contains,
    duration_s,
    running_span_sink,
)

from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.server.generation.tracing import Tracer
from penstock_engine.telemetry.exposition import OPENMETRICS
from penstock_engine.telemetry.traces import is_enabled

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def span_sink() -> Iterator[SpanSink]:
    with running_span_sink() as server:
        yield server


@pytest.fixture
def tracer(span_sink: SpanSink, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    # The span sink of this test cannot decompress exports.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    made = Tracer(span_sink.url)
    yield made
    made.close()


class EchoRunner:
    """A runner that always samples the same token."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        return {s.request_id: SequenceOutput((5,)) for s in step.sequences if s.is_sampled}


async def test_a_span_has_vllms_attributes_and_the_clients_trace(
    serve_runner: Any, span_sink: SpanSink, tracer: Tracer
) -> None:
    body = {"prompt": [7, 8, 9], "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "n": 2}
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "x-request-id": "mine"}
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        await client.post("/v1/completions", json=body, headers=headers)
    tracer.flush()

    first, second = span_sink.named("llm_request")
    others = attributes(first)
    latencies = {name: others.pop(name) for name in list(others) if "latency" in name}
    assert first.kind == 2  # server
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert second.trace_id == first.trace_id
    assert others == {
        "gen_ai.request.id": "mine",
        "gen_ai.request.max_tokens": 4,
        "gen_ai.request.n": 2,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.response.model": "small",
        "gen_ai.usage.completion_tokens": 4,
        "gen_ai.usage.prompt_tokens": 3,
    }
    assert latencies.keys() == {
        "gen_ai.latency." + name
        for name in (
            "e2e", "time_in_queue", "time_to_first_token", "time_in_model_prefill",
            "time_in_model_decode", "time_in_model_inference",
        )
    }  # fmt: skip
    prefill, decode, inference = (
        latencies[f"gen_ai.latency.time_in_model_{name}"]
        for name in ("prefill", "decode", "inference")
    )
    assert inference == pytest.approx(prefill + decode)
    assert latencies["gen_ai.latency.e2e"] >= inference
    assert duration_s(first) == pytest.approx(latencies["gen_ai.latency.e2e"], abs=1e-3)


async def test_the_phases_of_a_choice_follow_each_other(
    serve_runner: Any, span_sink: SpanSink, tracer: Tracer
) -> None:
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        await client.post("/v1/completions", json={"prompt": [7, 8], "max_tokens": 4})
    tracer.flush()

    (request,) = span_sink.named("llm_request")
    phases = sorted(
        (span for span in span_sink.spans if span is not request),
        key=lambda span: span.start_time_unix_nano,
    )
    assert [span.name for span in phases] == ["prepare", "queue", "prefill", "decode"]
    assert {span.trace_id for span in phases} == {request.trace_id}
    assert {span.parent_span_id for span in phases} == {request.span_id}
    assert phases[0].start_time_unix_nano == request.start_time_unix_nano
    for before, after in pairwise(phases):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert contains(request, phases[-1])


async def test_preemptions_are_spans_within_their_choice(
    serve_runner: Any, span_sink: SpanSink, tracer: Tracer, caplog: pytest.LogCaptureFixture
) -> None:
    """Six sequences of 63 tokens do not fit into 16 blocks of 16."""
    caplog.set_level("INFO", "penstock_engine.server.generation.request_log")
    body = {"prompt": [7, 8, 9], "max_tokens": 60, "ignore_eos": True, "n": 6}
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        await client.post("/v1/completions", json=body)
    tracer.flush()

    requests = {span.span_id: span for span in span_sink.named("llm_request")}
    preempted = span_sink.named("preempted")
    lines = [each.fields for each in caplog.records if each.name.endswith("request_log")]
    assert preempted
    assert len(preempted) == sum(line["preemptions"] for line in lines)
    assert all(contains(requests[span.parent_span_id], span) for span in preempted)
    traces = {span.trace_id.hex() for span in requests.values()}
    assert {line["trace_id"] for line in lines} == traces


def series(text: str) -> set[str]:
    """Names and labels of all samples, without their values."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {re.match(r"[^{ ]+({.*?})?", line)[0] for line in lines}  # type: ignore[index]


async def test_latencies_have_exemplars_for_scrapers_that_accept_them(
    serve_runner: Any, span_sink: SpanSink, tracer: Tracer
) -> None:
    client_span = f"00-{TRACE_ID}-{PARENT_ID}-01"
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        body = {"prompt": [7, 8], "max_tokens": 4}
        await client.post("/v1/completions", json=body, headers={"traceparent": client_span})
        plain = await client.get("/metrics")
        rich = await client.get("/metrics", headers={"accept": OPENMETRICS})
    assert plain.headers["content-type"].startswith("text/plain")
    assert "trace_id" not in plain.text
    assert series(plain.text) == series(rich.text)
    assert rich.headers["content-type"].startswith(OPENMETRICS)
    with_exemplar = {
        sample.name
        for family in text_string_to_metric_families(rich.text)
        for sample in family.samples
        if sample.exemplar is not None and sample.exemplar.labels == {"trace_id": TRACE_ID}
    }
    assert {
        "vllm:time_to_first_token_seconds_bucket", "vllm:e2e_request_latency_seconds_bucket",
        "vllm:request_queue_time_seconds_bucket", "vllm:request_time_per_output_token_seconds_bucket",
    } <= with_exemplar  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "is_on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_tracing_is_off_without_an_endpoint(environment: dict[str, str], is_on: bool) -> None:
    assert is_enabled(None, environment) is is_on


async def test_a_request_without_a_trace_starts_one(
    serve_runner: Any, span_sink: SpanSink, tracer: Tracer
) -> None:
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        for headers in ({}, {"traceparent": "nonsense"}):
            await client.post("/v1/completions", json={"prompt": [7]}, headers=headers)
    tracer.flush()
    requests = span_sink.named("llm_request")
    assert len({span.trace_id for span in requests}) == 2
    assert {span.parent_span_id for span in requests} == {b""}


async def test_spans_that_the_client_does_not_sample_are_not_exported(
    serve_runner: Any, span_sink: SpanSink, tracer: Tracer
) -> None:
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"}
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        await client.post("/v1/completions", json={"prompt": [7]}, headers=headers)
    tracer.flush()
    assert span_sink.spans == []


async def test_the_span_of_a_failed_request_has_error_status(
    serve_runner: Any, span_sink: SpanSink, tracer: Tracer
) -> None:
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        late = {"x-request-timeout-s": "0"}
        await client.post("/v1/completions", json={"prompt": [7]}, headers=late)
    tracer.flush()
    (span,) = span_sink.named("llm_request")
    assert span.status.code == 2
    assert "gen_ai.latency.time_to_first_token" not in attributes(span)


def test_opentelemetry_is_imported_only_for_tracing() -> None:
    code = "import sys, penstock_engine.server.serve; print('opentelemetry.sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
