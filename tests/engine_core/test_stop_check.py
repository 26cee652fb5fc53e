"""Which tokens a sequence takes in, at every small size."""

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


class Exactly:
    """A grammar of one text."""

    def __init__(self, *text: int) -> None:
        self.rest = list(text)

    @property
    def is_finished(self) -> bool:
        return not self.rest

    def fill(self, bits: memoryview) -> None:
        raise AssertionError("nothing is drawn here")

    def accept(self, token_id: int) -> bool:
        is_next = self.rest[:1] == [token_id]
        self.rest = self.rest[is_next:]
        return is_next

    def rollback(self, num_tokens: int) -> None:
        raise AssertionError("no draft is tried here")


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
@pytest.mark.parametrize("num_drawn", [1, 2, 3, 4])
def test_no_token_beyond_the_limits_is_taken(
    eos: frozenset[int], limit: str, room: int, num_drawn: int
) -> None:
    """Whether the request's limit or the engine's; where an end is possible and where none is."""
    one = sequence(2, room if limit == "max_tokens" else 99, eos=eos, min_tokens=99)
    drawn = (1, 2, 3, 4)[:num_drawn]
    taken = append_until_stop(one, drawn, 2 + room if limit == "max_num_tokens" else 99)
    assert taken == (min(num_drawn, room), LENGTH_STOP if num_drawn >= room else None)
    assert one.tokens == [1, 1, *drawn[:room]]


@pytest.mark.parametrize(
    ("text", "drawn", "expected"),
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
def test_a_grammar_ends_a_sequence_when_its_text_is_complete_or_left(
    text: tuple[int, ...], drawn: tuple[int, ...], expected: tuple[int, Stop | None]
) -> None:
    one = sequence(max_tokens=3, constraint=Exactly(*text))
    assert append_until_stop(one, drawn, 99) == expected
    assert one.tokens == [1, *drawn[: expected[0]]]


@pytest.mark.parametrize("min_tokens", [0, 1, 2])
def test_an_ending_token_counts_as_soon_as_there_are_more_than_min_tokens(min_tokens: int) -> None:
    one = sequence(min_tokens=min_tokens)
    assert append_until_stop(one, (EOS,) * 3, 99) == (min_tokens + 1, Stop("stop", EOS))


@given(
    drawn=st.lists(st.sampled_from([1, 2, EOS]), min_size=1, max_size=5),
    max_tokens=st.integers(1, 5), min_tokens=st.integers(0, 3),
)  # fmt: skip
def test_many_tokens_at_once_are_taken_as_one_by_one(
    drawn: list[int], max_tokens: int, min_tokens: int
) -> None:
    """Right drafts come together."""
    together = sequence(max_tokens=max_tokens, min_tokens=min_tokens)
    single = sequence(max_tokens=max_tokens, min_tokens=min_tokens)
    num_taken, end = append_until_stop(together, tuple(drawn), 99)
    ends = []
    for token in drawn[:num_taken]:
        assert not any(ends)
        ends.append(append_until_stop(single, (token,), 99)[1])
    assert ends[-1] == end
    assert end is not None or num_taken == len(drawn)
    assert single.tokens == together.tokens


def test_a_structured_sequence_is_told_of_as_it_ends() -> None:
    """The scheduler's events carry tokens, finish reason and failure of each step."""
    config = SchedulerConfig(
        max_num_seqs=1, max_num_batched_tokens=8, max_model_len=16, block_size=4, num_blocks=4
    )
    told = []
    for drawn in ((5, 6), (5, 7)):
        scheduler = Scheduler(config)
        scheduler.add(sequence(constraint=Exactly(5, 6)))
        for token in drawn:
            step = scheduler.schedule(0.0)
            assert step is not None
            (event,) = scheduler.complete(step, {"a": SequenceOutput((token,))}, 0.0)
            told.append((event.token_ids, event.finish_reason, event.failure))
        assert not scheduler.has_work
    assert told == [
        ((5,), None, None), ((6,), "stop", None),
        ((5,), None, None), ((7,), "error", "nothing_to_draw"),
    ]  # fmt: skip
