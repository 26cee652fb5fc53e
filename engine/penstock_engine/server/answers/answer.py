"""Builds OpenAI's JSON for completions and chat: whole answers and streams."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from penstock_engine.contract.wire import SSE_DONE, SSE_END, SSE_PREFIX
from penstock_engine.core.step import TokenLogprobs
from penstock_engine.server.answers.all_or_none import all_or_none
from penstock_engine.server.answers.chat_message import ChatMessageBuilder
from penstock_engine.server.answers.echo import echoed_text, prompt_offsets
from penstock_engine.server.answers.logprobs import (
    NameToken,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
    text_offsets,
    token_namer,
)
from penstock_engine.server.answers.usage import UsageReport
from penstock_engine.server.generation.answer_format import AnswerFormat
from penstock_engine.server.generation.generator import Choice, Generator, Piece, join_pieces
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json, JsonText, encode_line

Kind = Literal["chat", "completion"]

# Items in the queue of a stream: an event of a choice, its failure, or None at its end.
Item = bytes | RequestError | None


@dataclass(slots=True)
class Answer:
    """The answer to a request, streamed or whole."""

    kind: Kind
    generator: Generator
    format: AnswerFormat
    choices: list[Choice]
    created: int  # Unix time in seconds
    report: UsageReport
    # Maximum number of choices in the engine at once, if the answer is not streamed
    max_concurrent: int
    # Callback, from any thread, for each choice with text that began like a tool call and was none
    on_failed_call: Callable[[], None]
    _name_token: NameToken = field(init=False)
    _hidden: frozenset[int] = field(init=False)  # tokens that are no part of the answer's text

    def __post_init__(self) -> None:
        request, tokenizer = self.generator.request, self.generator.tokenizer
        self._name_token = token_namer(tokenizer, as_ids=bool(request.return_tokens_as_token_ids))
        is_hiding = request.skip_special_tokens
        self._hidden = frozenset(tokenizer.special_tokens.values() if is_hiding else ())

    async def collect(self) -> list[list[Piece]]:
        """Waits for all pieces of each choice and returns them. Raises RequestError."""
        work = [partial(self._collect, choice) for choice in self.choices]
        return await all_or_none(work, self.max_concurrent)

    async def _collect(self, choice: Choice) -> list[Piece]:
        async with aclosing(self.generator.pieces(choice)) as pieces:
            return [piece async for piece in pieces]

    def body(self, collected: list[list[Piece]]) -> Json:
        """Builds the whole JSON body. CPU time grows with the answer: call it off the event loop."""
        wholes = [join_pieces(pieces) for pieces in collected]
        bodies = [self._choice_body(*each) for each in zip(self.choices, wholes, strict=True)]
        name = "chat.completion" if self.kind == "chat" else "text_completion"
        body = self._head(name) | {"choices": bodies, "usage": self.report.usage(self.choices)}
        body |= self.report.metrics(self.choices)
        if self.kind == "chat":
            body["prompt_logprobs"] = self._prompt_logprobs(self.choices[0])
            body["prompt_token_ids"] = self._prompt_token_ids(self.choices[0])
        return body

    def _choice_body(self, choice: Choice, whole: Piece) -> Json:
        body: Json = {
            "index": choice.index,
            "logprobs": self._logprobs(
                choice, whole, len(self._echoed_text(choice)), is_first=True
            ),
            "finish_reason": whole.finish_reason,
            "stop_reason": whole.stop_reason,
        }
        if choice.sampling.wants_embedding:
            body["embedding"] = choice.embedding
        body["token_ids"] = self._token_ids(whole)
        if self.kind == "chat":
            builder = ChatMessageBuilder(self.format, self.on_failed_call)
            message = builder.message(whole)
            reason = builder.finish_reason(whole)
            return body | {"message": message, "finish_reason": reason}
        return body | {
            "text": self._echoed_text(choice) + whole.text,
            "prompt_logprobs": self._prompt_logprobs(choice),
            "prompt_token_ids": self._prompt_token_ids(choice),
        }

    def _token_ids(self, piece: Piece) -> list[int] | None:
        """Returns the tokens of a piece; None if not requested."""
        return list(piece.token_ids) if self.generator.request.return_token_ids else None

    def _prompt_token_ids(self, choice: Choice) -> list[int] | None:
        """Returns the tokens of the prompt; None if not requested."""
        return choice.prompt if self.generator.request.return_token_ids else None

    @property
    def _echoes_prompts(self) -> bool:
        """Whether the text of each choice begins with its prompt."""
        return self.kind == "completion" and self.generator.request.echo

    def _echoed_text(self, choice: Choice) -> str:
        return echoed_text(self.generator.request, choice, self.generator.tokenizer)

    def _prompt_logprobs(self, choice: Choice) -> list[JsonText | None] | None:
        if self.generator.request.prompt_logprobs is None:
            return None
        return prompt_logprobs(choice.prompt_logprobs, self._name_token)

    def _logprobs(
        self, choice: Choice, piece: Piece, offset: int, *, is_first: bool
    ) -> Json | None:
        """Returns the log-probabilities of a piece; None if not requested.

        offset: characters before the piece, those of an echoed prompt included. is_first: whether an echoed
        prompt belongs to the piece.
        """
        if self.generator.request.num_logprobs is None:
            return None
        if self.kind == "chat":
            return chat_logprobs(piece.logprobs, self._name_token)
        logprobs: Sequence[TokenLogprobs | None] = piece.logprobs
        tokens: Sequence[int] = piece.token_ids
        offsets = text_offsets(map(self._width, tokens), offset)
        if is_first and self._echoes_prompts:
            logprobs = (None, *choice.prompt_logprobs, *logprobs)
            tokens = (*choice.prompt, *tokens)
            echoed = prompt_offsets(self._echoed_text(choice), choice, self._name_token)
            offsets = echoed + offsets
        return completion_logprobs(logprobs, tokens, offsets, self._name_token)

    def _width(self, token_id: int) -> int:
        """Returns the number of characters of a token in the answer's text."""
        return 0 if token_id in self._hidden else self._name_token(token_id).num_chars

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yields server-sent events, the first one once the first token is there.

        Raises RequestError if the request fails before the first event. A later failure is an event.
        """
        items: asyncio.Queue[Item] = asyncio.Queue()
        tasks = [asyncio.create_task(self._stream_choice(choice, items)) for choice in self.choices]
        num_running, has_started = len(tasks), False
        try:
            while num_running:
                item = await items.get()
                if item is None:
                    num_running -= 1
                elif isinstance(item, RequestError):
                    if not has_started:
                        raise item
                    yield frame(item.body())
                    break
                else:
                    has_started = True
                    yield item
            else:
                if self.generator.request.include_usage:
                    last = self._chunk([], self.report.usage(self.choices))
                    yield frame(last | self.report.metrics(self.choices))
            yield SSE_DONE
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stream_choice(self, choice: Choice, items: asyncio.Queue[Item]) -> None:
        offset = 0
        if self._echoes_prompts:
            offset = len(await asyncio.to_thread(self._echoed_text, choice))
        is_first = True
        is_chat = self.kind == "chat"
        builder = ChatMessageBuilder(self.format, self.on_failed_call) if is_chat else None
        try:
            async with aclosing(self.generator.pieces(choice)) as pieces:
                async for piece in pieces:
                    if is_first and builder is not None:
                        for event in self._opening_events(choice):
                            items.put_nowait(event)
                    if is_first and self._echoes_prompts:  # building the event may take long
                        event = await asyncio.to_thread(
                            self._delta_event, choice, piece, offset, builder, is_first=True
                        )
                    else:
                        event = self._delta_event(choice, piece, offset, builder, is_first=is_first)
                    is_first = False
                    if event:
                        items.put_nowait(event)
                    if self.generator.request.num_logprobs is not None:
                        offset += sum(map(self._width, piece.token_ids))
            items.put_nowait(None)
        except RequestError as error:
            items.put_nowait(error)
        except Exception:
            items.put_nowait(RequestError(500, "the request failed inside the server"))
            raise

    def _opening_events(self, choice: Choice) -> Iterator[bytes]:
        """Yields the events before the first token: the role, and the echoed text."""
        deltas = [{"role": self.format.role, "content": ""}]
        if self.format.echoed:
            deltas.append({"content": self.format.echoed})
        for delta in deltas:
            body = {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}
            yield self._opening_event(choice, body, shows_prompt="role" in delta)

    def _delta_event(
        self,
        choice: Choice,
        piece: Piece,
        offset: int,
        builder: ChatMessageBuilder | None,
        *,
        is_first: bool,
    ) -> bytes:
        """Builds the event of a piece. Empty if the piece only has text that is held back."""
        body: Json = {
            "index": choice.index,
            "logprobs": self._logprobs(choice, piece, offset, is_first=is_first),
            "finish_reason": piece.finish_reason,
        }
        if piece.finish_reason is not None:
            body["stop_reason"] = piece.stop_reason
        if builder is None:
            body["token_ids"] = self._token_ids(piece)
            body["prompt_token_ids"] = self._prompt_token_ids(choice) if is_first else None
            echoed = self._echoed_text(choice) if is_first else ""
            return self._event(choice, body | {"text": echoed + piece.text})
        if self.generator.request.return_token_ids:
            body["token_ids"] = list(piece.token_ids)
        delta = builder.delta(piece)
        if not delta and piece.finish_reason is None and not self._reports_tokens:
            return b""
        reason = builder.finish_reason(piece)
        delta = delta or {"content": ""}
        return self._event(choice, body | {"delta": delta, "finish_reason": reason})

    @property
    def _reports_tokens(self) -> bool:
        request = self.generator.request
        return request.num_logprobs is not None or request.return_token_ids

    def _event(self, choice: Choice, body: Json) -> bytes:
        is_counted = self.generator.request.usage_in_every_chunk
        return frame(self._chunk([body], self.report.usage([choice]) if is_counted else None))

    def _opening_event(self, choice: Choice, body: Json, *, shows_prompt: bool) -> bytes:
        """Builds an event that counts no answer tokens, though some may have been generated already."""
        is_counted = self.generator.request.usage_in_every_chunk
        counts = self.report.usage([choice], has_started=False) if is_counted else None
        chunk = self._chunk([body], counts)
        if shows_prompt and self.generator.request.return_token_ids:
            chunk["prompt_token_ids"] = choice.prompt
        return frame(chunk)

    def _chunk(self, choices: list[Json], usage_so_far: Json | None) -> Json:
        name = "chat.completion.chunk" if self.kind == "chat" else "text_completion"
        body = self._head(name) | {"choices": choices}
        if self.generator.request.include_usage:
            body["usage"] = usage_so_far
        return body

    def _head(self, name: str) -> Json:
        prefix = "chatcmpl" if self.kind == "chat" else "cmpl"
        return {
            "id": f"{prefix}-{self.generator.request_id}",
            "object": name,
            "created": self.created,
            "model": self.generator.model,
        }


def frame(body: Json) -> bytes:
    """Returns a body as a server-sent event."""
    return SSE_PREFIX + encode_line(body) + SSE_END
