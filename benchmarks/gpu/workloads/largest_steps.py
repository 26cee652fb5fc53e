"""The steps of an engine that take the most memory."""

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, Step
from penstock_engine.execution.runner_config import RunnerConfig

SHORT_TOKENS = 16
# Sampling that needs sorted and copied logits, token counts and log-probabilities.
COSTLY = SamplingParams(
    max_tokens=1, temperature=1.0, top_p=0.9, repetition_penalty=1.1, logprobs=20, seed=1
)  # fmt: skip


def largest_steps(limits: RunnerConfig) -> list[Step]:
    """A prompt of max_num_batched_tokens, max_num_seqs decodes, and both in one step.

    One of the decodes has the longest context; others would take time and no more memory. All write to
    block 0 only.
    """
    num_decodes = min(limits.max_num_seqs, limits.max_num_batched_tokens)
    decodes = [decode("0", limits.max_model_len, limits)]
    short_tokens = min(SHORT_TOKENS, limits.max_model_len)
    decodes += [decode(str(row), short_tokens, limits) for row in range(1, num_decodes)]
    longest = min(limits.max_num_batched_tokens, limits.max_model_len)
    steps = [Step((prompt(longest, limits),)), Step(tuple(decodes))]
    if rest := min(limits.max_num_batched_tokens - num_decodes + 1, longest):
        steps.append(Step((*decodes[:-1], prompt(rest, limits))))
    return steps


def prompt(num_tokens: int, limits: RunnerConfig) -> ScheduledSequence:
    """A whole prompt, of which a token is sampled."""
    tokens = tuple(index % 97 for index in range(num_tokens))
    return ScheduledSequence(
        "prompt", 0, tokens, _blocks(num_tokens, limits), True, COSTLY, tokens, num_tokens
    )


def decode(name: str, length: int, limits: RunnerConfig) -> ScheduledSequence:
    """The last token of a sequence of `length` tokens."""
    return ScheduledSequence(
        name, length - 1, (1,), _blocks(length, limits), True, COSTLY, (1,) * length, length - 1
    )


def _blocks(num_tokens: int, limits: RunnerConfig) -> tuple[int, ...]:
    return (0,) * -(-num_tokens // limits.block_size)
