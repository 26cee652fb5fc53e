"""Relays an engine's response to the client, chunk by chunk, and ends it properly when it breaks off."""

from collections.abc import Callable

from penstock.core.routing.charge import Ending, ending_of
from penstock.core.routing.pick import Endpoint
from penstock.gateway.apis.errors import body_as_event
from penstock.gateway.apis.sse import has_data, without_usage_event
from penstock.gateway.http.client import ClientResponse
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.upstream.response import ResponseTruncated, UpstreamResponse
from penstock_engine.telemetry.exposition import exemplar


class Relay:
    """The response to one request, on its way from an endpoint to the client.

    service: "namespace/name". is_blocked: whether a write waits for the client to read. cut_cause: why
    the response was cut off; empty if it was not. trace_id: empty if the request is not traced.
    free_endpoint: called when the engine has no work left, while the client may still have to read.
    hides_usage: whether the client gets no event that has only the usage.
    """

    def __init__(
        self,
        state: GatewayState,
        service: str,
        endpoint: Endpoint,
        upstream: UpstreamResponse,
        client: ClientResponse,
        record: RequestRecord,
        trace_id: str = "",
        *,
        free_endpoint: Callable[[], None],
        hides_usage: bool = False,
    ) -> None:
        self._state = state
        self._service = service
        self._endpoint = endpoint
        self._upstream = upstream
        self._client = client
        self._record = record
        self._trace_id = trace_id
        self._free_endpoint = free_endpoint
        self._hides_usage = hides_usage and upstream.sse is not None
        self.is_blocked = False
        self.cut_cause = ""

    @property
    def is_error(self) -> bool:
        """Whether the engine has refused the request, or failed."""
        return self._upstream.status >= 400

    async def run(self, cancellation: CancellationScope) -> None:
        """Send the whole response to the client. Raises RequestCancelled."""
        upstream, record = self._upstream, self._record
        record.start_response(is_stream=upstream.sse is not None)
        took_s = self._state.now() - record.arrived_s
        labels = self._service, self._endpoint.revision
        self._state.metrics.first_byte_s.labels(*labels).observe(took_s, exemplar(self._trace_id))
        cancellation.enter_phase(RequestPhase.STREAM, self._state.settings.between_chunks_timeout_s)
        cancellation.lift_phase_limit()
        try:
            if upstream.source is None:
                await self._send_whole(cancellation)
            else:
                await self._stream(cancellation)
        finally:
            upstream.close()

    async def _send_whole(self, cancellation: CancellationScope) -> None:
        """Send a response that is complete, with its length."""
        body = self._upstream.first_chunk
        self._record.add_chunk(body)
        self._free_endpoint()
        await self._start((b"content-length", b"%d" % len(body)))
        client = self._client
        await self._send_chunk(body_as_event(body, client.errors) if client.is_held else body)
        await self._finish(cancellation)

    async def _stream(self, cancellation: CancellationScope) -> None:
        """Send the response as it arrives."""
        upstream, record = self._upstream, self._record
        between_s = self._state.settings.between_chunks_timeout_s
        try:
            await self._start()
            chunk = upstream.first_chunk
            while chunk:
                cancellation.lift_phase_limit()
                if upstream.sse is None or has_data(chunk):
                    record.add_chunk(chunk)
                await self._send_chunk(chunk)
                upstream.drop_first_chunk()
                cancellation.enter_phase(RequestPhase.STREAM, between_s)
                chunk = await upstream.next_chunk()
            await self._finish(cancellation)
        except ResponseTruncated:
            cancellation.close()
            self._note_end(Ending.TRUNCATED)
            await self.cut(502, "the engine's response was cut off", "upstream")

    async def _start(self, *more: tuple[bytes, bytes]) -> None:
        """Send the head. more: headers in addition to those of the engine."""
        self.is_blocked = True  # while the client does not read the response before this one
        headers = [*self._upstream.headers, *more]
        await self._client.start(self._upstream.status, headers, body_follows=True)
        self.is_blocked = False

    async def _send_chunk(self, chunk: bytes) -> None:
        """Send a chunk, and wait until the connection has taken all of it."""
        if self._hides_usage:
            chunk = without_usage_event(chunk)
            if not chunk:
                return
        started_s = self._state.now()
        self.is_blocked = True
        await self._client.send_chunk(chunk)
        self.is_blocked = False
        self._record.add_write_time(self._state.now() - started_s)

    async def _finish(self, cancellation: CancellationScope) -> None:
        """Record how a complete response ends, and send its end."""
        cancellation.close()
        self._note_end(self._ending_of_whole())
        await self._client.finish()

    def _ending_of_whole(self) -> Ending:
        """How a response ends that is complete."""
        if self._record.has_engine_error:
            return Ending.ERROR_EVENT
        return ending_of(self._upstream.status)

    def _note_end(self, ending: Ending) -> None:
        """Record how the request ends, and what that says about the endpoint's health."""
        self._record.end.ending = ending
        endpoints, pod = self._state.endpoints, self._endpoint.pod
        endpoints.charge(pod, ending, self._state.now())
        if ending is Ending.ANSWERED and not self._record.has_error:
            endpoints.note_response_complete(pod)

    async def cut(self, status: int, message: str, cause: str) -> None:
        """End a response that cannot be completed.

        A stream ends with an error event. Another response stays incomplete, and the server closes the
        connection. cause: label of the metric.
        """
        self.cut_cause = cause
        labels = self._service, self._endpoint.revision, cause
        self._state.metrics.cut.labels(*labels).inc()
        await self._client.cut_stream(self._upstream.sse, status, message)
