"""Translates chat answers to the Responses API, whole and streamed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi.responses import Response

from penstock_engine.server.answers.deltas import Chunk, message_deltas, read_chunks
from penstock_engine.server.handlers.response_store import ResponseStore
from penstock_engine.server.requests.bodies import (
    build_request,
    read_object,
    reject_without_effect,
    validate,
)
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.dialects import Dialect, named_event
from penstock_engine.server.routes.responses.custom_calls import CustomCalls
from penstock_engine.server.routes.responses.items import (
    as_input,
    failed,
    finished,
    is_cut_off_call,
    item,
    last_item_status,
    response,
)
from penstock_engine.server.routes.responses.request import IGNORED, SAME_IN_CHAT, ResponsesRequest
from penstock_engine.server.routes.responses.stream import ResponseStream
from penstock_engine.server.routes.responses.tools import custom_names
from penstock_engine.server.transport.arriving_bodies import MAX_BODY_BYTES
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json

# Names in the Responses API of parameters that have another name in a chat request.
PARAMS = {
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning",
    "response_format": "text",
}


class ResponsesDialect(Dialect):
    """The format of the Responses API.

    is_background: whether the request wants a background response. items: the conversation up to
    the end of the request's input.
    """

    always_reports_cached_tokens = True

    def __init__(self, request_id: str, created_s: int, store: ResponseStore | None = None) -> None:
        """created_s: Unix time in seconds. store: None if responses are not stored."""
        self._initial: Json = {"id": f"resp_{request_id}", "created_at": created_s}
        self._store = store
        self.is_background = False
        self.items: list[Json] = []
        self._custom_names: frozenset[str] = frozenset()
        self._request_body: Mapping[str, Any] = {}

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> ChatCompletionRequest:
        body = self._request_body = read_object(raw)
        request = validate(ResponsesRequest, body)
        reject_without_effect(body, {*ResponsesRequest.model_fields, *SAME_IN_CHAT, *IGNORED})
        if self._store is None and (request.background or request.previous_response_id):
            raise RequestError(
                400,
                "background and previous_response_id need stored responses: start the engine with "
                "--enable-responses-store",
                param="background" if request.background else "previous_response_id",
            )
        self.items = request.items
        if self._store is not None and request.previous_response_id is not None:
            most = MAX_BODY_BYTES - len(raw)
            self.items = self._store.history(request.previous_response_id, most) + self.items
            request = validate(ResponsesRequest, body | {"input": self.items})
        if not request.store:
            self._store = None
        chat = build_request(ChatCompletionRequest, request.as_chat(), defaults)
        if self._store is not None:
            self._initial["id"] = self._store.new_id(chat.request_id)
        self.is_background = request.background
        self._initial = response(self._initial, request, is_stored=self._store is not None)
        self._custom_names = custom_names(request.tools)
        return chat

    def initial_response(self, status: str, model: str) -> Json:
        """Returns the response without output."""
        return self._initial | {"status": status, "model": model}

    def failed_response(self, model: str, error: RequestError) -> Json:
        """Returns the response of a request that failed."""
        return failed(self.initial_response("failed", model), [], error.body()["error"])

    def whole(self, body: Json) -> Json:
        (choice,) = body["choices"]
        chat_deltas = message_deltas(choice["message"], choice.get("logprobs"))
        deltas = list(CustomCalls(self._custom_names).translate(chat_deltas))
        reason = choice["finish_reason"]
        output: list[Json] = []
        for delta in deltas:
            is_last = len(output) == len(deltas) - 1
            status = last_item_status(delta, reason) if is_last else "completed"
            output.append(item(delta, self._initial["id"], len(output), status=status))
        initial = self._initial | {"model": body["model"]}
        whole = finished(initial, output, reason, body["usage"])
        self._store_response(whole)
        return whole

    async def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        stream = ResponseStream(self._initial)
        calls = CustomCalls(self._custom_names)
        async with aclosing(read_chunks(events)) as chunks:
            async for chat_chunk in chunks:
                chunk = replace(chat_chunk, deltas=list(calls.translate(chat_chunk.deltas)))
                if stream.continues_item(chunk):
                    events_of_chunk = _named_events(stream, chunk)
                else:  # the last events of an item repeat all of it, and may be large
                    events_of_chunk = await asyncio.to_thread(_named_events, stream, chunk)
                if stream.finished is not None:
                    await asyncio.to_thread(self._store_response, stream.finished)
                for event in events_of_chunk:
                    yield event

    def error_response(self, error: RequestError) -> Response:
        chat_param = error.param or ""
        param = (
            chat_param if chat_param in self._request_body else PARAMS.get(chat_param, chat_param)
        )
        message = error.message
        if chat_param and message.startswith(chat_param):
            message = param + message.removeprefix(chat_param)
        return RequestError(error.status, message, param=param or None).response()

    def _store_response(self, whole: Json) -> None:
        if self._store is not None:
            output = [as_input(entry) for entry in whole["output"] if not is_cut_off_call(entry)]
            self._store.put(whole, self.items + output)


def _named_events(stream: ResponseStream, chunk: Chunk) -> list[bytes]:
    return [named_event(body) for body in stream.push(chunk)]
