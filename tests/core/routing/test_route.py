"""Which rule a request falls under, and which of its services answers."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.route import Backend, Mirror, RouteRule, first_match
from penstock.core.routing.route_match import Match, RoutedRequest

ACME = RouteRule((Match(headers=(("x-tenant", "acme"), ("x-beta", "1"))),), (("beta", 100),))
USERS = RouteRule((Match(users=frozenset({"ada", "bob"})),), (("staff", 100),))
REST = RouteRule((), (("old", 90), ("new", 10), ("off", 0)))
RULES = (ACME, USERS, REST)


@pytest.mark.parametrize(
    ("headers", "user", "expected"),
    [
        ({"x-tenant": "acme", "x-beta": "1"}, None, ACME),
        ({"x-tenant": "acme", "x-beta": "1"}, "ada", ACME),
        ({"x-tenant": "acme"}, "ada", USERS),
        ({"x-tenant": "Acme", "x-beta": "1"}, "eve", REST),
        ({}, None, REST),
    ],
)
def test_the_first_rule_that_matches(headers, user, expected):
    assert first_match(RULES, RoutedRequest(headers, user)) is expected


def test_no_rule_is_a_value():
    assert first_match((ACME, USERS), RoutedRequest({}, "eve")) is None


@pytest.mark.parametrize("is_kept", [True, False])
def test_services_by_weight(is_kept):
    draw = random.Random(4)
    counts = Counter(
        REST.backend(draw.random(), b"%d" % n if is_kept else None).name for n in range(20_000)
    )
    assert counts["off"] == 0
    assert abs(counts["new"] - 2000) < 4 * math.sqrt(20_000 * 0.1 * 0.9)


@given(st.binary(), st.integers(1, 99), st.integers(1, 99))
def test_more_weight_only_draws_keys_in(key, one, other):
    small, large = sorted((one, other))

    def service(weight):
        return RouteRule((), (("old", 100 - weight), ("new", weight))).backend(0.0, key).name

    assert (service(small), service(large)) in {("old", "old"), ("old", "new"), ("new", "new")}


def test_adapters_are_backends_too():
    """An adapter may have the name of a service. Services keep the requests that they had without it."""
    rule = RouteRule((), (("old", 50),), adapters=(("old", 50), ("off", 0)))
    assert rule.backend(0.49, None) == Backend("old")
    assert rule.backend(0.51, None) == Backend("old", "LoraAdapter")
    keys = [b"%d" % n for n in range(200)]
    kinds = Counter(rule.backend(0.0, key).kind for key in keys)
    assert min(kinds.values()) > 50
    services = RouteRule((), (("old", 50), ("new", 50)))
    more = RouteRule((), (("old", 50), ("new", 50)), adapters=(("sql", 50),))
    for key in keys:
        assert more.backend(0.0, key) in (services.backend(0.0, key), Backend("sql", "LoraAdapter"))


def test_the_share_that_is_copied():
    half, all_, none = (Mirror("a", None, percent) for percent in (50, 100, 0))
    assert [mirror.is_sampled(0.49) for mirror in (half, all_, none)] == [True, True, False]
    assert [mirror.is_sampled(0.5) for mirror in (half, all_, none)] == [False, True, False]
    assert not none.is_sampled(0.0)
