"""The routes /v1/embeddings and /pooling: the model's last hidden state for a text or a chat.

An embedding is the state at the last token after the final norm, scaled to length 1, which is how
vLLM makes embeddings from a generative model.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, Field, PlainValidator, model_validator

from penstock_engine.server.requests.bodies import (
    build_request,
    known_parameters,
    read_object,
    validate,
)
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import (
    CompletionRequest,
    GenerationRequest,
    Prompt,
    TokenId,
    Truncation,
    prompts,
)
from penstock_engine.server.requests.dialects import Dialect
from penstock_engine.server.routes.vectors import EmbedDtype, Endianness, as_base64, normalized
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json

Side = Literal["left", "right"]

MAX_INPUTS = 2048  # texts of one request, as in OpenAI's API

# Fields that have the same meaning in a completion or chat request.
SHARED = (
    "model",
    "cache_salt",
    "priority",
    "request_id",
    "truncate_prompt_tokens",
    "truncation_side",
)
# Fields that have the same meaning in a chat request only.
CHAT_FIELDS = ("add_generation_prompt", "chat_template_kwargs", "continue_final_message")


def _check_number(inputs: list[Prompt]) -> list[Prompt]:
    if len(inputs) > MAX_INPUTS:
        raise ValueError(f"must not have more than {MAX_INPUTS} entries")
    return inputs


class EmbeddingsRequest(BaseModel):
    """A request for embeddings of texts (`input`) or of a chat (`messages`).

    use_activation and its older name normalize: whether vectors are scaled to length 1.
    """

    model: str | None = None
    input: Annotated[
        list[Prompt] | None,
        PlainValidator(
            prompts, json_schema_input_type=str | list[TokenId] | list[str | list[TokenId]]
        ),
        AfterValidator(_check_number),
    ] = None
    messages: list[Json] | None = None
    task: Literal["embed"] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    embed_dtype: EmbedDtype = "float32"
    endianness: Endianness = "native"
    use_activation: bool | None = None
    normalize: bool | None = None
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    truncation_side: Side | None = None
    padding: Literal["do_not_pad"] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    priority: int = 0
    cache_salt: str | None = None
    request_id: str | None = None

    @model_validator(mode="after")
    def _check_effects(self) -> "EmbeddingsRequest":
        """Rejects parameters that have no effect."""
        given = self.model_fields_set
        if self.truncation_side is not None and self.truncate_prompt_tokens is None:
            raise ValueError("truncation_side needs truncate_prompt_tokens")
        if self.encoding_format == "float":
            for name, default in (("embed_dtype", "float32"), ("endianness", "native")):
                if getattr(self, name) != default:
                    raise ValueError(f"{name} needs encoding_format: base64")
        if self.messages is None and (useless := [name for name in CHAT_FIELDS if name in given]):
            raise ValueError(f"{useless[0]} needs messages")
        if None not in (self.use_activation, self.normalize):
            raise ValueError("use_activation and normalize are the same: leave one out")
        return self

    @property
    def is_normalized(self) -> bool:
        return self.use_activation is not False and self.normalize is not False


class _EmbeddingRequest(GenerationRequest):
    """Base of embedding requests: a generation request for one token, which is discarded."""

    wants_embedding: ClassVar[bool] = True

    @property
    def truncation(self) -> Truncation | None:
        length = self.truncate_prompt_tokens
        return None if length is None else Truncation(length, self.truncation_side or "right")


class EmbeddingPrompt(_EmbeddingRequest, CompletionRequest):
    """An embedding request for texts."""


class EmbeddingChat(_EmbeddingRequest, ChatCompletionRequest):
    """An embedding request for a chat."""


class EmbeddingsDialect(Dialect):
    """The format of /v1/embeddings.

    name: field of the vector. kind: `object` of its entry. prefix: prefix of the answer's id.
    """

    name, kind, prefix = "embedding", "embedding", "embd"

    def __init__(self) -> None:
        self._request = EmbeddingsRequest()

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        body = read_object(raw)
        request = validate(EmbeddingsRequest, known_parameters(body, EmbeddingsRequest))
        self._request = request
        self._check(request)
        shared: dict[str, Any] = request.model_dump(include={*SHARED, "add_special_tokens"})
        shared |= {"max_tokens": 1, "temperature": 0}
        if request.messages is None:
            return build_request(EmbeddingPrompt, shared | {"prompt": request.input})
        chat = request.model_dump(include={*CHAT_FIELDS, "messages"})
        return build_request(EmbeddingChat, shared | chat)

    def whole(self, body: Json) -> Json:
        num_tokens = body["usage"]["prompt_tokens"]
        return {
            "id": f"{self.prefix}-{body['id'].partition('-')[2]}",
            "object": "list",
            "created": body["created"],
            "model": body["model"],
            "data": [
                {
                    "object": self.kind,
                    "index": choice["index"],
                    self.name: self._encode(choice["embedding"]),
                }
                for choice in body["choices"]
            ],
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }

    def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        raise AssertionError("embeddings are not streamed")

    def error_response(self, error: RequestError) -> Response:
        if error.param != "prompt":
            return error.response()
        message = error.message.replace("prompt", "input", 1)
        return RequestError(error.status, message, param="input").response()

    def _check(self, request: EmbeddingsRequest) -> None:
        """Raises RequestError if the route does not accept the request."""
        if (request.input is None) == (request.messages is None):
            raise RequestError(400, "the body must have either input or messages", param="input")
        if request.task is not None:
            raise RequestError(400, "task is only allowed at /pooling", param="task")

    def _encode(self, vector: Sequence[float]) -> str | tuple[float, ...]:
        request = self._request
        scaled = normalized(vector) if request.is_normalized else vector
        if request.encoding_format == "float":
            return tuple(scaled)
        return as_base64(scaled, request.embed_dtype, request.endianness)


class PoolingDialect(EmbeddingsDialect):
    """The format of vLLM's /pooling."""

    name, kind, prefix = "data", "pooling", "pool"

    def _check(self, request: EmbeddingsRequest) -> None:
        super()._check(request.model_copy(update={"task": None}))
