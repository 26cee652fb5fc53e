"""What the scheduler tells the outside: tokens, and ends of sequences."""

from dataclasses import dataclass
from typing import Literal

from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import TokenLogprobs

FinishReason = Literal["stop", "length", "abort", "error"]
Failure = Literal[
    "queue_full", "prompt_too_long", "nothing_to_draw", "step_failed", "engine_stopped"
]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """New tokens, the end of a sequence (finish_reason), or both.

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
        *,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
        prompt_logprobs: tuple[TokenLogprobs, ...] = (),
        embedding: tuple[float, ...] = (),
        ending_token_id: int | None = None,
        finish_reason: FinishReason | None = None,
        failure: Failure | None = None,
    ) -> "TokenEvent":
        return cls(
            request_id=sequence.request_id,
            token_ids=token_ids,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            embedding=embedding,
            ending_token_id=ending_token_id,
            finish_reason=finish_reason,
            failure=failure,
            now_s=now,
            queued_s=sequence.arrival_s,
            scheduled_s=sequence.first_scheduled_s,
            first_token_s=sequence.first_token_s,
            num_prompt_tokens=sequence.num_prompt_tokens,
            num_output_tokens=sequence.num_output_tokens,
            num_cached_tokens=sequence.num_cached_tokens,
            prefill_kv_computed_tokens=sequence.num_prompt_tokens - sequence.num_cached_tokens,
            preemptions=sequence.num_preemptions,
        )
