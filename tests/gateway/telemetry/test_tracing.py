"""Traces of the gateway: the spans that a sink receives, and the headers that engines get."""

import os
import socket
import subprocess
import sys
from itertools import pairwise

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.gateway.support.engine_stub import Request, answer
from tests.support.span_sink import attributes, contains, duration_s, running_span_sink

from penstock.core.routing.route import Mirror, RouteRule
from penstock.gateway.snapshots.snapshot import Route, Snapshot
from penstock.gateway.telemetry.tracing import RequestTracer
from penstock.observability.metrics import gateway as specs
from penstock_engine.telemetry.exposition import OPENMETRICS

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LEAVES = {"receive", "route", "wait", "connect", "first_byte", "stream"}


@pytest.fixture
def span_sink(monkeypatch):
    with running_span_sink() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.base_url)
        yield server


@pytest.fixture
def tracer(span_sink):
    made = RequestTracer()
    yield made
    made.close()


async def ask(front, tracer, **headers):
    async with front.client.post(
        front.url + "/v1/chat/completions", json={"model": "chat", "stream": True}, headers=headers
    ) as got:
        await got.read()
    await front.idle()
    tracer.flush()
    return got.status


async def test_a_requests_phases_fill_its_span(start_engine, start_gateway, span_sink, tracer):
    engine = await start_engine()
    front = await start_gateway(engine, tracer=tracer)
    client = f"00-{TRACE_ID}-{PARENT_ID}-01"
    assert await ask(front, tracer, traceparent=client, tracestate="a=b") == 200

    (request,), (attempt,) = (
        span_sink.named("POST /v1/chat/completions"),
        span_sink.named("attempt"),
    )
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert {span.trace_id.hex() for span in span_sink.spans} == {TRACE_ID}
    leaves = sorted(
        (span for span in span_sink.spans if span.name in LEAVES),
        key=lambda span: span.start_time_unix_nano,
    )
    assert [span.name for span in leaves] == [
        "receive", "route", "wait", "connect", "first_byte", "stream",
    ]  # fmt: skip
    parents = [span.parent_span_id for span in leaves]
    assert parents == 3 * [request.span_id] + 3 * [attempt.span_id]
    assert attempt.parent_span_id == request.span_id
    for before, after in pairwise(leaves):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert leaves[0].start_time_unix_nano == request.start_time_unix_nano
    assert leaves[-1].end_time_unix_nano == request.end_time_unix_nano
    assert contains(request, attempt)
    assert sum(map(duration_s, leaves)) == pytest.approx(duration_s(request))

    sent = engine.requests[0].headers
    assert sent["traceparent"] == f"00-{TRACE_ID}-{attempt.span_id.hex()}-01"
    assert sent["tracestate"] == "a=b"
    facts = attributes(request)
    assert facts["gen_ai.request.id"] == sent["x-request-id"]
    assert (facts["http.response.status_code"], facts["penstock.service"]) == (200, "default/chat")


async def test_a_request_without_a_trace_starts_one(start_engine, start_gateway, span_sink, tracer):
    engine = await start_engine()
    front = await start_gateway(engine, tracer=tracer)
    await ask(front, tracer)
    (request,) = span_sink.named("POST /v1/chat/completions")
    assert request.parent_span_id == b""
    assert request.trace_id.hex() in engine.requests[0].headers["traceparent"]


@pytest.mark.parametrize(
    ("parent", "state"),
    [
        (f"00-{'0' * 32}-{PARENT_ID}-01", "a=b"),
        ("x" * 5000, "a=b"),
        (f"00-{TRACE_ID}-{PARENT_ID}-01", "not a member"),
    ],
)
async def test_malformed_headers_are_neither_passed_on_nor_logged(
    parent, state, start_engine, start_gateway, tracer, caplog
):
    engine = await start_engine()
    front = await start_gateway(engine, tracer=tracer)
    caplog.clear()
    assert await ask(front, tracer, traceparent=parent, tracestate=state) == 200
    sent = engine.requests[0].headers
    assert "tracestate" not in sent
    assert sent["traceparent"] != parent
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_what_the_client_does_not_sample_is_not_exported(
    start_engine, start_gateway, span_sink, tracer
):
    engine = await start_engine()
    front = await start_gateway(engine, tracer=tracer)
    await ask(front, tracer, traceparent=f"00-{TRACE_ID}-{PARENT_ID}-00")
    assert span_sink.spans == []
    assert engine.requests[0].headers["traceparent"].endswith("-00")


async def test_latencies_have_exemplars_for_scrapers_that_accept_them(
    start_engine, start_gateway, span_sink, tracer
):
    front = await start_gateway(await start_engine(), tracer=tracer)
    await ask(front, tracer, traceparent=f"00-{TRACE_ID}-{PARENT_ID}-01")
    url = front.management_url + "/metrics"
    async with front.client.get(url) as plain:
        assert plain.content_type == "text/plain"
        assert "trace_id" not in await plain.text()
    async with front.client.get(url, headers={"accept": OPENMETRICS}) as rich:
        assert rich.content_type == OPENMETRICS
        text = await rich.text()
    with_exemplar = {
        sample.name
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.exemplar is not None and sample.exemplar.labels == {"trace_id": TRACE_ID}
    }
    assert with_exemplar == {
        f"{spec.name}_bucket"
        for spec in (specs.PHASE_S, specs.REQUEST_S, specs.FIRST_BYTE_S, specs.TPOT_S)
    }


async def fails(request: Request) -> None:
    await request.whole(b'{"error": {}}', "500 Internal Server Error")


async def test_each_attempt_has_its_own_phases(start_engine, start_gateway, span_sink, tracer):
    fleet = [await start_engine(fails), await start_engine(answer)]
    front = await start_gateway(*fleet, tracer=tracer)
    while len(span_sink.named("attempt")) == len(span_sink.named("POST /v1/chat/completions")):
        span_sink.exports.clear()
        await ask(front, tracer)
    first, second = sorted(span_sink.named("attempt"), key=lambda span: span.start_time_unix_nano)
    assert attributes(first)["error.type"] == "error"
    assert attributes(second)["http.request.resend_count"] == 1
    names = {
        span.span_id: {each.name for each in span_sink.spans if each.parent_span_id == span.span_id}
        for span in (first, second)
    }
    assert names == {
        first.span_id: {"connect", "first_byte"},
        second.span_id: {"connect", "first_byte", "stream"},
    }


async def test_a_mirrored_copy_belongs_to_the_request(
    start_engine, start_gateway, make_service, span_sink, tracer, until
):
    main, other = await start_engine(), await start_engine()
    front = await start_gateway(tracer=tracer)
    rule = RouteRule((), (("old", 1),), mirrors=(Mirror("new", None, 100),))
    services = make_service(main, name="old"), make_service(other, name="new")
    front.snapshots.publish(Snapshot(services, (Route("default", "route", "chat", 0, (rule,)),)))
    await ask(front, tracer)
    await until(lambda: other.requests)
    await front.idle_with_copies()
    (request,) = span_sink.named("POST /v1/chat/completions")
    span = f"{request.trace_id.hex()}-{request.span_id.hex()}"
    assert other.requests[0].headers["traceparent"].startswith(f"00-{span}-")
    assert attributes(request)["penstock.model_route"] == "default/route"


async def test_a_rejected_request_has_its_reason(start_gateway, span_sink, tracer):
    front = await start_gateway(tracer=tracer)
    assert await ask(front, tracer) == 404
    (request,) = span_sink.named("POST /v1/chat/completions")
    assert attributes(request)["penstock.reason"] == "the model `chat` does not exist"
    assert {span.name for span in span_sink.spans} - {request.name} == {"receive", "route"}


def test_a_collector_that_does_not_answer_delays_the_end_by_seconds():
    """The pod has 15 seconds for it. Each of three batches with a time limit of its own would take 30."""
    program = """
from penstock.gateway.telemetry.access_log import AccessLine
from penstock.gateway.telemetry.tracing import RequestTracer
tracer = RequestTracer()
for number in range(1500):
    tracer.start(AccessLine(str(number), "/v1/completions"), [], 0.0, 0.0).span.end()
tracer.close()
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        # The start of the process takes a part of it.
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=28)


def test_opentelemetry_is_imported_only_for_tracing():
    code = "import sys, penstock.gateway.server; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
