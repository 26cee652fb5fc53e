"""The outermost layer: the key, the request's id, and the count of requests inside."""

import hashlib
import hmac
import re
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock_engine.server.errors import RequestError
from penstock_engine.server.served import Served
from penstock_engine.wire import REQUEST_ID_HEADER

OPEN_PATHS = frozenset({"/health", "/ready", "/metrics", "/ping"})
GENERATION_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})

HEADER = REQUEST_ID_HEADER.encode()
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Door:
    """Sets scope["request_id"]: the client's, if it is a plain word, or a new one."""

    def __init__(self, app: ASGIApp, served: Served, api_key: str | None) -> None:
        self._app = app
        self._served = served
        self._digest = None if api_key is None else _digest(api_key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        given = headers.get(HEADER, b"")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex.encode()
        scope["request_id"] = request_id.decode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (HEADER, request_id)]
            await send(message)

        # The path that is routed, never one put together from headers.
        path = scope["path"]
        if path not in OPEN_PATHS and not self._has_key(headers.get(b"authorization", b"")):
            refusal = RequestError(401, "the API key is missing or wrong").response()
            await refusal(scope, receive, send_with_id)
            return
        is_generation = path in GENERATION_PATHS
        self._served.in_flight += is_generation
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._served.in_flight -= is_generation

    def _has_key(self, authorization: bytes) -> bool:
        if self._digest is None:
            return True
        scheme, _, key = authorization.partition(b" ")
        is_bearer = scheme.lower() == b"bearer"
        return hmac.compare_digest(_digest(key), self._digest) and is_bearer


def _digest(key: bytes) -> bytes:
    """Of one length, so that comparing tells nothing about the length of the key."""
    return hashlib.sha256(key).digest()
