"""The route /invocations, which SageMaker calls: a chat, a completion or embeddings."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from penstock_engine.server.requests.bodies import read_object
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import CompletionRequest, GenerationRequest
from penstock_engine.server.requests.dialects import Dialect, OpenAIDialect
from penstock_engine.server.routes.embeddings import EmbeddingsDialect
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json


class InvocationsRequest(BaseModel):
    """A request with one of messages, prompt or input, and the parameters of the matching route."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    messages: list[Json] | None = None
    prompt: Any = None
    input: Any = None


class InvocationsDialect(Dialect):
    """Picks the format by the body, like vLLM: messages, prompt (completion) or input (embeddings)."""

    def __init__(self) -> None:
        self._inner: Dialect = OpenAIDialect(ChatCompletionRequest)

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        body = read_object(raw)
        kinds: dict[str, Dialect] = {
            "messages": self._inner,
            "prompt": OpenAIDialect(CompletionRequest),
            "input": EmbeddingsDialect(),
        }
        for name, dialect in kinds.items():
            if body.get(name) is not None:
                self._inner = dialect
                return dialect.read(raw, defaults)
        raise RequestError(400, f"the body must have one of {', '.join(kinds)}")

    def whole(self, body: Json) -> Json:
        return self._inner.whole(body)

    def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        return self._inner.events(events)

    def error_response(self, error: RequestError) -> Response:
        return self._inner.error_response(error)
