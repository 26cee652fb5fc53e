"""Limits of tenants at a gateway with real sockets."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.gateway.support.engine_stub import Engine, Request
from tests.gateway.support.front import Front, until

from penstock.core.tenants.limits import Usage
from penstock.core.tenants.quota import TenantQuota
from penstock.core.tenants.tenant import Access, RequestLimits, Tenant, UsageLimit
from penstock.gateway.tenants.caller import Caller

REQUESTS = UsageLimit("requests", "Requests", 3, "Month")
TOKENS = UsageLimit("tokens", "Tokens", 1000, "Month")
USAGE = {
    "prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 4},
}  # fmt: skip
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE_EVENT = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
StartEngine = Callable[..., Awaitable[Engine]]
StartGateway = Callable[..., Awaitable[Front]]


def tenant(*limits: UsageLimit, **more: Any) -> Tenant:
    return Tenant("team", 1, access=(Access("default"),), limits=limits, **more)


def let_in(front: Front, of: Tenant) -> TenantQuota:
    """Let all requests be of a tenant. Returns what the gateway holds of its limits."""

    async def authenticate(headers: Any, peer: str, client: str) -> Caller:
        return Caller(of, "test")

    front.gateway.state.authenticator.authenticate = authenticate  # type: ignore[method-assign]
    return front.gateway.state.quotas.account(of).quota


async def with_usage(request: Request) -> None:
    if not request.is_stream:
        await request.whole(json.dumps({"choices": [{"text": "hi"}], "usage": USAGE}).encode())
        return
    await request.head()
    for _ in range(3):
        await request.chunk(EVENT)
    await request.chunk(USAGE_EVENT + b"data: [DONE]\n\n")
    await request.end()


async def post(front: Front, **more: Any) -> tuple[int, Mapping[str, str], dict[str, Any]]:
    async with front.post(stream=False, **more) as got:
        return got.status, got.headers, await got.json()


def used(quota: TenantQuota) -> list[int]:
    return [each.used for each in quota.leases]


@pytest.mark.parametrize("stream", [True, False])
async def test_tokens_are_settled_by_the_engines_count(
    start_engine: StartEngine, start_gateway: StartGateway, stream: bool
) -> None:
    front = await start_gateway(await start_engine(with_usage))
    quota = let_in(front, tenant(REQUESTS, TOKENS))
    status, body = await front.ask(stream=stream, prompt="hello there", max_tokens=100)
    assert status == 200
    assert (b"usage" in body) is not stream, "the client did not ask for it"
    await until(lambda: used(quota) == [1, 12])
    assert await front.metric(
        "penstock_gateway_tenant_tokens_total", tenant="team", kind="cached"
    ) == pytest.approx(4)


async def test_a_reached_budget_is_told_in_the_form_of_openai(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    front = await start_gateway(await start_engine(with_usage))
    let_in(front, tenant(REQUESTS))
    answers = [await post(front) for _ in range(4)]
    assert [status for status, _, _ in answers] == [200, 200, 200, 429]
    _, headers, body = answers[-1]
    assert body["error"]["code"] == body["error"]["type"] == "insufficient_quota"
    assert "the limit requests of 3 requests in each month is reached" in body["error"]["message"]
    assert int(headers["retry-after"]) >= 1
    left = [each["x-ratelimit-remaining-requests"] for _, each, _ in answers]
    assert left == ["2", "1", "0", "0"]
    assert headers["x-ratelimit-limit-requests"] == "3"
    assert headers["x-ratelimit-reset-requests"].endswith("s")
    assert await front.metric(
        "penstock_gateway_tenant_rejections_total", tenant="team", reason="insufficient_quota"
    ) == pytest.approx(1)


async def test_a_reached_rate_is_told_in_the_form_of_anthropic(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    front = await start_gateway(await start_engine(with_usage))
    let_in(front, tenant(UsageLimit("hourly", "Requests", 1, "Hour")))
    await front.ask("/v1/messages", stream=False)
    status, body = await front.ask("/v1/messages", stream=False)
    assert status == 429
    assert json.loads(body)["error"]["type"] == "rate_limit_error"
    _, _, openai = await post(front)
    assert (openai["error"]["code"], openai["error"]["type"]) == ("rate_limit_exceeded", "requests")


async def test_a_request_above_a_whole_limit_is_not_told_to_wait(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    front = await start_gateway(await start_engine(with_usage))
    quota = let_in(front, tenant(TOKENS))
    status, headers, body = await post(front, max_tokens=2000)
    assert (status, body["error"]["code"]) == (400, "request_above_limit")
    assert "retry-after" not in headers
    assert used(quota) == [0]


async def test_the_bounds_of_a_request(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    engine = await start_engine(with_usage)
    front = await start_gateway(engine)
    let_in(front, tenant(request=RequestLimits(prompt_tokens=100, output_tokens=60)))
    cases: list[tuple[dict[str, Any], int | None]] = [
        ({}, 60),
        ({"max_tokens": 50}, 50),
        ({"max_tokens": None}, 60),
        ({"max_tokens": "many"}, 60),
        ({"max_tokens": -1}, 60),
        ({"n": 3}, 20),
        ({"max_tokens": 61}, None),
        ({"max_completion_tokens": "61"}, None),
        ({"max_tokens": 31, "n": 2}, None),
        ({"n": 61}, None),
        ({"messages": [{"role": "user", "content": "word " * 200}]}, None),
    ]
    for fields, allowed in cases:
        status, _, body = await post(front, **fields)
        if allowed is None:
            assert (status, body["error"]["type"]) == (400, "invalid_request_error"), fields
            continue
        sent = json.loads(engine.requests[-1].body)
        assert sent.get("max_completion_tokens") or sent["max_tokens"] == allowed, fields
    assert len(engine.requests) == 6
    await front.ask("/v1/completions", stream=False, prompt="hi")
    assert json.loads(engine.requests[-1].body)["max_tokens"] == 16


@pytest.mark.parametrize(
    ("path", "fields", "allowed"),
    [
        ("/v1/completions", {"prompt": ["hi"] * 6}, 10),
        ("/v1/completions", {"prompt": [[1, 2]] * 3, "n": 2}, 10),
        ("/v1/completions", {"prompt": [1, 2, 3]}, 16),
        ("/v1/completions", {"prompt": ["hi"] * 61}, None),
        ("/v1/completions", {"prompt": ["hi"] * 4, "max_tokens": 16}, None),
        ("/v1/completions", {"prompt": ["hi"] * 4, "max_tokens": 16, "messages": []}, None),
        ("/v1/completions", {"prompt": "word " * 200, "messages": []}, None),
        ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": "hi"}]] * 6}, 10),
        ("/invocations", {"prompt": ["hi"] * 4, "max_tokens": 16}, None),
    ],
)
async def test_each_prompt_of_a_request_counts(
    start_engine: StartEngine,
    start_gateway: StartGateway,
    path: str,
    fields: dict[str, Any],
    allowed: int | None,
) -> None:
    engine = await start_engine(with_usage)
    front = await start_gateway(engine)
    let_in(front, tenant(request=RequestLimits(prompt_tokens=200, output_tokens=60)))
    body = {"model": "chat", "stream": False} | fields
    async with front.client.post(front.url + path, json=body) as got:
        assert got.status == (400 if allowed is None else 200)
    bounds = [json.loads(each.body) for each in engine.requests]
    sent = [each.get("max_completion_tokens") or each["max_tokens"] for each in bounds]
    assert sent == ([] if allowed is None else [allowed])


async def test_running_requests_are_bounded_and_their_slots_freed(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    go_on = asyncio.Event()

    async def wait(request: Request) -> None:
        await go_on.wait()
        await with_usage(request)

    engine = await start_engine(wait)
    front = await start_gateway(engine)
    let_in(front, tenant(TOKENS, max_running=1))
    running = asyncio.create_task(front.ask(stream=False))
    await until(lambda: bool(engine.requests))
    status, headers, body = await post(front)
    assert (status, headers["retry-after"]) == (429, "1")
    assert "wait until one has ended" in body["error"]["message"]
    go_on.set()
    assert (await running)[0] == 200
    assert (await post(front))[0] == 200


async def refuse(request: Request) -> None:
    await request.whole(b'{"error": {"message": "no"}}', "400 Bad Request")


async def fail(request: Request) -> None:
    await request.whole(b'{"error": {"message": "no"}}', "503 Service Unavailable")


async def break_off(request: Request) -> None:
    await request.head()
    await request.chunk(EVENT * 4)
    request.reset()


@pytest.mark.parametrize(
    ("behavior", "usage"), [(refuse, Usage(1)), (fail, Usage()), (break_off, Usage(1, 3, 2))]
)
async def test_failed_requests_are_settled_by_what_an_engine_did(
    start_engine: StartEngine, start_gateway: StartGateway, behavior: Any, usage: Usage
) -> None:
    front = await start_gateway(await start_engine(behavior), wait_for_endpoint_s=0.1)
    quota = let_in(front, tenant(REQUESTS, TOKENS, max_running=1))
    async with front.post(prompt="hello there", max_tokens=50) as got:
        await got.read()
    await front.idle()
    await until(lambda: used(quota) == [usage.requests, usage.prompt_tokens + usage.output_tokens])
    account = front.gateway.state.quotas.accounts.get("team")
    assert account is not None
    assert account.slots is not None
    assert account.slots.num_running == 0


@pytest.mark.parametrize("num_events", [0, 4])
async def test_a_client_that_leaves_is_settled_by_what_was_generated(
    start_engine: StartEngine, start_gateway: StartGateway, num_events: int
) -> None:
    async def stream_on(request: Request) -> None:
        if num_events:
            await request.head()
            await request.chunk(EVENT * num_events)
        await asyncio.Event().wait()

    engine = await start_engine(stream_on)
    front = await start_gateway(engine)
    quota = let_in(front, tenant(REQUESTS, TOKENS, max_running=1))
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(front.ask(prompt="hello there", max_tokens=50))
        await until(lambda: bool(engine.requests))
        await asyncio.sleep(0.05)
        asking.cancel()
    await engine.left.wait()
    await front.idle()
    await until(lambda: used(quota) == [1, 3 + max(0, num_events - 2)])


@pytest.mark.parametrize("has_head", [True, False])
async def test_a_client_that_leaves_a_whole_answer_pays_what_it_reserved(
    start_engine: StartEngine, start_gateway: StartGateway, has_head: bool
) -> None:
    async def compute(request: Request) -> None:
        if has_head:
            await request.head(content_type="application/json")
            await request.chunk(b'{"choices": [')
        await asyncio.Event().wait()

    engine = await start_engine(compute)
    front = await start_gateway(engine, max_buffered_answer_bytes=1)
    quota = let_in(front, tenant(REQUESTS, TOKENS))
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(front.ask(stream=False, prompt="hello there", max_tokens=50))
        await until(lambda: bool(engine.requests))
        await asyncio.sleep(0.05)
        asking.cancel()
    await engine.left.wait()
    await front.idle()
    await until(lambda: used(quota) == [1, 53])


async def test_requests_without_an_answer_say_nothing_of_its_length(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    front = await start_gateway(await start_engine(refuse))
    quota = let_in(front, tenant(TOKENS))
    for _ in range(5):
        await post(front, max_tokens=50)
    assert quota.assume_output_tokens("chat", 3) == 256


async def test_each_limit_that_is_reached_is_named(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    front = await start_gateway(await start_engine(with_usage))
    hourly = UsageLimit("hourly", "Requests", 1, "Hour")
    let_in(front, tenant(hourly, UsageLimit("monthly", "Requests", 1, "Month")))
    await post(front)
    _, headers, body = await post(front)
    limits = (
        "the limit monthly of 1 requests in each month",
        "the limit hourly of 1 requests in each hour",
    )
    # In the last hour of a month both end at the same time.
    assert body["error"]["message"] in {
        f"{one} and {other} are reached: try again in {headers['retry-after']} s"
        for one, other in (limits, limits[::-1])
    }


@pytest.mark.parametrize("number", [10**18, 10**30, 10**400])
async def test_a_number_of_many_digits_harms_no_count(
    start_engine: StartEngine, start_gateway: StartGateway, number: int
) -> None:
    front = await start_gateway(await start_engine(with_usage))
    quota = let_in(front, tenant(UsageLimit("all", "Requests", 100, "Month")))
    for path in ("/v1/responses", "/v1/chat/completions"):
        body = {"model": "chat", "input": "hi", "messages": [], "n": number, "background": True}
        body |= dict.fromkeys(("max_tokens", "max_output_tokens"), number)
        async with front.client.post(front.url + path, json=body) as got:
            assert got.status == 200
    assert used(quota) == [2]
    tokens = "penstock_gateway_tenant_tokens_total"
    assert await front.metric(tokens, tenant="team", service="default/chat", kind="output") < 2**53
    await front.idle()
