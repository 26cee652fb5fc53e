"""How one route writes its requests and answers. OpenAI's chat and completions are what the engine
speaks; the other routes are translations to chat and back."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from fastapi.responses import Response

from penstock_engine.server.answers import Json
from penstock_engine.server.bodies import parse
from penstock_engine.server.errors import RequestError
from penstock_engine.server.json_text import encode_line
from penstock_engine.server.schemas import GenerationRequest
from penstock_engine.wire import SSE_END, SSE_PREFIX


class Dialect(Protocol):
    """Made for one request: what it reads, it may need to write the answer.

    always_tells_cached: whether usage has the cached tokens without --enable-prompt-tokens-details.
    """

    always_tells_cached: ClassVar[bool]

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        """defaults: values of parameters that the body leaves out. Raises RequestError."""
        ...

    def whole(self, body: Json) -> Json:
        """The route's answer, of one in OpenAI's words."""
        ...

    def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """The route's stream, of one in OpenAI's words. Raises RequestError instead of a first."""
        ...

    def refusal(self, error: RequestError) -> Response: ...


@dataclass(frozen=True, slots=True)
class OpenAIDialect:
    always_tells_cached: ClassVar[bool] = False

    schema: type[GenerationRequest]

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        return parse(self.schema, raw, defaults)

    def whole(self, body: Json) -> Json:
        return body

    def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        return events

    def refusal(self, error: RequestError) -> Response:
        return error.response()


def named_event(body: Json) -> bytes:
    """An event named by its `type`, as in Anthropic's and the Responses API."""
    name: str = body["type"]
    return b"event: " + name.encode() + b"\n" + SSE_PREFIX + encode_line(body) + SSE_END
