"""Each route of the gateway, as each caller, for each model: nobody gets what no Tenant gives him."""

import json

import pytest
from tests.gateway.support.services import service
from tests.support.gateway_callers import api_key, bearer, let_in, tenant

from penstock.core.routing.apis import APIS, BATCH_ROUTES
from penstock.core.tenants.tenant import Access, RequestLimits

RIGHT, OTHER, SUSPENDED, EXPIRED, ORPHAN, NARROW = map(api_key, range(1, 7))
WRONG_SECRET = RIGHT.text[:-2] + ("AA" if RIGHT.text[-2:] != "AA" else "BB")
# Callers -> their headers, and the status without which no route may answer; None: the route decides.
CALLERS = {
    "nobody": ({}, 401),
    "unknown key": (bearer(api_key(99)), 401),
    "wrong secret": (bearer(WRONG_SECRET), 401),
    "expired key": (bearer(EXPIRED), 401),
    "key of a Secret without a tenant": (bearer(ORPHAN), 401),
    "other scheme": ({"Authorization": f"Basic {RIGHT.text}"}, 401),
    "two keys": (bearer(RIGHT) | {"x-api-key": OTHER.text}, 400),
    "suspended tenant": (bearer(SUSPENDED), 403),
    "tenant of another namespace": (bearer(OTHER), None),
    "tenant of one route": (bearer(NARROW), None),
    "tenant": (bearer(RIGHT), None),
    "tenant with x-api-key": ({"x-api-key": RIGHT.text}, None),
}


@pytest.fixture
async def front(start_gateway, start_engine):
    front = await start_gateway(await start_engine())
    let_in(
        front.gateway,
        tenant("right", Access("default")),
        tenant("other", Access("elsewhere")),
        tenant("suspended", Access("default"), is_suspended=True),
        tenant("narrow", Access("default", frozenset(("chat",)), frozenset(("/tokenize",)))),
        keys={"right": RIGHT, "other": OTHER, "suspended": SUSPENDED, "orphan": ORPHAN, "narrow": NARROW},
        expired={"right": EXPIRED},
    )  # fmt: skip
    return front


def requests(front):
    """(method, path with values, path of the route) of all that the application answers."""
    found = []
    for route in front.gateway.routes:
        path = route.path.replace("{name:path}", "chat").replace(
            "{response_id}", f"resp_{'0' * 64}"
        )
        path = path.replace("{id}", "x")
        found += [(method, path, route.path) for method in sorted(route.methods - {"HEAD"})]
    found += [
        ("GET", "/", "other"),
        ("POST", "/v1/unknown", "other"),
        ("OPTIONS", "/v1/models", "other"),
    ]
    return found


def expected(caller, method, path, route):
    """The statuses that a caller with a proof may get."""
    if route == "other":
        return {404, 405}
    if route.startswith("/v1/models"):
        knows = caller != "tenant of another namespace"
        return {200} if knows or route == "/v1/models" else {404}
    if caller == "tenant of one route" and route not in BATCH_ROUTES:
        return {200} if route == "/tokenize" else {403}
    # There is neither a stored response nor a batch server
    is_empty = "{response_id}" in route or route in BATCH_ROUTES
    if is_empty or caller == "tenant of another namespace":
        return {404}
    return {200}


async def test_all_routes_for_all_callers(front):
    outcomes = {}
    for caller, (headers, refusal) in CALLERS.items():
        for method, path, route in requests(front):
            body = json.dumps({"model": "chat", "stream": False}) if method == "POST" else None
            kind = {"Content-Type": "application/json"} if body else {}
            async with front.client.request(
                method, front.url + path, data=body, headers=headers | kind
            ) as got:
                text = await got.text()
            wanted = expected(caller, method, path, route) if refusal is None else {refusal}
            if got.status not in wanted:
                outcomes[caller, method, path] = got.status, text[:100]
            if got.status == 401:
                assert got.headers["WWW-Authenticate"] == "Bearer"
    assert outcomes == {}


async def test_refusals_of_keys_are_the_same(front):
    """Neither status, nor headers, nor body tell why a key is refused."""
    answers = set()
    for headers, status in CALLERS.values():
        if status == 401 and headers:
            async with front.client.post(
                front.url + "/v1/chat/completions", json={"model": "chat"}, headers=headers
            ) as got:
                answers.add((got.status, frozenset(got.headers), await got.read()))
    assert len(answers) == 1


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.path)
async def test_errors_have_the_form_of_the_api(front, api):
    async with front.client.post(front.url + api.path, data=b"{}") as got:
        error = json.loads(await got.read())
    if api.errors == "Anthropic":
        assert error["error"]["type"] == "authentication_error"
    else:
        assert error["error"]["code"] == "invalid_api_key"
    assert "`Authorization: Bearer KEY`" in error["error"]["message"]


async def test_names_that_a_caller_may_not_use_are_in_no_answer(front, start_engine):
    for headers, names in ((bearer(OTHER), []), (bearer(RIGHT), ["chat"])):
        async with front.client.get(front.url + "/v1/models", headers=headers) as got:
            assert [each["id"] for each in (await got.json())["data"]] == names
        for model in ("chat", "default/chat", "unknown", "Chat"):
            async with front.client.post(
                front.url + "/v1/completions", json={"model": model}, headers=headers
            ) as got:
                text = await got.text()
                if not names:
                    assert got.status == 404
                    message = f"the model `{model}` does not exist"
                    assert json.loads(text)["error"]["message"] == message


async def test_metrics_and_log_name_tenant_and_key(front, caplog):
    caplog.set_level("INFO")
    async with front.client.post(
        front.url + "/v1/completions", json={"model": "none"}, headers=bearer(RIGHT)
    ) as got:
        assert got.status == 404
    async with front.client.post(
        front.url + "/v1/completions", headers=bearer(WRONG_SECRET)
    ) as got:
        assert got.status == 401
    async with front.client.get(front.url + "/v1/models", headers=bearer(SUSPENDED)) as got:
        assert got.status == 403
    name = "penstock_gateway_tenant_rejections_total"
    assert await front.metric(name, tenant="suspended", reason="tenant_suspended") == 1
    assert await front.metric(name, tenant="right", reason="model_not_found") == 1
    assert (
        await front.metric("penstock_gateway_rejections_total", reason="credentials_invalid") == 1
    )
    lines = [each.fields for each in caplog.records if each.message == "request"]
    assert [(each.get("tenant"), each.get("key"), each["rejection"]) for each in lines] == [
        ("right", RIGHT.id, "model_not_found"), (None, None, "credentials_invalid"),
        ("suspended", SUSPENDED.id, "tenant_suspended"),
    ]  # fmt: skip
    async with front.client.get(front.management_url + "/metrics") as got:
        told = await got.text() + caplog.text + repr([vars(each) for each in caplog.records])
    assert RIGHT.secret not in told
    assert WRONG_SECRET[-43:] not in told
    let_in(front.gateway, tenant("new"), keys={})
    assert await front.metric(name) == 0


async def test_gateway_that_does_not_know_tenants_lets_nobody_in(start_gateway, start_engine):
    front = await start_gateway(await start_engine())
    authenticator = front.gateway.state.authenticator
    authenticator.tenants.current = None
    assert (await front.ask())[0] == 503
    async with front.client.get(front.management_url + "/readyz") as got:
        assert got.status == 503
    authenticator.tenants.publish((tenant("right", Access("default")),))
    async with front.client.post(front.url + "/v1/completions", headers=bearer(RIGHT)) as got:
        assert got.status == 503  # keys are not known yet
        assert got.headers["Retry-After"]
    async with front.client.get(front.management_url + "/readyz") as got:
        assert got.status == 503


async def test_gateway_without_tenants_is_open_or_closed_by_setting(start_gateway, start_engine):
    engine = await start_engine()
    open_front, closed = (
        await start_gateway(engine),
        await start_gateway(engine, require_tenants=True),
    )
    assert (await open_front.ask(stream=False))[0] == 200
    assert (await closed.ask(stream=False))[0] == 401
    assert await open_front.metric("penstock_gateway_open") == 1
    assert await closed.metric("penstock_gateway_open") == 0


async def test_body_of_a_tenant_has_its_own_bound(front):
    small = tenant("right", Access("default"), request=RequestLimits(body_bytes=64))
    let_in(front.gateway, small, keys={"right": RIGHT})
    for size, status in ((10, 200), (100, 413)):
        async with front.client.post(
            front.url + "/v1/completions",
            json={"model": "chat", "prompt": "x" * size},
            headers=bearer(RIGHT),
        ) as got:
            assert got.status == status


async def test_engines_get_no_credentials(front, start_engine):
    engine = await start_engine()
    front.publish(service(engine))
    async with front.client.post(
        front.url + "/v1/completions",
        json={"model": "chat"},
        headers=bearer(RIGHT) | {"X-Api-Key": RIGHT.text},
    ) as got:
        assert got.status == 200
    (request,) = engine.requests
    assert RIGHT.secret not in repr(vars(request))
