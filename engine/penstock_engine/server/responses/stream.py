"""The events of a response that is streamed."""

from collections.abc import Iterator
from dataclasses import replace

from penstock_engine.server.answers import Json
from penstock_engine.server.deltas import Chunk, Part
from penstock_engine.server.json_text import JsonText
from penstock_engine.server.responses.items import (
    content_part,
    failed,
    finished,
    item,
    last_item_status,
)


class ResponseStream:
    """Which item is open, and the items before it. Every event has its number."""

    def __init__(self, response: Json) -> None:
        """response: the initial response object."""
        self._response = response
        self._num_events = 0
        self._output: list[Json] = []
        self._open: Part | None = None  # without its text and logprobs
        self._texts: list[str] = []  # of the open item
        self._logprobs: list[JsonText] = []
        self._finish_reason: str | None = None
        self.finished: Json | None = None  # the whole response

    def push(self, chunk: Chunk) -> Iterator[Json]:
        for event in self._events(chunk):
            yield event | {"sequence_number": self._num_events}
            self._num_events += 1

    def goes_on(self, chunk: Chunk) -> bool:
        """Whether a chunk only adds to the open item."""
        is_end = chunk.finish_reason is not None or chunk.error is not None
        return not is_end and bool(chunk.parts) and all(p.is_of(self._open) for p in chunk.parts)

    def _events(self, chunk: Chunk) -> Iterator[Json]:
        if chunk.error is not None:
            told = failed(self._response, self._output, chunk.error)
            yield {"type": "response.failed", "response": told}
            return
        if self._num_events == 0:
            self._response = self._response | {"model": chunk.model}
            yield {"type": "response.created", "response": self._response}
            yield {"type": "response.in_progress", "response": self._response}
        for part in chunk.parts:
            yield from self._grow(part)
        if chunk.finish_reason is not None:
            yield from self._close(chunk.finish_reason)
            self._finish_reason = chunk.finish_reason
        elif self._finish_reason is not None:  # the last chunk: the usage of the whole
            whole = finished(self._response, self._output, self._finish_reason, chunk.usage or {})
            self.finished = whole
            yield {"type": f"response.{whole['status']}", "response": whole}

    def _grow(self, part: Part) -> Iterator[Json]:
        if self._open is None or not part.is_of(self._open):
            yield from self._close()
            self._open = replace(part, text="", logprobs=[])
            yield {"type": "response.output_item.added", **self._place} | {
                "item": self._item("in_progress")
            }
            if part.kind != "call":
                yield self._said("response.content_part.added", part=content_part(self._open))
        if not part.text:
            return
        self._texts.append(part.text)
        self._logprobs += part.logprobs
        match part.kind:
            case "reasoning":
                yield self._said("response.reasoning_text.delta", delta=part.text)
            case "text":
                yield self._said(
                    "response.output_text.delta", delta=part.text, logprobs=part.logprobs
                )
            case "call" if part.is_custom:
                yield self._called("response.custom_tool_call_input.delta", delta=part.text)
            case "call":
                yield self._called("response.function_call_arguments.delta", delta=part.text)

    def _close(self, finish_reason: str | None = None) -> Iterator[Json]:
        """Ends the open item. finish_reason: of the answer, where it ends with this item."""
        if self._open is None:
            return
        part = self._open = replace(self._open, text="".join(self._texts), logprobs=self._logprobs)
        self._texts, self._logprobs = [], []
        match part.kind:
            case "reasoning":
                yield self._said("response.reasoning_text.done", text=part.text)
            case "text":
                yield self._said(
                    "response.output_text.done", text=part.text, logprobs=part.logprobs
                )
            case "call" if part.is_custom:
                yield self._called("response.custom_tool_call_input.done", input=part.text)
            case "call":
                yield self._called(
                    "response.function_call_arguments.done", name=part.name, arguments=part.text
                )
        if part.kind != "call":
            yield self._said("response.content_part.done", part=content_part(part))
        whole = self._item(last_item_status(part, finish_reason))
        yield {"type": "response.output_item.done", **self._place} | {"item": whole}
        self._output.append(whole)
        self._open = None

    @property
    def _place(self) -> Json:
        return {"output_index": len(self._output)}

    def _item(self, status: str) -> Json:
        assert self._open is not None, "no item is open"
        return item(self._open, self._response["id"], len(self._output), status=status)

    def _called(self, kind: str, **told: object) -> Json:
        return {"type": kind, "item_id": self._item("in_progress")["id"], **self._place} | told

    def _said(self, kind: str, **told: object) -> Json:
        return self._called(kind, content_index=0, **told)
