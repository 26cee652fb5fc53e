"""One choice of an answer: from a prompt to pieces of text with an end."""

import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.events import Failure, TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import TokenLogprobs
from penstock_engine.parsers.reasoning_tokens import ReasoningTokenCounter
from penstock_engine.server.adapters import AdapterRegistry
from penstock_engine.server.bridge import Bridge
from penstock_engine.server.deadlines import too_late
from penstock_engine.server.errors import RequestError
from penstock_engine.server.metrics import RequestRecord
from penstock_engine.server.schemas import GenerationRequest
from penstock_engine.tokens import TextStream, Tokenizer

# Tokens without text are sent after so many steps at the latest, so that their log-probabilities do
# not add up to one large event.
MAX_HELD_PIECES = 64

FAILURES: dict[Failure, tuple[int, str]] = {
    "queue_full": (503, "the engine's queue is full: try again"),
    "prompt_too_long": (400, "the prompt is longer than the KV cache can hold"),
    "nothing_to_draw": (400, "the request's own limits leave no token to draw"),
    # 503, as another engine may have sound weights: a gateway asks it before the client knows.
    "not_numbers": (503, "the model's output is not numbers: try another engine"),
    "step_failed": (500, "the engine could not compute this request"),
    "engine_stopped": (503, "the engine is stopping: try again"),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """New text with the tokens it came from, the end, or both.

    stop_reason: the stop string or stop token that was met.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class Choice:
    """A choice: its inputs and its progress. reasoning: None without a reasoning parser.

    number: among the n of its prompt. fork_of: the sequence of the first of them, whose prompt
    this one need not compute again, or "".
    """

    index: int
    number: int
    prompt: list[int]
    sampling: SamplingParams
    record: RequestRecord
    fork_of: str = ""
    sequence_id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    constraint: Constraint | None = field(default=None, init=False)
    reasoning: ReasoningTokenCounter | None = field(default=None, init=False)
    completion_tokens: int = field(default=0, init=False)
    cached_tokens: int = field(default=0, init=False)
    first_token_s: float | None = field(default=None, init=False)
    prompt_logprobs: tuple[TokenLogprobs, ...] = field(default=(), init=False)
    last_event: TokenEvent | None = field(default=None, init=False)


@dataclass(frozen=True, slots=True)
class Generator:
    """Makes choices. shows_special: whether tags in the text are special tokens. on_end: told of
    each choice that has ended, and why: by a finish reason, "abort" or "error"."""

    bridge: Bridge
    adapters: AdapterRegistry
    tokenizer: Tokenizer
    request: GenerationRequest
    model: str
    request_id: str
    shows_special: bool = False
    on_end: Sequence[Callable[[Choice, str], None]] = ()

    async def pieces(self, choice: Choice) -> AsyncGenerator[Piece]:
        """To the end of the choice. Raises RequestError when the engine refuses or fails.

        Closing the iterator aborts the work.
        """
        request, record = self.request, choice.record
        text = TextStream(
            self.tokenizer,
            request.stop,
            min_tokens=choice.sampling.min_tokens,
            include_stop=request.include_stop_str_in_output,
            skip_special_tokens=request.skip_special_tokens and not self.shows_special,
            # A completion continues its prompt's text; a new message is a text of its own.
            after=choice.prompt if request.continues_prompt else (),
        )
        finish_reason = "abort"
        held: list[Piece] = []  # tokens that have added no text yet
        try:
            async with (
                self.adapters.hold(request.model, record) as adapter,
                aclosing(
                    self.bridge.generate(
                        choice.sequence_id,
                        choice.prompt,
                        choice.sampling,
                        record,
                        cache_salt=request.cache_salt or "",
                        priority=request.priority,
                        constraint=choice.constraint,
                        adapter=adapter,
                        fork_of=choice.fork_of,
                    )
                ) as events,
            ):
                async for event in events:
                    choice.last_event = event
                    _raise_failure(event, record)
                    piece = self._piece(event, choice, text)
                    held.append(piece)
                    if piece.finish_reason is not None:
                        finish_reason = piece.finish_reason
                        record.is_stopped = text.stop is not None
                    if piece.text or piece.finish_reason or len(held) >= MAX_HELD_PIECES:
                        whole, held = joined(held), []
                        yield whole
                    if piece.finish_reason is not None:
                        return
        except RequestError:
            finish_reason = "error"
            raise
        finally:
            for tell in self.on_end:
                tell(choice, finish_reason)

    def _piece(self, event: TokenEvent, choice: Choice, text: TextStream) -> Piece:
        choice.cached_tokens = event.num_cached_tokens
        choice.first_token_s = event.first_token_s
        choice.prompt_logprobs = choice.prompt_logprobs or event.prompt_logprobs
        # The token that ended the sequence is not text, unless it was asked for.
        silent = None if self.request.include_stop_str_in_output else event.ending_token_id
        new, num_read = "", 0
        for token_id in event.token_ids:
            num_read += 1
            if token_id != silent or num_read < len(event.token_ids):
                new += text.push(token_id)
                if (
                    choice.reasoning is not None
                ):  # text may be held back: tags are looked for by token
                    own = self.tokenizer.decode([token_id], skip_special_tokens=False)
                    choice.reasoning.push(own)
            if text.stop is not None:
                break
        choice.completion_tokens += num_read
        if event.finish_reason is not None:
            new += text.finish()
            if choice.reasoning is not None:
                choice.reasoning.finish()
        return Piece(
            new,
            event.token_ids[:num_read],
            event.logprobs[:num_read],
            "stop" if text.stop is not None else event.finish_reason,
            _stop_reason(event, choice, text),
        )


def _raise_failure(event: TokenEvent, record: RequestRecord) -> None:
    if record.late_phase is not None:
        raise too_late(record.late_phase)
    if event.finish_reason in ("error", "abort"):
        raise RequestError(*FAILURES[event.failure or "engine_stopped"])


def joined(pieces: Sequence[Piece]) -> Piece:
    """One piece with all text and tokens, and the end of the last."""
    last = pieces[-1]
    return Piece(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.token_ids),
        tuple(told for piece in pieces for told in piece.logprobs),
        last.finish_reason,
        last.stop_reason,
    )


def _stop_reason(event: TokenEvent, choice: Choice, text: TextStream) -> str | int | None:
    """As vLLM tells it: an end-of-sequence token is no reason of its own."""
    if text.stop is not None:
        return text.stop
    is_asked = event.ending_token_id in choice.sampling.stop_token_ids
    return event.ending_token_id if is_asked else None
