"""Names of models -> who answers, and the errors when nobody does."""

import asyncio
import json
from dataclasses import replace

import pytest

from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.route import Match, RouteRule, Shadow
from penstock.core.routing.traffic_split import Copies
from penstock.core.spec.objectives import Objectives
from penstock.gateway.drawing import build
from penstock.gateway.fleet import Fleet
from penstock.gateway.openai import Refused, parse
from penstock.gateway.snapshot import Ambiguous, Route, Service, Snapshot, Unknown
from penstock.gateway.target import Target, resolve


def call(model="chat", **fields):
    return parse(json.dumps({"model": model} | fields).encode())


def refused(snapshot, call, headers=None):
    with pytest.raises(Refused) as error:
        resolve(snapshot, call, headers or {})
    told = error.value
    return told.status, told.message, told.param, told.code, told.retry_after_s


def test_a_name_that_two_namespaces_have(make_service):
    snapshot = Snapshot((make_service(namespace="a"), make_service(namespace="b")))
    assert refused(snapshot, call()) == (
        400,
        "the model `chat` is served in more than one namespace: use one of a/chat, b/chat",
        "model",
        "model_ambiguous",
        None,
    )
    assert resolve(snapshot, call("b/chat"), {}) == Target(snapshot.services[1])


def test_a_name_that_nobody_has(make_service):
    message = f"the model `{'x' * 200}` does not exist"
    told = refused(Snapshot((make_service(),)), call("x" * 201))
    assert told == (404, message, "model", "model_not_found", None)


def routed(*rules, services):
    return Snapshot(services, (Route("default", "route", "any", 0, rules),))


def test_a_route_without_a_rule_for_the_request(make_service):
    rule = RouteRule(Match(users=frozenset({"ada"})), (("chat", 1),))
    snapshot = routed(rule, services=(make_service(),))
    assert refused(snapshot, call("any")) == (
        404,
        "no rule of the ModelRoute default/route matches this request: send the headers or the "
        "`user` that one of them asks for, or give it a last rule without a match",
        "model",
        "no_route",
        None,
    )
    assert resolve(snapshot, call("any", user="ada"), {}) == Target(snapshot.services[0])


def test_a_route_to_a_service_that_is_not_there(make_service):
    snapshot = routed(RouteRule(Match(), (("newer", 1),)), services=(make_service(),))
    assert refused(snapshot, call("any")) == (
        503,
        "the ModelRoute default/route sends this request to the InferenceService newer, which the "
        "namespace default does not have: create it, or change the route's backends",
        None,
        "route_broken",
        5,
    )


def test_copies_of_routes_and_of_rollouts(make_service):
    copies = Copies((Side("r2"),), 1.0)
    service, shadow = replace(make_service(), copies=copies), Shadow("other", None, 100)
    rule = RouteRule(Match(), (("chat", 1),), shadows=(shadow, Shadow("third", None, 0)))
    snapshot = routed(rule, services=(service,))
    assert resolve(snapshot, call("any"), {}) == Target(service, (shadow,), copies)
    assert resolve(snapshot, call("chat"), {}) == Target(service, (), copies)
    none = replace(service, copies=replace(copies, share=0.0))
    assert resolve(Snapshot((none,)), call("chat"), {}) == Target(none)
    shares = [replace(service, copies=replace(copies, share=0.5))] * 100
    copied = [resolve(Snapshot((each,)), call(), {}).copies is not None for each in shares]
    assert set(copied) == {False, True}


def test_what_a_header_keeps(make_service):
    """Its value, where the request has it; before what else it would stick by."""
    backends = tuple((f"s{number}", 1) for number in range(8))
    services = tuple(make_service(name=name) for name, _ in backends)
    rule = RouteRule(Match(), backends, sticky_by="User", sticky_header="x-tenant")
    snapshot = routed(rule, services=services)

    def names(headers, **fields):
        found = [resolve(snapshot, call("any", **fields), headers) for _ in range(40)]
        return {target.service.name for target in found}

    by_tenant = {tenant: names({b"x-tenant": tenant}, user="ada") for tenant in (b"a", b"b", b"c")}
    assert all(len(found) == 1 for found in by_tenant.values())
    assert len(set.union(*by_tenant.values())) > 1
    assert names({b"x-tenant": b"\xe9"}) == names({b"x-tenant": b"\xe9"})
    assert len(names({}, user="ada")) > 1


LABELS = {"service": "chat", "revision": "r1", "role": "serve"}


def objects():
    """A service, its pod and a route, each with all that a gateway reads."""
    meta = {"namespace": "n", "creationTimestamp": "2026-01-01T00:00:10Z"}
    service = {
        "metadata": meta | {"name": "chat"},
        "spec": {
            "model": {"servedName": "wanted"},
            "objectives": {"ttft": "2s", "tpot": "50ms", "attainment": 0.9},
            "rollout": {"canary": {"stickyBy": "User", "tenantHeader": "x-tenant"}},
        },
        "status": {
            "servedName": "Qwen3",
            "traffic": [
                {"revision": "r1", "weight": 90},
                {"revision": "r2", "cohort": "control", "weight": 10},
            ],
            "trafficGeneration": 7,
            "copies": {"sides": [{"revision": "r2", "cohort": "control"}], "share": 0.25},
        },
    }
    pod = {
        "metadata": {
            "namespace": "n",
            "name": "chat-0",
            "labels": {f"serving.penstock.dev/{name}": value for name, value in LABELS.items()},
        },
        "spec": {
            "containers": [
                {"ports": [{"name": "metrics", "containerPort": 9}, {"containerPort": 10}]},
                {"ports": [{"name": "http", "containerPort": "8000"}]},
            ]
        },
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": "Initialized", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
        },
    }
    route = {
        "metadata": meta | {"name": "route"},
        "spec": {
            "modelName": "any",
            "rules": [
                {
                    "match": {
                        "headers": [{"name": "x-a", "value": "1"}, {"name": "x-b", "value": "2"}],
                        "users": ["ada", "bob"],
                    },
                    "backends": [{"service": "chat", "weight": 3}, {"service": "other"}],
                    "stickyBy": "Conversation",
                    "stickyHeader": "x-c",
                    "shadows": [{"service": "other", "revision": "r9", "percent": 12.5}],
                },
                {"backends": [{"service": "chat"}]},
            ],
        },
    }
    return service, pod, route


CREATED_S = 1767225610  # 2026-01-01T00:00:10Z


def test_all_that_is_read_of_a_service():
    service, pod, _ = objects()
    bare = json.loads(json.dumps(pod))
    bare["metadata"] |= {"name": "chat-1", "labels": {"serving.penstock.dev/service": "chat"}}
    bare["status"]["conditions"] = []
    assert build([service], [bare, pod]).services == (
        Service(
            namespace="n",
            name="chat",
            served_name="Qwen3",
            created_s=CREATED_S,
            weights={Side("r1"): 90, Side("r2", "control"): 10},
            endpoints=(Endpoint("n/chat-0", "10.0.0.1:8000", "r1"),),
            objectives=Objectives(2.0, 0.05, 0.9),
            sides={"n/chat-0": Side("r1"), "n/chat-1": Side("")},
            sticky_by="User",
            generation=7,
            copies=Copies((Side("r2", "control"),), 0.25),
            tenant_header="x-tenant",
        ),
    )


def test_all_that_is_read_of_a_route():
    _, _, route = objects()
    assert build([], [], [route]).routes == (
        Route(
            namespace="n",
            name="route",
            served_name="any",
            created_s=CREATED_S,
            rules=(
                RouteRule(
                    match=Match((("x-a", "1"), ("x-b", "2")), frozenset({"ada", "bob"})),
                    backends=(("chat", 3), ("other", 100)),
                    sticky_by="Conversation",
                    sticky_header="x-c",
                    shadows=(Shadow("other", "r9", 12.5),),
                ),
                RouteRule(match=Match(), backends=(("chat", 100),)),
            ),
        ),
    )


def test_objects_that_say_little():
    service, pod, _ = objects()
    del service["status"]
    service["spec"] = {"model": {}}
    (found,) = build([service], []).services
    assert found == Service("n", "chat", "chat", CREATED_S, {}, ())
    assert (found.tenant_header, found.copies, found.objectives) == ("", None, None)
    pod["spec"]["containers"] = [{"name": "engine"}]
    assert build([service], [pod]).services[0].endpoints == ()
    del pod["status"]
    assert build([service], [pod]).services[0].sides == {"n/chat-0": Side("r1")}


def test_engines_are_in_the_order_of_their_names():
    service, pod, _ = objects()
    pods = [json.loads(json.dumps(pod)) for _ in range(3)]
    for name, each in zip("cab", pods, strict=True):
        each["metadata"]["name"] = name
    names = [e.pod for e in build([service], pods).services[0].endpoints]
    assert names == ["n/a", "n/b", "n/c"]


def test_a_snapshot_has_revisions_with_pods_with_weight_and_with_copies(make_service):
    service = replace(make_service(weights={"r1": 100, "r2": 0}), sides={"default/x": Side("r3")})
    shadows = Shadow("chat", "r4", 1), Shadow("gone", None, 1)
    rules = RouteRule(Match(), (("chat", 1),)), RouteRule(Match(), (("chat", 1),), shadows=shadows)
    other = Route("other", "route", "any", 0, rules)
    snapshot = Snapshot((service,), (Route("default", "route", "any", 0, rules), other))
    assert snapshot.revisions() == {
        "default/chat": {"r1", "r2", "r3", "r4"},
        "default/gone": {""},
        "other/chat": {"r4"},
        "other/gone": {""},
    }


def test_names_of_a_snapshot(make_service):
    """The first claim of a name in a namespace wins; a claim in another namespace makes it ambiguous."""
    a = make_service(name="a", served_name="m")
    b = make_service(name="b", served_name="m")
    c = make_service(name="c", served_name="m", namespace="other")
    d = make_service(name="d", served_name="team/d")
    route = Route("other", "route", "x", 0, ())
    snapshot = Snapshot((a, b, c, d), (route,))
    assert snapshot.resolve("m") == Ambiguous(("default/m", "other/m"))
    assert (snapshot.resolve("default/m"), snapshot.resolve("other/m")) == (a, c)
    assert (snapshot.resolve("x"), snapshot.resolve("other/x")) == (route, route)
    assert snapshot.resolve("b") == Unknown()
    assert snapshot.get("default/b") == b
    assert snapshot.get("default/m") is None
    assert snapshot.models() == [("x", route), ("default/m", a), ("other/m", c)]
    assert (a.key, a.full_name, route.key, route.full_name) == (
        "default/a",
        "default/m",
        "other/route",
        "other/x",
    )


@pytest.mark.parametrize(
    ("sides", "is_mixed"),
    [({}, False), ({"p": Side("r1")}, False), ({"p": Side("r1"), "q": Side("r1")}, False),
     ({"p": Side("r1"), "q": Side("r1", "control")}, True)],
)  # fmt: skip
def test_when_there_is_something_to_compare(make_service, sides, is_mixed):
    assert replace(make_service(), sides=sides).is_mixed is is_mixed


def test_a_fleet_tells_of_each_change_and_of_nothing_else(run_virtually, make_service):
    first, second = Snapshot((make_service(),)), Snapshot((make_service(name="other"),))

    async def main():
        fleet, loop = Fleet(), asyncio.get_running_loop()
        began_s, told = loop.time(), []
        fleet.listeners.append(told.append)
        fleet.listeners.append(lambda snapshot: told.append(fleet.snapshot is snapshot))
        assert not fleet.is_synced
        assert await fleet.wait(2.0) is False
        assert loop.time() - began_s == pytest.approx(2.0)
        for snapshot in (Snapshot(), first, first, second):  # the empty one is news too
            changes = snapshot != fleet.snapshot or not fleet.is_synced
            told.clear()
            waiting = asyncio.create_task(fleet.wait(1.0))
            await asyncio.sleep(0.5)
            fleet.publish(snapshot)
            assert told == ([snapshot, True] if changes else [])
            assert (fleet.snapshot, fleet.is_synced) == (snapshot, True)
            assert await waiting is changes
        assert await fleet.wait(1.0) is False  # the next change, not the last one

    run_virtually(main)
