"""Whether a token is the last of its sequence."""

from dataclasses import dataclass

from penstock_engine.core.events import Failure, FinishReason
from penstock_engine.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class End:
    """token_id: the token that ended the sequence, when one did."""

    reason: FinishReason
    token_id: int | None = None
    failure: Failure | None = None


def end_after(sequence: Sequence, max_num_tokens: int) -> End | None:
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
