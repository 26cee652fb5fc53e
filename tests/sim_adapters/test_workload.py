"""Drawn requests for adapters."""

from collections import Counter
from typing import Any

import pytest

from penstock.sim.adapters.scenario import Adapters
from penstock.sim.adapters.workload import load_times, requests_of, versions
from penstock.sim.request import Request

ZIPF = Adapters(count=100, pods=1, slots=1, rps=20)
INDEX = {version.engine_name: index for index, version in enumerate(versions(ZIPF))}


def draw(seed: int = 1, **changes: Any) -> list[Request]:
    return requests_of(ZIPF.model_copy(update=changes), 600, seed)


def values(requests: list[Request]) -> list[tuple[float, str, int, int]]:
    return [(r.arrival_s, r.adapter, r.prompt_tokens, r.output_tokens) for r in requests]


def test_the_same_seed_draws_the_same() -> None:
    assert values(draw(1)) == values(draw(1))
    assert values(draw(1)) != values(draw(2))
    assert load_times(ZIPF, 1) == load_times(ZIPF, 1)


def test_shares_follow_zipfs_law() -> None:
    counts = Counter(request.adapter for request in draw())
    (_, first), (_, second) = counts.most_common(2)
    assert first / second == pytest.approx(2, rel=0.2)
    assert first / counts.total() == pytest.approx(1 / 5.19, rel=0.1)


@pytest.mark.parametrize("changes", [{}, {"burst_share": 0.2, "cv": 2.0}])
def test_the_mean_rate_is_kept(changes: dict[str, float]) -> None:
    assert len(draw(**changes)) == pytest.approx(20 * 600, rel=0.1)


def test_a_burst_goes_round_its_group() -> None:
    drawn = draw(rps=0.01, burst_share=1.0, group_size=4)
    first = [INDEX[request.adapter] for request in drawn[:8]]
    assert len({adapter // 4 for adapter in first}) == 1
    assert Counter(first) == dict.fromkeys(first, 2)


def test_new_adapters_appear_over_time() -> None:
    drawn = draw(new_share=0.5)
    early = {request.adapter for request in drawn if request.arrival_s < 100}
    late = {request.adapter for request in drawn if request.arrival_s > 500}
    assert len(late - early) > 20


def test_a_shift_changes_the_popularity_of_a_fifth_of_the_adapters() -> None:
    drawn = draw(rps=400, shift_s=300)
    halves = [
        Counter(r.adapter for r in drawn if (r.arrival_s < 300) == is_first)
        for is_first in (True, False)
    ]
    changed = [name for name in INDEX if not 2 / 3 < halves[0][name] / halves[1][name] < 3 / 2]
    assert 10 <= len(changed) <= 20
