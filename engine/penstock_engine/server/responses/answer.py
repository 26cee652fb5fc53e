"""Converts chat answers to those of the Responses API, complete and streamed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar

from fastapi.responses import Response

from penstock_engine.server.answers import Json
from penstock_engine.server.bodies import (
    checked,
    read_object,
    refuse_without_effect,
    request_of,
)
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.deltas import Chunk, chunks, parts
from penstock_engine.server.dialects import named_event
from penstock_engine.server.errors import RequestError
from penstock_engine.server.intake import MAX_BODY_BYTES
from penstock_engine.server.responses.items import (
    as_input,
    failed,
    finished,
    item,
    last_item_status,
    response,
)
from penstock_engine.server.responses.request import HELD_ANYWAY, PASSED, ResponsesRequest
from penstock_engine.server.responses.store import ResponseStore
from penstock_engine.server.responses.stream import ResponseStream
from penstock_engine.server.responses.tools import custom_names, with_custom_calls

# Parameters of a chat that have another name here.
PARAMS = {
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning",
    "response_format": "text",
}


class ResponsesDialect:
    """The format of the Responses API. items: the conversation up to the end of the request's input."""

    always_tells_cached: ClassVar[bool] = True

    def __init__(self, request_id: str, created_s: int, store: ResponseStore | None = None) -> None:
        """created_s: seconds since the epoch. store: None if responses are not kept."""
        self._begun: Json = {"id": f"resp_{request_id}", "created_at": created_s}
        self._store = store
        self.is_background = False
        self.items: list[Json] = []
        self._custom_names: frozenset[str] = frozenset()
        self._sent: Mapping[str, Any] = {}

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> ChatCompletionRequest:
        body = self._sent = read_object(raw)
        asked = checked(ResponsesRequest, body)
        refuse_without_effect(body, {*ResponsesRequest.model_fields, *PASSED, *HELD_ANYWAY})
        if self._store is None and (asked.background or asked.previous_response_id):
            raise RequestError(
                400,
                "background and previous_response_id need stored responses: start the engine with "
                "--enable-responses-store",
                param="background" if asked.background else "previous_response_id",
            )
        self.items = asked.items
        if self._store is not None and asked.previous_response_id is not None:
            most = MAX_BODY_BYTES - len(raw)
            self.items = self._store.history(asked.previous_response_id, most) + self.items
            asked = checked(ResponsesRequest, body | {"input": self.items})
        if not asked.store:
            self._store = None
        request = request_of(ChatCompletionRequest, asked.as_chat(), defaults)
        if self._store is not None:
            self._begun["id"] = self._store.new_id()
        self.is_background = asked.background
        self._begun = response(self._begun, asked, is_stored=self._store is not None)
        self._custom_names = custom_names(asked.tools)
        return request

    def begun(self, status: str, model: str) -> Json:
        """The response before it has any output."""
        return self._begun | {"status": status, "model": model}

    def failed(self, model: str, error: RequestError) -> Json:
        return failed(self.begun("failed", model), [], error.body()["error"])

    def whole(self, body: Json) -> Json:
        (choice,) = body["choices"]
        told = parts(choice["message"], choice.get("logprobs"))
        said = list(with_custom_calls(told, self._custom_names))
        reason = choice["finish_reason"]
        output: list[Json] = []
        for part in said:
            is_last = len(output) == len(said) - 1
            status = last_item_status(part, reason) if is_last else "completed"
            output.append(item(part, self._begun["id"], len(output), status=status))
        begun = self._begun | {"model": body["model"]}
        whole = finished(begun, output, reason, body["usage"])
        self._keep(whole)
        return whole

    async def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        stream = ResponseStream(self._begun)
        async with aclosing(chunks(events)) as read:
            async for told in read:
                said = list(with_custom_calls(told.parts, self._custom_names))
                chunk = replace(told, parts=said)
                if stream.goes_on(chunk):
                    events_of_chunk = _named(stream, chunk)
                else:  # an item ends; its last events repeat all of it and may be large
                    events_of_chunk = await asyncio.to_thread(_named, stream, chunk)
                if stream.finished is not None:
                    await asyncio.to_thread(self._keep, stream.finished)
                for event in events_of_chunk:
                    yield event

    def refusal(self, error: RequestError) -> Response:
        chat_param = error.param or ""
        param = chat_param if chat_param in self._sent else PARAMS.get(chat_param, chat_param)
        message = error.message
        if chat_param and message.startswith(chat_param):
            message = param + message.removeprefix(chat_param)
        return RequestError(error.status, message, param=param or None).response()

    def _keep(self, whole: Json) -> None:
        if self._store is not None:
            self._store.put(whole, self.items + [as_input(entry) for entry in whole["output"]])


def _named(stream: ResponseStream, chunk: Chunk) -> list[bytes]:
    return [named_event(body) for body in stream.push(chunk)]
