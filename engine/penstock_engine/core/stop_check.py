"""Appends sampled tokens to a sequence and checks its stop conditions."""

from dataclasses import dataclass

from penstock_engine.core.events import Failure, FinishReason
from penstock_engine.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a sequence ends. token_id: the token that ended it, if one did."""

    reason: FinishReason
    token_id: int | None = None
    failure: Failure | None = None


LENGTH_STOP = Stop("length")


def append_until_stop(
    sequence: Sequence, token_ids: tuple[int, ...], max_num_tokens: int
) -> tuple[int, Stop | None]:
    """Append token_ids to the sequence, up to the first that ends it.

    max_num_tokens: bound on the length of the sequence, prompt and output. Returns the number of
    tokens appended, and why the sequence ends; None if it goes on.
    """
    ending = sequence.ending_token_ids
    if sequence.constraint is None and (not ending or ending.isdisjoint(token_ids)):
        tokens = sequence.tokens
        length = len(tokens)
        room = sequence.sampling.max_tokens + sequence.num_prompt_tokens
        room = (room if room < max_num_tokens else max_num_tokens) - length
        if len(token_ids) < room:
            tokens += token_ids
            return len(token_ids), None
        tokens += token_ids[:room]
        return room, LENGTH_STOP
    for num_taken, token_id in enumerate(token_ids, 1):
        sequence.tokens.append(token_id)
        if (stop := _check_last_token(sequence, max_num_tokens)) is not None:
            return num_taken, stop
    return len(token_ids), None


def _check_last_token(sequence: Sequence, max_num_tokens: int) -> Stop | None:
    """Advance the grammar by the last token. Returns why the sequence ends; None if it goes on."""
    token_id = sequence.tokens[-1]
    constraint = sequence.constraint
    if constraint is not None and not constraint.accept(token_id):
        return Stop("error", failure="nothing_to_draw")
    is_ending = token_id in sequence.ending_token_ids
    if is_ending and sequence.num_output_tokens > sequence.sampling.min_tokens:
        return Stop("stop", token_id)
    if constraint is not None and constraint.is_finished:
        return Stop("stop")
    is_at_limit = sequence.num_tokens >= max_num_tokens
    if is_at_limit or sequence.num_output_tokens >= sequence.sampling.max_tokens:
        return Stop("length")
    return None
