"""When a step may have guesses, and what the step that is scheduled ahead of it must wait for."""

from penstock_engine.core.drafts import Drafts
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation import Governor, Speculation, SpeculationConfig
from penstock_engine.core.step import TO_BE_DRAWN

CONFIG = SchedulerConfig(
    max_num_seqs=2, max_num_batched_tokens=8, max_model_len=16, block_size=2, num_blocks=16
)


class FixedGovernor(Governor):
    """Allows the same number of guesses in each step."""

    def __init__(self, num_drafts: int) -> None:
        super().__init__(num_drafts)
        self._num_drafts = num_drafts

    def num_drafts(self, num_sequences: int) -> int:
        return self._num_drafts


def drafts_of(num_drafts: int) -> Drafts:
    config = SpeculationConfig(method="ngram", num_speculative_tokens=max(1, num_drafts))
    return Drafts(Speculation(config, FixedGovernor(num_drafts)), Scheduler(CONFIG)._cache, 16)


def test_guesses_of_a_step_ahead_go_to_the_step_behind_it() -> None:
    drafts = drafts_of(3)
    assert not drafts.keep_in_step
    assert drafts.grant([], is_ahead=True) == 0
    assert drafts.keep_in_step, "the guesses that are promised would be put off for good"
    assert drafts.grant([], is_ahead=False) == 3
    assert drafts.keep_in_step, "how far sequences get with their guesses is not known yet"


def test_without_guesses_steps_are_scheduled_ahead() -> None:
    drafts = drafts_of(0)
    for is_ahead in (False, True, True, False):
        assert drafts.grant([], is_ahead=is_ahead) == 0
        assert not drafts.keep_in_step


def test_a_token_to_be_drawn_is_read_from_the_history() -> None:
    scheduler = Scheduler(CONFIG)
    sampling = SamplingParams(max_tokens=3)
    scheduler.add(Sequence("a", [7, 8], sampling, frozenset(), 0.0))
    step = scheduler.schedule(0.0)
    assert step is not None
    (prompt,) = step.sequences
    assert prompt.known() is prompt
    assert prompt._replace(start=1, token_ids=TO_BE_DRAWN).known().token_ids == (8,)
