"""The engine's HTTP routes."""

import asyncio
import hashlib
import hmac
import json
import re
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock_engine.server.answers import Answer
from penstock_engine.server.bridge import Bridge, now_s
from penstock_engine.server.errors import RequestError, error_body, from_validation
from penstock_engine.server.generation import Choice
from penstock_engine.server.metrics import EngineMetrics
from penstock_engine.server.schemas import (
    ChatCompletionRequest,
    CompletionRequest,
    GenerationRequest,
)
from penstock_engine.tokens import TemplateRefused, Tokenizer
from penstock_engine.wire import REQUEST_ID_HEADER

T = TypeVar("T")

MAX_BODY_BYTES = 16 * 2**20
RETRY_AFTER_S = 1
OPEN_PATHS = frozenset({"/health", "/ready", "/metrics", "/ping"})
REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,128}$")


@dataclass(slots=True)
class Served:
    """Everything a route needs. draining is set once, by SIGTERM."""

    model_name: str
    max_model_len: int
    tokenizer: Tokenizer
    bridge: Bridge
    metrics: EngineMetrics
    created: int = field(default_factory=lambda: int(time.time()))
    draining: bool = False


class ClientGone(Exception):
    """The client has closed its connection; there is nobody to answer."""


def build_app(served: Served, api_key: str | None = None) -> ASGIApp:
    """The ASGI application."""
    app = FastAPI(title="Penstock engine", docs_url=None, redoc_url=None)
    app.state.served = served

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return error.response()

    @app.get("/health")
    @app.get("/ping")
    async def health() -> Response:
        return Response(status_code=200 if served.bridge.alive else 503)

    @app.get("/ready")
    async def ready() -> Response:
        is_ready = served.bridge.alive and not served.draining
        return PlainTextResponse("ready" if is_ready else "not ready", 200 if is_ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(served.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/version")
    async def engine_version() -> dict[str, str]:
        return {"version": version("penstock")}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        model = {
            "id": served.model_name,
            "object": "model",
            "created": served.created,
            "owned_by": "penstock",
            "root": served.model_name,
            "max_model_len": served.max_model_len,
        }
        return {"object": "list", "data": [model]}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _answer(served, request, "chat")

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _answer(served, request, "completion")

    return Guard(app, api_key)


async def _answer(served: Served, http: Request, kind: Any) -> Response:
    arrival_s = now_s()
    if served.draining or not served.bridge.alive:
        raise RequestError(503, "the engine is stopping; try again", retry_after_s=RETRY_AFTER_S)
    if served.bridge.queue_is_full:
        served.metrics.rejected("max_num_queued_reqs")
        raise RequestError(503, "the engine's queue is full", retry_after_s=RETRY_AFTER_S)
    raw = await _body(http)
    try:
        return await _unless_gone(http, _respond(served, http, kind, raw, arrival_s))
    except ClientGone:
        return Response(status_code=499)


async def _respond(
    served: Served, http: Request, kind: Any, raw: bytes, arrival_s: float
) -> Response:
    schema = ChatCompletionRequest if kind == "chat" else CompletionRequest
    try:
        request = await asyncio.to_thread(schema.model_validate, _json(raw))
    except ValidationError as error:
        raise from_validation(error) from error
    if request.model not in (None, served.model_name):
        raise RequestError(404, f"The model `{request.model}` does not exist.", param="model")
    prompts = await asyncio.to_thread(_encode, served, request)
    choices = [
        Choice(index, prompt, request.sampling(_max_tokens(served, request, prompt)), arrival_s)
        for index, prompt in enumerate(prompts)
    ]
    answer = Answer(
        kind=kind,
        request=request,
        choices=choices,
        request_id=_request_id(http),
        model=served.model_name,
        created=int(time.time()),
        bridge=served.bridge,
        tokenizer=served.tokenizer,
    )
    if request.stream:
        stream = answer.stream()
        try:
            first = await anext(stream)
        except BaseException:
            await stream.aclose()
            raise
        return EventStream(first, stream)
    return JSONResponse(await answer.whole())


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "the body must be a JSON object") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _encode(served: Served, request: GenerationRequest) -> list[list[int]]:
    """The prompts as tokens. Raises RequestError."""
    tokenizer = served.tokenizer
    if isinstance(request, ChatCompletionRequest):
        if not tokenizer.has_chat_template:
            raise RequestError(400, "this model has no chat template; use /v1/completions")
        try:
            prompts = [tokenizer.encode_chat([m.for_template() for m in request.messages])]
        except TemplateRefused as error:
            raise RequestError(400, str(error), param="messages") from error
    else:
        assert isinstance(request, CompletionRequest)
        prompts = [
            tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
            for prompt in request.prompts()
        ]
    for prompt in prompts:
        if not prompt:
            raise RequestError(400, "the prompt has no tokens", param="prompt")
        if max(prompt) >= tokenizer.vocab_size:
            raise RequestError(
                400, "the prompt has a token that the model does not know", param="prompt"
            )
    return prompts


def _max_tokens(served: Served, request: GenerationRequest, prompt: list[int]) -> int:
    """Tokens that may be generated. Raises RequestError when prompt and answer do not fit."""
    room = served.max_model_len - len(prompt)
    asked = request.asked_max_tokens()
    if room < 1 or (asked is not None and asked > room):
        wanted = f" and {asked} in the completion" if asked is not None else ""
        raise RequestError(
            400,
            f"This model's maximum context length is {served.max_model_len} tokens. However, you "
            f"requested {len(prompt)} tokens in the messages{wanted}. Please reduce the length of "
            "the messages or the completion.",
        )
    return room if asked is None else asked


def _request_id(http: Request) -> str:
    given = http.headers.get(REQUEST_ID_HEADER, "")
    return given if REQUEST_ID.match(given) else uuid.uuid4().hex


async def _body(http: Request) -> bytes:
    """The body, read no further than its cap."""
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RequestError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")
    return bytes(body)


async def _unless_gone(http: Request, work: Awaitable[T]) -> T:
    """`work`, cancelled as soon as the client leaves. Raises ClientGone then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(http.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A stream whose first event exists already. A client that leaves ends it at once."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        super().__init__()
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def relay() -> None:
            headers = [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async with aclosing(self._rest) as rest:
                async for event in rest:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        relaying = asyncio.ensure_future(relay())
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({relaying, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            relaying.cancel()
            await asyncio.gather(relaying, leaving, return_exceptions=True)
            await self._rest.aclose()


class Guard:
    """Outermost: the key check, on the path that was routed, and the request's id on the answer."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app = app
        self._digest = hashlib.sha256(api_key.encode()).digest() if api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._allowed(scope["path"], headers.get(b"authorization", b"")):
            body = error_body(401, "Invalid or missing API key.")
            await JSONResponse(body, 401)(scope, receive, send)
            return
        given = headers.get(REQUEST_ID_HEADER.encode(), b"")

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start" and REQUEST_ID.match(
                given.decode("latin-1")
            ):
                message["headers"] = [*message["headers"], (REQUEST_ID_HEADER.encode(), given)]
            await send(message)

        await self._app(scope, receive, with_id)

    def _allowed(self, path: str, authorization: bytes) -> bool:
        if self._digest is None or path in OPEN_PATHS:
            return True
        kind, _, key = authorization.partition(b" ")
        presented = hashlib.sha256(key if kind.lower() == b"bearer" else b"").digest()
        return hmac.compare_digest(presented, self._digest)
