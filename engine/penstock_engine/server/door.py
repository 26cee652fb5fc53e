"""Outermost ASGI middleware: API key, request id, and the count of open requests."""

import hashlib
import hmac
import uuid
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock_engine.server.errors import RequestError
from penstock_engine.server.served import Served
from penstock_engine.wire import REQUEST_ID, REQUEST_ID_HEADER

OPEN_PATHS = frozenset({"/health", "/metrics", "/ping", "/ready", "/version"})
GENERATION_PATHS = frozenset(
    {
        "/invocations",
        "/pooling",
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/responses",
    }
)

HEADER = REQUEST_ID_HEADER.encode()


class Door:
    """Sets scope["request_id"]: the client's, if it is a plain word, or a new one.

    Every path but the open ones asks for a key, whether there is a route or not.
    """

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self._app = app
        self._served = served
        self._shows_id = served.options.enable_request_id_headers
        self._root = served.options.root_path.rstrip("/")
        self._digests = [_digest(key.encode()) for key in served.options.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        given = headers.get(HEADER, b"").decode("latin-1")
        scope["request_id"] = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request_id = scope["request_id"].encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start" and self._shows_id:
                message["headers"] = [*message["headers"], (HEADER, request_id)]
            await send(message)

        if self._root and scope["path"].startswith(f"{self._root}/"):
            scope["path"] = scope["path"].removeprefix(self._root)
        path = scope["path"]  # the one that is routed
        if path not in OPEN_PATHS and not self._has_key(headers):
            refusal = RequestError(401, "the API key is missing or wrong").response()
            await refusal(scope, receive, send_with_id)
            return
        is_generation = path in GENERATION_PATHS
        self._served.in_flight += is_generation
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._served.in_flight -= is_generation

    def _has_key(self, headers: Mapping[bytes, bytes]) -> bool:
        if not self._digests:
            return True
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            key = headers.get(b"x-api-key", b"")  # where Anthropic's clients put it
        digest = _digest(key)
        # All of them, so that the time tells nothing of which one it was.
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    """Of one length, so that comparing tells nothing about the length of the key."""
    return hashlib.sha256(key).digest()
