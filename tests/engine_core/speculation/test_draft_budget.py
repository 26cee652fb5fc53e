"""Tests of drafts within a step's token budget: which sequences get how many."""

import pytest
from tests.support.engine.simulated_runner import sampled

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.speculation.draft_length import DraftLengthController
from penstock_engine.core.speculation.planner import Speculation
from penstock_engine.core.step import SequenceOutput, Step


class FixedLength(DraftLengthController):
    """A controller that allows three drafts in each step, or none."""

    is_on = True

    def num_drafts(self, num_sequences: int) -> int:
        return 3 if self.is_on else 0


def make_scheduler(
    budget: int, *, by_runner: bool = True, num_blocks: int = 40,
    controller: DraftLengthController | None = None,
) -> Scheduler:  # fmt: skip
    config = SchedulerConfig(
        max_num_seqs=4, max_num_batched_tokens=budget, max_model_len=40, block_size=2,
        num_blocks=num_blocks,
    )  # fmt: skip
    method = SpeculationConfig(
        method="eagle" if by_runner else "ngram", num_speculative_tokens=3, prompt_lookup_min=1,
        model="m" if by_runner else None,
    )  # fmt: skip
    return Scheduler(config, Speculation(method, controller or FixedLength(3)))


def add(scheduler: Scheduler, name: str, num_prompt_tokens: int, max_tokens: int = 20) -> Sequence:
    prompt = [position % 2 for position in range(num_prompt_tokens)]
    one = Sequence(name, prompt, SamplingParams(max_tokens=max_tokens), frozenset(), 0.0)
    assert scheduler.add(one) is None
    return one


def advance(scheduler: Scheduler, num_right: int = 0) -> Step:
    step = scheduler.schedule(0.0)
    assert step is not None
    scheduler.complete(step, {s.request_id: sampled(s, num_right) for s in step.sequences}, 0.0)
    scheduler.check()
    return step


def shares(step: Step) -> dict[str, tuple[int, int]]:
    """Returns the number of tokens and of drafts left to the runner, by sequence."""
    return {s.request_id: (s.num_tokens, s.num_runner_drafts) for s in step.sequences}


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (3, [0, 0, 0]), (4, [1, 0, 0]), (6, [3, 0, 0]), (7, [3, 1, 0]), (9, [3, 3, 0]),
        (10, [3, 3, 1]), (12, [3, 3, 3]), (13, [3, 3, 3]),
    ],
)  # fmt: skip
def test_every_stream_gets_a_token_before_any_gets_drafts(budget: int, expected: list[int]) -> None:
    controller = FixedLength(3)
    controller.is_on = False
    scheduler = make_scheduler(budget, controller=controller)
    for name in "abc":
        add(scheduler, name, 1)
    advance(scheduler)
    controller.is_on = True
    step = advance(scheduler)
    assert [shares(step)[name] for name in "abc"] == [(1, drafts) for drafts in expected]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (6, {"a": (1, 0), "b": (5, 0)}),
        (9, {"a": (1, 0), "b": (6, 0), "c": (2, 0)}),
        (12, {"a": (1, 1), "b": (6, 0), "c": (4, 0)}),
        (19, {"a": (1, 3), "b": (6, 0), "c": (4, 0)}),
    ],
)
def test_drafts_get_the_budget_that_waiting_prompts_leave(
    budget: int, expected: dict[str, tuple[int, int]]
) -> None:
    """A stream drafts while two prompts, of six and four tokens, wait."""
    scheduler = make_scheduler(budget)
    add(scheduler, "a", 1)
    scheduler.complete(schedule(scheduler), {"a": SequenceOutput((1,))}, 0.0)
    add(scheduler, "b", 6)
    scheduler._state.sequences["b"].tokens[0] = 5  # so that no prefix is found in the cache
    add(scheduler, "c", 4)
    assert shares(advance(scheduler)) == expected


def test_drafts_of_streams_do_not_delay_a_prompt() -> None:
    """Three streams with three drafts each would use the whole budget of twelve in every step."""
    scheduler = make_scheduler(12)
    for name in "abc":
        add(scheduler, name, 1)
    advance(scheduler)
    assert shares(advance(scheduler)) == {"a": (1, 3), "b": (1, 3), "c": (1, 3)}
    add(scheduler, "d", 12)
    assert shares(advance(scheduler)) == {"a": (1, 0), "b": (1, 0), "c": (1, 0), "d": (9, 0)}


def schedule(scheduler: Scheduler) -> Step:
    step = scheduler.schedule(0.0)
    assert step is not None
    return step


def test_drafts_of_the_scheduler_are_in_the_step_and_are_counted() -> None:
    """The text repeats itself, so all n-gram drafts are accepted."""
    scheduler = make_scheduler(12, by_runner=False)
    one = add(scheduler, "a", 6)
    advance(scheduler)
    step = advance(scheduler)
    (part,) = step.sequences
    assert (part.start, part.token_ids, part.num_drafts) == (6, (0, 1, 0), 2)
    assert part.is_sampled
    assert one.tokens == [position % 2 for position in range(10)]
    assert one.num_computed_tokens == 9
    stats = scheduler.stats()
    assert (stats.drafts, stats.draft_tokens, stats.accepted_by_position) == (1, 2, (1, 1))


@pytest.mark.parametrize("num_right", [0, 1, 2, 3])
def test_keys_and_values_are_kept_up_to_the_last_accepted_draft(num_right: int) -> None:
    """The cache of accepted drafts is kept; the token sampled after them has none yet."""
    scheduler = make_scheduler(12)
    one = add(scheduler, "a", 6)
    advance(scheduler)
    step = schedule(scheduler)
    assert shares(step) == {"a": (1, 3)}
    tokens = tuple(range(50, 51 + num_right))
    [event] = scheduler.complete(step, {"a": SequenceOutput(tokens, 3)}, 0.0)
    assert event.token_ids == tokens
    assert one.num_computed_tokens == 7 + num_right
    assert one.num_tokens == 8 + num_right
    scheduler.check()


@pytest.mark.parametrize(
    ("num_blocks", "num_open"), [(5, (0, 0)), (6, (3, 0)), (7, (3, 0)), (8, (3, 3))]
)
def test_a_stream_without_blocks_for_drafts_continues_without_them(
    num_blocks: int, num_open: tuple[int, int]
) -> None:
    """Drafts raise the blocks of the streams from three to five and from one to three."""
    controller = FixedLength(3)
    controller.is_on = False
    scheduler = make_scheduler(12, num_blocks=num_blocks, controller=controller)
    add(scheduler, "a", 5)
    add(scheduler, "b", 1)
    advance(scheduler)
    controller.is_on = True
    assert shares(advance(scheduler)) == {"a": (1, num_open[0]), "b": (1, num_open[1])}
