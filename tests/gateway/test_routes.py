"""Requests whose model is the name of a ModelRoute."""

import json

import pytest

from penstock.gateway.snapshot import Route, Snapshot
from penstock.gateway.snapshot_builder import build


def route(*rules, model="chat", name="route", namespace="default"):
    """A ModelRoute as the API server returns it."""
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"modelName": model, "rules": list(rules)}}


def rule_to(*backends, **more):
    return {"backends": [{"service": s, "weight": w} for s, w in backends], **more}


def rule_matching(**match):
    return {"match": match}


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
    ("sticky", "headers", "fields"),
    [
        ({"stickyBy": "User"}, {}, {"user": "ada"}),
        ({"stickyBy": "Conversation"}, {}, {"messages": [{"role": "user", "content": "Hi"}]}),
        ({"stickyHeader": "x-tenant"}, {"x-tenant": "acme"}, {}),
    ],
)
async def test_sticky_requests_stay_on_one_backend(pair, sticky, headers, fields):
    front, old, new = await pair(rule_to(("old", 50), ("new", 50), **sticky))
    for _ in range(20):
        await ask(front, headers, **fields)
    assert sorted([len(old), len(new)]) == [0, 20]


async def test_route_to_a_missing_service_is_a_503(pair):
    front, _, _ = await pair(rule_to(("newer", 1)))
    status, body = await ask(front)
    assert (status, body["error"]["code"]) == (503, "route_broken")
    assert body["error"]["message"] == (
        "the ModelRoute default/route sends this request to the InferenceService newer, which the "
        "namespace default does not have: create it, or change the route's backends"
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


def test_route_wins_over_a_service_of_its_name(make_service):
    (built,) = build([], [], [route(rule_to(("old", 1)))]).routes
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
    built = build([], [], [route({"backends": [{"service": "a"}], "shadows": [{"service": "b"}]})])
    (rule,) = built.routes[0].rules
    assert (rule.backends, rule.sticky_by, rule.sticky_header) == ((("a", 100),), "None", None)
    assert (rule.shadows[0].revision, rule.shadows[0].percent) == (None, 100)
