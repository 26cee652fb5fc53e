"""Bounds of rules without knowledge of coming requests."""

import pytest
from benchmarks.simulator.adapter_bounds import IndependentCalls

from penstock.sim.adapters.run import RULES, run
from penstock.sim.adapters.workload import AdapterWorkload
from penstock.sim.workload.lengths import LogNormal

SHORT = LogNormal(median=100, p99=200)
SMALL = AdapterWorkload(rps=3, duration_s=420, num_adapters=60, output=SHORT, prompt=SHORT)
# The popular adapters have the short loads. Each request alone takes 0.1 s.
FOUR = IndependentCalls(
    load_s=[0.2, 0.3, 0.8, 0.9], shares=[0.4, 0.3, 0.2, 0.1], alone_s=[0.1], held=[set()]
)


def test_the_fewest_misses_keep_the_popular_adapters() -> None:
    assert FOUR.fewest_misses(slots=2) == pytest.approx(0.3)
    assert FOUR.fewest_misses(slots=4) == 0


def test_an_adapter_with_requests_in_flight_takes_a_slot() -> None:
    calls = IndependentCalls(FOUR.load_s, FOUR.shares, FOUR.alone_s, held=[{3}, set()])
    assert calls.fewest_misses(slots=2) == pytest.approx((0.5 + 0.3) / 2)


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
    calls = IndependentCalls.of(SMALL, 1)
    lowest_s, fewest = calls.lowest_ttft_s(18), calls.fewest_misses(18)
    for rule in RULES.keys() - {"bound"}:
        summary = run(rule, SMALL, 1, num_pods=3, slots=6)
        assert summary.ttft_p99_s > 0.95 * lowest_s
        assert summary.loads_per_request > 0.9 * fewest
    assert run("bound", SMALL, 1, num_pods=3, slots=6).ttft_p99_s < lowest_s
