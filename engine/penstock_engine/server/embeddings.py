"""The routes /v1/embeddings and /pooling: the model's last hidden state for a text or a chat.

As vLLM makes embeddings of a model that was made to generate: the state at the last token, after the
final norm, scaled to length 1.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from fastapi.responses import Response
from pydantic import BaseModel, Field, PlainValidator, model_validator

from penstock_engine.server.answers import Json
from penstock_engine.server.bodies import checked, known, read_object, request_of
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.errors import RequestError
from penstock_engine.server.schemas import (
    CompletionRequest,
    GenerationRequest,
    Prompt,
    TokenId,
    Truncation,
    prompts,
)
from penstock_engine.server.vectors import EmbedDtype, Endianness, as_base64, normalized

Side = Literal["left", "right"]

# Fields that mean the same in a request for text, and those of them that only chats have.
SHARED = (
    "model",
    "cache_salt",
    "priority",
    "request_id",
    "truncate_prompt_tokens",
    "truncation_side",
)
OF_CHATS = ("add_generation_prompt", "chat_template_kwargs", "continue_final_message")


class EmbeddingsRequest(BaseModel):
    """A request for embeddings of texts (`input`) or of a chat (`messages`).

    dimensions: always the model's own, which was not trained for shorter vectors. use_activation, or
    its older name normalize: whether vectors are scaled to length 1.
    """

    model: str | None = None
    input: Annotated[
        list[Prompt] | None,
        PlainValidator(
            prompts, json_schema_input_type=str | list[TokenId] | list[str | list[TokenId]]
        ),
    ] = None
    messages: list[Json] | None = None
    task: Literal["embed"] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    embed_dtype: EmbedDtype = "float32"
    endianness: Endianness = "native"
    dimensions: None = None
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
        """Refuses parameters without effect."""
        given = self.model_fields_set
        if self.truncation_side is not None and self.truncate_prompt_tokens is None:
            raise ValueError("truncation_side needs truncate_prompt_tokens")
        if self.encoding_format == "float":
            for name, plain in (("embed_dtype", "float32"), ("endianness", "native")):
                if getattr(self, name) != plain:
                    raise ValueError(f"{name} needs encoding_format: base64")
        if self.messages is None and (useless := [name for name in OF_CHATS if name in given]):
            raise ValueError(f"{useless[0]} needs messages")
        if None not in (self.use_activation, self.normalize):
            raise ValueError("use_activation and normalize are the same: leave one out")
        return self

    @property
    def is_normalized(self) -> bool:
        return self.use_activation is not False and self.normalize is not False


class _Embedded(GenerationRequest):
    """An embedding as a generation request for one token, which is discarded."""

    wants_embedding: ClassVar[bool] = True

    @property
    def truncation(self) -> Truncation | None:
        length = self.truncate_prompt_tokens
        return None if length is None else Truncation(length, self.truncation_side or "right")


class EmbeddingPrompt(_Embedded, CompletionRequest):
    """The embedding of a text."""


class EmbeddingChat(_Embedded, ChatCompletionRequest):
    """The embedding of a chat."""


class EmbeddingsDialect:
    """The format of /v1/embeddings.

    name: the field of a vector. kind: `object` of its entry. prefix: start of the answer's id.
    """

    always_tells_cached: ClassVar[bool] = False

    name, kind, prefix = "embedding", "embedding", "embd"

    def __init__(self) -> None:
        self._asked = EmbeddingsRequest()

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        body = read_object(raw)
        asked = self._asked = checked(EmbeddingsRequest, known(body, EmbeddingsRequest))
        self._check(asked)
        passed: dict[str, Any] = asked.model_dump(include={*SHARED, "add_special_tokens"})
        passed |= {"max_tokens": 1, "temperature": 0}
        if asked.messages is None:
            return request_of(EmbeddingPrompt, passed | {"prompt": asked.input})
        chat = asked.model_dump(include={*OF_CHATS, "messages"})
        return request_of(EmbeddingChat, passed | chat)

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
                    self.name: self._written(choice["embedding"]),
                }
                for choice in body["choices"]
            ],
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }

    def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        raise AssertionError("embeddings are not streamed")

    def refusal(self, error: RequestError) -> Response:
        param = "input" if error.param == "prompt" else error.param
        return RequestError(error.status, error.message, param=param).response()

    def _check(self, asked: EmbeddingsRequest) -> None:
        """Raises RequestError."""
        if (asked.input is None) == (asked.messages is None):
            raise RequestError(400, "the body must have either input or messages", param="input")
        if asked.task is not None:
            raise RequestError(400, "task is only allowed at /pooling", param="task")

    def _written(self, vector: tuple[float, ...]) -> str | tuple[float, ...]:
        asked = self._asked
        scaled = normalized(vector) if asked.is_normalized else vector
        if asked.encoding_format == "float":
            return scaled
        return as_base64(scaled, asked.embed_dtype, asked.endianness)


class PoolingDialect(EmbeddingsDialect):
    """The format of vLLM's /pooling."""

    name, kind, prefix = "data", "pooling", "pool"

    def _check(self, asked: EmbeddingsRequest) -> None:
        super()._check(asked.model_copy(update={"task": None}))
