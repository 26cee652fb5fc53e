"""A scheduler with few blocks, its sequences, and its steps one by one."""

from typing import Any

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput, Step

EOS = 999


def make_scheduler(**changes: Any) -> Scheduler:
    values = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "max_model_len": 64,
        "block_size": 4,
        "num_blocks": 16,
    }
    return Scheduler(SchedulerConfig(**(values | changes)))


def make_sequence(
    name: str, num_prompt_tokens: int, max_tokens: int = 4, *, first: int = 0, priority: int = 0,
    adapter: str = "", **sampling: Any,
) -> Sequence:  # fmt: skip
    """Returns a sequence. Prompts with the same `first` share their prefix."""
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, **sampling)
    prompt = list(range(first, first + num_prompt_tokens))
    return Sequence(name, prompt, params, frozenset({EOS}), 0.0, priority=priority, adapter=adapter)


def step_of(scheduler: Scheduler, now_s: float = 0.0) -> Step:
    step = scheduler.schedule(now_s)
    assert step is not None
    scheduler.check()
    return step


def advance(scheduler: Scheduler, token: int = 7, now_s: float = 0.0) -> list[TokenEvent]:
    """Runs one step, in which every sequence samples `token`."""
    step = step_of(scheduler, now_s)
    return scheduler.complete(
        step, {s.request_id: SequenceOutput((token,)) for s in step.sequences}, now_s
    )


def ranges(step: Step) -> dict[str, tuple[int, int]]:
    """Returns the start and end position of each sequence in a step."""
    return {s.request_id: (s.start, s.end) for s in step.sequences}
