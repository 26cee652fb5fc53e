"""The route /v1/messages/count_tokens."""

import asyncio

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from penstock_engine.server.handlers.preprocessing import check_model_name, encode
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.requests.bodies import (
    GENERATION_PARAMETERS,
    build_request,
    read_object,
    reject_without_effect,
    validate,
)
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.routes.messages.answer import MessagesDialect
from penstock_engine.server.routes.messages.request import CountTokensRequest, MessagesRequest
from penstock_engine.server.transport.errors import RequestError

# Accepted parameters. Anthropic's clients send output_format, which does not affect the prompt.
ACCEPTED = {*CountTokensRequest.model_fields, "output_format"}


async def count_tokens_route(state: ServerState, http: Request) -> Response:
    """Counts the tokens of a request's prompt."""
    try:
        num_tokens = await asyncio.to_thread(_count, state, await state.bodies.read(http))
    except RequestError as error:
        return MessagesDialect().error_response(error)
    return JSONResponse({"input_tokens": num_tokens})


def _count(state: ServerState, raw: bytes) -> int:
    body = read_object(raw)
    request = validate(CountTokensRequest, body)
    reject_without_effect(body, ACCEPTED, GENERATION_PARAMETERS | MessagesRequest.model_fields)
    check_model_name(state, request.model)
    (prompt,) = encode(state, build_request(ChatCompletionRequest, request.as_chat()))
    return len(prompt)
