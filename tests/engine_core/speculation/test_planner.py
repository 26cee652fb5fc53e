"""Tests of the draft planner: drafts of steps ahead, indexing of texts, length and block limits."""

from collections.abc import Sequence as Many
from typing import Literal

import pytest
from tests.support.engine.simulated_runner import sampled

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.speculation.draft_length import DraftLengthController
from penstock_engine.core.speculation.drafters import NgramDrafter
from penstock_engine.core.speculation.planner import (
    MAX_INDEXED_TOKENS,
    MIN_INDEXED_TOKENS,
    DraftPlanner,
    Speculation,
)
from penstock_engine.core.step import PENDING_TOKEN, ScheduledSequence, Step

CONFIG = SchedulerConfig(
    max_num_seqs=2, max_num_batched_tokens=8, max_model_len=16, block_size=2, num_blocks=16
)


# The text that simulated_runner generates: n-gram drafts of it are always right.
TEXT = [position % 2 for position in range(3 * MAX_INDEXED_TOKENS)]


class FixedLength(DraftLengthController):
    """A controller that allows the same number of drafts in each step."""

    def __init__(self, num_drafts: int) -> None:
        super().__init__(num_drafts)
        self._num_drafts = num_drafts

    def num_drafts(self, num_sequences: int) -> int:
        return self._num_drafts


def planner_of(num_drafts: int) -> DraftPlanner:
    config = SpeculationConfig(method="ngram", num_speculative_tokens=max(1, num_drafts))
    return DraftPlanner(Speculation(config, FixedLength(num_drafts)), Scheduler(CONFIG)._cache, 16)


def test_drafts_planned_ahead_are_made_in_the_next_step() -> None:
    drafts = planner_of(3)
    assert not drafts.needs_completed_step
    assert drafts.plan_step([], is_ahead=True) == 0
    assert drafts.needs_completed_step, "otherwise the planned drafts would never be made"
    assert drafts.plan_step([], is_ahead=False) == 3
    assert drafts.needs_completed_step, "the number of accepted drafts is not known yet"


def test_steps_without_drafts_are_scheduled_ahead() -> None:
    drafts = planner_of(0)
    for is_ahead in (False, True, True, False):
        assert drafts.plan_step([], is_ahead=is_ahead) == 0
        assert not drafts.needs_completed_step


def test_a_pending_token_is_read_from_the_history() -> None:
    scheduler = Scheduler(CONFIG)
    sampling = SamplingParams(max_tokens=3)
    scheduler.add(Sequence("a", [7, 8], sampling, frozenset(), 0.0))
    step = scheduler.schedule(0.0)
    assert step is not None
    (prompt,) = step.sequences
    assert prompt.with_sampled_token() is prompt
    assert prompt._replace(start=1, token_ids=PENDING_TOKEN).with_sampled_token().token_ids == (8,)


class CountingDrafter(NgramDrafter):
    """A drafter that records how many tokens each call has indexed."""

    def __init__(self) -> None:
        super().__init__(2, 5)
        self.indexed: list[int] = []

    def index(self, tokens: Many[int], max_tokens: int) -> int:
        self.indexed.append(super().index(tokens, max_tokens))
        return self.indexed[-1]


def scheduler_with(num_drafts: int, max_num_batched_tokens: int = 600) -> Scheduler:
    config = SchedulerConfig(
        max_num_seqs=4, max_num_batched_tokens=max_num_batched_tokens, max_model_len=4000, block_size=16,
        num_blocks=1000, prefix_caching=False,
    )  # fmt: skip
    speculation = SpeculationConfig(method="ngram", num_speculative_tokens=max(1, num_drafts))
    return Scheduler(config, Speculation(speculation, FixedLength(num_drafts)))


def add(scheduler: Scheduler, name: str, num_prompt_tokens: int) -> tuple[Sequence, list[int]]:
    sampling = SamplingParams(max_tokens=40)
    one = Sequence(name, TEXT[:num_prompt_tokens], sampling, frozenset(), 0.0)
    assert scheduler.add(one) is None
    one.drafter = drafter = CountingDrafter()
    return one, drafter.indexed


def step(scheduler: Scheduler) -> dict[str, int]:
    """Runs a step. Returns the number of drafts by sequence."""
    step = scheduler.schedule(0.0)
    assert step is not None
    scheduler.complete(step, {s.request_id: sampled(s, 0) for s in step.sequences}, 0.0)
    scheduler.check()
    return {s.request_id: s.num_drafts for s in step.sequences}


def test_a_long_prompt_is_indexed_in_slices_during_prefill() -> None:
    """The prompt of 1,536 tokens is computed in chunks of 600."""
    scheduler = scheduler_with(2)
    one, indexed = add(scheduler, "a", len(TEXT))
    drafts = [step(scheduler)["a"] for _ in range(6)]
    assert indexed == [512, 512, 512, 2, 3]
    assert drafts == [0, 0, 0, 0, 2, 2]
    assert one.num_output_tokens == 1 + 1 + 3 + 3


def test_a_text_is_indexed_in_steps_without_drafts() -> None:
    """Steps ahead index the text as well, so that drafting can start at once."""
    scheduler = scheduler_with(0)
    _, indexed = add(scheduler, "a", 1000)
    first = scheduler.schedule(0.0)
    assert first is not None
    assert scheduler.schedule(0.0) is not None
    assert indexed == [512]


def test_long_prompts_do_not_delay_the_drafts_of_others() -> None:
    """Two prompts of 1,500 tokens share the index budget of a step; a stream is always up to date."""
    scheduler = scheduler_with(2, max_num_batched_tokens=4000)
    _, first = add(scheduler, "first", 1500)
    _, second = add(scheduler, "second", 1500)
    _, stream = add(scheduler, "stream", 9)
    drafts = [step(scheduler) for _ in range(8)]
    assert first == [512, 512, 479, 3, 3, 3, 3]
    assert second[:4] == [MIN_INDEXED_TOKENS] * 3 + [512 - 3]
    assert stream == [10, 3, 3, 3, 3, 3, 3]
    assert [s["stream"] for s in drafts] == [0, *[2] * 7]
    assert [s["second"] for s in drafts[:6]] == [0] * 6


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_incomplete_indexing_does_not_change_the_output(
    method: Literal["ngram", "suffix"],
) -> None:
    def output(speculation: SpeculationConfig | None) -> list[int]:
        config = SchedulerConfig(
            max_num_seqs=1, max_num_batched_tokens=4000, max_model_len=4000, block_size=16,
            num_blocks=1000, speculation=speculation,
        )  # fmt: skip
        scheduler = Scheduler(config)
        one = Sequence("a", TEXT, SamplingParams(max_tokens=40), frozenset(), 0.0)
        assert scheduler.add(one) is None
        num_steps = 0
        while scheduler.has_work:
            step(scheduler)
            num_steps += 1
        assert (num_steps == 40) == (speculation is None)
        return one.tokens[len(TEXT) :]

    config = SpeculationConfig(method=method, num_speculative_tokens=3)
    assert output(config) == output(None)


def running(num_prompt: int, num_output: int, max_tokens: int, num_blocks: int) -> Sequence:
    """Returns a decoding sequence with blocks of two tokens."""
    sampling = SamplingParams(max_tokens=max_tokens)
    one = Sequence("a", [1] * num_prompt, sampling, frozenset(), 0.0)
    one.tokens += [3] * num_output
    one.num_computed_tokens = one.num_tokens - 1
    one.block_table = list(range(num_blocks))
    return one


@pytest.mark.parametrize(
    ("max_drafts", "num_output", "max_tokens", "num_open"),
    [
        (5, 1, 9, 5),
        (5, 1, 7, 5),  # seven: one exists, five drafts, and one is sampled after them
        (5, 1, 6, 4),
        (5, 1, 3, 1),
        (5, 1, 2, ()),
        (1, 1, 9, 1),
        (0, 1, 9, ()),
        (9, 1, 99, 9),
        (20, 1, 99, 10),  # the context of 16: five exist, ten drafts, one is sampled after them
        (20, 10, 99, 1),
        (20, 11, 99, ()),
    ],
)
def test_drafts_leave_room_for_the_token_after_them(
    max_drafts: int, num_output: int, max_tokens: int, num_open: int | tuple[()]
) -> None:
    """The limits are the request's max_tokens and the context of 16 tokens."""
    one = running(4, num_output, max_tokens, num_blocks=8)
    assert open_drafts().propose(one, 1, max_drafts) == num_open


def open_drafts(scheduler: Scheduler | None = None) -> DraftPlanner:
    """Returns a planner for a runner that proposes the drafts itself."""
    config = SpeculationConfig(method="eagle", num_speculative_tokens=3, model="m")
    speculation = Speculation(config, FixedLength(3))
    return DraftPlanner(speculation, (scheduler or Scheduler(CONFIG))._cache, 16)


@pytest.mark.parametrize(
    ("num_tokens", "num_computed", "num_open"),
    [
        (4, 0, ()),  # a whole prompt
        (3, 1, ()), (3, 0, ()),  # a chunk of it
        (1, 3, 3), (1, 2, ()),
    ],
)  # fmt: skip
def test_drafts_need_the_whole_text_to_be_computed(
    num_tokens: int, num_computed: int, num_open: int | tuple[()]
) -> None:
    one = running(4, 0, 9, num_blocks=8)
    one.num_computed_tokens = num_computed
    assert open_drafts().propose(one, num_tokens, 3) == num_open


@pytest.mark.parametrize(
    ("num_blocks", "num_free", "num_open", "num_held"),
    [(4, 0, 3, 4), (3, 1, 3, 4), (3, 0, (), 3), (5, 0, 3, 5), (2, 2, 3, 4), (2, 1, (), 2)],
)
def test_drafts_need_blocks(
    num_blocks: int, num_free: int, num_open: int | tuple[()], num_held: int
) -> None:
    """Five tokens and three drafts need four blocks of two."""
    scheduler = Scheduler(CONFIG)
    one = running(4, 1, 9, num_blocks=0)
    pool = scheduler._cache.pool
    held, rest = pool.reserve(num_blocks), pool.reserve(16 - num_blocks - num_free)
    assert held is not None
    assert rest is not None
    one.block_table = held
    assert open_drafts(scheduler).propose(one, 1, 3) == num_open
    assert len(one.block_table) == num_held


def test_a_planner_without_speculation_makes_no_drafts() -> None:
    drafts = DraftPlanner(None, Scheduler(CONFIG)._cache, 16)
    assert drafts.make_drafter("") is None
    assert drafts.plan_step([(running(4, 1, 9, 4), 4, 1)], is_ahead=False) == 0
    assert drafts.propose(running(4, 1, 9, 4), 1, 3) == ()
    assert not drafts.needs_completed_step
    drafts.observe_acceptance(3, 1)
    drafts.observe_step(Step(()), 1.0)


class RecordingController(DraftLengthController):
    """A controller that records its calls."""

    def __init__(self) -> None:
        super().__init__(3)
        self.queries: list[int] = []
        self.observations: list[tuple[str, float, float]] = []

    def num_drafts(self, num_sequences: int) -> int:
        self.queries.append(num_sequences)
        return 2

    def observe_acceptance(self, num_drafts: int, num_accepted: int) -> None:
        self.observations.append(("acceptance", num_drafts, num_accepted))

    def observe_step(self, num_tokens: int, duration_s: float) -> None:
        self.observations.append(("step", num_tokens, duration_s))


def test_the_controller_observes_steps_and_acceptances() -> None:
    """The tokens of a step include the drafts that are left to the runner."""
    controller = RecordingController()
    config = SpeculationConfig(method="eagle", num_speculative_tokens=3, model="m")
    drafts = DraftPlanner(Speculation(config, controller), Scheduler(CONFIG)._cache, 16)
    decoding, prompt = running(4, 1, 9, 4), running(4, 0, 9, 4)
    assert drafts.plan_step([], is_ahead=False) == 2
    assert (
        drafts.plan_step([(decoding, 4, 1), (prompt, 0, 4), (decoding, 4, 1)], is_ahead=False) == 2
    )
    assert drafts.plan_step([(prompt, 3, 1), (prompt, 2, 2)], is_ahead=True) == 0
    assert drafts.plan_step([(decoding, 4, 1), (decoding, 4, 1)], is_ahead=False) == 2
    assert controller.queries == [1, 2, 1], "planned drafts are not requested again"
    drafts.observe_acceptance(3, 1)
    part = ScheduledSequence("a", 0, (1, 2), (), True, decoding.sampling, [], 2)
    drafts.observe_step(Step((part, part._replace(num_runner_drafts=3), part)), 0.5)
    assert controller.observations == [("acceptance", 3, 1), ("step", 9, 0.5)]
