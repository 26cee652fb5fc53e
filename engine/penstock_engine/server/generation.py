"""One choice of an answer: from a prompt to pieces of text with an end."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from penstock_engine.core.events import Failure
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.server.bridge import Bridge, now_s
from penstock_engine.server.errors import RequestError
from penstock_engine.server.schemas import GenerationRequest
from penstock_engine.tokens import TextStream, Tokenizer

FAILURES: dict[Failure, tuple[int, str]] = {
    "queue_full": (503, "the engine's queue is full; try again"),
    "prompt_too_long": (400, "the prompt is longer than the KV cache can hold"),
    "step_failed": (500, "the engine could not compute this request"),
    "engine_stopped": (503, "the engine is stopping; try again"),
}


@dataclass(slots=True)
class Usage:
    """Tokens of one choice so far."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """New text, the end, or both."""

    text: str
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """What one choice is made from."""

    index: int
    prompt: list[int]
    sampling: SamplingParams
    arrival_s: float


async def generate(
    bridge: Bridge, tokenizer: Tokenizer, request: GenerationRequest, choice: Choice, usage: Usage,
    *, request_id: str, model: str,
) -> AsyncGenerator[Piece, None]:  # fmt: skip
    """Pieces to the end; `usage` counts along. Raises RequestError when the engine refuses.

    Closing the iterator aborts the work.
    """
    stream = TextStream(
        tokenizer,
        request.stop,
        include_stop=request.include_stop_str_in_output,
        skip_special_tokens=request.skip_special_tokens,
    )
    first_s: float | None = None
    finish_reason = "abort"
    try:
        async with aclosing(
            bridge.generate(
                choice.prompt, choice.sampling, choice.arrival_s, request.cache_salt or ""
            )
        ) as events:
            async for event in events:
                usage.cached_tokens = event.num_cached_tokens
                if event.finish_reason in ("error", "abort"):
                    finish_reason = event.finish_reason
                    raise RequestError(
                        *FAILURES[event.failure or "engine_stopped"],
                        retry_after_s=1
                        if event.failure in ("queue_full", "engine_stopped")
                        else None,
                    )
                text = ""
                if event.token_id is not None:
                    first_s = first_s or now_s()
                    usage.completion_tokens = event.num_output_tokens
                    if not _is_end_token(request, event.finish_reason):
                        text = stream.push(event.token_id)
                if stream.stopped:
                    finish_reason = "stop"
                    yield Piece(text, finish_reason)
                    return
                if event.finish_reason is not None:
                    text += stream.finish()
                    finish_reason = "stop" if stream.stopped else event.finish_reason
                    yield Piece(text, finish_reason)
                    return
                if text:
                    yield Piece(text, None)
    finally:
        _log(request_id, model, choice, usage, first_s, finish_reason)


def _is_end_token(request: GenerationRequest, finish_reason: str | None) -> bool:
    """The token that ended a sequence is not text, unless it was asked for."""
    return finish_reason == "stop" and not request.include_stop_str_in_output


def _log(
    request_id: str,
    model: str,
    choice: Choice,
    usage: Usage,
    first_s: float | None,
    finish_reason: str,
) -> None:
    """One JSON line for each finished choice, without its text."""
    end_s, count = now_s(), usage.completion_tokens
    line = {
        "request_id": request_id,
        "model": model,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": count,
        "ttft_ms": None if first_s is None else round((first_s - choice.arrival_s) * 1e3, 2),
        "tpot_ms": round((end_s - first_s) * 1e3 / (count - 1), 2)
        if first_s and count > 1
        else None,
        "cache_hit": usage.cached_tokens,
        "finish_reason": finish_reason,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
