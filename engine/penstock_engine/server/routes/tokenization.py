"""vLLM's routes /tokenize, /detokenize and /tokenizer_info."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field, model_validator

from penstock_engine.server.handlers.preprocessing import check_model_name, encode
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.requests.bodies import (
    build_request,
    read_object,
    reject_without_effect,
    validate,
)
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import CompletionRequest, TokenId
from penstock_engine.server.requests.request_model import RequestModel
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json

MAX_TOKENS = 1_000_000

# Parameters of a chat that affect its prompt.
PROMPT_PARAMS = (
    "add_generation_prompt", "add_special_tokens", "chat_template_kwargs", "continue_final_message",
    "messages", "reasoning_effort", "tool_choice", "tools", "truncate_prompt_tokens",
    "truncation_side",
)  # fmt: skip

# Answer lengths, which limit the length of a truncated prompt.
LENGTH_PARAMS = ("max_completion_tokens", "max_tokens")


class TokenizeRequest(RequestModel):
    """A text, or the messages of a chat with the parameters that affect its prompt."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    prompt: str | None = None
    messages: list[Json] | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _check_text(self) -> "TokenizeRequest":
        if self.prompt is not None and self.messages is not None:
            raise ValueError("prompt and messages exclude each other")
        return self


class DetokenizeRequest(RequestModel):
    model: str | None = None
    tokens: Annotated[list[TokenId], Field(max_length=MAX_TOKENS)]


def tokenization_routes(state: ServerState) -> APIRouter:
    """Returns the routes. /tokenizer_info exists only if its flag is set."""
    router = APIRouter()

    @router.post("/tokenize")
    async def tokenize(http: Request) -> Json:
        return await asyncio.to_thread(_tokenize, state, await state.bodies.read(http))

    @router.post("/detokenize")
    async def detokenize(http: Request) -> Json:
        return await asyncio.to_thread(_detokenize, state, await state.bodies.read(http))

    if state.options.enable_tokenizer_info_endpoint:

        @router.get("/tokenizer_info")
        async def tokenizer_info() -> Json:
            return await asyncio.to_thread(state.tokenizer.describe)

    return router


def _tokenize(state: ServerState, raw: bytes) -> Json:
    body = read_object(raw)
    request = validate(TokenizeRequest, body)
    check_model_name(state, request.model)
    if request.messages is None:
        reject_without_effect(body, TokenizeRequest.model_fields)
        fields = {"prompt": request.prompt, "add_special_tokens": request.add_special_tokens}
        ids = encode(state, build_request(CompletionRequest, fields))[0]
    else:
        is_truncated = body.get("truncate_prompt_tokens") is not None
        length_params = LENGTH_PARAMS if is_truncated else ()
        reject_without_effect(body, {*TokenizeRequest.model_fields, *PROMPT_PARAMS, *length_params})
        ids = encode(state, build_request(ChatCompletionRequest, body))[0]
    tokens = state.tokenizer.words(ids) if request.return_token_strs else None
    return {
        "count": len(ids),
        "max_model_len": state.memory_plan.max_model_len,
        "tokens": ids,
        "token_strs": tokens,
    }


def _detokenize(state: ServerState, raw: bytes) -> Json:
    request = validate(DetokenizeRequest, read_object(raw))
    check_model_name(state, request.model)
    if max(request.tokens, default=0) >= state.memory_plan.model.vocab_size:
        raise RequestError(400, "the model has no such token in tokens", param="tokens")
    return {"prompt": state.tokenizer.decode(request.tokens, skip_special_tokens=False)}
