"""Property tests of the scheduler: a part of benchmarks/engine/scheduler_steps.py, determinism, fairness."""

from math import ceil
from typing import Literal

import hypothesis.strategies as st
from benchmarks.engine.scheduler_steps import EngineMachine, configs
from hypothesis import given, settings
from tests.support.engine.simulated_runner import next_token, sampled

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence, Status
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
    """Scheduling is deterministic, so that traces can be replayed."""
    assert run(config, workload) == run(config, workload)


@given(configs, workloads)
@settings(deadline=None)
def test_output_depends_on_neither_schedule_nor_cache(
    config: SchedulerConfig, workload: list[tuple[int, int, int]]
) -> None:
    """Each accepted sequence gets min(max_tokens, room) tokens, even if it is preempted."""
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


@given(
    policy=st.sampled_from(["fcfs", "priority"]),
    long_priority=st.integers(-1, 1),
    num_prompt_tokens=st.integers(2, 120),
    max_num_seqs=st.integers(1, 5),
    spare_tokens=st.integers(0, 8),
    arrivals=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(-1, 1))),
)
@settings(deadline=None)
def test_neither_streams_nor_a_prefill_starve(
    policy: Literal["fcfs", "priority"], long_priority: int, num_prompt_tokens: int,
    max_num_seqs: int, spare_tokens: int, arrivals: list[tuple[int, int, int]],
) -> None:  # fmt: skip
    """Each stream gets a token in each step, and an admitted prompt the rest of the budget.

    The precondition is a budget with a token for each sequence, and blocks for all.
    """
    budget = max_num_seqs + spare_tokens
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=max_num_seqs, max_num_batched_tokens=budget, max_model_len=140,
            block_size=4, num_blocks=400, policy=policy, prefix_caching=False,
        )
    )  # fmt: skip
    sequences: dict[str, Sequence] = {}

    def add(name: str, num_tokens: int, max_tokens: int, priority: int) -> None:
        sampling = SamplingParams(max_tokens=max_tokens)
        sequences[name] = Sequence(
            name, [1] * num_tokens, sampling, frozenset(), 0.0, priority=priority
        )
        scheduler.add(sequences[name])

    add("long", num_prompt_tokens, 3, long_priority)
    queue = [*enumerate(arrivals)]
    num_steps = 0
    while scheduler.has_work:
        for number, (num_tokens, max_tokens, priority) in queue[:2]:
            add(str(number), num_tokens, max_tokens, priority)
        del queue[:2]
        running = [s for s in sequences.values() if s.status is Status.RUNNING]
        streams = {s.request_id for s in running if s.num_tokens_behind == 1}
        step = scheduler.schedule(0.0)
        assert step is not None
        assert streams <= {s.request_id for s in step.sequences}
        long = sequences["long"]
        num_steps += long.status is Status.RUNNING and not long.num_output_tokens
        scheduler.complete(step, {s.request_id: sampled(s, 0) for s in step.sequences}, 0.0)
    assert num_steps <= ceil(num_prompt_tokens / (budget - (max_num_seqs - 1))) + 1
