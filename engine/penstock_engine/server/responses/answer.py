"""Converts chat answers to those of the Responses API, complete and streamed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.responses import Response

from penstock_engine.server.answers import Json
from penstock_engine.server.bodies import checked, read_object, request_of
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.deltas import Chunk, chunks, parts
from penstock_engine.server.dialects import named_event
from penstock_engine.server.errors import RequestError
from penstock_engine.server.responses.items import finished, item, response
from penstock_engine.server.responses.request import ResponsesRequest
from penstock_engine.server.responses.stream import ResponseStream

# Parameters of a chat that have another name here.
PARAMS = {
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning",
    "response_format": "text",
}


class ResponsesDialect:
    """created_s: since the epoch."""

    def __init__(self, request_id: str, created_s: int) -> None:
        self._begun: Json = {"id": f"resp_{request_id}", "created_at": created_s}

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> ChatCompletionRequest:
        asked = checked(ResponsesRequest, read_object(raw))
        request = request_of(ChatCompletionRequest, asked.as_chat(), defaults)
        self._begun = response(self._begun, asked)
        return request

    def whole(self, body: Json) -> Json:
        (choice,) = body["choices"]
        said = parts(choice["message"], choice.get("logprobs"))
        output = [
            item(part, self._begun["id"], index, status="completed")
            for index, part in enumerate(said)
        ]
        begun = self._begun | {"model": body["model"]}
        return finished(begun, output, choice["finish_reason"], body["usage"])

    async def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        stream = ResponseStream(self._begun)
        async with aclosing(chunks(events)) as read:
            async for chunk in read:
                if stream.goes_on(chunk):
                    events_of_chunk = _named(stream, chunk)
                else:  # an item ends; its last events repeat all of it and may be large
                    events_of_chunk = await asyncio.to_thread(_named, stream, chunk)
                for event in events_of_chunk:
                    yield event

    def refusal(self, error: RequestError) -> Response:
        chat_param = error.param or ""
        param = PARAMS.get(chat_param, chat_param)
        message = error.message
        if chat_param and message.startswith(chat_param):
            message = param + message.removeprefix(chat_param)
        return RequestError(error.status, message, param=param or None).response()


def _named(stream: ResponseStream, chunk: Chunk) -> list[bytes]:
    return [named_event(body) for body in stream.push(chunk)]
