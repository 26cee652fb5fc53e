"""Drawn requests for adapters."""

from collections import Counter
from dataclasses import replace

import pytest

from penstock.sim.adapters.workload import AdapterWorkload, Step, calls, load_times, shares

ZIPF = AdapterWorkload(rps=20, duration_s=600, num_adapters=100)


def test_the_same_seed_draws_the_same() -> None:
    assert calls(ZIPF, 1) == calls(ZIPF, 1)
    assert calls(ZIPF, 1) != calls(ZIPF, 2)
    assert load_times(ZIPF, 1) == load_times(ZIPF, 1)


def test_shares_follow_zipfs_law() -> None:
    counts = Counter(call.adapter for call in calls(ZIPF, 1))
    (_, first), (_, second) = counts.most_common(2)
    assert first / second == pytest.approx(2, rel=0.2)
    assert first / counts.total() == pytest.approx(1 / 5.19, rel=0.1)


@pytest.mark.parametrize("workload", [ZIPF, replace(ZIPF, burst_share=0.2, cv=2.0)])
def test_the_mean_rate_is_kept(workload: AdapterWorkload) -> None:
    assert len(calls(workload, 1)) == pytest.approx(20 * 600, rel=0.1)


def test_a_burst_goes_round_its_group() -> None:
    workload = replace(ZIPF, rps=1, burst_share=1.0, group_size=4, burst_gap_s=0.01)
    drawn = calls(workload, 1)
    first = [call.adapter // 4 for call in drawn[:8]]
    assert len(set(first)) == 1
    assert len({call.adapter for call in drawn[:8]}) == 4


def test_new_adapters_appear_over_time() -> None:
    drawn = calls(replace(ZIPF, new_share=0.5), 1)
    early = {call.adapter for call in drawn if call.at_s < 100}
    late = {call.adapter for call in drawn if call.at_s > 500}
    assert len(late - early) > 20


def test_a_shift_changes_the_most_popular_adapters() -> None:
    drawn = calls(replace(ZIPF, shift_s=300, shifted=1.0), 1)
    halves = [
        Counter(c.adapter for c in drawn if (c.at_s < 300) == is_first)
        for is_first in (True, False)
    ]
    assert halves[0].most_common(1)[0][0] != halves[1].most_common(1)[0][0]


def test_a_step_multiplies_the_arrivals_of_one_adapter() -> None:
    drawn = calls(replace(ZIPF, step=Step(at_s=300, adapter=2, factor=20)), 1)
    times = [call.at_s for call in drawn if call.adapter == 2]
    before, after = sum(t < 300 for t in times), sum(t >= 300 for t in times)
    assert after / before == pytest.approx(20, rel=0.2)


def test_shares_are_known_of_independent_draws_only() -> None:
    assert sum(shares(ZIPF, 1)) == pytest.approx(1)
    with pytest.raises(ValueError, match="depend"):
        shares(AdapterWorkload(rps=3, burst_share=0.2), 1)


def test_given_shares_are_those_of_the_draws() -> None:
    workload = AdapterWorkload(rps=1.0, duration_s=10.0, num_adapters=3, shares=(6.0, 3.0, 1.0))
    assert sorted(shares(workload, seed=0)) == pytest.approx([0.1, 0.3, 0.6])
