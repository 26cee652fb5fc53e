"""What a chat stream says, chunk by chunk, for forms that say it in other words."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from penstock_engine.server.answers import Json
from penstock_engine.server.json_text import JsonText, to_text
from penstock_engine.wire import SSE_DONE, SSE_PREFIX

PartKind = Literal["reasoning", "text", "call"]


@dataclass(frozen=True, slots=True)
class Part:
    """A delta of one block: of reasoning, of text, or of a call's arguments.

    index: of the call. id and name: of a call that begins here. is_custom: whether a call has text
    instead of arguments. logprobs: of the text, one for each token.
    """

    kind: PartKind
    text: str
    index: int = 0
    id: str = ""
    name: str = ""
    is_custom: bool = False
    logprobs: list[JsonText] = field(default_factory=list)

    def is_of(self, other: "Part | None") -> bool:
        """Whether it continues the block of `other`."""
        return other is not None and (self.kind, self.index) == (other.kind, other.index)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a chat stream with one choice. error: the body of what ended it early."""

    id: str
    model: str
    parts: list[Part]
    finish_reason: str | None
    stop_reason: str | int | None
    usage: Json | None
    error: Json | None


async def chunks(events: AsyncGenerator[bytes]) -> AsyncGenerator[Chunk]:
    """The events of a chat stream, read. Closes it at the end."""
    async with aclosing(events):
        async for event in events:
            if event != SSE_DONE:
                yield _chunk(json.loads(event.removeprefix(SSE_PREFIX)))


def _chunk(body: Json) -> Chunk:
    choice: Json = next(iter(body.get("choices", ())), {})
    return Chunk(
        id=body.get("id", ""),
        model=body.get("model", ""),
        parts=list(parts(choice.get("delta", {}), choice.get("logprobs"))),
        finish_reason=choice.get("finish_reason"),
        stop_reason=choice.get("stop_reason"),
        usage=body.get("usage"),
        error=body.get("error"),
    )


def _as_text(entry: Json | JsonText) -> JsonText:
    """The entry as JSON text, which takes less memory than objects: a stream's last events hold the
    entries of all tokens."""
    return entry if isinstance(entry, JsonText) else to_text(entry)


def parts(message: Json, logprobs: Json | None = None) -> Iterator[Part]:
    """The parts of an OpenAI chat delta or message, in order."""
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning:
        yield Part("reasoning", reasoning)
    if message.get("content"):
        told = (logprobs or {}).get("content") or ()
        yield Part("text", message["content"], logprobs=list(map(_as_text, told)))
    for number, call in enumerate(message.get("tool_calls") or ()):
        function: Json = call.get("function") or {}
        yield Part(
            "call",
            function.get("arguments") or "",
            call.get("index", number),
            call.get("id") or "",
            function.get("name") or "",
        )
