"""Builds the events of a streamed response."""

from collections.abc import Iterator
from dataclasses import replace

from penstock_engine.server.answers.deltas import Chunk, Delta
from penstock_engine.server.routes.responses.items import (
    content_part,
    failed,
    finished,
    item,
    last_item_status,
)
from penstock_engine.server.transport.json_text import Json, JsonText


class ResponseStream:
    """State of a streamed response: the open item and the finished ones.

    finished: the whole response, once it has ended.
    """

    def __init__(self, response: Json) -> None:
        """response: the initial response object."""
        self._response = response
        self._num_events = 0
        self._output: list[Json] = []
        self._open: Delta | None = None  # without its text and logprobs, which follow
        self._texts: list[str] = []
        self._logprobs: list[JsonText] = []
        self._finish_reason: str | None = None
        self.finished: Json | None = None

    def push(self, chunk: Chunk) -> Iterator[Json]:
        """Yields the events that a chunk adds."""
        for event in self._events(chunk):
            yield event | {"sequence_number": self._num_events}
            self._num_events += 1

    def continues_item(self, chunk: Chunk) -> bool:
        """Whether a chunk only adds to the open item."""
        is_end = chunk.finish_reason is not None or chunk.error is not None
        return (
            not is_end and bool(chunk.deltas) and all(d.continues(self._open) for d in chunk.deltas)
        )

    def _events(self, chunk: Chunk) -> Iterator[Json]:
        if chunk.error is not None:
            response = failed(self._response, self._output, chunk.error)
            yield {"type": "response.failed", "response": response}
            return
        if self._num_events == 0:
            self._response = self._response | {"model": chunk.model}
            yield {"type": "response.created", "response": self._response}
            yield {"type": "response.in_progress", "response": self._response}
        for delta in chunk.deltas:
            yield from self._append(delta)
        if chunk.finish_reason is not None:
            yield from self._close(chunk.finish_reason)
            self._finish_reason = chunk.finish_reason
        elif self._finish_reason is not None:  # the last chunk has the usage of the whole answer
            whole = finished(self._response, self._output, self._finish_reason, chunk.usage or {})
            self.finished = whole
            yield {"type": f"response.{whole['status']}", "response": whole}

    def _append(self, delta: Delta) -> Iterator[Json]:
        if self._open is None or not delta.continues(self._open):
            yield from self._close()
            self._open = replace(delta, text="", logprobs=[])
            yield {"type": "response.output_item.added", **self._output_index} | {
                "item": self._item("in_progress")
            }
            if delta.kind != "call":
                added = content_part(self._open)
                yield self._content_event("response.content_part.added", part=added)
        if not delta.text:
            return
        self._texts.append(delta.text)
        self._logprobs += delta.logprobs
        match delta.kind:
            case "reasoning":
                yield self._content_event("response.reasoning_text.delta", delta=delta.text)
            case "text":
                yield self._content_event(
                    "response.output_text.delta", delta=delta.text, logprobs=delta.logprobs
                )
            case "call" if delta.is_custom:
                yield self._item_event("response.custom_tool_call_input.delta", delta=delta.text)
            case "call":
                yield self._item_event("response.function_call_arguments.delta", delta=delta.text)

    def _close(self, finish_reason: str | None = None) -> Iterator[Json]:
        """Yields the last events of the open item. finish_reason: set if the answer ends with it."""
        if self._open is None:
            return
        delta = self._open = replace(self._open, text="".join(self._texts), logprobs=self._logprobs)
        self._texts, self._logprobs = [], []
        match delta.kind:
            case "reasoning":
                yield self._content_event("response.reasoning_text.done", text=delta.text)
            case "text":
                yield self._content_event(
                    "response.output_text.done", text=delta.text, logprobs=delta.logprobs
                )
            case "call" if delta.is_custom:
                yield self._item_event("response.custom_tool_call_input.done", input=delta.text)
            case "call":
                yield self._item_event(
                    "response.function_call_arguments.done", name=delta.name, arguments=delta.text
                )
        if delta.kind != "call":
            yield self._content_event("response.content_part.done", part=content_part(delta))
        whole = self._item(last_item_status(delta, finish_reason))
        yield {"type": "response.output_item.done", **self._output_index} | {"item": whole}
        self._output.append(whole)
        self._open = None

    @property
    def _output_index(self) -> Json:
        return {"output_index": len(self._output)}

    def _item(self, status: str) -> Json:
        assert self._open is not None, "no item is open"
        return item(self._open, self._response["id"], len(self._output), status=status)

    def _item_event(self, kind: str, **fields: object) -> Json:
        return {
            "type": kind,
            "item_id": self._item("in_progress")["id"],
            **self._output_index,
        } | fields

    def _content_event(self, kind: str, **fields: object) -> Json:
        return self._item_event(kind, content_index=0, **fields)
