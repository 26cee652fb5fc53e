"""Tests of tracing: the spans that a collector receives over a real socket."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.server.tracing import Tracer

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(HTTPServer):
    """An OTLP collector that keeps all exports."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.exports: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for export in self.exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.exports.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def tracer(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    # The collector of this test cannot decompress exports.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    made = Tracer(collector.url)
    yield made
    made.close()


class EchoRunner:
    """A runner that always samples the same token."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        return {s.request_id: SequenceOutput((5,)) for s in step.sequences if s.is_sampled}


def attributes(span: Any) -> dict[str, Any]:
    return {
        entry.key: getattr(entry.value, entry.value.WhichOneof("value"))
        for entry in span.attributes
    }


async def test_a_span_has_vllms_attributes_and_the_clients_trace(
    serve_runner: Any, collector: Collector, tracer: Tracer
) -> None:
    body = {"prompt": [7, 8, 9], "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "n": 2}
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "x-request-id": "mine"}
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        await client.post("/v1/completions", json=body, headers=headers)
    tracer.flush()

    first, second = collector.spans
    others = attributes(first)
    latencies = {name: others.pop(name) for name in list(others) if "latency" in name}
    assert (first.name, first.kind) == ("llm_request", 2)  # 2: server
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
    seconds = (first.end_time_unix_nano - first.start_time_unix_nano) / 1e9
    assert seconds == pytest.approx(latencies["gen_ai.latency.e2e"], abs=1e-3)


async def test_a_request_without_a_trace_starts_one(
    serve_runner: Any, collector: Collector, tracer: Tracer
) -> None:
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        for headers in ({}, {"traceparent": "nonsense"}):
            await client.post("/v1/completions", json={"prompt": [7]}, headers=headers)
    tracer.flush()
    assert len({span.trace_id for span in collector.spans}) == 2
    assert {span.parent_span_id for span in collector.spans} == {b""}


async def test_spans_that_the_client_does_not_sample_are_not_exported(
    serve_runner: Any, collector: Collector, tracer: Tracer
) -> None:
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"}
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        await client.post("/v1/completions", json={"prompt": [7]}, headers=headers)
    tracer.flush()
    assert collector.spans == []


async def test_the_span_of_a_failed_request_has_error_status(
    serve_runner: Any, collector: Collector, tracer: Tracer
) -> None:
    async with serve_runner(EchoRunner, tracer=tracer) as client:
        late = {"x-request-timeout-s": "0"}
        await client.post("/v1/completions", json={"prompt": [7]}, headers=late)
    tracer.flush()
    (span,) = collector.spans
    assert span.status.code == 2
    assert "gen_ai.latency.time_to_first_token" not in attributes(span)


def test_opentelemetry_is_imported_only_for_tracing() -> None:
    code = "import sys, penstock_engine.server.serve; print('opentelemetry.sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
