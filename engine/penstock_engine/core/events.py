"""What the scheduler tells the outside: tokens, and ends of sequences."""

from typing import Literal, NamedTuple

from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import TokenLogprobs

FinishReason = Literal["stop", "length", "abort", "error"]
Failure = Literal[
    "queue_full",
    "prompt_too_long",
    "nothing_to_draw",
    "not_numbers",
    "step_failed",
    "engine_stopped",
]


class TokenEvent(NamedTuple):
    """New tokens, the end of a sequence (finish_reason), or both. Made as often as a step's sequences.

    ending_token_id: the last of token_ids, when that is what ended the sequence. prompt_logprobs:
    of the prompt's tokens from the second on, with the first event that has tokens. failure says
    why when finish_reason is "error". All times are readings of the caller's clock.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    prompt_logprobs: tuple[TokenLogprobs, ...]
    embedding: tuple[float, ...]
    ending_token_id: int | None
    finish_reason: FinishReason | None
    failure: Failure | None
    now_s: float
    queued_s: float
    scheduled_s: float | None
    first_token_s: float | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    prefill_kv_computed_tokens: int
    preemptions: int

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
        )
