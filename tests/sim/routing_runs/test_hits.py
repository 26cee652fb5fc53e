"""Hit rates of the simulated engine, against plain computations on small traces."""

from collections import OrderedDict
from itertools import pairwise
from random import Random

import pytest
from tests.sim.routing.conftest import Unheard

from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.profile import profile
from penstock.sim.request import Request
from penstock.sim.routing_runs.reuse import reusable_tokens
from penstock.sim.workload.chats import Chats, Conversations
from penstock.sim.workload.lengths import Fixed, LogNormal

BLOCK_TOKENS = 64


def serve(requests: list[Request], num_blocks: int, at_once: int = 1) -> list[int]:
    """Cached tokens of requests. One engine serves `at_once` of them at the same time, then the next ones."""
    clock = Clock()
    spec = profile("llama-3.1-8b-h100").model_copy(
        update={"kv_tokens": num_blocks * BLOCK_TOKENS, "block_size": BLOCK_TOKENS}
    )
    engine = Engine(spec, clock, Unheard(), Random(0), BLOCK_TOKENS)
    for first in range(0, len(requests), at_once):
        for request in requests[first : first + at_once]:
            assert engine.submit(request)
        clock.run(clock.now + 1000.0)
        engine.scheduler.check()
        assert not engine.num_open
    return [request.cached_tokens for request in requests]


def least_recently_used(requests: list[Request], num_blocks: int) -> list[int]:
    """Cached tokens by a plain model of one cache.

    A prompt takes its cached leading blocks, and evicts the oldest others once no block is empty. When it
    ends, its full blocks are the newest ones, the first of them the very newest.
    """
    cached: OrderedDict[int, None] = OrderedDict()
    hits = []
    for request in requests:
        full = request.prompt_tokens // BLOCK_TOKENS
        blocks = request.prefix[:full]
        most = (request.prompt_tokens - 1) // BLOCK_TOKENS
        num_hits = next((i for i in range(most) if blocks[i] not in cached), most)
        hits.append(num_hits * BLOCK_TOKENS)
        for block in blocks[:num_hits]:
            del cached[block]
        written = request.prompt_tokens + request.output_tokens - 1
        num_held = -(-written // BLOCK_TOKENS)
        while len(cached) + num_held > num_blocks:
            cached.popitem(last=False)
        for block in reversed(blocks):
            if block not in cached:  # a block behind a gap is computed twice, and cached once
                cached[block] = None
    return hits


def a_trace(num_requests: int, seed: int) -> list[Request]:
    """Prompts of 2 to 6 full blocks, which share their first ones with others of their group."""
    random = Random(seed)
    requests = []
    for number in range(num_requests):
        group, own = random.randrange(5), random.randrange(2, 5)
        shared = [100 * group + i for i in range(random.randrange(3))]
        prefix = (*shared, *(10_000 + 10 * number + i for i in range(own)))
        requests.append(
            Request(
                f"r{number}", 0.0, len(prefix) * BLOCK_TOKENS + 1, random.randrange(1, 60), prefix
            )
        )
    return requests


@pytest.mark.parametrize("num_blocks", [9, 14, 20, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_hits_are_those_of_a_plain_cache(num_blocks: int, seed: int) -> None:
    requests = a_trace(60, seed)
    expected = least_recently_used(requests, num_blocks)
    assert serve(requests, num_blocks) == expected
    assert any(expected)


def test_a_cache_without_end_has_all_reusable_tokens() -> None:
    requests = a_trace(60, 0)
    assert serve(requests, 100_000) == reusable_tokens(requests, BLOCK_TOKENS)


def conversations(num_chats: int) -> list[list[Request]]:
    """Turns of conversations that have at least four."""
    workload = Chats(
        chats_per_s=0.1,
        mean_turns=8,
        system_tokens=128,
        message=LogNormal(median=100, p99=400),
        answer=LogNormal(median=150, p99=600),
        block_tokens=BLOCK_TOKENS,
    )
    drawn = Conversations(workload, 1000.0, Random(4))
    chats = []
    for first in drawn.first():
        turns, turn = [], first
        while turn is not None:
            turns.append(turn)
            turn.outcome = "ended"
            turn = drawn.next_after(turn, 0.0)
        if len(turns) >= 4:
            chats.append(turns)
    return chats[:num_chats]


def known_tokens(before: Request) -> int:
    """Tokens of a turn in full blocks. The last token of an answer has no keys and values."""
    return (before.prompt_tokens + before.output_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def test_a_turn_reuses_the_prompt_and_the_answer_before_it() -> None:
    turns = [turn for chat in conversations(5) for turn in chat]
    reusable = reusable_tokens(turns, BLOCK_TOKENS)
    assert serve(turns, 100_000) == reusable
    for before, turn, tokens in zip(turns, turns[1:], reusable[1:], strict=False):
        assert tokens == (known_tokens(before) if turn.turn else 128)


def test_conversations_beside_each_other_reuse_their_own_turns() -> None:
    chats = conversations(5)
    turns = [chat[number] for number in range(4) for chat in chats]
    serve(turns, 100_000, at_once=5)
    for chat in chats:
        for before, turn in pairwise(chat[:4]):
            assert turn.cached_tokens == known_tokens(before)


def test_prompts_share_nothing_but_the_system_prompt() -> None:
    workload = Chats(
        chats_per_s=1.0,
        mean_turns=1,
        system_tokens=BLOCK_TOKENS,
        message=Fixed(tokens=200),
        answer=Fixed(tokens=10),
        block_tokens=BLOCK_TOKENS,
    )
    first, second, *_ = Conversations(workload, 100.0, Random(0)).first()
    assert set(first.prefix) & set(second.prefix) == {0}
    assert first.session != second.session
