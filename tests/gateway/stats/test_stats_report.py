"""The stats report that the operator scrapes: counts of each service's requests."""

import asyncio
import json
from dataclasses import replace

import pytest

from penstock.clients.machine.clock import unix_time
from penstock.clients.pods.stats_report import PATH, parse
from penstock.core.observed.gateway_report import GatewayReport
from penstock.core.routing.apis import COMPLETIONS
from penstock.core.spec.objectives import Objectives
from penstock.core.tenants.tenant import Tenant
from penstock.gateway.apis.response_usage import ResponseUsage

USAGE = b'data: {"usage":{"prompt_tokens":9,"completion_tokens":%d}}\n\n'
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


async def report_of(front, **headers):
    async with front.client.get(front.management_url + PATH, headers=headers) as got:
        assert got.status == 200
        return parse("g", await got.text())


async def reading(front):
    await front.idle()
    report = await report_of(front)
    assert isinstance(report, GatewayReport)
    return report.services["default/chat"]


async def test_the_generation_of_each_tenant_is_told(start_gateway):
    front = await start_gateway()
    assert (await report_of(front)).tenants == {}
    front.gateway.state.authenticator.tenants.publish([Tenant("acme", 3), Tenant("other", 1)])
    assert (await report_of(front)).tenants == {"acme": 3, "other": 1}


@pytest.mark.parametrize(("path", "tokens"), [(CHAT, 4), (TEXT, 5)])
async def test_tokens_of_a_stream_are_its_events(start_engine, start_gateway, path, tokens):
    """The engine sends five events and DONE. The first event of a chat is no token."""
    front = await start_gateway(await start_engine())
    await front.ask(path)
    stats = await reading(front)
    assert (stats.arrivals, stats.ended, stats.output_tokens) == (1, 1, tokens)
    assert (stats.shed, stats.failed, stats.in_flight, stats.queued) == (0, 0, 0, 0)
    assert (stats.ttft_s.count, stats.tpot_s.count) == (1, 1)


async def test_usage_is_counted_and_corrects_the_token_estimate(start_engine, start_gateway):
    usage = {"usage": {"prompt_tokens": 700, "completion_tokens": 31, "total_tokens": 731}}

    async def behave(request):
        await request.whole(json.dumps(usage).encode())

    front = await start_gateway(await start_engine(behave))
    prompt = "x" * 4000  # 1,000 tokens at four bytes each
    for _ in range(400):
        await front.ask(stream=False, prompt=prompt)
    before = await reading(front)
    await front.ask(stream=False, prompt=prompt)
    after = await reading(front)
    assert (after.ended, after.output_tokens) == (401, 401 * 31)
    # The prompt of 4,000 bytes had 700 tokens each time.
    assert after.prompt_tokens - before.prompt_tokens == pytest.approx(700, rel=0.08)
    assert after.ttft_s.count == 0


async def test_idle_service_is_reported_with_zeros(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    stats = await reading(front)
    assert (stats.arrivals, stats.oldest_wait_s, stats.ttft_s.count) == (0, 0.0, 0)


async def test_report_has_the_start_time_and_the_current_time(start_gateway, make_service):
    before_s = unix_time()
    front = await start_gateway()
    front.publish(make_service(), make_service(name="other"))
    first, second = await report_of(front), await report_of(front)
    assert before_s <= first.started_s == second.started_s
    for report in (first, second):
        assert set(report.services) == set(report.obeys) == {"default/chat", "default/other"}
        assert first.started_s <= report.services["default/chat"].at_s <= unix_time()
        assert report.arms == {}


async def test_report_has_the_generation_of_the_traffic(start_gateway, make_service):
    front = await start_gateway()
    for generation in (3, 4):
        front.publish(replace(make_service(), generation=generation))
        assert (await report_of(front)).obeys == {"default/chat": generation}


async def test_requests_in_flight(start_engine, start_gateway, until):
    gate = asyncio.Event()

    async def behave(request):
        await request.head()
        await gate.wait()
        await request.chunk(b"data: [DONE]\n\n")
        await request.end()

    engine = await start_engine(behave)
    front = await start_gateway(engine)
    served = asyncio.create_task(front.ask(prompt="x" * 400))
    await engine.arrived.wait()
    report = await report_of(front)
    stats = report.services["default/chat"]
    assert (stats.in_flight, stats.queued) == (1, 0)
    assert stats.in_flight_prefill_tokens == stats.prompt_tokens == pytest.approx(115, abs=15)
    gate.set()
    await served


async def test_queued_requests(start_gateway, until, make_service):
    front = await start_gateway()
    front.publish(make_service())
    request = asyncio.create_task(front.ask())
    await until(lambda: front.gateway.state.waiting == 1)
    await asyncio.sleep(0.02)
    stats = (await report_of(front)).services["default/chat"]
    assert (stats.arrivals, stats.queued, stats.in_flight) == (1, 1, 0)
    assert stats.queued_prompt_tokens == stats.prompt_tokens > 0
    assert 0.02 <= stats.oldest_wait_s < 10
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    stats = await reading(front)
    assert (stats.queued, stats.shed, stats.failed, stats.ended) == (0, 0, 0, 0)


async def test_request_without_an_engine_is_shed(start_gateway, make_service):
    front = await start_gateway(wait_for_endpoint_s=0.01)
    front.publish(make_service())
    status, _ = await front.ask()
    assert status == 503
    stats = await reading(front)
    assert (stats.arrivals, stats.shed, stats.failed) == (1, 1, 0)


@pytest.mark.parametrize(
    ("stream", "ttft_s", "tpot_s", "late"),
    [(True, 0.05, 1.0, 1), (True, 60.0, 1.0, 0), (False, 0.05, 0.01, 1), (False, 0.05, 1.0, 0)],
)
async def test_late_responses_exceed_the_objective(
    start_engine, start_gateway, make_service, stream, ttft_s, tpot_s, late
):
    """A complete response of ten tokens may take TTFT and nine times TPOT."""
    usage = b'{"usage": {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}}'

    async def behave(request):
        await asyncio.sleep(0.2)
        if not stream:
            await request.whole(usage)
            return
        await request.head()
        await request.chunk(b"data: [DONE]\n\n")
        await request.end()

    engine = await start_engine(behave)
    front = await start_gateway(engine)
    front.publish(make_service(engine, objectives=Objectives(ttft_s, tpot_s)))
    await front.ask(stream=stream)
    stats = await reading(front)
    assert (stats.ended, stats.ttft_s.count, stats.late) == (1, int(stream), late)


async def test_engine_errors_are_failed_requests(start_engine, start_gateway):
    async def cut(request):
        await request.head()
        await request.chunk(b'data: {"n": 0}\n\n')
        request.reset()

    async def fail(request):
        await request.whole(b"{}", status="500 Internal Server Error")

    for behave in (cut, fail):
        front = await start_gateway(await start_engine(behave))
        await front.ask()
        stats = await reading(front)
        assert (stats.arrivals, stats.failed, stats.ended, stats.shed) == (1, 1, 0, 0)
        assert stats.ttft_s.count == 0


async def test_400_and_disconnect_are_neither_failed_nor_ended(start_engine, start_gateway, until):
    async def refuse(request):
        await request.whole(b"{}", status="400 Bad Request")

    async def hang(request):
        await request.head()
        await request.chunk(b'data: {"n": 0}\n\n')
        await asyncio.Event().wait()

    front = await start_gateway(await start_engine(refuse))
    await front.ask()
    assert (await reading(front)).failed == 0

    front = await start_gateway(await start_engine(hang))
    async with front.post() as got:
        await got.content.readany()
    stats = await reading(front)
    assert (stats.arrivals, stats.ended, stats.failed) == (1, 0, 0)


async def test_a_service_that_is_gone_is_forgotten(start_engine, start_gateway, make_service):
    front = await start_gateway(await start_engine())
    await front.ask()
    front.publish(make_service(name="other"))
    assert list((await report_of(front)).services) == ["default/other"]


@pytest.mark.parametrize(
    ("is_stream", "chunks", "output", "prompt"),
    [
        (True, [b"data: {}\n\n", b"data: {}\n\n", b"data: {}\n\ndata: [DONE]\n\n"], 3, None),
        (True, [b"data: {}\r\n\r\ndata: {}\r\n\r\ndata: [DONE]\r\n\r\n"], 2, None),
        (True, [b"data: [DONE]\n\n"], 1, None),
        (True, [USAGE % 7], 7, 9),
        # Usage in every chunk: the last one counts.
        (True, [USAGE % n for n in range(5)], 4, 9),
        # Text that looks like usage is escaped.
        (True, [b'data: {"text":"\\"completion_tokens\\": 999"}\n\n', b"data: [DONE]\n\n"], 1, None),
        (False, [b'{"usage": {"prompt_tokens": 5, "completion_tokens": 12}}'], 12, 5),
        (False, [b"x" * 400], 100, None),
    ],
)  # fmt: skip
def test_usage_of_a_response(is_stream, chunks, output, prompt):
    usage = ResponseUsage(COMPLETIONS, is_stream=is_stream)
    for chunk in chunks:
        usage.feed(chunk)
    assert (usage.output_tokens, usage.prompt_tokens) == (output, prompt)
