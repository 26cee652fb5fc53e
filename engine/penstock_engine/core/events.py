"""Events of the scheduler: new tokens, and the end of a sequence."""

from typing import Literal, NamedTuple

from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import TokenLogprobs

FinishReason = Literal["stop", "length", "abort", "error"]
Failure = Literal[
    "queue_full",
    "prompt_too_long",
    "nothing_to_draw",
    "nan_output",
    "step_failed",
    "engine_stopped",
]


class TokenEvent(NamedTuple):
    """New tokens of a sequence, its end (finish_reason is not None), or both.

    A named tuple, because one is created for each sequence in each step. All times are readings of the
    caller's clock, in seconds.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    # Log-probabilities of the prompt tokens from the second on, in the first event that has tokens
    prompt_logprobs: tuple[TokenLogprobs, ...]
    embedding: tuple[float, ...]
    ending_token_id: int | None  # the last of token_ids if it ended the sequence
    finish_reason: FinishReason | None
    failure: Failure | None  # why finish_reason is "error"
    now_s: float
    queued_s: float
    scheduled_s: float | None
    first_token_s: float | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    prefill_kv_computed_tokens: int
    preemptions: int
    # Start and end of each preemption; one that has not ended ends now
    pauses: tuple[tuple[float, float], ...]

    @classmethod
    def of(
        cls,
        sequence: Sequence,
        now: float,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
        prompt_logprobs: tuple[TokenLogprobs, ...] = (),
        embedding: tuple[float, ...] = (),
        ending_token_id: int | None = None,
        finish_reason: FinishReason | None = None,
        failure: Failure | None = None,
    ) -> "TokenEvent":
        num_prompt_tokens = sequence.num_prompt_tokens
        return cls(
            sequence.request_id,
            token_ids,
            logprobs,
            prompt_logprobs,
            embedding,
            ending_token_id,
            finish_reason,
            failure,
            now,
            sequence.arrival_s,
            sequence.first_scheduled_s,
            sequence.first_token_s,
            num_prompt_tokens,
            len(sequence.tokens) - num_prompt_tokens,
            sequence.num_cached_tokens,
            num_prompt_tokens - sequence.num_cached_tokens,
            sequence.num_preemptions,
            sequence.pauses(now) if sequence.preempted_s else (),
        )
