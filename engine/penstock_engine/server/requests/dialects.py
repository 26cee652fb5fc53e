"""Request and answer formats of the routes.

The engine itself handles OpenAI's chat and completions. Other routes translate their requests to
these, and the answers back.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

from fastapi.responses import Response

from penstock_engine.contract.wire import SSE_END, SSE_PREFIX
from penstock_engine.server.requests.bodies import parse
from penstock_engine.server.requests.completion_request import GenerationRequest
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json, encode_line


class Dialect(ABC):
    """Format of one route; by default OpenAI's. One instance per request: the answer may depend on it.

    always_reports_cached_tokens: whether usage has the number of cached tokens even without
    --enable-prompt-tokens-details.
    """

    always_reports_cached_tokens: ClassVar[bool] = False

    @abstractmethod
    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        """Parses a body. defaults: values of parameters it leaves out. Raises RequestError."""

    def whole(self, body: Json) -> Json:
        """Translates a whole answer from OpenAI's format to the route's."""
        return body

    def events(self, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Translates a stream from OpenAI's format to the route's.

        Raises RequestError if the request fails before its first event.
        """
        return events

    def error_response(self, error: RequestError) -> Response:
        """Returns an error in the route's format."""
        return error.response()


class OpenAIDialect(Dialect):
    """The format of OpenAI's chat and completions, which needs no translation."""

    def __init__(self, schema: type[GenerationRequest]) -> None:
        self._schema = schema

    def read(self, raw: bytes, defaults: Mapping[str, Any]) -> GenerationRequest:
        return parse(self._schema, raw, defaults)


def named_event(body: Json) -> bytes:
    """Returns a server-sent event named by its `type`, as in Anthropic's and the Responses API."""
    name: str = body["type"]
    return b"event: " + name.encode() + b"\n" + SSE_PREFIX + encode_line(body) + SSE_END
