"""Tests of prompt log-probabilities: one entry per token but the first, for any chunks."""

import pytest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import ScheduledSequence, SequenceOutput, TokenLogprobs


def logprobs_of(s: ScheduledSequence) -> tuple[TokenLogprobs, ...]:
    """Returns what a runner would: log-probabilities of the prompt tokens from start + 1 to end."""
    positions = range(s.start + 1, min(s.end + 1, s.num_prompt_tokens))
    return tuple(TokenLogprobs(s.history[p], -1.0, 1, ()) for p in positions)


@pytest.mark.parametrize("budget", [1, 2, 3, 8])
@pytest.mark.parametrize("num_prompt_tokens", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("num_urgent_tokens", [0, 8, 14])
def test_each_token_but_the_first_gets_logprobs_once(
    budget: int, num_prompt_tokens: int, num_urgent_tokens: int
) -> None:
    """Preemption by a more urgent sequence between chunks must not change this."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=2, max_num_batched_tokens=budget, max_model_len=16, block_size=1,
            num_blocks=16, policy="priority",
        )
    )  # fmt: skip
    if num_urgent_tokens:
        sampling = SamplingParams(max_tokens=num_urgent_tokens)
        scheduler.add(Sequence("urgent", [7], sampling, frozenset(), 0.0))
    prompt = list(range(100, 100 + num_prompt_tokens))
    sampling = SamplingParams(max_tokens=2, prompt_logprobs=0)
    one = Sequence("a", prompt, sampling, frozenset(), 0.0, priority=1)
    scheduler.add(one)
    events, preempted_at = [], []
    while (step := scheduler.schedule(0.0)) is not None:
        ids = {s.request_id for s in step.sequences}
        if one.num_preemptions > len(preempted_at):
            preempted_at.append(len(one.prompt_logprobs))
        wanting = {s.request_id for s in step.sequences if s.wants_prompt_logprobs}
        assert wanting == ({"a"} & ids if len(one.prompt_logprobs) < len(prompt) - 1 else set())
        results = {
            s.request_id: SequenceOutput(
                (5,), prompt_logprobs=logprobs_of(s) if s.wants_prompt_logprobs else ()
            )
            for s in step.sequences
        }
        events += [e for e in scheduler.complete(step, results, 0.0) if e.request_id == "a"]
    assert not scheduler.has_work
    assert [[one.token_id for one in e.prompt_logprobs] for e in events] == [prompt[1:], []]
    if (budget, num_prompt_tokens, num_urgent_tokens) == (2, 9, 14):
        assert preempted_at == [7], "not in the middle of the prompt"


@pytest.mark.parametrize("num_prompt_tokens", [1, 2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("wants", [False, True])
def test_a_prompt_with_logprobs_is_not_read_from_the_cache(
    num_prompt_tokens: int, wants: bool
) -> None:
    """Cached tokens have no logits. A prompt without logprobs is cached up to its last full block."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=1, max_num_batched_tokens=16, max_model_len=16, block_size=2, num_blocks=16
        )
    )
    starts = []
    for name in "ab":
        sampling = SamplingParams(max_tokens=1, prompt_logprobs=0 if wants else None)
        scheduler.add(Sequence(name, [1] * num_prompt_tokens, sampling, frozenset(), 0.0))
        step = scheduler.schedule(0.0)
        assert step is not None
        (s,) = step.sequences
        starts.append(s.start)
        scheduler.complete(step, {name: SequenceOutput((5,), prompt_logprobs=logprobs_of(s))}, 0.0)
    needs_logits = wants and num_prompt_tokens > 1
    assert starts == [0, 0 if needs_logits else (num_prompt_tokens - 1) // 2 * 2]
