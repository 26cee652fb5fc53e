"""Choices as OpenAI's JSON: whole answers and streams, for completions and chat."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from penstock_engine.server.bridge import Bridge
from penstock_engine.server.errors import RequestError
from penstock_engine.server.generation import Choice, Usage, generate
from penstock_engine.server.schemas import GenerationRequest
from penstock_engine.tokens import Tokenizer
from penstock_engine.wire import SSE_DONE, SSE_END, SSE_PREFIX


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's answer, streamed or whole. created: seconds since the epoch."""

    kind: Literal["chat", "completion"]
    request: GenerationRequest
    choices: list[Choice]
    request_id: str
    model: str
    created: int
    bridge: Bridge
    tokenizer: Tokenizer

    @property
    def answer_id(self) -> str:
        return f"{'chatcmpl' if self.kind == 'chat' else 'cmpl'}-{self.request_id}"

    def _pieces(self, choice: Choice, usage: Usage) -> Any:
        return aclosing(
            generate(
                self.bridge, self.tokenizer, self.request, choice, usage,
                request_id=self.request_id, model=self.model,
            )
        )  # fmt: skip

    async def whole(self) -> dict[str, Any]:
        """The complete body. Raises RequestError."""
        usages = [Usage(len(choice.prompt)) for choice in self.choices]
        results = await gather_or_cancel(
            [self._collect(c, u) for c, u in zip(self.choices, usages, strict=True)]
        )
        return {
            "id": self.answer_id,
            "object": "chat.completion" if self.kind == "chat" else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": results,
            "usage": usage_body(usages),
        }

    async def _collect(self, choice: Choice, usage: Usage) -> dict[str, Any]:
        text, reason = "", None
        async with self._pieces(choice, usage) as pieces:
            async for piece in pieces:
                text += piece.text
                reason = piece.finish_reason
        body: dict[str, Any] = {"index": choice.index, "logprobs": None, "finish_reason": reason}
        if self.kind == "chat":
            return body | {"message": {"role": "assistant", "content": text}}
        return body | {"text": text}

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Server-sent events. The first one exists only when the first token does.

        Raises RequestError before the first event; later failures are an event of their own.
        """
        queue: asyncio.Queue[bytes | RequestError | None] = asyncio.Queue()
        usages = [Usage(len(choice.prompt)) for choice in self.choices]
        pumps = [
            asyncio.create_task(self._pump(c, u, queue))
            for c, u in zip(self.choices, usages, strict=True)
        ]
        begun, left = False, len(pumps)
        try:
            while left:
                item = await queue.get()
                if item is None:
                    left -= 1
                elif isinstance(item, RequestError):
                    if not begun:
                        raise item
                    yield frame(item.body())
                    break
                else:
                    begun = True
                    yield item
            else:
                if self.request.include_usage:
                    yield frame(self._chunk([], usage_body(usages)))
            yield SSE_DONE
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, choice: Choice, usage: Usage, queue: asyncio.Queue[bytes | RequestError | None]
    ) -> None:
        try:
            first = True
            async with self._pieces(choice, usage) as pieces:
                async for piece in pieces:
                    if first and self.kind == "chat":
                        opening = {"role": "assistant", "content": ""}
                        queue.put_nowait(frame(self._chunk([self._delta(choice, opening, None)])))
                    first = False
                    part: Any = {"content": piece.text} if self.kind == "chat" else piece.text
                    delta = self._delta(choice, part, piece.finish_reason)
                    queue.put_nowait(frame(self._chunk([delta])))
            queue.put_nowait(None)
        except RequestError as error:
            queue.put_nowait(error)

    def _delta(self, choice: Choice, part: Any, finish_reason: str | None) -> dict[str, Any]:
        name = "delta" if self.kind == "chat" else "text"
        return {
            "index": choice.index,
            name: part,
            "logprobs": None,
            "finish_reason": finish_reason,
        }

    def _chunk(
        self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": self.answer_id,
            "object": "chat.completion.chunk" if self.kind == "chat" else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
        if self.request.include_usage:
            body["usage"] = usage
        return body


async def gather_or_cancel(work: list[Any]) -> list[Any]:
    """All results; when one fails or this is cancelled, the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def frame(body: dict[str, Any]) -> bytes:
    return SSE_PREFIX + json.dumps(body, separators=(",", ":")).encode() + SSE_END


def usage_body(usages: list[Usage]) -> dict[str, Any]:
    prompt = sum(usage.prompt_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in usages)},
    }
