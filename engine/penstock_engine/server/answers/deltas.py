"""Parses the events of a chat stream, for routes that translate them to another API."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from penstock_engine.contract.wire import SSE_DONE, SSE_PREFIX
from penstock_engine.server.transport.json_text import Json, JsonText, to_text

DeltaKind = Literal["reasoning", "text", "call"]


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that is appended to one block of a message: reasoning, content, or a call's arguments."""

    kind: DeltaKind
    text: str
    index: int = 0  # number of the call
    # id, name: set if a call begins here, else empty
    id: str = ""
    name: str = ""
    # Whether the call is one of a custom tool, which has text instead of arguments
    is_custom: bool = False
    logprobs: list[JsonText] = field(default_factory=list)  # of the text, one per token

    def continues(self, other: "Delta | None") -> bool:
        """Whether it belongs to the same block as `other`."""
        return other is not None and (self.kind, self.index) == (other.kind, other.index)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A parsed event of a chat stream with one choice."""

    id: str
    model: str
    deltas: list[Delta]
    finish_reason: str | None
    stop_reason: str | int | None
    usage: Json | None
    error: Json | None  # OpenAI's error object, if it failed


async def read_chunks(events: AsyncGenerator[bytes]) -> AsyncGenerator[Chunk]:
    """Parses the events of a chat stream, and closes the stream at the end."""
    async with aclosing(events):
        async for event in events:
            if event != SSE_DONE:
                yield _chunk(json.loads(event.removeprefix(SSE_PREFIX)))


def _chunk(body: Json) -> Chunk:
    choice: Json = next(iter(body.get("choices", ())), {})
    return Chunk(
        id=body.get("id", ""),
        model=body.get("model", ""),
        deltas=list(message_deltas(choice.get("delta", {}), choice.get("logprobs"))),
        finish_reason=choice.get("finish_reason"),
        stop_reason=choice.get("stop_reason"),
        usage=body.get("usage"),
        error=body.get("error"),
    )


def _as_text(entry: Json | JsonText) -> JsonText:
    """Returns an entry as JSON text, which takes less memory than objects.

    A stream's last events hold the entries of all tokens.
    """
    return entry if isinstance(entry, JsonText) else to_text(entry)


def message_deltas(message: Json, logprobs: Json | None = None) -> Iterator[Delta]:
    """Yields the deltas of an OpenAI chat delta or message, in order.

    Arguments that continue a call come first, because whatever else is in the delta follows that call.
    """
    calls = [
        _call_delta(number, call) for number, call in enumerate(message.get("tool_calls") or ())
    ]
    yield from (call for call in calls if not call.id)
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning:
        yield Delta("reasoning", reasoning)
    if message.get("content"):
        entries = (logprobs or {}).get("content") or ()
        yield Delta("text", message["content"], logprobs=list(map(_as_text, entries)))
    yield from (call for call in calls if call.id)


def _call_delta(number: int, call: Json) -> Delta:
    function: Json = call.get("function") or {}
    return Delta(
        "call",
        function.get("arguments") or "",
        call.get("index", number),
        call.get("id") or "",
        function.get("name") or "",
    )
