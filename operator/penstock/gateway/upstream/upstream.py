"""Sends requests to engines over one connection pool, and classifies their failures."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Self

import aiohttp

from penstock.clients.pods.connections import PodConnector
from penstock.core.routing.apis import Api
from penstock.core.routing.charge import CHARGES, Ending, ending_of
from penstock.gateway.apis.errors import DONE_EVENT
from penstock.gateway.apis.response_usage import error_status
from penstock.gateway.apis.sse import SseBuffer, has_data
from penstock.gateway.http.headers import RawHeaders, headers_for_client
from penstock.gateway.limits.shared_limit import Allocation, SharedLimit
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.request_lifecycle.timeline import RequestPhase, Timeline
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.upstream.response import UpstreamResponse

# Bodies above this are sent in pieces. A single write is cheaper for a smaller one, and the copy that the
# transport makes of its unsent bytes is small.
PIECES_FROM_BYTES = 64 << 10
# Bounds on what the kernel, which doubles its own, and this process read ahead of a stream. One whose client
# does not read holds 0.2 MB with them, buffers for the client included, and 1.4 MB without: 2048 hold 0.4 GB.
RECEIVE_BUFFER_BYTES = 32 << 10
READ_AHEAD_BYTES = 16 << 10

# Statuses that a response may have: 1xx is not final, and others are not valid HTTP.
FINAL_STATUSES = range(200, 600)


class AttemptFailed(Exception):
    """An attempt failed before anything reached the client.

    response: the engine's own error response, for an Ending.ERROR; it is passed on if no other engine
    answers, and closed by the caller. None: there is none, or it is too large.
    """

    def __init__(self, ending: Ending, response: "UpstreamResponse | None" = None) -> None:
        super().__init__(ending.value)
        self.ending = ending
        self.response = response


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """Request in the form sent to each engine that is tried.

    path: with the query. is_stream: whether a stream is requested.
    """

    api: Api
    path: str
    headers: Mapping[str, str]
    body: bytes
    is_stream: bool
    method: str = "POST"


class Upstream:
    """Connection pool to all engines, or to the providers of external models.

    connector: of the pool; None: one to pods.
    """

    def __init__(self, settings: GatewaySettings, connector: PodConnector | None = None) -> None:
        self._settings = settings
        self._held_bytes = SharedLimit(settings.max_held_answer_bytes)
        self._session = aiohttp.ClientSession(
            connector=connector or PodConnector(RECEIVE_BUFFER_BYTES),
            read_bufsize=READ_AHEAD_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
            trace_configs=[_connection_trace()],
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    @property
    def held_bytes(self) -> int:
        """Bytes of responses, and of large events, that are held until they are complete and sent."""
        return self._held_bytes.held

    async def send(
        self,
        origin: str,
        request: UpstreamRequest,
        cancellation: CancellationScope,
        timeline: Timeline,
        service: str,
        *,
        connect_timeout_s: float | None = None,
    ) -> UpstreamResponse:
        """Send a request and wait for the first event of a stream, or for all of another response.

        origin: the URL before the path, such as http://10.0.0.1:8000. service: "namespace/name", for which a
        held response counts.
        connect_timeout_s: None: the gateway's. Another response may take as long as the whole request may.
        Raises AttemptFailed.
        """
        settings = self._settings
        first_byte_s = (
            settings.first_byte_timeout_s if request.is_stream else settings.total_timeout_s
        )
        cancellation.enter_phase(RequestPhase.FIRST_BYTE, first_byte_s)
        timeline.enter(RequestPhase.CONNECT)
        source = await self._post(origin, request, timeline, connect_timeout_s)
        is_open = False
        try:
            response = await self._read_start(source, request.api, service)
            if response.status not in FINAL_STATUSES:
                response.close()
                raise AttemptFailed(Ending.INVALID)
            ending = ending_of(response.status)
            if CHARGES[ending].retry != "Never":
                is_passed_on = ending is Ending.ERROR and response.source is None
                if not is_passed_on:
                    response.close()
                raise AttemptFailed(ending, response if is_passed_on else None)
            is_open = response.source is not None
            return response
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptFailed(Ending.RESET) from error
        finally:
            if not is_open:
                source.close()

    async def _post(
        self,
        origin: str,
        request: UpstreamRequest,
        timeline: Timeline,
        connect_timeout_s: float | None,
    ) -> aiohttp.ClientResponse:
        """Send a request and wait for the head of its response. Raises AttemptFailed."""
        upload = aiohttp.UploadTracker()
        timeout = (
            self._session.timeout
            if connect_timeout_s is None
            else aiohttp.ClientTimeout(total=None, connect=connect_timeout_s)
        )
        try:
            return await self._session.request(
                request.method,
                f"{origin}{request.path}",
                data=body_payload(request.body) if request.body else None,
                headers=request.headers,
                allow_redirects=False,
                timeout=timeout,
                trace_request_ctx=timeline,
                upload_tracker=upload,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptFailed(ending_of_error(error, upload)) from error

    async def _read_start(
        self, source: aiohttp.ClientResponse, api: Api, service: str
    ) -> UpstreamResponse:
        headers = headers_for_client(source.raw_headers)
        allocation = Allocation(self._held_bytes, service)
        if source.status == 200 and source.content_type == "text/event-stream":
            return await _read_first_event(source, api, headers, allocation)
        held = bytearray()
        try:
            is_whole = await self._hold(source, held, allocation)
        except BaseException:
            allocation.release()
            raise
        rest = None if is_whole else source
        return UpstreamResponse(source.status, headers, bytes(held), rest, None, allocation)

    async def _hold(
        self, source: aiohttp.ClientResponse, held: bytearray, allocation: Allocation
    ) -> bool:
        """Read a response into `held`. Returns False at a limit: the rest is passed on as it arrives."""
        while chunk := await source.content.readany():
            held += chunk
            if len(held) > self._settings.max_buffered_answer_bytes or not allocation.take(
                len(chunk)
            ):
                return False
        return True


def ending_of_error(error: aiohttp.ClientError | OSError, upload: aiohttp.UploadTracker) -> Ending:
    """The ending of an attempt whose response does not begin. upload: of the request."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Ending.CONNECT
    if isinstance(error, aiohttp.ClientResponseError):
        return Ending.INVALID
    is_sent = upload.upload_complete.done() and not upload.upload_complete.exception()
    return Ending.RESET if is_sent else Ending.UNSENT


async def _read_first_event(
    source: aiohttp.ClientResponse, api: Api, headers: RawHeaders, allocation: Allocation
) -> UpstreamResponse:
    """Wait for the first event of a stream; comments before it are dropped.

    Raises AttemptFailed, also for an engine's error event.
    """
    sse = SseBuffer(api, allocation.resize)
    try:
        events = await _read_data(source, sse)
    except BaseException:
        allocation.release()
        raise
    ending = ending_of(error_status(events) or 200)
    if CHARGES[ending].retry == "Never":
        return UpstreamResponse(200, headers, events, source, sse, allocation)
    if ending is not Ending.ERROR:
        allocation.release()
        raise AttemptFailed(ending)
    end = b"" if sse.is_done or api.errors != "OpenAI" else DONE_EVENT
    whole = UpstreamResponse(200, headers, events + end, None, None, allocation)
    raise AttemptFailed(ending, whole)


async def _read_data(source: aiohttp.ClientResponse, sse: SseBuffer) -> bytes:
    """Return the first events with data. Raises AttemptFailed."""
    while chunk := await source.content.readany():
        if (events := sse.feed(chunk)) and has_data(events):
            return events
    raise AttemptFailed(Ending.RESET)


def _connection_trace() -> aiohttp.TraceConfig:
    """Tells the timeline of a request when it has a connection."""

    async def note_connected(
        _: aiohttp.ClientSession, context: SimpleNamespace, __: object
    ) -> None:
        context.trace_request_ctx.enter(RequestPhase.FIRST_BYTE)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(note_connected)
    trace.on_connection_reuseconn.append(note_connected)
    return trace


def body_payload(body: bytes) -> bytes | io.BytesIO:
    """Return the body for aiohttp: a large one as a file, which is sent in pieces without a copy."""
    return body if len(body) <= PIECES_FROM_BYTES else io.BytesIO(body)
