"""Traffic mirroring: sends copies of requests to another revision or service.

    rule of a ModelRoute          one copy for each of its mirrors that the request is sampled for
    rollout that mirrors traffic  one copy each for canary and stable, counted for the canary's judge

A copy cannot affect its original: it has connections and memory of its own, their number and size are
bounded, it is sent after the first bytes of the original's response arrived, and its own response is counted
and dropped. It has the time limits of its original.
"""

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

import aiohttp
from multidict import CIMultiDict

from penstock.clients.pods.connections import PodConnector
from penstock.core.canary.arm import UNMEASURED
from penstock.core.routing.charge import CHARGES, Ending, ending_of
from penstock.core.routing.pick import Endpoint, NoEndpoint, Side, pick_side
from penstock.core.routing.route import Mirror
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.gateway.apis.model_field import add_field
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.apis.response_usage import ResponseUsage
from penstock.gateway.apis.sse import MAX_HELD_BYTES, SseBuffer
from penstock.gateway.limits.shared_limit import Allocation, SharedLimit
from penstock.gateway.mirroring.mirrored_request import CopyLimits, MirroredRequest
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.stats.service_stats import ServiceStats
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.upstream.upstream import body_payload, ending_of_error
from penstock_engine.contract.wire import REQUEST_ID_HEADER

# The original's request id is cut to this; with the suffix of the copy it must fit into the 128
# characters that engines accept.
MAX_ORIGINAL_ID_CHARACTERS = 100
# Memory for copies, as a fraction of that for requests. It is small because copies may be dropped, and
# requests may not.
MEMORY_FRACTION = 0.125


class RequestMirror:
    """Sends the copies of one gateway, each in a task of its own. now: the monotonic clock."""

    def __init__(
        self,
        settings: GatewaySettings,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._copies = SharedLimit(settings.max_mirrored)
        self._bytes = SharedLimit(int(MEMORY_FRACTION * settings.max_held_body_bytes))
        self._metrics = metrics
        self._now = now
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    @property
    def num_open(self) -> int:
        """Number of copies whose response has not ended."""
        return len(self._tasks)

    @property
    def held_bytes(self) -> int:
        """Bytes of the bodies of open copies."""
        return self._bytes.held

    def send_for_route(
        self, copy: MirroredRequest, mirror: Mirror, snapshot: Snapshot, namespace: str
    ) -> None:
        """Start one copy for a mirror of a ModelRoute. namespace: the route's."""
        key = f"{namespace}/{mirror.service}"
        service = snapshot.get_backend(key)
        if service is None:
            self._count(key, mirror.revision or "", "dropped")
            return
        weights = service.weights
        if mirror.revision is not None:
            weights = {e.side: 1 for e in service.endpoints if e.revision == mirror.revision}
        self._start(copy, service, weights, mirror.revision or "")

    def send_for_rollout(
        self, copy: MirroredRequest, mirror: RolloutMirror, service: Service, stats: ServiceStats
    ) -> None:
        """Start one copy for each side that the service's rollout mirrors to.

        stats: count the outcomes, for the canary's judge.
        """
        for side in mirror.targets:
            self._start(copy, service, {side: 1}, side.revision, stats)

    def _start(
        self,
        copy: MirroredRequest,
        service: Service,
        weights: Mapping[Side, int],
        revision: str,
        stats: ServiceStats | None = None,
    ) -> None:
        """Start a copy if the limits allow one more and there is an endpoint; else count it as dropped."""
        draw = random.random()  # noqa: S311 - spreads load
        choice = pick_side(service.endpoints, weights, draw, key=None)
        key, num_bytes = service.key, len(copy.request.body)
        number, memory = (Allocation(each, key) for each in (self._copies, self._bytes))
        if isinstance(choice, NoEndpoint) or not (number.take(1) and memory.take(num_bytes)):
            number.release()
            self._count(key, revision, "dropped")
            return
        run = self._run(copy, service, choice.any_endpoint, stats)
        task = asyncio.get_running_loop().create_task(run)
        self._tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            number.release()
            memory.release()

        task.add_done_callback(end)

    async def close(self) -> None:
        """Cancel all open copies and close their connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _run(
        self,
        copy: MirroredRequest,
        service: Service,
        endpoint: Endpoint,
        stats: ServiceStats | None,
    ) -> None:
        """Send one copy and count its outcome."""
        usage = ResponseUsage(copy.request.api, is_stream=copy.request.is_stream)
        ending = await self._send(copy, service, endpoint, usage)
        if usage.has_engine_error:
            ending = Ending.ERROR_EVENT
        is_answered = ending is Ending.ANSWERED
        self._count(service.key, endpoint.revision, "ok" if is_answered else "error")
        if stats is None:
            return
        arm = stats.arm(endpoint.pod)
        if CHARGES[ending].charges_copy:
            arm.record_failure()
        elif is_answered:
            tokens, is_empty = usage.generated_tokens, usage.is_empty
            arm.record_answer(replace(UNMEASURED, output_tokens=tokens, is_empty=is_empty))

    async def _send(
        self, copy: MirroredRequest, service: Service, endpoint: Endpoint, usage: ResponseUsage
    ) -> Ending:
        """Send one copy and read its response into `usage`. Returns how the copy ends."""
        started_s, upload = self._now(), aiohttp.UploadTracker()
        limits = CopyLimits(copy, self._settings)

        def note_chunk() -> None:
            if not limits.has_response:
                seconds = self._metrics.mirrored_first_byte_s
                seconds.labels(service.key, endpoint.revision).observe(self._now() - started_s)
            limits.note_chunk()

        try:
            async with (
                limits.timeout,
                self._connections().post(
                    f"http://{endpoint.address}{copy.path}",
                    data=body_payload(_body(copy.request, service)),
                    headers=_with_own_id(copy.headers),
                    allow_redirects=False,
                    upload_tracker=upload,
                ) as response,
            ):
                return await _read(response, copy.request, usage, note_chunk)
        except (aiohttp.ClientError, OSError) as error:
            if limits.timeout.expired():
                return limits.ending
            return Ending.TRUNCATED if limits.has_response else ending_of_error(error, upload)

    def _connections(self) -> aiohttp.ClientSession:
        """Return the connection pool of copies, made for the first one."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=self._settings.connect_timeout_s
            )
            self._session = aiohttp.ClientSession(
                connector=PodConnector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("Accept-Encoding", "User-Agent", "Content-Type"),
                timeout=timeout,
            )
        return self._session

    def _count(self, service: str, revision: str, outcome: str) -> None:
        self._metrics.mirrored_requests.labels(service, revision, outcome).inc()


def _body(request: InferenceRequest, service: Service) -> bytes:
    """The body of a copy. No engine stores its response, which would displace those that clients read."""
    body = request.with_model(service.served_name).body
    return add_field(body, "store", False) if request.api.stores else body


async def _read(
    response: aiohttp.ClientResponse,
    request: InferenceRequest,
    usage: ResponseUsage,
    note_chunk: Callable[[], None],
) -> Ending:
    """Read the response to a copy into `usage`. Raises aiohttp.ClientError, OSError, TimeoutError."""
    is_stream, sse, body = request.is_stream, SseBuffer(request.api), bytearray()
    while chunk := await response.content.readany():
        note_chunk()
        if is_stream:
            usage.feed(sse.feed(chunk))
        elif len(body) < MAX_HELD_BYTES:
            body += chunk
    usage.feed(bytes(body))
    is_cut = is_stream and not (sse.finish() or sse.is_done)
    return Ending.TRUNCATED if is_cut and response.status < 400 else ending_of(response.status)


def _with_own_id(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the original's headers with another request id, which tells the copy from it in logs."""
    copied = CIMultiDict(headers)
    original = copied[REQUEST_ID_HEADER][:MAX_ORIGINAL_ID_CHARACTERS]
    copied[REQUEST_ID_HEADER] = f"{original}.copy-{uuid.uuid4().hex[:8]}"
    return copied
