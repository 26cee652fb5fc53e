"""Relays a request about files or batches to the batch server, in both directions as it arrives."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import aiohttp

from penstock.core.batches.records import MAX_FILE_BYTES
from penstock.core.routing.apis import BATCH_ROUTES
from penstock.core.routing.origins import ANY_ORIGIN
from penstock.gateway.admission.requesters import owner_of
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.http.client import (
    JSON_TYPE,
    ClientDisconnected,
    ClientResponse,
    checked_headers,
)
from penstock.gateway.http.headers import Scope, client_address
from penstock.gateway.limits.request_allocation import RequestAllocation
from penstock.gateway.proxy.authentication import caller_of
from penstock.gateway.proxy.cancelled_request import CANCELLED_RESPONSES, error_of_cancellation
from penstock.gateway.proxy.request_telemetry import RequestTelemetry
from penstock.gateway.request_lifecycle.cancellation import (
    CancelCause,
    CancellationScope,
    Receive,
    RequestCancelled,
)
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.state.batch_server import BatchServer
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.tenants.authorization import check_route

NO_SERVER = (
    "this gateway has no files and batches, as its operator has set up no batch server: send each request "
    "by itself"
)
# Bound on the body of a request, in bytes: a file and its form. The server has bounds of its
# own, by tenant.
MAX_BODY_BYTES = MAX_FILE_BYTES + (1 << 20)
# What these requests count for in limits that services share, in place of a service.
SHARED_LIMIT_OWNER = "@batches/server"
# Bytes of a response that are read at a time.
CHUNK_BYTES = 64 << 10
PASSED_ON = (b"content-type", b"content-length")
RETURNED = ("Content-Type", "Content-Length", "Retry-After")


class BatchRequest:
    """A request about files or batches. route: the path with the name of its parameter."""

    def __init__(
        self,
        state: GatewayState,
        route: str,
        scope: Scope,
        client: ClientResponse,
        request_id: str,
    ) -> None:
        self._state = state
        self._route = route
        self._scope = scope
        self._client = client
        self._caller = caller_of(scope)
        self._telemetry = RequestTelemetry(state, scope, request_id, route)
        self._telemetry.note_caller(self._caller)
        address = client_address(scope, state.settings.trusted_proxies)
        self._allocation = RequestAllocation(state.limits, address)
        self._is_cut = False

    async def run(self, receive: Receive) -> None:
        """Relay the request. Raises RequestError, ClientDisconnected, RequestCancelled."""
        server, settings = self._state.batch_server, self._state.settings
        if server is None:
            raise RequestError(404, NO_SERVER, reason="no_route")
        headers = self._checked_headers()
        check_route(self._caller, BATCH_ROUTES[self._route].api_path)
        body = RequestBody(receive, settings.request_timeout_s)
        # The tenant is known before the body, so that a slow one takes of its own share alone.
        self._allocation.hold_connection(owner_of(self._caller, SHARED_LIMIT_OWNER))
        with (
            server.connection(self._caller.name),
            CancellationScope(
                body.receive_rest, settings.total_timeout_s, self._state.cancel_scopes
            ) as cancellation,
        ):
            response = await self._send(server, headers, body)
            try:
                self._telemetry.timeline.enter(RequestPhase.STREAM)
                await self._relay(response, cancellation, is_read=body.is_read)
            finally:
                response.close()

    def _checked_headers(self) -> dict[str, str]:
        """The headers for the server. Raises RequestError."""
        given = self._scope["headers"]
        others = [each for each in given if each[0] not in (b"content-type", b"origin")]
        named = checked_headers(others, limit_bytes=self._state.settings.max_header_bytes)
        types = [value for name, value in given if name == b"content-type"]
        is_json = bool(types) and types[0].split(b";")[0].strip().lower() == JSON_TYPE
        origins = [value for name, value in given if name == b"origin"]
        # Browsers send forms and texts of any page without asking first.
        if self._scope["method"] == "POST" and not is_json and not all(map(self._allows, origins)):
            message = "a web page may upload files only if its origin is one of --cors-origin"
            raise RequestError(403, message, reason="invalid_request")
        passed = {**named, b"content-type": types[0]} if types else named
        return {
            name.decode(): passed[name].decode("latin-1") for name in PASSED_ON if name in passed
        }

    def _allows(self, origin: bytes) -> bool:
        origins = self._state.settings.cors_origins
        return ANY_ORIGIN in origins or origin.decode("latin-1") in origins

    async def _send(
        self, server: BatchServer, headers: dict[str, str], body: "RequestBody"
    ) -> aiohttp.ClientResponse:
        method = self._scope["method"]
        query = self._scope.get("query_string", b"").decode("latin-1")
        self._telemetry.timeline.enter(RequestPhase.ROUTE)
        if method != "POST":
            headers.clear()
            async for _ in body.chunks():
                pass  # a body has no meaning
        chunks = body.chunks() if method == "POST" else None
        try:
            return await server.send(
                method, self._scope["path"], query, self._caller.name, headers, chunks
            )
        except (aiohttp.ClientError, OSError) as error:
            if body.error is not None:
                raise body.error from None
            message = "the batch server cannot be reached: try again later"
            raise RequestError(
                503, message, retry_after_s=RETRY_AFTER_S, reason="batch_server"
            ) from error
        finally:
            self._client.is_request_read = body.is_read
            self._telemetry.line.num_request_bytes = body.num_bytes

    async def _relay(
        self, response: aiohttp.ClientResponse, cancellation: CancellationScope, *, is_read: bool
    ) -> None:
        headers = [
            (name.lower().encode(), response.headers[name].encode("latin-1"))
            for name in RETURNED
            if name in response.headers
        ]
        if not is_read:  # its rest would be taken for the next request
            headers.append((b"connection", b"close"))
        await self._client.start(response.status, headers)
        try:
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                await self._client.send_chunk(chunk)
        except (aiohttp.ClientError, OSError):
            self._is_cut = True  # the response stays incomplete
            return
        cancellation.close()
        await self._client.finish()

    async def respond_to_cancellation(self, cancelled: RequestCancelled) -> None:
        """Count the cause of a cancellation, and send the client an error if it is still there."""
        if cancelled.cause is CancelCause.CLIENT_LEFT:
            self.note_disconnect(cancelled.phase)
        elif self._client.is_started:
            self._telemetry.line.reason = CANCELLED_RESPONSES[cancelled.cause][1]
            self._is_cut = True
        else:
            await self.reject(error_of_cancellation(cancelled.cause))

    async def reject(self, error: RequestError) -> None:
        """Send an error of the gateway's own."""
        self._allocation.release()
        self._telemetry.note_rejection(error)
        await self._client.send_error(error)

    def note_disconnect(self, phase: RequestPhase) -> None:
        """Count that the client disconnected."""
        self._telemetry.note_disconnect(phase)

    def close(self) -> None:
        """Free what the request holds, and report it. Call it once, at the very end."""
        self._allocation.release()
        self._telemetry.close(self._client, None, is_cut=self._is_cut)


class RequestBody:
    """The body of a request, as it arrives. error: for which it was not read to its end."""

    def __init__(self, receive: Receive, timeout_s: float) -> None:
        self._receive = receive
        self._timeout_s = timeout_s
        self._ended = asyncio.Event()
        self.num_bytes = 0
        self.error: RequestError | ClientDisconnected | None = None
        self.is_read = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of the body. Raises RequestError, ClientDisconnected."""
        try:
            while not self.is_read:
                message = await self._next()
                chunk = message.get("body", b"")
                self.num_bytes += len(chunk)
                if self.num_bytes > MAX_BODY_BYTES:
                    raise RequestError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
                self.is_read = not message.get("more_body", False)
                if chunk:
                    yield chunk
        except (RequestError, ClientDisconnected) as error:
            self.error = error
            raise
        finally:
            self._ended.set()

    async def receive_rest(self) -> MutableMapping[str, Any]:
        """Wait for what comes after the body: that the client disconnects."""
        await self._ended.wait()
        return await self._receive()

    async def _next(self) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(self._timeout_s):
                message = await self._receive()
        except TimeoutError:
            problem = f"the upload stood still for {self._timeout_s:g} s"
            raise RequestError(408, problem) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return message
