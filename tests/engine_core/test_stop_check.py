"""Tests of the stop check: which tokens a sequence accepts, and how it ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput
from penstock_engine.core.stop_check import LENGTH_STOP, Stop, append_until_stop

EOS = 9


class ExactText:
    """A grammar that allows exactly one text."""

    has_failed = False

    def __init__(self, *text: int) -> None:
        self.rest = list(text)

    @property
    def is_finished(self) -> bool:
        return not self.rest

    def fill(self, bits: memoryview) -> None:
        raise AssertionError("this test does not sample")

    def accept(self, token_id: int) -> bool:
        is_next = self.rest[:1] == [token_id]
        self.rest = self.rest[is_next:]
        return is_next

    def rollback(self, num_tokens: int) -> None:
        raise AssertionError("this test has no drafts")


def sequence(
    num_prompt_tokens: int = 1, max_tokens: int = 9, constraint: Constraint | None = None,
    eos: frozenset[int] = frozenset({EOS}), min_tokens: int = 0,
) -> Sequence:  # fmt: skip
    sampling = SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens)
    prompt = [1] * num_prompt_tokens
    return Sequence("a", prompt, sampling, eos, 0.0, constraint=constraint)


@pytest.mark.parametrize("eos", [frozenset(), frozenset({EOS}), frozenset({1})])
@pytest.mark.parametrize("limit", ["max_tokens", "max_num_tokens"])
@pytest.mark.parametrize("room", [1, 2, 3])
@pytest.mark.parametrize("num_sampled", [1, 2, 3, 4])
def test_no_token_beyond_the_limits_is_appended(
    eos: frozenset[int], limit: str, room: int, num_sampled: int
) -> None:
    """The limit is the request's or the engine's, with and without possible end-of-sequence tokens."""
    one = sequence(2, room if limit == "max_tokens" else 99, eos=eos, min_tokens=99)
    sampled = (1, 2, 3, 4)[:num_sampled]
    taken = append_until_stop(one, sampled, 2 + room if limit == "max_num_tokens" else 99)
    assert taken == (min(num_sampled, room), LENGTH_STOP if num_sampled >= room else None)
    assert one.tokens == [1, 1, *sampled[:room]]


@pytest.mark.parametrize(
    ("text", "sampled", "expected"),
    [
        ((5,), (5,), (1, Stop("stop"))),
        ((5, 6), (5,), (1, None)),
        ((5, 6), (5, 6), (2, Stop("stop"))),
        ((5, 6), (5, 6, 7), (2, Stop("stop"))),
        ((5, 6), (6,), (1, Stop("error", failure="nothing_to_draw"))),
        ((5, 6), (5, 7, 6), (2, Stop("error", failure="nothing_to_draw"))),
        ((5, EOS), (5, EOS), (2, Stop("stop", EOS))),
        ((5, 6, 7), (5, 6, 7), (3, Stop("stop"))),
        ((5, 6, 7, 8), (5, 6, 7, 8), (3, LENGTH_STOP)),
    ],
)
def test_a_sequence_ends_when_its_grammar_is_complete_or_violated(
    text: tuple[int, ...], sampled: tuple[int, ...], expected: tuple[int, Stop | None]
) -> None:
    one = sequence(max_tokens=3, constraint=ExactText(*text))
    assert append_until_stop(one, sampled, 99) == expected
    assert one.tokens == [1, *sampled[: expected[0]]]


@pytest.mark.parametrize("min_tokens", [0, 1, 2])
def test_an_ending_token_counts_after_min_tokens(min_tokens: int) -> None:
    one = sequence(min_tokens=min_tokens)
    assert append_until_stop(one, (EOS,) * 3, 99) == (min_tokens + 1, Stop("stop", EOS))


@given(
    sampled=st.lists(st.sampled_from([1, 2, EOS]), min_size=1, max_size=5),
    max_tokens=st.integers(1, 5), min_tokens=st.integers(0, 3),
)  # fmt: skip
def test_several_tokens_at_once_equal_single_ones(
    sampled: list[int], max_tokens: int, min_tokens: int
) -> None:
    """A step with accepted drafts gives several tokens at once."""
    together = sequence(max_tokens=max_tokens, min_tokens=min_tokens)
    single = sequence(max_tokens=max_tokens, min_tokens=min_tokens)
    num_taken, end = append_until_stop(together, tuple(sampled), 99)
    ends = []
    for token in sampled[:num_taken]:
        assert not any(ends)
        ends.append(append_until_stop(single, (token,), 99)[1])
    assert ends[-1] == end
    assert end is not None or num_taken == len(sampled)
    assert single.tokens == together.tokens


def test_events_of_a_sequence_with_a_grammar() -> None:
    """The last event has the finish reason, and the failure if the grammar was violated."""
    config = SchedulerConfig(
        max_num_seqs=1, max_num_batched_tokens=8, max_model_len=16, block_size=4, num_blocks=4
    )
    results = []
    for sampled in ((5, 6), (5, 7)):
        scheduler = Scheduler(config)
        scheduler.add(sequence(constraint=ExactText(5, 6)))
        for token in sampled:
            step = scheduler.schedule(0.0)
            assert step is not None
            (event,) = scheduler.complete(step, {"a": SequenceOutput((token,))}, 0.0)
            results.append((event.token_ids, event.finish_reason, event.failure))
        assert not scheduler.has_work
    assert results == [
        ((5,), None, None), ((6,), "stop", None),
        ((5,), None, None), ((7,), "error", "nothing_to_draw"),
    ]  # fmt: skip
