"""Requests that a ModelRoute sends to external models, over real sockets."""

import asyncio
import base64
import json
from ipaddress import ip_address

import pytest
from tests.gateway.engine_answers import EVENT, begins, breaks, cuts, hangs, resets, stream, whole
from tests.support.gateway_callers import api_key, bearer, let_in, tenant
from tests.support.gateway_snapshots import build

from penstock.core.providers.external_model import SecretKey
from penstock.core.providers.external_urls import parse_external_url
from penstock.core.routing.apis import CHAT, MESSAGES_API
from penstock.core.tenants.tenant import Access
from penstock.errors import NotFound
from penstock.gateway.snapshots.snapshot import Snapshot

ANSWER = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
answers = whole(json.dumps(ANSWER).encode())
KEY = "sk-provider-secret"
SECRET = {"name": "provider", "key": "token"}
REFERENCE = SecretKey("provider", "token")


class Secrets:
    """Answers reads of one Secret, as the API server does."""

    def __init__(self, key=KEY):
        self.key = key

    async def get(self, *_):
        if self.key is None:
            raise NotFound("no such Secret")
        return {"data": {"token": base64.b64encode(self.key.encode()).decode()}}


def metadata(name):
    return {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}


def external(url, **spec):
    wanted = {"url": url, "api": "OpenAI", "model": "large", "keySecretRef": SECRET} | spec
    return {"metadata": metadata("far"), "spec": wanted}


@pytest.fixture
def start_far(start_engine, start_gateway, make_service):
    """`await start_far(behavior, …)` -> a gateway with a route to an external model, and its provider.

    fallback: behavior of an engine that the route falls back to; main: of one that it falls back from.
    """

    async def start(
        behavior, *, main=None, fallback=None, allowed=None, url=None, keys=None, **spec
    ):
        provider = await start_engine(behavior)
        url = (url or "http://127.0.0.1:{port}").format(port=provider.port)
        prefixes = (parse_external_url(allowed or url),) if allowed != "" else ()
        front = await start_gateway(allowed_external_urls=prefixes, max_attempts=1)
        far = {"kind": "ExternalModel", "name": "far"}
        rule = {"name": "all", "backendRefs": [far]}
        services = ()
        if main or fallback:
            services = (make_service(await start_engine(main or fallback), name="near"),)
        if main:
            rule = {"name": "all", "backendRefs": [{"name": "near"}], "fallbacks": [far]}
        if fallback:
            rule["fallbacks"] = [{"name": "near"}]
        route = {"metadata": metadata("front"), "spec": {"modelName": "chat", "rules": [rule]}}
        built = build([], [], [route], [], [external(url, **spec)])
        front.snapshots.publish(Snapshot(services, built.routes, (), built.externals))
        await front.gateway.state.providers.keys.read(keys or Secrets(), "default", REFERENCE)
        return front, provider

    return start


async def send(front, headers=None, path=CHAT.path, **fields):
    body = {"model": "chat", "stream": False, "messages": [], **fields}
    async with front.client.post(front.url + path, json=body, headers=headers) as got:
        return got.status, got.headers, await got.read()


async def test_request_to_a_provider(start_far):
    front, provider = await start_far(answers)
    sent = {
        "Authorization": "Bearer of-the-client",
        "Cookie": "a=b",
        "x-custom": "1",
        "Accept": "a/b",
    }
    status, headers, body = await send(front, sent)
    assert (status, json.loads(body)) == (200, ANSWER)
    assert (headers["x-penstock-model"], "x-penstock-fallback" in headers) == ("far", False)
    (request,) = provider.requests
    assert json.loads(request.body)["model"] == "large"
    assert request.path == CHAT.path
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers.keys() == {
        "host", "accept", "accept-encoding", "authorization", "content-type", "content-length",
    }  # fmt: skip


async def test_key_and_version_of_anthropic(start_far):
    front, provider = await start_far(answers, api="Anthropic")
    assert (await send(front, path=MESSAGES_API.path))[0] == 200
    headers = provider.requests[0].headers
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in headers


async def test_fallback_to_a_provider(start_far):
    front, _ = await start_far(stream(EVENT, b"data: [DONE]\n\n"), main=breaks)
    status, headers, body = await send(front, stream=True)
    assert (status, headers["x-penstock-model"], headers["x-penstock-fallback"]) == (
        200,
        "far",
        "error",
    )
    assert body.startswith(EVENT)


async def test_route_that_the_provider_does_not_have(start_far):
    front, provider = await start_far(answers)
    status, _, body = await send(front, path=MESSAGES_API.path)
    assert (status, b"speaks the API of OpenAI" in body) == (400, True)
    assert not provider.requests


@pytest.mark.parametrize("allowed", ["", "https://api.example.com"])
async def test_url_that_is_not_allowed(start_far, allowed):
    front, provider = await start_far(answers, allowed=allowed)
    status, _, body = await send(front)
    assert (status, b"is not allowed" in body) == (503, True)
    assert not provider.requests


async def test_addresses_are_checked_when_names_are_resolved(start_far, monkeypatch):
    monkeypatch.setattr(
        "penstock.core.providers.external_urls.METADATA",
        {ip_address("127.0.0.1"), ip_address("::1")},
    )
    front, provider = await start_far(answers, url="http://localhost:{port}")
    status, _, body = await send(front)
    assert (status, b"cannot be reached" in body) == (503, True)
    assert not provider.requests


async def unavailable(request):
    await request.whole(b"{}", "503 Service Unavailable")


async def redirects(request):
    await request.whole(b"{}", "302 Found", "location: http://127.0.0.1:1/\r\n")


async def compresses(request):
    await request.whole(b"\x1f\x8b", extra="content-encoding: gzip\r\n")


async def garbage(request):
    await request.send(b"\x00\x01 no HTTP\r\n\r\n")
    request.writer.close()


FAILURES = [
    (breaks, 502), (unavailable, 502), (resets, 502), (redirects, 502), (compresses, 502), (garbage, 502),
    (whole(b"{}", "504 Gateway Timeout"), 502), (whole(b"{}", "401 Unauthorized"), 502),
    (whole(b"{}", "403 Forbidden"), 502), (hangs, 504),
]  # fmt: skip


@pytest.mark.parametrize(("behavior", "expected"), FAILURES)
async def test_failures_of_a_provider(start_far, behavior, expected):
    timeouts = {"request": "200ms"}
    front, provider = await start_far(behavior, timeouts=timeouts)
    status, _headers, body = await send(front)
    error = json.loads(body)["error"]
    assert (status, "the provider of the ExternalModel default/far" in error["message"]) == (
        expected,
        True,
    )
    assert KEY not in body.decode()
    assert len(provider.requests) == 1
    await front.idle()
    assert front.gateway.state.providers.use(front.snapshots.current.externals[0]).num_running == 0


@pytest.mark.parametrize(("behavior", "expected"), FAILURES)
async def test_failures_of_a_provider_fall_back(start_far, behavior, expected):
    front, _ = await start_far(behavior, fallback=answers, timeouts={"request": "200ms"})
    status, headers, _ = await send(front)
    assert (status, headers["x-penstock-model"], headers["x-penstock-fallback"]) == (
        200,
        "near",
        "error",
    )


async def test_provider_that_speaks_no_tls(start_far):
    front, _provider = await start_far(answers, url="https://127.0.0.1:{port}")
    assert (await send(front))[0] == 503


async def test_streams_that_break_off(start_far):
    front, _ = await start_far(cuts)
    status, _, body = await send(front, stream=True)
    assert (status, b"cut off" in body) == (200, True)


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "404 Not Found", "422 Unprocessable Content"]
)
async def test_errors_of_the_client_are_passed_on(start_far, status):
    front, _ = await start_far(whole(b'{"error": 1}', status))
    assert (await send(front))[0] == int(status[:3])


async def test_retry_after_is_respected(start_far):
    async def busy(request):
        await request.whole(b"{}", "429 Too Many Requests", "retry-after: 30\r\n")

    front, provider = await start_far(busy)
    for _ in range(3):
        status, headers, _ = await send(front)
        assert (status, headers["retry-after"]) == (503, "30")
    assert len(provider.requests) == 1


async def test_failing_provider_is_probed_by_one_request(start_far):
    front, provider = await start_far(breaks)
    for _ in range(6):
        await send(front)
    assert len(provider.requests) <= 4  # three failures, and a probe after a second


async def test_limit_of_requests_at_a_time(start_far):
    front, provider = await start_far(hangs, limits={"maxConcurrentRequests": 1})
    first = asyncio.create_task(send(front))
    await provider.arrived.wait()
    assert (await send(front))[0] == 503
    first.cancel()
    async with asyncio.timeout(5):
        await provider.left.wait()
    await front.idle()
    assert len(provider.requests) == 1


async def test_secret_that_is_deleted_or_rotated(start_far):
    secrets = Secrets()
    front, provider = await start_far(answers, keys=secrets)
    keys = front.gateway.state.providers.keys
    for key, expected in (("sk-rotated", 200), (None, 503), ("\x00", 503), (KEY, 200)):
        secrets.key = key
        await keys.read(secrets, "default", REFERENCE)
        assert (await send(front))[0] == expected
        if expected == 200:
            assert provider.requests[-1].headers["authorization"] == f"Bearer {key}"


async def test_tokens_and_cost_are_counted_by_tenant(start_far):
    price = {"promptPerMillionTokens": "1", "outputPerMillionTokens": "10"}
    front, _ = await start_far(answers, price=price)
    key = api_key(1)
    let_in(front.gateway, tenant("a", Access("default")), keys={"a": key})
    assert (await send(front, bearer(key)))[0] == 200
    await front.idle()
    labels = {"tenant": "a", "external_model": "default/far"}
    tokens = "penstock_gateway_external_tokens_total"
    assert await front.metric(tokens, kind="prompt", **labels) == 3
    assert await front.metric(tokens, kind="output", **labels) == 2
    cost = await front.metric("penstock_gateway_external_cost_total", currency="USD", **labels)
    assert cost == pytest.approx(23e-6)


@pytest.mark.parametrize(("names", "expected"), [({"chat"}, 500), ({"chat", "far"}, 200)])
async def test_tenant_needs_access_to_the_external_model(start_far, names, expected):
    front, provider = await start_far(answers, main=breaks)
    key = api_key(1)
    let_in(front.gateway, tenant("a", Access("default", frozenset(names))), keys={"a": key})
    assert (await send(front, bearer(key)))[0] == expected
    assert bool(provider.requests) == (expected == 200)


async def test_usage_of_streams_is_asked_for_and_hidden(start_far):
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    front, provider = await start_far(stream(EVENT, usage, b"data: [DONE]\n\n"))
    _, _, body = await send(front, stream=True)
    assert json.loads(provider.requests[0].body)["stream_options"] == {"include_usage": True}
    assert b"usage" not in body
    assert await front.metric("penstock_gateway_external_tokens_total", kind="prompt") == 3


async def test_series_of_a_deleted_external_model_are_removed(start_far):
    front, _ = await start_far(answers)
    assert (await send(front))[0] == 200
    await front.idle()
    tokens = "penstock_gateway_external_tokens_total"
    assert await front.metric(tokens) == 5
    front.snapshots.publish(Snapshot())
    assert await front.metric(tokens) == 0


@pytest.mark.parametrize("behavior", [hangs, begins])
async def test_client_that_leaves_ends_the_request_to_the_provider(start_far, behavior):
    front, provider = await start_far(behavior, limits={"maxConcurrentRequests": 1})
    asking = asyncio.create_task(send(front, stream=True))
    await provider.arrived.wait()
    await asyncio.sleep(0.02)
    asking.cancel()
    async with asyncio.timeout(5):
        await provider.left.wait()
    await front.idle()
    assert front.gateway.state.providers.use(front.snapshots.current.externals[0]).num_running == 0


async def test_provider_that_sends_one_byte_and_hangs(start_far):
    async def one_byte(request):
        await request.head()
        await request.chunk(b"d")
        await asyncio.Event().wait()

    front, _ = await start_far(one_byte, fallback=answers, timeouts={"firstByte": "200ms"})
    status, headers, _ = await send(front, stream=True)
    assert (status, headers["x-penstock-fallback"]) == (200, "error")
