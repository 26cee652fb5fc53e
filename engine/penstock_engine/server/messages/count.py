"""How many tokens a prompt would have, without an answer."""

import asyncio

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from penstock_engine.server.bodies import (
    OF_SOME_ROUTE,
    checked,
    read_object,
    refuse_without_effect,
    request_of,
)
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.errors import RequestError
from penstock_engine.server.intake import check_model_name, encode, read_body
from penstock_engine.server.messages.answer import MessagesDialect
from penstock_engine.server.messages.request import CountTokensRequest, MessagesRequest
from penstock_engine.server.served import Served

# Parameters that the route takes. Anthropic's clients send output_config, which no prompt contains.
TAKEN = {*CountTokensRequest.model_fields, "output_config"}


async def counted(served: Served, http: Request) -> Response:
    try:
        num_tokens = await asyncio.to_thread(_count, served, await read_body(http))
    except RequestError as error:
        return MessagesDialect().refusal(error)
    return JSONResponse({"input_tokens": num_tokens})


def _count(served: Served, raw: bytes) -> int:
    body = read_object(raw)
    asked = checked(CountTokensRequest, body)
    refuse_without_effect(body, TAKEN, OF_SOME_ROUTE | MessagesRequest.model_fields)
    check_model_name(served, asked.model)
    (prompt,) = encode(served, request_of(ChatCompletionRequest, asked.as_chat()))
    return len(prompt)
