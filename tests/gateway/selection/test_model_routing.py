"""Model names -> the service that answers, and the errors when there is none."""

import json
from dataclasses import replace

import pytest

from penstock.core.routing.apis import CHAT
from penstock.core.routing.pick import Side
from penstock.core.routing.route import Backend, Mirror, RouteRule
from penstock.core.routing.route_match import Match
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import parse
from penstock.gateway.selection.model_routing import resolve
from penstock.gateway.selection.routing_target import FollowedRule, RoutingTarget
from penstock.gateway.snapshots.snapshot import Route, Snapshot
from penstock.gateway.tenants.authorization import ModelAccess

ANY = ModelAccess()


def request_for(model="chat", **fields):
    return parse(json.dumps({"model": model} | fields).encode(), CHAT)


def error_of(snapshot, request_for, headers=None):
    with pytest.raises(RequestError) as error:
        resolve(snapshot, request_for, headers or {}, ANY)
    error = error.value
    return error.status, error.message, error.param, error.code, error.retry_after_s


def test_a_model_name_of_two_namespaces_leads_to_the_older(make_service):
    younger, older = (
        make_service(namespace="a", created_s=2),
        make_service(namespace="b", created_s=1),
    )
    snapshot = Snapshot((younger, older))
    for name, service in (("chat", older), ("b/chat", older), ("a/chat", younger)):
        assert resolve(snapshot, request_for(name), {}, ANY) == RoutingTarget(service)


def test_unknown_model_name_is_a_404(make_service):
    message = f"the model `{'x' * 200}` does not exist: there are chat"
    error = error_of(Snapshot((make_service(),)), request_for("x" * 201))
    assert error == (404, message, "model", "model_not_found", None)


def test_error_lists_the_first_model_names_in_order(make_service):
    services = [make_service(name=f"model-{n:02}") for n in reversed(range(23))]
    listed = ", ".join(f"model-{n:02}" for n in range(20))
    for number, more in ((20, ""), (21, " and 1 more"), (23, " and 3 more")):
        message = error_of(Snapshot(tuple(services[-number:])), request_for("no"))[1]
        assert message == f"the model `no` does not exist: there are {listed}{more}"
    assert error_of(Snapshot(), request_for("no"))[1] == "the model `no` does not exist"


def test_a_request_with_the_name_of_an_object_is_told_its_model_name(make_service):
    service = replace(make_service(), name="base")
    assert error_of(Snapshot((service,)), request_for("base"))[1] == (
        "the model `base` does not exist: the model name of the object `base` is chat"
    )


def test_the_name_of_a_dedicated_pool_is_unknown(make_service):
    pool = replace(make_service(), name="chat-sql", adapter="sql")
    message = error_of(Snapshot((make_service(), pool)), request_for("chat-sql"))[1]
    assert message == "the model `chat-sql` does not exist: there are chat"


def snapshot_with_route(*rules, services):
    return Snapshot(services, (Route("default", "route", "any", 0, rules),))


def test_request_that_no_rule_matches_is_a_404(make_service):
    rule = RouteRule((Match(users=frozenset({"ada"})),), (("chat", 1),))
    snapshot = snapshot_with_route(rule, services=(make_service(),))
    assert error_of(snapshot, request_for("any")) == (
        404,
        "no rule of the ModelRoute default/route matches this request: send what one of them "
        "requires, such as a header or a `user`, or add a last rule without matches",
        "model",
        "no_route",
        None,
    )
    assert resolve(snapshot, request_for("any", user="ada"), {}, ANY) == RoutingTarget(
        snapshot.services[0], followed=FollowedRule(snapshot.routes[0], rule, Backend("chat"))
    )


def test_route_to_a_missing_service_is_a_503(make_service):
    snapshot = snapshot_with_route(RouteRule((), (("newer", 1),)), services=(make_service(),))
    assert error_of(snapshot, request_for("any")) == (
        503,
        "the ModelRoute default/route sends this request to the InferenceService newer, which the "
        "namespace default does not have: create it, or change the route",
        None,
        "route_broken",
        5,
    )


def test_mirrors_of_a_route_and_of_a_rollout_are_sampled(make_service):
    own = RolloutMirror((Side("r2"),), 100)
    service, mirror = replace(make_service(), mirror=own), Mirror("other", None, 100)
    rule = RouteRule((), (("chat", 1),), mirrors=(mirror, Mirror("third", None, 0)))
    snapshot = snapshot_with_route(rule, services=(service,))
    target = RoutingTarget(
        service, (mirror,), own, followed=FollowedRule(snapshot.routes[0], rule, Backend("chat"))
    )
    assert resolve(snapshot, request_for("any"), {}, ANY) == target
    assert resolve(snapshot, request_for("chat"), {}, ANY) == RoutingTarget(service, (), own)
    none = replace(service, mirror=replace(own, percent=0))
    assert resolve(Snapshot((none,)), request_for("chat"), {}, ANY) == RoutingTarget(none)
    shares = [replace(service, mirror=replace(own, percent=50))] * 100
    targets = [resolve(Snapshot((each,)), request_for(), {}, ANY) for each in shares]
    assert {target.rollout_mirror is not None for target in targets} == {False, True}


def test_requests_with_the_same_header_stay_on_one_backend(make_service):
    """The header takes precedence over `affinity`. A request without it may go to any."""
    backends = tuple((f"s{number}", 1) for number in range(8))
    services = tuple(make_service(name=name) for name, _ in backends)
    rule = RouteRule((), backends, affinity="User", affinity_header="x-tenant")
    snapshot = snapshot_with_route(rule, services=services)

    def names(headers, **fields):
        targets = [resolve(snapshot, request_for("any", **fields), headers, ANY) for _ in range(40)]
        return {target.service.name for target in targets}

    by_tenant = {tenant: names({b"x-tenant": tenant}, user="ada") for tenant in (b"a", b"b", b"c")}
    assert all(len(targets) == 1 for targets in by_tenant.values())
    assert len(set.union(*by_tenant.values())) > 1
    assert names({b"x-tenant": b"\xe9"}) == names({b"x-tenant": b"\xe9"})
    assert len(names({}, user="ada")) > 1


@pytest.mark.parametrize("value", ["müller".encode(), "müller".encode("latin-1")])
def test_header_outside_ascii_matches_in_utf_8_and_in_latin_1(make_service, value):
    """HTTP libraries send either."""
    beta = RouteRule((Match((("x-team", "müller"),)),), (("beta", 1),))
    rest = RouteRule((), (("chat", 1),))
    route = Route("default", "route", "any", 0, (beta, rest))
    services = make_service(name="beta"), make_service(name="chat")
    snapshot = Snapshot(services, (route,))
    assert resolve(snapshot, request_for("any"), {b"x-team": value}, ANY).service.name == "beta"
    assert resolve(snapshot, request_for("any"), {b"x-team": b"muller"}, ANY).service.name == "chat"
