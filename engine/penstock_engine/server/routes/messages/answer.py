"""Translates chat answers to Anthropic's Messages API, whole and streamed."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.responses import JSONResponse, Response

from penstock_engine.parsers.json_scan import parse_object
from penstock_engine.server.answers.deltas import Chunk, Delta, message_deltas, read_chunks
from penstock_engine.server.requests.bodies import (
    build_request,
    read_object,
    reject_without_effect,
    validate,
)
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.dialects import Dialect, named_event
from penstock_engine.server.routes.messages.request import MessagesRequest
from penstock_engine.server.transport.errors import RETRY_AFTER_S, RequestError
from penstock_engine.server.transport.json_text import Json

STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}

ERROR_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesDialect(Dialect):
    """The format of Anthropic's Messages API."""

    always_reports_cached_tokens = True

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> ChatCompletionRequest:
        body = read_object(raw)
        request = validate(MessagesRequest, body)
        reject_without_effect(body, MessagesRequest.model_fields)
        return build_request(ChatCompletionRequest, request.as_chat(), defaults)

    def whole(self, body: Json) -> Json:
        (choice,) = body["choices"]
        content = [_block(delta) for delta in message_deltas(choice["message"])]
        has_calls = any(block["type"] == "tool_use" for block in content)
        return _message(body["model"], body["id"], content) | {
            **_end(choice["finish_reason"], choice.get("stop_reason"), has_calls=has_calls),
            "usage": _usage(body["usage"]),
        }

    async def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        stream = _Stream()
        async with aclosing(read_chunks(events)) as chunks:
            async for chunk in chunks:
                for body in stream.push(chunk):
                    yield named_event(body)

    def error_response(self, error: RequestError) -> Response:
        headers = {"Retry-After": str(RETRY_AFTER_S)} if error.status == 503 else None
        return JSONResponse(error_body(error.body()["error"]), error.status, headers=headers)


class _Stream:
    """State of a streamed message: the open content block, and the end of the message."""

    def __init__(self) -> None:
        self._has_started = False
        self._has_calls = False
        self._open: Delta | None = None
        self._num_blocks = 0
        self._end: Json | None = None

    def push(self, chunk: Chunk) -> Iterator[Json]:
        """Yields the events that a chunk adds."""
        if chunk.error is not None:
            yield error_body(chunk.error)
            return
        if not self._has_started:
            self._has_started = True
            start = {"stop_reason": None, "stop_sequence": None, "usage": _usage(chunk.usage or {})}
            yield {"type": "message_start", "message": _message(chunk.model, chunk.id, []) | start}
        for delta in chunk.deltas:
            yield from self._append(delta)
        if chunk.finish_reason is not None:
            yield from self._close()
            self._end = _end(chunk.finish_reason, chunk.stop_reason, has_calls=self._has_calls)
        elif self._end is not None:  # the last chunk has the usage of the whole answer
            usage = _usage(chunk.usage or {})
            yield {"type": "message_delta", "delta": self._end, "usage": usage}
            yield {"type": "message_stop"}

    def _append(self, delta: Delta) -> Iterator[Json]:
        if not delta.continues(self._open):
            yield from self._close()
            self._open = delta
            self._has_calls |= delta.kind == "call"
            self._num_blocks += 1
            block = _empty_block(delta)
            yield {"type": "content_block_start"} | self._index | {"content_block": block}
        if delta.text:
            yield {"type": "content_block_delta"} | self._index | {"delta": _delta_body(delta)}

    def _close(self) -> Iterator[Json]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop"} | self._index

    @property
    def _index(self) -> Json:
        return {"index": self._num_blocks - 1}


def error_body(error: Json) -> Json:
    """Translates OpenAI's error object to Anthropic's error body."""
    status = error["code"]
    default = "invalid_request_error" if status < 500 else "api_error"
    kind = ERROR_TYPES.get(status, default)
    return {"type": "error", "error": {"type": kind, "message": error["message"]}}


def _message(model: str, chat_id: str, content: list[Json]) -> Json:
    return {
        "id": "msg_" + chat_id.removeprefix("chatcmpl-"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
    }


def _empty_block(delta: Delta) -> Json:
    match delta.kind:
        case "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "text":
            return {"type": "text", "text": ""}
        case "call":
            return {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}


def _block(delta: Delta) -> Json:
    match delta.kind:
        case "reasoning":
            return _empty_block(delta) | {"thinking": delta.text}
        case "text":
            return _empty_block(delta) | {"text": delta.text}
        case "call":
            # Arguments that were cut off cannot be shown, because the input is an object.
            return _empty_block(delta) | {"input": parse_object(delta.text) or {}}


def _delta_body(delta: Delta) -> Json:
    match delta.kind:
        case "reasoning":
            return {"type": "thinking_delta", "thinking": delta.text}
        case "text":
            return {"type": "text_delta", "text": delta.text}
        case "call":
            return {"type": "input_json_delta", "partial_json": delta.text}


def _end(finish_reason: str, stop_reason: str | int | None, *, has_calls: bool) -> Json:
    """Returns the end of a message. A chat ends with `stop` after a named call, a message with `tool_use`."""
    is_sequence = finish_reason == "stop" and isinstance(stop_reason, str)
    is_call = finish_reason == "stop" and has_calls
    default = "tool_use" if is_call else STOP_REASONS.get(finish_reason, "end_turn")
    reason = "stop_sequence" if is_sequence else default
    return {"stop_reason": reason, "stop_sequence": stop_reason if is_sequence else None}


def _usage(usage: Json) -> Json:
    """Translates the token usage. Anthropic's input_tokens do not include cached tokens."""
    num_cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return {
        "input_tokens": usage.get("prompt_tokens", 0) - num_cached,
        "output_tokens": usage.get("completion_tokens", 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": num_cached,
    }
