"""Shadow traffic: copies of requests, sent to another revision or service.

    a rule of a ModelRoute -> a copy for each of its shadows
    a rollout with shadow traffic -> a copy for canary and for stable each, counted for the judge

A copy cannot affect its original: it has its own connections, their number is bounded, it is sent
after the original was answered, and its answer is counted and dropped.
"""

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict

from penstock.core.routing.pick import Endpoint, NoEndpoint, Side, pick
from penstock.core.routing.route import Shadow
from penstock.core.routing.traffic_split import Copies
from penstock.gateway.account import Account
from penstock.gateway.answer_count import AnswerCount
from penstock.gateway.body_memory import BodyMemory, BodyReservation
from penstock.gateway.events import MAX_HELD_BYTES, EventStream
from penstock.gateway.metrics import Metrics
from penstock.gateway.openai import CHAT_PATH, Call
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot import Service, Snapshot
from penstock.gateway.upstream import IDLE_CONNECTION_S, body_payload
from penstock_engine.wire import REQUEST_ID_HEADER

# The status that a copy with an incomplete answer counts as.
BROKE_OFF = 502
# The original's request id is cut to this; with the suffix of the copy it must fit into the 128
# characters that engines accept.
MAX_ORIGINAL_ID_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Copy:
    """A request to copy. path: with the query."""

    call: Call
    path: str
    headers: Mapping[str, str]

    @property
    def overhead(self) -> int:
        """Events of its stream that are no tokens."""
        return 2 if self.path.partition("?")[0] == CHAT_PATH else 1


class Shadows:
    """Sends the shadow copies of one gateway. now: the monotonic clock."""

    def __init__(
        self,
        settings: GatewaySettings,
        metrics: Metrics,
        bodies: BodyMemory,
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._bodies = bodies
        self._metrics = metrics
        self._now = now
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    @property
    def open(self) -> int:
        return len(self._tasks)

    def send(self, copy: Copy, shadow: Shadow, snapshot: Snapshot, namespace: str) -> None:
        """Begin a copy for a shadow of a ModelRoute."""
        key = f"{namespace}/{shadow.service}"
        service = snapshot.get(key)
        if service is None:
            self._count(key, shadow.revision or "", "dropped")
            return
        weights = service.weights
        if shadow.revision is not None:
            weights = {e.side: 1 for e in service.endpoints if e.revision == shadow.revision}
        self._begin(copy, service, weights, shadow.revision or "")

    def show(self, copy: Copy, copies: Copies, service: Service, account: Account) -> None:
        """Begin what the rollout of the service has copied. account: where it is counted."""
        for side in copies.sides:
            self._begin(copy, service, {side: 1}, side.revision, account)

    def _begin(
        self,
        copy: Copy,
        service: Service,
        weights: Mapping[Side, int],
        revision: str,
        account: Account | None = None,
    ) -> None:
        """Send a copy, if the limits allow one more and there is an engine."""
        draw = random.random()  # noqa: S311 - spreads load
        choice = pick(service.endpoints, weights, draw, load={})
        body_bytes = len(copy.call.body)
        has_room = self.open < self._settings.max_shadows and self._bodies.has_room(body_bytes)
        if isinstance(choice, NoEndpoint) or not has_room:
            self._count(service.key, revision, "dropped")
            return
        memory = BodyReservation(self._bodies)
        memory.grow(body_bytes)
        run = self._run(copy, service, choice.endpoint, account)
        task = asyncio.get_running_loop().create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: memory.release())

    async def close(self) -> None:
        """End all that are under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _run(
        self, copy: Copy, service: Service, endpoint: Endpoint, account: Account | None
    ) -> None:
        is_stream = copy.call.is_stream
        count = AnswerCount(is_stream=is_stream, overhead=copy.overhead)
        try:
            status = await self._exchange(copy, service, endpoint, count)
        except (aiohttp.ClientError, OSError, TimeoutError):
            status = BROKE_OFF
        self._count(service.key, endpoint.revision, "ok" if status < 400 else "error")
        if account is None:
            return
        arm = account.arm(endpoint.pod)
        if status >= 500 or count.has_failed:
            arm.record_failure()
        elif status < 400:
            arm.record_completion(
                count.output_tokens, 0, is_empty=not count.has_text, violates=False
            )

    async def _exchange(
        self, copy: Copy, service: Service, endpoint: Endpoint, count: AnswerCount
    ) -> int:
        """Send the copy and read its answer. Returns the status; BROKE_OFF if a stream ends early."""
        events, whole = EventStream(), b""
        began_s = self._now()
        async with self._connections().post(
            f"http://{endpoint.address}{copy.path}",
            data=body_payload(copy.call.renamed(service.served_name).body),
            headers=_with_own_id(copy.headers),
            allow_redirects=False,
        ) as response:
            has_begun = False
            while chunk := await response.content.readany():
                if copy.call.is_stream:
                    count.feed(events.feed(chunk))
                elif len(whole) < MAX_HELD_BYTES:
                    whole += chunk
                if not has_begun:
                    has_begun = True
                    seconds = self._metrics.shadow_first_byte_s
                    seconds.labels(service.key, endpoint.revision).observe(self._now() - began_s)
            count.feed(whole)
            is_cut = copy.call.is_stream and not (events.finish() or events.is_done)
            return BROKE_OFF if is_cut and response.status < 400 else response.status

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=self._settings.total_timeout_s, sock_connect=self._settings.connect_timeout_s
            )
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("Accept-Encoding", "User-Agent", "Content-Type"),
                timeout=timeout,
            )
        return self._session

    def _count(self, service: str, revision: str, outcome: str) -> None:
        self._metrics.shadows.labels(service, revision, outcome).inc()


def _with_own_id(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The original's headers with a request id of the copy's own, to tell them apart in logs."""
    copied = CIMultiDict(headers)
    original = copied[REQUEST_ID_HEADER][:MAX_ORIGINAL_ID_CHARACTERS]
    copied[REQUEST_ID_HEADER] = f"{original}.copy-{uuid.uuid4().hex[:8]}"
    return copied
