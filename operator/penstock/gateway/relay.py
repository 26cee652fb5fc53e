"""ASGI: read a request within its caps, relay the answer's bytes, notice a client that leaves."""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from penstock.adapters.clock import monotonic
from penstock.gateway.answer import SSE_DONE, Refusal, error_body, error_event
from penstock.gateway.director import Call, Director
from penstock.gateway.fleet import Fleet, Found
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.telemetry import Telemetry
from penstock.gateway.upstream import NOT_FORWARDED, Answering, UpstreamFailed

REQUEST_ID = re.compile(rb"^[A-Za-z0-9._-]{1,128}$")
CUT = "the answer was cut off: the engine "


class Relay:
    """Handles one POST of an OpenAI route at a time, many side by side."""

    def __init__(
        self, fleet: Fleet, director: Director, settings: GatewaySettings, telemetry: Telemetry
    ) -> None:
        self._fleet = fleet
        self._director = director
        self._settings = settings
        self._telemetry = telemetry
        self.in_flight = 0
        self.closing = asyncio.Event()  # set when a drain has run out of time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(send)
        service = ""
        self.in_flight += 1
        try:
            body = await self._body(scope, receive)
            call = self._call(scope, body)
            service = call.label
            with self._telemetry.in_flight.labels(service).track_inprogress():
                await _first_of(
                    self._serve(call, exchange), _disconnected(receive), self.closing.wait()
                )
        except Refusal as refusal:
            await exchange.refuse(refusal)
        except _ClientGone:
            exchange.result = "disconnected"
        except _Closing:
            await exchange.cut("is being left: the gateway is stopping")
        finally:
            self.in_flight -= 1
            self._telemetry.requests.labels(service, exchange.result).inc()

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > self._settings.max_body_bytes:
            raise Refusal(413, f"the body may have {self._settings.max_body_bytes >> 20} MiB")
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGone
            body += message.get("body", b"")
            if len(body) > self._settings.max_body_bytes:
                raise Refusal(413, f"the body may have {self._settings.max_body_bytes >> 20} MiB")
            if not message.get("more_body"):
                return bytes(body)

    def _call(self, scope: Scope, body: bytes) -> Call:
        """Find the service that the body's `model` names. Raises Refusal."""
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            raise Refusal(400, "the body must be a JSON object") from None
        if not isinstance(request, dict):
            raise Refusal(400, "the body must be a JSON object")
        model = request.get("model")
        if not isinstance(model, str) or not model:
            raise Refusal(400, "`model` must name a model; GET /v1/models lists them")
        found = self._fleet.resolve(model)
        if not isinstance(found, Found):
            if found.choices:
                raise Refusal(400, f"`model` must be one of {', '.join(found.choices)}")
            raise Refusal(404, f"The model `{model[:128]}` does not exist.")
        served = found.service.served_name
        if model != served:  # engines know the plain name only
            body = json.dumps(request | {"model": served}).encode()
        return Call(found.service.key, scope["path"], body, _headers(scope), monotonic())

    async def _serve(self, call: Call, exchange: "_Exchange") -> None:
        try:
            async with asyncio.timeout(self._settings.total_timeout_s):
                async with self._director.answer(call) as answering:
                    waited_s = monotonic() - call.arrived_s
                    self._telemetry.first_byte.labels(call.label).observe(waited_s)
                    if answering.is_stream:
                        await self._stream(answering, exchange)
                    else:
                        await self._whole(answering, exchange)
        except TimeoutError:
            if exchange.begun:
                await exchange.cut("took longer than the total time limit")
            else:
                raise Refusal(504, "the total time limit is over") from None

    async def _stream(self, answering: Answering, exchange: "_Exchange") -> None:
        tail = answering.first[-64:]
        await exchange.begin(answering.status, answering.headers)
        await exchange.write(answering.first)
        try:
            async for chunk in answering.rest:
                tail = (tail + chunk)[-64:]
                await exchange.write(chunk)
        except UpstreamFailed as failure:
            await exchange.cut(str(failure))
            return
        if answering.status == 200 and not tail.endswith(SSE_DONE):
            await exchange.cut("stopped without an end")
            return
        await exchange.end(str(answering.status))

    async def _whole(self, answering: Answering, exchange: "_Exchange") -> None:
        """Nothing is sent before the last byte has come, so a broken answer is a clean error."""
        body = bytearray(answering.first)
        try:
            async for chunk in answering.rest:
                body += chunk
                if len(body) > self._settings.max_buffered_answer_bytes:
                    raise Refusal(502, "the engine's answer is too large")
        except UpstreamFailed as failure:
            raise Refusal(504 if failure.timed_out else 502, f"the engine {failure}") from failure
        length = (b"content-length", str(len(body)).encode())
        await exchange.begin(answering.status, [*answering.headers, length])
        await exchange.write(bytes(body))
        await exchange.end(str(answering.status))


class _ClientGone(Exception):
    pass


class _Closing(Exception):
    pass


class _Exchange:
    """What has been sent to the client, so that it is ended the right way. result: for metrics."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        self.result = "error"

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, result: str) -> None:
        self.result = result
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def cut(self, why: str) -> None:
        """End with an error event. A chunk that ended within an event is closed first."""
        if not self.begun:
            await self.refuse(Refusal(503, CUT + why, retry_after_s=1))
            return
        await self.write(b"\n\n" + error_event(502, CUT + why))
        await self.end("cut")

    async def refuse(self, refusal: Refusal) -> None:
        body = error_body(refusal.status, refusal.message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if refusal.retry_after_s is not None:
            headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
        await self.begin(refusal.status, headers)
        await self.write(body)
        await self.end(str(refusal.status))


def _headers(scope: Scope) -> dict[str, str]:
    kept = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name not in NOT_FORWARDED
    }
    given = dict(scope["headers"]).get(b"x-request-id", b"")
    kept["x-request-id"] = given.decode() if REQUEST_ID.match(given) else uuid.uuid4().hex
    return kept


async def _disconnected(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first_of(
    work: Awaitable[None], leaving: Awaitable[Any], closing: Awaitable[Any]
) -> None:
    """`work`, unless the client leaves or the gateway closes first; what is left is cancelled."""
    tasks = [asyncio.ensure_future(each) for each in (work, leaving, closing)]
    working, gone, closed = tasks
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        elif gone.done():
            raise _ClientGone
        elif closed.done():
            raise _Closing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
