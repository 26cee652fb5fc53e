"""/tokenize and /detokenize, as vLLM has them."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from penstock_engine.server.answers import Json
from penstock_engine.server.bodies import (
    checked,
    read_object,
    refuse_without_effect,
    request_of,
)
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.errors import RequestError
from penstock_engine.server.intake import check_model_name, encode, read_body
from penstock_engine.server.schemas import CompletionRequest, TokenId
from penstock_engine.server.served import Served

MAX_TOKENS = 1_000_000

# Parameters of a chat that its prompt is made from.
PROMPT_PARAMS = (
    "add_generation_prompt", "add_special_tokens", "chat_template_kwargs", "continue_final_message",
    "messages", "reasoning_effort", "tool_choice", "tools", "truncate_prompt_tokens",
    "truncation_side",
)  # fmt: skip

# Parameters that limit the room that a truncated prompt has in the context.
ROOM_PARAMS = ("max_completion_tokens", "max_tokens")


class TokenizeRequest(BaseModel):
    """A text, or the messages of a chat with the parameters that its prompt is made from."""

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


class DetokenizeRequest(BaseModel):
    model: str | None = None
    tokens: Annotated[list[TokenId], Field(max_length=MAX_TOKENS)]


def tokenization(served: Served) -> APIRouter:
    router = APIRouter()

    @router.post("/tokenize")
    async def tokenize(http: Request) -> Json:
        return await asyncio.to_thread(_tokenize, served, await read_body(http))

    @router.post("/detokenize")
    async def detokenize(http: Request) -> Json:
        return await asyncio.to_thread(_detokenize, served, await read_body(http))

    if served.options.enable_tokenizer_info_endpoint:

        @router.get("/tokenizer_info")
        async def tokenizer_info() -> Json:
            return await asyncio.to_thread(served.tokenizer.describe)

    return router


def _tokenize(served: Served, raw: bytes) -> Json:
    body = read_object(raw)
    request = checked(TokenizeRequest, body)
    check_model_name(served, request.model)
    if request.messages is None:
        refuse_without_effect(body, TokenizeRequest.model_fields)
        fields = {"prompt": request.prompt, "add_special_tokens": request.add_special_tokens}
        ids = encode(served, request_of(CompletionRequest, fields))[0]
    else:
        is_truncated = body.get("truncate_prompt_tokens") is not None
        room_params = ROOM_PARAMS if is_truncated else ()
        refuse_without_effect(body, {*TokenizeRequest.model_fields, *PROMPT_PARAMS, *room_params})
        ids = encode(served, request_of(ChatCompletionRequest, body))[0]
    tokens = served.tokenizer.words(ids) if request.return_token_strs else None
    return {
        "count": len(ids),
        "max_model_len": served.sizing.max_model_len,
        "tokens": ids,
        "token_strs": tokens,
    }


def _detokenize(served: Served, raw: bytes) -> Json:
    request = checked(DetokenizeRequest, read_object(raw))
    check_model_name(served, request.model)
    if max(request.tokens, default=0) >= served.sizing.model.vocab_size:
        raise RequestError(400, "the model has no such token in tokens", param="tokens")
    return {"prompt": served.tokenizer.decode(request.tokens, skip_special_tokens=False)}
