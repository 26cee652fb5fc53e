"""ASGI middleware: API key, request id, load header, and the count of open requests."""

import hashlib
import hmac
import uuid
from collections.abc import Collection, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock_engine.contract.wire import REQUEST_ID, REQUEST_ID_HEADER
from penstock_engine.server.generation.request_log import log_failure
from penstock_engine.server.handlers.load_header import FORMAT_HEADER, load_headers
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.transport.errors import RequestError

OPEN_PATHS = frozenset({"/health", "/metrics", "/ping", "/ready", "/version"})

HEADER = REQUEST_ID_HEADER.encode()


class RequestMiddleware:
    """Checks API keys, sets scope["request_id"] and counts generation requests in flight.

    The request id is the client's if it is a valid token, otherwise a new one. All paths but the open
    ones need a key, including paths without a route.
    """

    def __init__(self, app: ASGIApp, state: ServerState, generation_paths: Collection[str]) -> None:
        self._app = app
        self._generation_paths = generation_paths
        self._state = state
        self._shows_id = state.options.enable_request_id_headers
        self._root = state.options.root_path.rstrip("/")
        self._digests = [_digest(key.encode()) for key in state.options.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        given = headers.get(HEADER, b"").decode("latin-1")
        scope["request_id"] = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request_id = scope["request_id"].encode()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(HEADER, request_id)] if self._shows_id else []
                load = load_headers(headers.get(FORMAT_HEADER), self._state.engine.stats)
                message["headers"] = [*message["headers"], *own, *load]
            await send(message)

        if self._root and scope["path"].startswith(f"{self._root}/"):
            scope["path"] = scope["path"].removeprefix(self._root)
        path = scope["path"]  # without the root path
        if path not in OPEN_PATHS and not self._has_key(headers):
            refusal = RequestError(401, "the API key is missing or wrong")
            if self._state.options.enable_log_requests:
                log_failure(scope["request_id"], refusal)
            await refusal.response()(scope, receive, send_with_headers)
            return
        is_generation = path in self._generation_paths
        self._state.in_flight += is_generation
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._state.in_flight -= is_generation

    def _has_key(self, headers: Mapping[bytes, bytes]) -> bool:
        if not self._digests:
            return True
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            key = headers.get(b"x-api-key", b"")  # the header of Anthropic's clients
        digest = _digest(key)
        # Compares with all keys, so that the time does not reveal which one matched.
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    """Returns a digest of fixed length, so that comparing does not reveal the key's length."""
    return hashlib.sha256(key).digest()
