"""Requests whose model is the name of a ModelRoute."""

import json

import pytest
from tests.gateway.engine_answers import hangs
from tests.support.gateway_callers import api_key, bearer, let_in, tenant
from tests.support.gateway_snapshots import build

from penstock.core.tenants.tenant import Access, RequestLimits
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.snapshot import Route, Snapshot


def route(*rules, model="chat", name="route", namespace="default"):
    """A ModelRoute as the API server returns it."""
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"modelName": model, "rules": list(rules)}}


def rule_to(*backends, **more):
    return {"backendRefs": [{"name": s, "weight": w} for s, w in backends], **more}


def rule_matching(**match):
    return {"matches": [match]}


@pytest.fixture
async def pair(start_engine, start_gateway, make_service):
    """`await pair(rule, …)` -> a gateway with a route over the services `old` and `new`, and the requests
    that the engine of each got."""

    async def make(*rules, **settings):
        engines = [await start_engine() for _ in range(2)]
        front = await start_gateway(**settings)
        services = tuple(
            make_service(engine, name=name, served_name=f"{name}-model")
            for engine, name in zip(engines, ("old", "new"), strict=True)
        )
        front.snapshots.publish(Snapshot(services, build([], [], [route(*rules)]).routes))
        return front, engines[0].requests, engines[1].requests

    return make


async def ask(front, headers=None, **fields):
    body = {"model": "chat", "stream": False, **fields}
    url = front.url + "/v1/chat/completions"
    async with front.client.post(url, json=body, headers=headers) as got:
        return got.status, await got.json()


async def test_backends_get_their_weight_and_their_own_model_name(pair):
    front, old, new = await pair(rule_to(("old", 50), ("new", 50)))
    for _ in range(40):
        assert (await ask(front))[0] == 200
    assert len(old) + len(new) == 40
    assert min(len(old), len(new)) > 5  # one in 60,000 times by chance
    assert {json.loads(r.body)["model"] for r in old} == {"old-model"}
    assert {json.loads(r.body)["model"] for r in new} == {"new-model"}


async def test_rules_match_by_header_and_by_user(pair):
    front, old, new = await pair(
        rule_matching(headers=[{"name": "x-tenant", "value": "acme"}]) | rule_to(("new", 1)),
        rule_matching(users=["ada"]) | rule_to(("new", 1)),
        rule_to(("old", 1)),
    )
    for headers, fields, got in [
        ({"X-Tenant": "acme"}, {}, new),
        ({"x-tenant": "other"}, {}, old),
        ({}, {"user": "ada"}, new),
        ({}, {"user": "bob"}, old),
        ({}, {"user": ["ada"]}, old),
        ({}, {}, old),
    ]:
        before = len(got)
        assert (await ask(front, headers, **fields))[0] == 200
        assert len(got) == before + 1


@pytest.mark.parametrize(
    ("affinity", "headers", "fields"),
    [
        ({"type": "User"}, {}, {"user": "ada"}),
        ({"type": "Conversation"}, {}, {"messages": [{"role": "user", "content": "Hi"}]}),
        ({"type": "Header", "header": "X-Tenant"}, {"x-tenant": "acme"}, {}),
    ],
)
async def test_requests_with_affinity_stay_on_one_backend(pair, affinity, headers, fields):
    front, old, new = await pair(rule_to(("old", 50), ("new", 50), sessionAffinity=affinity))
    for _ in range(20):
        await ask(front, headers, **fields)
    assert sorted([len(old), len(new)]) == [0, 20]


async def test_route_to_a_missing_service_is_a_503(pair):
    front, _, _ = await pair(rule_to(("newer", 1)))
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (503, "route_broken")
    assert body["error"]["message"] == (
        "the ModelRoute default/route sends this request to the InferenceService newer, which the "
        "namespace default does not have: create it, or change the route"
    )


async def test_request_that_no_rule_matches_is_a_404(pair):
    front, _, _ = await pair(rule_matching(users=["ada"]) | rule_to(("new", 1)))
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (404, "no_route")
    assert "ModelRoute default/route" in body["error"]["message"]


async def test_models_are_routes_and_services(pair):
    front, old, _ = await pair(rule_to(("new", 1)))
    async with front.client.get(front.url + "/v1/models") as got:
        names = [model["id"] for model in (await got.json())["data"]]
    assert names == ["chat", "old-model", "new-model"]
    assert (await ask(front, model="old-model"))[0] == 200
    assert len(old) == 1


async def test_rules_match_what_requests_ask_for(pair):
    front, old, new = await pair(
        rule_matching(regions=["us"]) | rule_to(("old", 1)),
        rule_matching(serviceTiers=["flex"], regions=["eu"]) | rule_to(("new", 1)),
        rule_matching(promptTokens={"min": 100}) | rule_to(("new", 1)),
        rule_matching(tasks=["Chat"], outputTokens={"max": 10}) | rule_to(("new", 1)),
        rule_to(("old", 1)),
        region="eu",
    )
    for fields, got in [
        ({}, old),
        ({"service_tier": "flex"}, new),
        ({"service_tier": "auto"}, old),
        ({"messages": [{"role": "user", "content": "x" * 400}]}, new),
        ({"messages": [{"role": "user", "content": "x" * 399}]}, old),
        ({"max_tokens": 10}, new),
        ({"max_tokens": 10, "max_completion_tokens": 11}, old),
    ]:
        before = len(got)
        assert (await ask(front, **fields))[0] == 200
        assert len(got) == before + 1, fields


async def test_rules_match_the_tenant_and_its_cost_tier(pair):
    """The name of a tenant may begin with that of another."""
    front, old, new = await pair(
        rule_matching(tenants=["team"]) | rule_to(("new", 1)),
        rule_matching(costTiers=["economy"]) | rule_to(("new", 1)),
        rule_to(("old", 1)),
    )
    everything = Access("default")
    keys = {name: api_key(number) for number, name in enumerate(("team", "team-2", "cheap"))}
    tenants = (
        tenant("team", everything),
        tenant("team-2", everything),
        tenant("cheap", everything, cost_tier="economy"),
    )
    let_in(front.gateway, *tenants, keys=keys)
    for name, got in [("team", new), ("team-2", old), ("cheap", new)]:
        before = len(got)
        assert (await ask(front, bearer(keys[name])))[0] == 200
        assert len(got) == before + 1, name


async def test_an_alias_leads_to_the_route_and_is_a_match(
    start_engine, start_gateway, make_service
):
    engine = await start_engine()
    front = await start_gateway()
    services = make_service(engine, name="old"), make_service(engine, name="new")
    aliased = route(rule_matching(modelNames=["gpt"]) | rule_to(("new", 1)), rule_to(("old", 1)))
    aliased["spec"]["aliases"] = ["gpt", "gpt-2"]
    front.snapshots.publish(Snapshot(services, build([], [], [aliased]).routes))
    answering = {}
    for model in ("chat", "gpt", "default/gpt", "gpt-2"):
        url = front.url + "/v1/chat/completions"
        async with front.client.post(url, json={"model": model}) as got:
            answering[model] = got.headers["x-penstock-service"]
    assert answering == {
        "chat": "default/old",
        "gpt": "default/new",
        "default/gpt": "default/new",
        "gpt-2": "default/old",
    }
    async with front.client.get(front.url + "/v1/models") as got:
        names = {model["id"] for model in (await got.json())["data"]}
    assert names >= {"chat", "gpt", "gpt-2"}


async def test_a_tenant_needs_access_to_the_alias_that_it_sends(pair):
    front, _, _ = await pair()
    aliased = route(rule_to(("old", 1)))
    aliased["spec"]["aliases"] = ["gpt"]
    services = front.snapshots.current.services
    front.snapshots.publish(Snapshot(services, build([], [], [aliased]).routes))
    key = api_key(1)
    allowed = tenant("team", Access("default", frozenset({"chat"})))
    let_in(front.gateway, allowed, keys={"team": key})
    assert (await ask(front, bearer(key)))[0] == 200
    assert (await ask(front, bearer(key), model="gpt"))[0] == 404


def test_an_alias_in_two_namespaces():
    """The one that has answered under it has the name alone; the other is reached with its namespace."""
    here, there = route(rule_to(("a", 1))), route(rule_to(("b", 1)), model="other", namespace="b")
    for each in (here, there):
        each["spec"]["aliases"] = ["gpt"]
    there["status"] = {"modelName": "other", "aliases": [{"name": "gpt", "answers": "True"}]}
    snapshot = build([], [], [here, there])
    assert snapshot.resolve("gpt").key == snapshot.resolve("b/gpt").key == "b/route"
    assert snapshot.resolve("default/gpt").key == "default/route"
    assert {name for name, _ in snapshot.models()} == {"chat", "other", "gpt", "default/gpt"}


def test_an_alias_keeps_its_name_while_the_status_is_lost():
    here, there = route(rule_to(("a", 1)), model="one"), route(rule_to(("b", 1)), namespace="b")
    for each in (here, there):
        each["spec"]["aliases"] = ["gpt"]
    there["status"] = {
        "modelName": "chat",
        "aliases": [{"name": "gpt", "answers": "True"}],
        "conditions": [{"type": "Accepted", "status": "True"}],
    }
    builder = SnapshotBuilder()
    assert builder.build([], [], [here, there]).resolve("gpt").key == "b/route"
    lost = {name: value for name, value in there.items() if name != "status"}
    assert builder.build([], [], [here, lost]).resolve("gpt").key == "b/route"


LIMITS = {
    "maxOutputTokens": 100,
    "maxChoices": 2,
    "maxTemperature": "1.0",
    "maxTopLogprobs": 5,
}


@pytest.mark.parametrize(
    ("body", "limited"),
    [
        (b'"max_tokens": 5, "n": 2, "temperature": 1', {}),
        (b'"max_tokens": 5, "max_tokens": 5000', {"max_tokens": 100}),
        (b'"max_tokens": 5000, "max\\u005ftokens": 6000', {"max_tokens": 100}),
        (b'"max_tokens": "5000"', {"max_tokens": 100}),
        (b'"max_tokens": 5e3, "n": 3.0', {"max_tokens": 100, "n": 2}),
        (b'"max_tokens": 1%s' % (b"0" * 400), {"max_tokens": 100}),
        (b'"temperature": 1e999', {"max_completion_tokens": 100, "temperature": 1.0}),
        (b'"max_tokens": 5, "temperature": [1.5]', {"temperature": 1.0}),
        (b'"max_tokens": 5, "top_logprobs": -1', {"top_logprobs": 5}),
        (b'"max_tokens": null', {"max_completion_tokens": 100}),
    ],
)
async def test_what_a_request_asks_for_is_lowered_to_the_limits_of_its_rule(pair, body, limited):
    front, old, _ = await pair(rule_to(("old", 1), samplingLimits=LIMITS))
    sent = b'{"model": "chat", %s}' % body
    url, headers = front.url + "/v1/chat/completions", {"Content-Type": "application/json"}
    async with front.client.post(url, data=sent, headers=headers) as got:
        assert got.status == 200
        named = got.headers.get("x-penstock-limited-fields", "")
    assert set(named.split(", ")) - {""} == limited.keys()
    (request,) = old
    received = json.loads(request.body)
    assert received == json.loads(sent) | limited | {"model": "old-model"}
    assert request.body.startswith(sent.replace(b'"chat"', b'"old-model"')[:-1])


async def test_the_limits_of_a_tenant_hold_for_the_lowered_numbers(pair):
    limits = {"maxOutputTokens": 100, "maxChoices": 2}
    front, _, _ = await pair(rule_to(("old", 1), samplingLimits=limits))
    key = api_key(1)
    team = tenant("team", Access("default"), request=RequestLimits(output_tokens=200))
    let_in(front.gateway, team, keys={"team": key})
    assert (await ask(front, bearer(key), max_tokens=5000, n=10**12))[0] == 200
    assert (await ask(front, bearer(key), model="old-model", max_tokens=201))[0] == 400


def test_route_wins_over_a_service_of_its_name(make_service):
    answered = route(rule_to(("old", 1))) | {"status": {"modelName": "chat"}}
    (built,) = build([], [], [answered]).routes
    snapshot = Snapshot((make_service(name="chat"), make_service(name="old")), (built,))
    assert snapshot.resolve("chat") == snapshot.resolve("default/chat") == built
    assert snapshot.get("default/chat") is not None


def test_older_route_wins_a_name_claimed_twice():
    young = route(rule_to(("a", 1)), name="young")
    young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    snapshot = build([], [], [young, route(rule_to(("b", 1)), name="old")])
    resolved = snapshot.resolve("chat")
    assert isinstance(resolved, Route)
    assert resolved.name == "old"


def test_defaults_of_a_rule():
    mirror = {"backendRef": {"name": "b"}}
    built = build([], [], [route({"backendRefs": [{"name": "a"}], "mirrors": [mirror]})])
    (rule,) = built.routes[0].rules
    assert (rule.backends, rule.affinity, rule.affinity_header) == ((("a", 1),), "None", None)
    assert (rule.matches, rule.timeout_s) == ((), None)
    assert (rule.mirrors[0].revision, rule.mirrors[0].percent) == (None, 100)


async def test_any_of_the_matches_is_enough(pair):
    either = {"matches": [{"users": ["ada"]}, {"headers": [{"name": "X-Beta", "value": "1"}]}]}
    front, old, new = await pair(either | rule_to(("new", 1)), rule_to(("old", 1)))
    assert (await ask(front, user="ada"))[0] == (await ask(front, {"x-beta": "1"}))[0] == 200
    assert (await ask(front, {"x-beta": "2"}, user="bob"))[0] == 200
    assert (len(new), len(old)) == (2, 1)


async def test_a_request_ends_at_the_timeout_of_its_route(
    start_engine, start_gateway, make_service
):
    front = await start_gateway()
    service = make_service(await start_engine(hangs), name="old")
    limited = rule_to(("old", 1), timeouts={"request": "100ms"})
    front.snapshots.publish(Snapshot((service,), build([], [], [route(limited)]).routes))
    status, body = await ask(front)
    assert (status, body["error"]["message"]) == (504, "the time limit of the ModelRoute is over")
