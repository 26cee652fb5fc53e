"""Which tokens a sequence takes in, and whether one of them is its last."""

from dataclasses import dataclass

from penstock_engine.core.events import Failure, FinishReason
from penstock_engine.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class End:
    """token_id: the token that ended the sequence, when one did."""

    reason: FinishReason
    token_id: int | None = None
    failure: Failure | None = None


LENGTH = End("length")


def take(
    sequence: Sequence, token_ids: tuple[int, ...], max_num_tokens: int
) -> tuple[int, End | None]:
    """Appends drawn tokens as far as the sequence goes on: how many, and its end, if that came."""
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
        return room, LENGTH
    for num_taken, token_id in enumerate(token_ids, 1):
        sequence.tokens.append(token_id)
        if (end := _end_after(sequence, max_num_tokens)) is not None:
            return num_taken, end
    return len(token_ids), None


def _end_after(sequence: Sequence, max_num_tokens: int) -> End | None:
    """For the token just appended, on which a constraint moves on; None when more may follow."""
    token_id = sequence.tokens[-1]
    constraint = sequence.constraint
    if constraint is not None and not constraint.accept(token_id):
        return End("error", failure="nothing_to_draw")
    is_ending = token_id in sequence.ending_token_ids
    if is_ending and sequence.num_output_tokens > sequence.sampling.min_tokens:
        return End("stop", token_id)
    if constraint is not None and constraint.is_finished:
        return End("stop")
    is_at_limit = sequence.num_tokens >= max_num_tokens
    if is_at_limit or sequence.num_output_tokens >= sequence.sampling.max_tokens:
        return End("length")
    return None
