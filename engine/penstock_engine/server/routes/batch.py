"""The route /v1/chat/completions/batch: several conversations in one request, one choice for each."""

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any

from fastapi.responses import Response
from pydantic import ConfigDict, Field

from penstock_engine.server.requests.bodies import build_request, has_no_effect, read_object
from penstock_engine.server.requests.chat_request import MAX_CONVERSATIONS, BatchChatRequest
from penstock_engine.server.requests.dialects import Dialect
from penstock_engine.server.requests.request_model import RequestModel
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json

# Parameters that a batch rejects, and the values (besides null) that have no effect and are accepted.
# vLLM rejects the first four too; the others would apply to one conversation only.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stream": (False,),
    "tools": ([],),
    "use_beam_search": (False,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "echo": (False,),
    "prompt_logprobs": (),
}


class BatchRequest(RequestModel):
    """A batch of conversations, with the parameters of a chat request for all of them."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    messages: Annotated[list[list[Json]], Field(min_length=1, max_length=MAX_CONVERSATIONS)]


class BatchDialect(Dialect):
    """The format of OpenAI's chat, except that `messages` is a list of conversations."""

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> BatchChatRequest:
        body = read_object(raw)
        for name, neutral in NEUTRAL.items():
            if not has_no_effect(body.get(name), neutral):
                message = f"{name} is not supported in a batch: leave it out"
                raise RequestError(400, message, param=name)
        conversations = body.get("messages")
        if not isinstance(conversations, list) or not conversations:
            message = "messages must be a list of conversations with at least one entry"
            raise RequestError(400, message, param="messages")
        shared = body | {"messages": conversations[0], "conversations": conversations}
        return build_request(BatchChatRequest, shared, defaults)

    def whole(self, body: Json) -> Json:
        """Returns the answer without the fields that describe the first conversation only."""
        return body | {"prompt_token_ids": None}

    def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        raise AssertionError("batches are not streamed")

    def error_response(self, error: RequestError) -> Response:
        param = "messages" if error.param == "conversations" else error.param
        return RequestError(error.status, error.message, param=param).response()
