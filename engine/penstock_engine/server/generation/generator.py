"""Generates the text of a choice: submits its sequence, detokenizes and stops it."""

import uuid
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.events import Failure, TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import TokenLogprobs
from penstock_engine.parsers.reasoning_tokens import ReasoningTokenCounter
from penstock_engine.server.adapters.registry import AdapterRegistry
from penstock_engine.server.async_engine import AsyncEngine, asleep_error
from penstock_engine.server.metrics.engine_metrics import StructuredOutcome
from penstock_engine.server.metrics.request_record import RequestRecord
from penstock_engine.server.requests.completion_request import GenerationRequest
from penstock_engine.server.transport.deadlines import deadline_error
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.text.text_stream import TextStream
from penstock_engine.text.tokens import Tokenizer

# Maximum number of steps without text before a piece is sent, so that the log-probabilities of many
# tokens do not add up to one large event.
MAX_HELD_PIECES = 64

FAILURES: dict[Failure, tuple[int, str]] = {
    "queue_full": (503, "the engine's queue is full: try again"),
    "prompt_too_long": (400, "the prompt is longer than the KV cache can hold"),
    "nothing_to_draw": (400, "the request's own limits leave no token to draw"),
    # 503, so that a gateway retries on another engine, whose weights may be intact.
    "nan_output": (503, "the model's output is NaN: try another engine"),
    "step_failed": (500, "the engine could not compute this request"),
    "engine_stopped": (503, "the engine is stopping: try again"),
}
GRAMMAR_FAILURE = (
    500,
    "the answer needs more states of its grammar than the engine holds: leave out bounds of long strings, "
    "or simplify the schema or the grammar",
)


@dataclass(frozen=True, slots=True)
class Piece:
    """New text with its tokens. finish_reason: set on the last piece of a choice.

    stop_reason: the stop string or stop token that ended the choice.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class Choice:
    """The inputs and the progress of one choice."""

    index: int  # among all choices of the request
    number: int  # among the n choices of its prompt
    prompt: list[int]
    sampling: SamplingParams
    record: RequestRecord
    # Id of the sequence of the prompt's first choice, whose KV cache this one shares; or ""
    fork_of: str = ""
    sequence_id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    constraint: Constraint | None = field(default=None, init=False)
    # Counter of reasoning tokens; None if reasoning is not parsed
    reasoning: ReasoningTokenCounter | None = field(default=None, init=False)
    completion_tokens: int = field(default=0, init=False)
    cached_tokens: int = field(default=0, init=False)
    first_token_s: float | None = field(default=None, init=False)
    prompt_logprobs: tuple[TokenLogprobs, ...] = field(default=(), init=False)
    # Embedding of the prompt; empty unless requested
    embedding: "array[float]" = field(default_factory=lambda: array("f"), init=False)
    last_event: TokenEvent | None = field(default=None, init=False)


@dataclass(frozen=True, slots=True)
class Generator:
    """Generates the choices of a request."""

    engine: AsyncEngine
    adapters: AdapterRegistry
    tokenizer: Tokenizer
    request: GenerationRequest
    model: str
    request_id: str
    # Whether special tokens stay in the text, because tags are among them
    shows_special: bool = False
    # Text that a grammar forces an answer to begin with; stop strings apply after it
    forced_opening: str = ""
    # Functions that are called with each finished choice and its finish reason, "abort" or "error"
    on_end: Sequence[Callable[[Choice, str], None]] = ()

    async def pieces(self, choice: Choice) -> AsyncGenerator[Piece]:
        """Yields the pieces of a choice to its end. Closing the iterator aborts the choice.

        Raises RequestError if the engine rejects the sequence or fails.
        """
        record = choice.record
        text = self._text_stream(choice)
        finish_reason = "abort"
        held: list[Piece] = []  # pieces without text
        try:
            async with (
                self.adapters.hold(self.request.model, record) as adapter,
                aclosing(self._events(choice, adapter)) as events,
            ):
                async for event in events:
                    choice.last_event = event
                    if event.embedding:
                        # A request may have thousands of vectors. A tuple takes 8 times the memory.
                        choice.embedding = array("f", event.embedding)
                        choice.last_event = event._replace(embedding=())
                    _raise_failure(event, choice, is_asleep=self.engine.is_asleep)
                    piece = self._piece(event, choice, text)
                    held.append(piece)
                    if piece.finish_reason is not None:
                        finish_reason = piece.finish_reason
                        record.is_stopped = text.stop is not None
                    if piece.text or piece.finish_reason or len(held) >= MAX_HELD_PIECES:
                        whole, held = join_pieces(held), []
                        yield whole
                    if piece.finish_reason is not None:
                        return
        except RequestError:
            finish_reason = "error"
            raise
        finally:
            for callback in self.on_end:
                callback(choice, finish_reason)

    def _text_stream(self, choice: Choice) -> TextStream:
        request = self.request
        return TextStream(
            self.tokenizer,
            request.stop,
            min_tokens=choice.sampling.min_tokens,
            forced_opening=self.forced_opening,
            include_stop=request.include_stop_str_in_output,
            skip_special_tokens=request.skip_special_tokens and not self.shows_special,
            # A completion continues its prompt's text; a new message is a text of its own.
            after=choice.prompt if request.continues_prompt else (),
        )

    def _events(self, choice: Choice, adapter: str) -> AsyncGenerator[TokenEvent]:
        """Submits the sequence of a choice, and returns its events."""
        return self.engine.generate(
            choice.sequence_id,
            choice.prompt,
            choice.sampling,
            choice.record,
            cache_salt=self.request.cache_salt or "",
            priority=self.request.priority,
            constraint=choice.constraint,
            adapter=adapter,
            fork_of=choice.fork_of,
        )

    def _piece(self, event: TokenEvent, choice: Choice, text: TextStream) -> Piece:
        choice.cached_tokens = event.num_cached_tokens
        choice.first_token_s = event.first_token_s
        choice.prompt_logprobs = choice.prompt_logprobs or event.prompt_logprobs
        if self.request.only_scores_prompt:
            return Piece("", (), (), "length")
        # The stop token is no part of the text, unless the request includes it.
        hidden = None if self.request.include_stop_str_in_output else event.ending_token_id
        new, num_read = "", 0
        for token_id in event.token_ids:
            num_read += 1
            if token_id != hidden or num_read < len(event.token_ids):
                new += text.push(token_id)
                if choice.reasoning is not None:
                    # Decodes the token alone, because `text` may hold its text back.
                    token_text = self.tokenizer.decode([token_id], skip_special_tokens=False)
                    choice.reasoning.push(token_text)
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


def structured_outcome(choice: Choice, finish_reason: str) -> StructuredOutcome | None:
    """How a choice with a grammar ended. None if it failed for a reason other than the grammar."""
    if finish_reason == "error":
        has_failed = choice.constraint is not None and choice.constraint.has_failed
        return "failed" if has_failed else None
    if finish_reason == "abort":  # the engine's thread may still change the state of the grammar
        return "incomplete"
    is_ended = finish_reason == "stop" and not choice.record.is_stopped
    is_whole = choice.constraint is not None and choice.constraint.is_finished
    return "complete" if is_ended or is_whole else "incomplete"


def _raise_failure(event: TokenEvent, choice: Choice, *, is_asleep: bool) -> None:
    if choice.record.timeout_phase is not None:
        raise deadline_error(choice.record.timeout_phase)
    if event.finish_reason == "abort" and is_asleep:
        raise asleep_error()
    if event.finish_reason in ("error", "abort"):
        has_failed = choice.constraint is not None and choice.constraint.has_failed
        if event.failure == "nothing_to_draw" and has_failed:
            raise RequestError(*GRAMMAR_FAILURE)
        raise RequestError(*FAILURES[event.failure or "engine_stopped"])


def join_pieces(pieces: Sequence[Piece]) -> Piece:
    """Joins the text and tokens of adjacent pieces. The end is that of the last one."""
    last = pieces[-1]
    return Piece(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.token_ids),
        tuple(entry for piece in pieces for entry in piece.logprobs),
        last.finish_reason,
        last.stop_reason,
    )


def _stop_reason(event: TokenEvent, choice: Choice, text: TextStream) -> str | int | None:
    """Returns vLLM's stop reason: the stop string or stop token; None for an end-of-sequence token."""
    if text.stop is not None:
        return text.stop
    is_requested = event.ending_token_id in choice.sampling.stop_token_ids
    return event.ending_token_id if is_requested else None
