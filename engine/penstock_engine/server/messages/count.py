"""How many tokens a prompt would have, without an answer."""

import asyncio

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from penstock_engine.server.bodies import checked, read_object, request_of
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.errors import RequestError
from penstock_engine.server.intake import check_model_name, encode, read_body
from penstock_engine.server.messages.answer import MessagesDialect
from penstock_engine.server.messages.request import CountTokensRequest
from penstock_engine.server.served import Served


async def counted(served: Served, http: Request) -> Response:
    try:
        num_tokens = await asyncio.to_thread(_count, served, await read_body(http))
    except RequestError as error:
        return MessagesDialect().refusal(error)
    return JSONResponse({"input_tokens": num_tokens})


def _count(served: Served, raw: bytes) -> int:
    asked = checked(CountTokensRequest, read_object(raw))
    check_model_name(served, asked.model)
    (prompt,) = encode(served, request_of(ChatCompletionRequest, asked.as_chat()))
    return len(prompt)
