"""The engine's HTTP routes."""

import asyncio
import time
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from penstock_engine.server.answer_form import constrain
from penstock_engine.server.answers import Answer, Kind
from penstock_engine.server.bridge import now_s
from penstock_engine.server.door import Door
from penstock_engine.server.errors import RequestError
from penstock_engine.server.generation import Generator
from penstock_engine.server.intake import ClientGone, read_body, take_in
from penstock_engine.server.served import Served
from penstock_engine.server.streaming import EventStream, unless_gone

CLIENT_CLOSED_REQUEST = 499


def build_app(served: Served, api_key: str | None = None) -> ASGIApp:
    app = FastAPI(title="Penstock engine", openapi_url=None)
    _add_errors(app)
    _add_state(app, served)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        model = {
            "id": served.model_name,
            "object": "model",
            "created": served.created,
            "owned_by": "penstock",
            "root": served.model_name,
            "parent": None,
            "max_model_len": served.sizing.max_model_len,
        }
        return {"object": "list", "data": [model]}

    @app.post("/v1/chat/completions")
    async def chat_completions(http: Request) -> Response:
        return await _generate(served, http, "chat")

    @app.post("/v1/completions")
    async def completions(http: Request) -> Response:
        return await _generate(served, http, "completion")

    return Door(app, served, api_key)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return error.response()

    @app.exception_handler(ClientGone)
    async def gone(_: Request, __: ClientGone) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    @app.exception_handler(HTTPException)
    async def not_routed(_: Request, error: HTTPException) -> Response:
        answer = RequestError(error.status_code, error.detail).response()
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return RequestError(500, "the request failed inside the server").response()


def _add_state(app: FastAPI, served: Served) -> None:
    @app.get("/health")
    @app.get("/ping")
    @app.post("/ping")
    async def health() -> Response:
        return Response(status_code=200 if served.bridge.alive else 503)

    @app.get("/ready")
    async def ready() -> Response:
        if served.is_ready:
            return PlainTextResponse("ready")
        return PlainTextResponse("draining" if served.is_draining else "engine stopped", 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(served.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/version")
    async def engine_version() -> dict[str, str]:
        return {"version": version("penstock")}


async def _generate(served: Served, http: Request, kind: Kind) -> Response:
    arrival_s = now_s()
    if not served.is_ready:
        raise RequestError(503, "the engine is stopping: try again")
    if served.is_full:
        served.metrics.rejected("max_num_queued_reqs")
        raise RequestError(503, "the engine's queue is full: try again")
    raw = await read_body(http)
    return await unless_gone(http.receive, _respond(served, http, kind, raw, arrival_s))


async def _respond(
    served: Served, http: Request, kind: Kind, raw: bytes, arrival_s: float
) -> Response:
    request, choices, form = await asyncio.to_thread(take_in, served, kind, raw, arrival_s)
    await constrain(choices, form, served.grammars)
    generator = Generator(
        bridge=served.bridge,
        tokenizer=served.tokenizer,
        request=request,
        model=served.model_name,
        request_id=request.request_id or http.scope["request_id"],
        shows_special=form.shows_special,
    )
    answer = Answer(kind, generator, form, choices, int(time.time()))
    if not request.stream:
        return JSONResponse(await answer.whole())
    events = answer.stream()
    try:
        # Only now is it certain that there will be an answer, and so that its status is 200.
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events)
