"""Lookups in a routing snapshot."""

import sys
from dataclasses import replace

import pytest

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.routing.pick import Side
from penstock.core.routing.route import Mirror, RouteRule
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Route, Snapshot, Unknown


def test_revisions_have_pods_or_weight_or_copies(make_service):
    service = replace(make_service(weights={"r1": 100, "r2": 0}), sides={"default/x": Side("r3")})
    mirrors = Mirror("chat", "r4", 1), Mirror("gone", None, 1)
    rules = RouteRule((), (("chat", 1),)), RouteRule((), (("chat", 1),), mirrors=mirrors)
    other = Route("other", "route", "any", 0, rules)
    snapshot = Snapshot((service,), (Route("default", "route", "any", 0, rules), other))
    assert snapshot.revisions() == {
        "default/chat": {"r1", "r2", "r3", "r4"},
        "default/gone": {""},
        "other/chat": {"r4"},
        "other/gone": {""},
    }


def test_model_names_resolve_to_the_oldest_claim_of_a_namespace(make_service):
    """The oldest claim has the name alone; one of another namespace is reached with its namespace."""
    a = make_service(name="a", served_name="m")
    b = make_service(name="b", served_name="m")
    c = make_service(name="c", served_name="m", namespace="other", created_s=9)
    d = make_service(name="d", served_name="team/d")
    route = Route("other", "route", "x", 0, ())
    snapshot = Snapshot((a, b, c, d), (route,))
    assert snapshot.resolve("m") == a
    assert (snapshot.resolve("default/m"), snapshot.resolve("other/m")) == (a, c)
    assert (snapshot.resolve("x"), snapshot.resolve("other/x")) == (route, route)
    assert snapshot.resolve("b") == Unknown()
    assert snapshot.get("default/b") == b
    assert snapshot.get("default/m") is None
    assert snapshot.models() == (("x", route), ("m", a), ("other/m", c), ("team/d", d))
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
def test_service_is_mixed_if_its_pods_are_of_two_sides(make_service, sides, is_mixed):
    assert replace(make_service(), sides=sides).is_mixed is is_mixed


def test_many_adapters_with_names_of_their_own_cost_no_calls_each():
    """The event loop waits for each snapshot, and a change of one pod makes a new one."""
    version = AdapterVersion("sql", "file:///models/sql")
    adapters = tuple(
        Adapter("default", f"a{number}", f"m{number}", 0, "default/chat", version)
        for number in range(1000)
    )
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        snapshot = Snapshot(adapters=adapters)
    finally:
        sys.setprofile(None)
    assert snapshot.resolve("m999") == adapters[999]
    assert calls < 4 * len(adapters)
