"""llm-d's rule: 2 x queue + 2 x free KV cache + 3 x cached prefix, with an approximate index."""

import pytest
from tests.sim.routing.conftest import BLOCK_TOKENS, MakeViews, Pick

from penstock.sim.request import Request
from penstock.sim.routing.llmd import LlmD

IDLE = (0, 0, 0.0)


def request(*prefix: int, number: int = 0, blocks: int = 4) -> Request:
    return Request(f"r{number}", 0.0, blocks * BLOCK_TOKENS, 100, prefix)


@pytest.mark.parametrize(
    ("matching", "metrics", "pod"),
    [
        # An engine had all blocks: 3 more than others
        (4, [IDLE, IDLE, IDLE], "a"),
        # 2 + 0.2 + 3 against 2 + 2: its full cache does not outweigh the prefix
        (4, [(0, 9, 0.9), IDLE, IDLE], "a"),
        # 0 + 2 + 3 against 2 + 2: neither does the longest queue
        (4, [(1, 0, 0.0), IDLE, IDLE], "a"),
        # 0 + 0.8 + 3 against 2 + 2: both do
        (4, [(1, 0, 0.6), IDLE, IDLE], "b"),
        # 2 + 2 x 0.2 + 3 x 0.5 against 4: half of the blocks
        (2, [(0, 9, 0.8), IDLE, IDLE], "b"),
        (2, [(0, 9, 0.7), IDLE, IDLE], "a"),
        # 2 x 0.75 + 2 + 3 x 0.5 against 4, as the queue is a quarter of the longest
        (2, [(1, 0, 0.0), IDLE, (4, 0, 0.0)], "a"),
        # 2 x 0.25 + 2 + 3 x 0.5 against 4: equal, and drawn
        (2, [(3, 0, 0.0), IDLE, (4, 0, 0.0)], "a"),
    ],
)
def test_the_weighted_sum_decides(
    make_views: MakeViews,
    pick: Pick,
    matching: int,
    metrics: list[tuple[int, int, float]],
    pod: str,
) -> None:
    rule = LlmD()
    first = request(1, 2, 3, 4)
    assert pick(rule, make_views(), first, draw=0.0) == "a"
    second = request(*(1, 2, 3, 4)[:matching], *range(10, 14 - matching), number=1)
    assert pick(rule, make_views(metrics=metrics), second, draw=0.0) == pod


def test_blocks_behind_a_gap_do_not_match(make_views: MakeViews, pick: Pick) -> None:
    rule = LlmD()
    pick(rule, make_views(), request(1, 2, 3, 4), draw=0.0)
    # 3 x 1/4 for "a" against 2 x 0.4 of free cache
    busy = [(0, 9, 0.4), (0, 0, 0.0), (0, 0, 0.0)]
    assert pick(rule, make_views(metrics=busy), request(1, 9, 3, 4), draw=0.0) == "b"


def test_the_index_forgets_what_was_used_longest_ago(make_views: MakeViews, pick: Pick) -> None:
    only_a = make_views()[:1]
    rule = LlmD(index_size=8 / only_a[0].num_blocks)
    for number in range(3):  # 12 blocks, of which 8 fit
        pick(rule, only_a, request(*range(4 * number, 4 * number + 4), number=number))
    # "a" is known for the second and third prompt only
    assert pick(rule, make_views(), request(0, 1, 2, 3), draw=0.9) == "c"
    assert pick(rule, make_views(), request(8, 9, 10, 11), draw=0.9) == "a"


@pytest.mark.parametrize(("away_s", "pod"), [(119.0, "a"), (120.0, "c")])
def test_an_engine_that_is_back_within_two_minutes_keeps_its_stale_index(
    make_views: MakeViews, pick: Pick, away_s: float, pod: str
) -> None:
    rule, views = LlmD(), make_views()
    pick(rule, views, request(1, 2, 3, 4), draw=0.0)
    rule.engine_removed("a", 100.0)
    rule.engine_added(make_views()[0], 100.0 + away_s)
    assert pick(rule, make_views(), request(1, 2, 3, 4), draw=0.9, now=300.0) == pod
