"""Divides the token budget of a step among the running sequences."""

from collections.abc import Iterable, Mapping

from penstock_engine.core.scheduler_state import SchedulerState
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import PENDING_TOKEN, ScheduledSequence

# A sequence, the position at which its part of a step starts, and the number of tokens of that part. A
# plain tuple, because one is created for each sequence in each step.
Chunk = tuple[Sequence, int, int]


def running_chunks(
    state: SchedulerState,
    budget: int,
    in_flight: Mapping[str, ScheduledSequence],
    now: float,
) -> tuple[list[Chunk], int] | None:
    """Chunks of the running sequences within the budget, and the rest of the budget.

    Decoding sequences come first, each with its one token; prefills share the rest in their
    order. Every chunk has blocks for all tokens of its sequence. Only decoding sequences need
    new blocks, as a prefill was admitted with all of its own, so no sequence that already has
    a chunk is preempted.

    budget: in tokens. in_flight: the sequences of the step in flight. Returns None if blocks are
    missing that this step may free; without a step in flight the last sequences are preempted instead.
    """
    block_size, max_num_tokens = state.config.block_size, state.config.max_num_tokens
    all_running, cache = state.running, state.cache
    chunks: list[Chunk] = []
    prefills: list[Chunk] = []
    index = 0
    while index < len(all_running) and budget > 0:
        sequence = all_running[index]
        index += 1
        start, length = sequence.num_computed_tokens, len(sequence.tokens)
        if in_flight and (before := in_flight.get(sequence.request_id)) is not None:
            if before.is_sampled and _ends_with_next(sequence, max_num_tokens):
                continue
            start = before.end
            length += before.is_sampled
        has_blocks = length <= len(sequence.block_table) * block_size
        if not has_blocks and not cache.grow(sequence, length):
            if in_flight:
                return None
            if not state.grow_or_preempt(sequence, now):
                continue
        if length - start > 1:
            prefills.append((sequence, start, length - start))
        else:
            chunks.append((sequence, start, 1))
            budget -= 1
    return chunks, add_prefills(chunks, prefills, budget)


def to_scheduled(chunk: Chunk, drafts: tuple[int, ...] | int) -> ScheduledSequence:
    """The scheduled sequence of a chunk.

    drafts: draft tokens, or their maximum number if the runner drafts.
    """
    sequence, start, num_tokens = chunk
    draft_tokens, num_runner_drafts = ((), drafts) if isinstance(drafts, int) else (drafts, 0)
    tokens = sequence.tokens
    end = start + num_tokens
    return ScheduledSequence(
        sequence.request_id,
        start,
        (*tokens[start:end], *draft_tokens) if start < len(tokens) else PENDING_TOKEN,
        tuple(sequence.block_table),
        end >= len(tokens),
        sequence.sampling,
        tokens,
        sequence.num_prompt_tokens,
        sequence.ending_token_ids,
        sequence.constraint,
        sequence.adapter,
        len(draft_tokens),
        num_runner_drafts,
        sequence.wants_prompt_logprobs,
    )


def _ends_with_next(sequence: Sequence, max_num_tokens: int) -> bool:
    """Whether the next token is the last one of the sequence because of a length limit."""
    num_tokens = len(sequence.tokens) + 1
    most = sequence.num_prompt_tokens + sequence.sampling.max_tokens
    return num_tokens >= min(most, max_num_tokens)


def add_prefills(chunks: list[Chunk], prefills: Iterable[Chunk], budget: int) -> int:
    """Add a chunk for each prefill until the budget is spent. Returns the rest of the budget.

    prefills: sequence, first position and number of tokens without keys and values.
    """
    for sequence, start, num_uncomputed in prefills:
        if budget <= 0:
            break
        num_tokens = num_uncomputed if num_uncomputed < budget else budget
        chunks.append((sequence, start, num_tokens))
        budget -= num_tokens
    return budget
