"""Conversations: their turns, and when they go on."""

from random import Random

import pytest

from penstock.sim.workload.chats import Chats, Conversations, draw_turns
from penstock.sim.workload.lengths import Fixed


def chats(**changes: object) -> Chats:
    fixed = {
        "chats_per_s": 1.0, "mean_turns": 4.0, "think_s": 10.0, "system_tokens": 512,
        "message": Fixed(tokens=100), "answer": Fixed(tokens=50), "block_tokens": 64,
    }  # fmt: skip
    return Chats.model_validate(fixed | changes)


def test_each_prompt_holds_the_conversation_before_it() -> None:
    turns = draw_turns(chats(mean_turns=50), Random(1))
    assert [turn.prompt_tokens for turn in turns[:3]] == [612, 762, 912]
    assert {turn.output_tokens for turn in turns} == {50}


def test_a_conversation_ends_before_it_is_too_long() -> None:
    turns = draw_turns(chats(mean_turns=1000, max_tokens=1000), Random(1))
    assert [turn.prompt_tokens + turn.output_tokens for turn in turns] == [662, 812, 962]
    assert len(draw_turns(chats(max_tokens=10), Random(1))) == 1


@pytest.mark.parametrize("mean_turns", [1.0, 4.0])
def test_the_number_of_turns_is_geometric(mean_turns: float) -> None:
    random = Random(0)
    counts = [len(draw_turns(chats(mean_turns=mean_turns), random)) for _ in range(4000)]
    assert min(counts) == 1
    assert sum(counts) / len(counts) == pytest.approx(mean_turns, rel=0.05)


def test_the_next_turn_comes_after_its_think_time() -> None:
    conversations = Conversations(chats(mean_turns=50), 30.0, Random(3))
    first = conversations.first()[0]
    first.outcome = "ended"
    second = conversations.next_after(first, 100.0)
    assert second is not None
    assert (second.session, second.turn, second.user) == (first.session, 1, first.user)
    assert second.arrival_s > 100.0
    assert second.prefix[: len(first.prefix)] == first.prefix
    assert conversations.next_after(first, 100.0).arrival_s == second.arrival_s  # type: ignore[union-attr]


def test_a_conversation_ends_with_a_request_that_failed_and_with_its_last_turn() -> None:
    conversations = Conversations(chats(mean_turns=50), 30.0, Random(3))
    first = conversations.first()[0]
    first.outcome = "failed"
    assert conversations.next_after(first, 100.0) is None
    alone = Conversations(chats(mean_turns=1), 30.0, Random(3))
    last = alone.first()[0]
    last.outcome = "ended"
    assert alone.next_after(last, 100.0) is None
