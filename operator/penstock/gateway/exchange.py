"""One request, from its first byte to its last.

    receiving -> waiting -> first byte -> streaming
                    ^            |
                    '--- retry --'

Until the first byte of an engine's answer is here nothing has been said to the client, so another
engine may be tried: `core.routing.retry` says when. An engine's own 500 is passed on if every other engine
that is tried fails too.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from multidict import CIMultiDict

from penstock.core.canary.tenants import tenant_name
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.retry import Failure, may_retry
from penstock.gateway.body_memory import BodyReservation
from penstock.gateway.client import Reply, checked_headers, read_body
from penstock.gateway.guard import Cause, Guard, Interrupted, Phase, Receive
from penstock.gateway.openai import CHAT_PATH, Call, Refused, cut_event, parse
from penstock.gateway.search import RETRY_AFTER_S, Search
from penstock.gateway.shadows import Copy
from penstock.gateway.shared import Shared
from penstock.gateway.snapshot import Service
from penstock.gateway.target import Target, resolve
from penstock.gateway.ticket import Ticket
from penstock.gateway.upstream import (
    NOT_FOR_ENGINES,
    Answer,
    AttemptFailed,
    Cut,
    Outgoing,
    forwarded,
    header_text,
)
from penstock_engine.wire import REQUEST_ID_HEADER, TPOT_HEADER

Scope = MutableMapping[str, Any]


class Exchange:
    """The state of one request."""

    def __init__(self, shared: Shared, scope: Scope, reply: Reply, request_id: str) -> None:
        self._shared = shared
        self._settings = shared.settings
        self._metrics = shared.metrics
        self._scope = scope
        self._reply = reply
        self._request_id = request_id
        self._memory = BodyReservation(shared.bodies)
        self._came_s = shared.now()  # replaced when the request is complete
        self._service = ""
        self._revision = ""
        self._endpoint: Endpoint | None = None
        self._answer: Answer | None = None
        self._ticket: Ticket | None = None
        self._has_left = False
        self._is_blocked = False  # while a write waits for the client to read

    async def run(self, receive: Receive) -> None:
        """Raises Refused, ClientLeft, Interrupted."""
        headers = checked_headers(
            self._scope["headers"], limit_bytes=self._settings.max_header_bytes
        )
        with self._memory:
            body = await read_body(
                receive,
                headers.get(b"content-length", b""),
                self._memory,
                limit_bytes=self._settings.max_body_bytes,
                timeout_s=self._settings.request_timeout_s,
            )
            self._reply.has_whole_request = True
            # Latency objectives start here: how long the client takes to send its body does not count.
            self._came_s = self._shared.now()
            call = parse(body)
            del body
            with Guard(receive, self._settings.total_timeout_s, self._shared.guards) as guard:
                guard.allow(Phase.WAITING, self._settings.total_timeout_s)
                serving = self._serve(call, headers, guard)
                del call  # frees the body once the answer has begun
                await serving

    async def _serve(self, call: Call, given: Mapping[bytes, bytes], guard: Guard) -> None:
        target = await self._resolve(call, given)
        service = target.service
        self._service = service.key
        self._metrics.requests.labels(service.key).inc()
        ticket = self._ticket = self._shared.accounts.arrived(
            service,
            self._came_s,
            call.prompt_bytes,
            is_stream=call.is_stream,
            is_chat=self._scope["path"] == CHAT_PATH,
            is_text_only=call.is_text_only,
            tenant=_tenant(service, given),
        )
        self._memory.assign(service.key)
        call = call.renamed(service.served_name)
        key = call.sticky_key(service.sticky_by)
        search = Search(self._shared, service.key, ticket, guard, key=key, tokens=call.tokens)
        trying = self._try_engines(call, target, search, guard, ticket)
        del call
        with self._shared.open_requests.hold(service.key):
            await trying

    async def _try_engines(
        self, call: Call, target: Target, search: Search, guard: Guard, ticket: Ticket
    ) -> None:
        """Try one engine after another until one answers or `may_retry` says no. Raises Refused."""
        service = target.service
        headers = self._upstream_headers(service)
        outgoing = Outgoing(self._path(), headers, call.body, is_stream=call.is_stream)
        failures: list[Failure] = []
        error: Answer | None = None
        while may_retry(failures, self._settings.max_attempts):
            try:
                found = await search.next(is_retry=bool(failures))
            except Refused:
                if Failure.ERROR in failures:
                    break
                search.gave_up()
                raise
            self._endpoint = endpoint = found.endpoint
            self._revision = endpoint.revision
            if failures:
                self._metrics.retries.labels(service.key, failures[-1].value).inc()
            with self._working_on(endpoint, call.tokens), ticket.sent(endpoint.pod, found.seat):
                began_s = self._shared.now()
                answer = await self._attempt(endpoint, outgoing, guard, is_retry=bool(failures))
                if isinstance(answer, Answer):
                    self._note_health(answer, search)
                    if target.shadows or target.copies:
                        self._copy(call, target, headers)
                    del call, outgoing
                    self._memory.release()
                    await self._pass_on(answer, guard, ticket)
                    return
                search.failed(endpoint.pod, answer.failure, self._shared.now() - began_s)
                if answer.failure is not Failure.CONNECT and search.serves(endpoint.pod):
                    ticket.attempt_failed(endpoint.pod)
            failures.append(answer.failure)
            if answer.failure is Failure.ERROR:
                error = answer.answer or error
        search.gave_up()
        await self._give_up(failures[-1], error, guard, ticket)

    async def _attempt(
        self, endpoint: Endpoint, outgoing: Outgoing, guard: Guard, *, is_retry: bool
    ) -> Answer | AttemptFailed:
        budget = self._shared.budget
        with budget.hold(self._service) if is_retry else contextlib.nullcontext():
            try:
                return await self._shared.upstream.open(endpoint.address, outgoing, guard)
            except AttemptFailed as failed:
                return failed

    def _note_health(self, answer: Answer, search: Search) -> None:
        """Record what the status of an answer that is passed on says of the engine's health."""
        assert self._endpoint is not None
        if answer.status >= 500:
            search.gave_up()
        elif answer.is_error:
            return
        elif answer.response is None:
            self._shared.loads.answered(self._endpoint.pod)
        else:
            self._shared.loads.began(self._endpoint.pod)

    def _note_end(self, answer: Answer, *, is_whole: bool, has_error: bool) -> None:
        """Record what the end of an answer that was passed on as it came says of the engine's health."""
        assert self._endpoint is not None
        loads, pod = self._shared.loads, self._endpoint.pod
        if not is_whole:
            loads.failed(pod, self._shared.now(), broke_off=True)
        elif not has_error:
            loads.answered(pod)

    async def _give_up(
        self, last: Failure, error: Answer | None, guard: Guard, ticket: Ticket
    ) -> None:
        """Pass on the engine's own error answer. Raises Refused if there is none."""
        if error is not None:
            guard.dismiss()
            ticket.lose()
            await self._reply.whole(error.status, error.headers, error.first)
            return
        if last is Failure.UNAVAILABLE:
            raise Refused(503, "no engine takes requests", retry_after_s=RETRY_AFTER_S)
        raise Refused(502, "the engines that were tried did not answer")

    async def _resolve(self, call: Call, headers: Mapping[bytes, bytes]) -> Target:
        fleet = self._shared.fleet
        if not fleet.is_synced:
            await fleet.wait(self._settings.wait_for_endpoint_s)
        if not fleet.is_synced:
            raise Refused(503, "no engine is known yet", retry_after_s=RETRY_AFTER_S)
        return resolve(fleet.snapshot, call, headers)

    def _copy(self, call: Call, target: Target, headers: Mapping[str, str]) -> None:
        """To the shadows, as soon as nothing else is to be done."""
        loop = asyncio.get_running_loop()
        copy = Copy(call, self._path(), headers)
        snapshot, namespace = self._shared.fleet.snapshot, target.service.namespace
        for shadow in target.shadows:
            loop.call_soon(self._shared.shadows.send, copy, shadow, snapshot, namespace)
        if target.copies is not None:
            account = self._shared.accounts.of(target.service.key)
            show = self._shared.shadows.show
            loop.call_soon(show, copy, target.copies, target.service, account)

    @contextlib.contextmanager
    def _working_on(self, endpoint: Endpoint, tokens: int) -> Iterator[None]:
        gauge = self._metrics.in_flight.labels(self._service, endpoint.revision)
        gauge.inc()
        try:
            with self._shared.loads.hold(endpoint.pod, tokens):
                yield
        finally:
            gauge.dec()

    async def _pass_on(self, answer: Answer, guard: Guard, ticket: Ticket) -> None:
        self._answer = answer
        ticket.begins(is_stream=answer.events is not None)
        took_s = self._shared.now() - self._came_s
        self._metrics.first_byte_s.labels(self._service, self._revision).observe(took_s)
        try:
            if answer.response is None:
                guard.dismiss()
                ticket.answered(answer.first)
                await self._reply.whole(answer.status, answer.headers, answer.first)
            else:
                await self._relay(answer, guard, ticket)
        finally:
            answer.close()

    async def _relay(self, answer: Answer, guard: Guard, ticket: Ticket) -> None:
        """Pass on an answer as it arrives."""
        between_s = self._settings.between_chunks_timeout_s
        try:
            guard.allow(Phase.STREAMING, between_s)
            guard.relax()
            self._is_blocked = True  # by an answer before this one that its client does not take
            await self._reply.begin(answer.status, answer.headers)
            self._is_blocked = False
            chunk = answer.first
            while chunk:
                guard.relax()
                ticket.answered(chunk)
                await self._to_client(chunk, ticket)
                answer.release()
                guard.allow(Phase.STREAMING, between_s)
                chunk = await answer.more()
            guard.dismiss()
            has_error = answer.status >= 400 or ticket.has_error
            self._note_end(answer, is_whole=not ticket.has_failed, has_error=has_error)
            await self._reply.end()
        except Cut:
            guard.dismiss()
            self._note_end(answer, is_whole=False, has_error=True)
            await self._cut(502, "the engine broke off", "upstream")

    async def _to_client(self, chunk: bytes, ticket: Ticket) -> None:
        """Send a chunk, and wait until the client has read enough of what was sent before."""
        began_s = self._shared.now()
        self._is_blocked = True
        await self._reply.more(chunk)
        self._is_blocked = False
        ticket.blocked(self._shared.now() - began_s)

    async def interrupted(self, end: Interrupted) -> None:
        """What to say when the request was ended from outside."""
        if end.cause is Cause.CLIENT_LEFT:
            self.left(end.phase)
            return
        if end.cause is Cause.SHUTDOWN and self._ticket is not None:
            self._ticket.excuse()
        if end.cause is Cause.TIMEOUT and self._endpoint is not None:
            pod, now = self._endpoint.pod, self._shared.now()
            if end.phase is Phase.FIRST_BYTE:
                self._shared.loads.failed(pod, now)
            elif end.phase is Phase.STREAMING and not end.is_total:  # the engine, not its client
                self._shared.loads.failed(pod, now, broke_off=True)
        status, message = LAST_WORDS[end.cause]
        if end.cause is Cause.TIMEOUT and self._is_blocked:  # the client's fault: it did not read
            self.left(end.phase)
            await self._cut(status, message, "client")
        elif self._reply.has_begun:
            await self._cut(status, message, end.cause.value)
        else:
            retry_after_s = RETRY_AFTER_S if status == 503 else None
            await self._reply.refuse(Refused(status, message, retry_after_s=retry_after_s))

    async def _cut(self, status: int, message: str, cause: str) -> None:
        self._metrics.cut.labels(self._service, self._revision, cause).inc()
        if self._ticket is not None:
            self._ticket.lose()
        if self._answer is not None and self._answer.events is not None:
            await self._reply.last_words(cut_event(status, message))
        # Without events the answer stays unfinished: the connection is closed on it.

    def left(self, phase: Phase) -> None:
        self._has_left = True
        self._metrics.disconnects.labels(self._service, phase.value).inc()

    def account(self) -> None:
        """Once, at the very end."""
        if self._ticket is not None and not self._has_left:
            self._ticket.close(self._reply.status)
        code = str(self._reply.status)
        self._metrics.responses.labels(self._service, self._revision, code).inc()

    def _path(self) -> str:
        path, query = self._scope["path"], self._scope.get("query_string", b"")
        return f"{path}?{query.decode('latin-1')}" if query else path

    def _upstream_headers(self, service: Service) -> CIMultiDict[str]:
        """The client's headers, repeated ones included, and those that the gateway sets itself."""
        headers = CIMultiDict(
            (name.decode("latin-1"), header_text(value))
            for name, value in forwarded(self._scope["headers"], NOT_FOR_ENGINES)
        )
        headers[REQUEST_ID_HEADER] = self._request_id
        if service.objectives is not None:
            headers[TPOT_HEADER] = f"{service.objectives.tpot_s:g}"
        return headers


def _tenant(service: Service, headers: Mapping[bytes, bytes]) -> str | None:
    if not service.tenant_header or not service.is_mixed:
        return None
    return tenant_name(headers.get(service.tenant_header.encode(), b"").decode("latin-1"))


LAST_WORDS = {
    Cause.TIMEOUT: (504, "the engine did not answer in time"),
    Cause.SHUTDOWN: (503, "the gateway is stopping"),
}
