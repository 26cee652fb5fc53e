"""Lets web pages of the allowed origins read the gateway's responses (CORS)."""

import re
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.routing.origins import ANY_ORIGIN, ORIGIN_PATTERN
from penstock.gateway.http.headers import (
    FALLBACK_HEADER,
    LIMITED_FIELDS_HEADER,
    MODEL_HEADER,
    REVISION_HEADER,
    SERVICE_HEADER,
)
from penstock.gateway.quotas.rate_limit_headers import RATE_LIMIT_HEADERS
from penstock_engine.contract.wire import REQUEST_ID_HEADER

# Headers of responses that pages may read, beside those that every page may.
EXPOSED = b", ".join(
    (
        REQUEST_ID_HEADER.encode(),
        SERVICE_HEADER,
        REVISION_HEADER,
        MODEL_HEADER,
        FALLBACK_HEADER,
        LIMITED_FIELDS_HEADER,
        b"retry-after",
        *RATE_LIMIT_HEADERS,
    )
)
# Time for which browsers remember the answer to a preflight request, in seconds. Chrome keeps none longer.
MAX_AGE_S = 7200


class Cors:
    """The ASGI application with CORS headers, which answers preflight requests itself.

    origins: scheme, host and port of each page that may use the gateway; "*": any page may.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)
        self._allows_any = ANY_ORIGIN in origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        origin = headers.get(b"origin")
        if origin is None or not (self._allows_any or origin in self._origins):
            await self._app(scope, receive, send)
            return
        allowed = [
            (b"access-control-allow-origin", ANY_ORIGIN.encode() if self._allows_any else origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        ]
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await _answer_preflight(headers, allowed, send)
            return

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *allowed]
            await send(message)

        await self._app(scope, receive, send_allowed)


async def _answer_preflight(
    headers: dict[bytes, bytes], allowed: list[tuple[bytes, bytes]], send: Send
) -> None:
    """Allow the method and the headers that the browser asks for: routes check both themselves."""
    asked = headers.get(b"access-control-request-headers", b"")
    answer = [
        *allowed,
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
        (b"content-length", b"0"),
    ]
    if asked:
        answer.append((b"access-control-allow-headers", asked))
    await send({"type": "http.response.start", "status": 204, "headers": answer})
    await send({"type": "http.response.body", "body": b""})


def check_origin(origin: str) -> str:
    """Return an origin as browsers send it. Raises ValueError."""
    if re.fullmatch(ORIGIN_PATTERN, origin) and origin.isascii():
        return origin.lower()
    raise ValueError(
        f"{origin} is no origin: give the scheme and the host, and the port unless it is the scheme's own, "
        "such as https://chat.example.com, or * for all"
    )
