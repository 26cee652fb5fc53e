"""Conditions of a rule that hold for a request, and those that do not."""

from dataclasses import replace

import pytest

from penstock.core.routing.route_match import Match, RoutedRequest, TokenRange

REQUEST = RoutedRequest(
    headers={"x-team": "search"},
    user="ada",
    tenant="team-a",
    cost_tier="economy",
    region="eu-west",
    task="Embedding",
    service_tier="flex",
    prompt_tokens=100,
    output_tokens=50,
)
# Each condition alone, with a field of a request for which it does not hold.
CONDITIONS = [
    (Match(headers=(("x-team", "search"),)), {"headers": {"x-team": "Search"}}),
    (Match(users=frozenset({"ada", "bob"})), {"user": None}),
    (Match(tenants=frozenset({"team-a"})), {"tenant": "team-a-2"}),
    (Match(tenants=frozenset({"team-a"})), {"tenant": ""}),
    (Match(cost_tiers=frozenset({"economy"})), {"cost_tier": ""}),
    (Match(regions=frozenset({"eu-west"})), {"region": ""}),
    (Match(tasks=frozenset({"Embedding", "Pooling"})), {"task": "Chat"}),
    (Match(service_tiers=frozenset({"flex"})), {"service_tier": "auto"}),
    (Match(service_tiers=frozenset({"flex"})), {"service_tier": ""}),
    (Match(prompt_tokens=TokenRange(max=100)), {"prompt_tokens": 101}),
    (Match(prompt_tokens=TokenRange(min=100)), {"prompt_tokens": 99}),
    (Match(output_tokens=TokenRange(50, 50)), {"output_tokens": 51}),
    (Match(output_tokens=TokenRange(max=50)), {"output_tokens": None}),
]


@pytest.mark.parametrize(("match", "changed"), CONDITIONS)
def test_each_condition_alone(match, changed):
    assert match.holds(REQUEST)
    assert not match.holds(replace(REQUEST, **changed))


def test_all_conditions_of_a_match_have_to_hold():
    both = Match(tenants=frozenset({"team-a"}), tasks=frozenset({"Embedding"}))
    assert both.holds(REQUEST)
    assert not both.holds(replace(REQUEST, task="Chat"))
    assert not both.holds(replace(REQUEST, tenant="team-b"))


def test_an_output_without_a_bound_is_in_ranges_without_an_end():
    unlimited = replace(REQUEST, output_tokens=None)
    assert Match(output_tokens=TokenRange(min=4096)).holds(unlimited)
    assert Match().holds(unlimited)
