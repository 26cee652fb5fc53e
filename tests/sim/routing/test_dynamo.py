"""Dynamo's rule: blocks to compute, less those that are cached, and active blocks."""

import pytest
from tests.sim.routing.conftest import BLOCK_TOKENS, MakeViews, Pick

from penstock.sim.clock import Clock
from penstock.sim.request import Request
from penstock.sim.routing.dynamo import Dynamo
from penstock.sim.routing.view import EngineView


def request(*prefix: int, number: int = 0, blocks: int = 4) -> Request:
    return Request(f"r{number}", 0.0, blocks * BLOCK_TOKENS + 1, 1, prefix)


def rule_for(views: list[EngineView]) -> Dynamo:
    rule = Dynamo()
    for view in views:
        rule.engine_added(view, 0.0)
    return rule


def test_cached_blocks_are_no_work(make_views: MakeViews, pick: Pick, clock: Clock) -> None:
    views = make_views()
    views[1]._engine.submit(request(1, 2, 3, 4, number=9))
    clock.run(10.0)
    rule = rule_for(views)
    assert pick(rule, views, request(1, 2, 3, 4, number=0), draw=0.0) == "b"
    # No block of this prompt is cached: b has 1 token to compute and 5 active blocks, the others have no work
    assert pick(rule, views, request(7, 8, number=1), draw=0.0) == "a"


@pytest.mark.parametrize(("cached", "pod"), [(4, "b"), (3, "a")])
def test_cache_is_weighed_against_work_in_flight(
    make_views: MakeViews, pick: Pick, clock: Clock, cached: int, pod: str
) -> None:
    views = make_views()[:2]
    views[1]._engine.submit(request(1, 2, 3, 4, number=9))
    clock.run(10.0)
    rule = rule_for(views)
    # b has 257 tokens to compute, which are 2 active blocks
    assert pick(rule, views[1:], request(50, number=0, blocks=1)) == "b"
    # In blocks of 256 tokens: 1025 + 257 tokens less `cached`, and 7 active, against 1025 tokens and 5 active
    wanted = request(*(1, 2, 3, 4)[:cached], *range(60, 64 - cached), number=1)
    assert pick(rule, views, wanted) == pod


def test_a_prompt_counts_until_its_first_token_and_its_blocks_until_the_end(
    make_views: MakeViews, pick: Pick
) -> None:
    views = make_views()
    rule = rule_for(views)
    first = request(1, 2, 3, 4)
    assert pick(rule, views, first, draw=0.0) == "a"
    active = rule._active["a"]
    assert (active.prefill_tokens, active.potential_blocks([])) == (1025, 6)
    rule.first_token(first, 1.0)
    assert (active.prefill_tokens, active.potential_blocks([])) == (0, 6)
    rule.ended(first, 2.0)
    assert (active.prefill_tokens, active.potential_blocks([])) == (0, 1)


def test_a_request_that_ends_without_a_token_counts_no_more(
    make_views: MakeViews, pick: Pick
) -> None:
    views = make_views()
    rule = rule_for(views)
    first = request(1, 2, 3, 4)
    pick(rule, views, first, draw=0.0)
    rule.ended(first, 1.0)
    assert rule._active["a"].prefill_tokens == 0


def test_blocks_that_requests_share_are_active_once(make_views: MakeViews, pick: Pick) -> None:
    only_a = make_views()[:1]
    rule = rule_for(only_a)
    for number in range(2):
        pick(rule, only_a, request(1, 2, 3, 4, number=number))
    # 4 shared and 2 partial blocks, and one for the next prompt
    assert rule._active["a"].potential_blocks([]) == 7
