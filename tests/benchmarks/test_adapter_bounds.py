"""Bounds of rules without knowledge of coming requests."""

import pytest
from benchmarks.simulator.adapter_bounds import IndependentRequests, shares

from penstock.sim.adapters.run import RULES, run
from penstock.sim.adapters.scenario import Adapters, AdapterScenario
from penstock.sim.workload.lengths import LogNormal

SHORT = LogNormal(median=100, p99=200)
ADAPTERS = Adapters(count=60, pods=3, slots=6, loads_at_once=1, rps=3, output=SHORT, prompt=SHORT)
SMALL = AdapterScenario(name="small", duration_s=420, adapters=ADAPTERS)
# The popular adapters have the short loads. Each request alone takes 0.1 s.
FOUR = IndependentRequests(
    load_s=[0.2, 0.3, 0.8, 0.9], shares=[0.4, 0.3, 0.2, 0.1], alone_s=[0.1], held=[set()]
)


def test_the_fewest_misses_keep_the_popular_adapters() -> None:
    assert FOUR.fewest_misses(slots=2) == pytest.approx(0.3)
    assert FOUR.fewest_misses(slots=4) == 0


def test_an_adapter_with_requests_in_flight_takes_a_slot() -> None:
    drawn = IndependentRequests(FOUR.load_s, FOUR.shares, FOUR.alone_s, held=[{3}, set()])
    assert drawn.fewest_misses(slots=2) == pytest.approx((0.5 + 0.3) / 2)


@pytest.mark.parametrize(
    ("slots", "quantile", "ttft_s"),
    [(2, 0.95, 0.4), (1, 0.85, 0.4), (1, 0.95, 0.9), (0, 0.95, 1.0), (4, 0.99, 0.1)],
)
def test_the_lowest_ttft_keeps_the_adapters_with_long_loads(
    slots: int, quantile: float, ttft_s: float
) -> None:
    assert FOUR.lowest_ttft_s(slots, quantile=quantile) == pytest.approx(ttft_s, abs=0.005)


def test_few_misses_leave_no_slots_for_long_loads() -> None:
    assert FOUR.lowest_ttft_s(2, most_misses=0.3, quantile=0.95) > 0.8


def test_no_rule_without_knowledge_is_better_than_the_bounds() -> None:
    drawn = IndependentRequests.of(SMALL, 1)
    lowest_s, fewest = drawn.lowest_ttft_s(18), drawn.fewest_misses(18)
    for rule in RULES.keys() - {"bound"}:
        summary = run(SMALL, rule, 1)
        assert summary.ttft_p99_s > 0.95 * lowest_s
        assert summary.loads_per_request > 0.9 * fewest
    assert run(SMALL, "bound", 1).ttft_p99_s < lowest_s


def test_shares_are_known_of_independent_draws_only() -> None:
    assert sum(shares(SMALL, 1)) == pytest.approx(1)
    bursts = ADAPTERS.model_copy(update={"burst_share": 0.2})
    with pytest.raises(ValueError, match="depend"):
        shares(SMALL.model_copy(update={"adapters": bursts}), 1)


def test_given_shares_are_those_of_the_draws() -> None:
    given = ADAPTERS.model_copy(update={"count": None, "shares": (6.0, 3.0, 1.0)})
    scenario = SMALL.model_copy(update={"adapters": given})
    assert sorted(shares(scenario, seed=0)) == pytest.approx([0.1, 0.3, 0.6])
