"""A seeded part of benchmarks/scheduler_steps.py, and what follows from the same input."""

import hypothesis.strategies as st
from hypothesis import given, settings
from scheduler_steps import EngineMachine, configs, next_token, sampled

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import Step

TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

workloads = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(0, 3)), min_size=1, max_size=8
)


@given(configs, workloads)
@settings(deadline=None)
def test_the_same_input_gives_the_same_steps(
    config: SchedulerConfig, workload: list[tuple[int, int, int]]
) -> None:
    """Determinism: what a trace recorded, a replay repeats."""
    assert run(config, workload) == run(config, workload)


@given(configs, workloads)
@settings(deadline=None)
def test_output_depends_on_neither_schedule_nor_cache(
    config: SchedulerConfig, workload: list[tuple[int, int, int]]
) -> None:
    """Each accepted sequence yields min(max_tokens, room) tokens, preempted or not."""
    counts: dict[str, int] = {}
    for step in run(config, workload):
        for s in step.sequences:
            if s.is_sampled:
                num_tokens = len(sampled(s, 2).token_ids)
                counts[s.request_id] = counts.get(s.request_id, 0) + num_tokens
    expected = {
        str(index): min(max_tokens, config.max_num_tokens - num_prompt_tokens)
        for index, (num_prompt_tokens, max_tokens, _) in enumerate(workload)
        if str(index) in counts
    }
    assert counts == expected


def run(config: SchedulerConfig, workload: list[tuple[int, int, int]]) -> list[Step]:
    scheduler = Scheduler(config)
    for index, (num_prompt_tokens, max_tokens, pattern) in enumerate(workload):
        prompt = [next_token(pattern, position) for position in range(num_prompt_tokens)]
        sampling = SamplingParams(max_tokens=max_tokens)
        scheduler.add(Sequence(str(index), prompt, sampling, frozenset(), 0.0))
    steps: list[Step] = []
    while (step := scheduler.schedule(0.0)) is not None:
        steps.append(step)
        scheduler.complete(step, {s.request_id: sampled(s, 2) for s in step.sequences}, 0.0)
    return steps
