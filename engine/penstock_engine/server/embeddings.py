"""/v1/embeddings: a text as the direction of the model's last hidden state.

As vLLM makes embeddings of a model that was made to generate: the state at the last token, after the
final norm, scaled to length 1.
"""

import base64
import struct
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from fastapi.responses import Response
from pydantic import BaseModel, PlainValidator

from penstock_engine.server.answers import Json
from penstock_engine.server.bodies import checked, read_object, request_of
from penstock_engine.server.errors import RequestError
from penstock_engine.server.schemas import (
    CompletionRequest,
    GenerationRequest,
    Prompt,
    TokenId,
    prompts,
)


class EmbeddingsRequest(BaseModel):
    """dimensions: other than the model's own would cut what it was not trained to have cut."""

    model: str | None = None
    input: Annotated[
        list[Prompt],
        PlainValidator(
            prompts, json_schema_input_type=str | list[TokenId] | list[str | list[TokenId]]
        ),
    ]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: None = None
    add_special_tokens: bool = True
    priority: int = 0
    cache_salt: str | None = None


class EmbeddingPrompt(CompletionRequest):
    """Its one drawn token is thrown away."""

    wants_embedding: ClassVar[bool] = True


class EmbeddingsDialect:
    def __init__(self) -> None:
        self._is_base64 = False

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        asked = checked(EmbeddingsRequest, read_object(raw))
        self._is_base64 = asked.encoding_format == "base64"
        passed = asked.model_dump(include={"model", "add_special_tokens", "priority", "cache_salt"})
        drawn = {"prompt": asked.input, "max_tokens": 1, "temperature": 0}
        return request_of(EmbeddingPrompt, passed | drawn)

    def whole(self, body: Json) -> Json:
        num_tokens = body["usage"]["prompt_tokens"]
        return {
            "id": body["id"].replace("cmpl-", "embd-", 1),
            "object": "list",
            "created": body["created"],
            "model": body["model"],
            "data": [
                {
                    "object": "embedding",
                    "index": choice["index"],
                    "embedding": self._written(choice["embedding"]),
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

    def _written(self, embedding: tuple[float, ...]) -> str | tuple[float, ...]:
        if not self._is_base64:
            return embedding
        return base64.b64encode(struct.pack(f"<{len(embedding)}f", *embedding)).decode()
