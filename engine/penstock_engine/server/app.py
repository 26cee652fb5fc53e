"""The engine's HTTP routes."""

from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from penstock_engine.serve_options import ServeOptions
from penstock_engine.server.adapter_routes import adapter_routes
from penstock_engine.server.batch import BatchDialect
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.description import description
from penstock_engine.server.dialects import OpenAIDialect
from penstock_engine.server.door import Door
from penstock_engine.server.embeddings import EmbeddingsDialect, PoolingDialect
from penstock_engine.server.errors import RequestError
from penstock_engine.server.exchange import exchange
from penstock_engine.server.intake import ClientGone
from penstock_engine.server.invocations import InvocationsDialect
from penstock_engine.server.messages.answer import MessagesDialect
from penstock_engine.server.messages.count import counted
from penstock_engine.server.responses.routes import response_routes
from penstock_engine.server.schemas import CompletionRequest
from penstock_engine.server.served import Served
from penstock_engine.server.sleep import sleeping
from penstock_engine.server.tokenization import tokenization

CLIENT_CLOSED_REQUEST = 499


def build_app(served: Served) -> ASGIApp:
    app = FastAPI(title="Penstock engine", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.openapi = partial(description, served.options, served.config)  # type: ignore[method-assign]
    _add_errors(app)
    _add_state(app, served)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        common = {
            "object": "model",
            "created": served.created,
            "owned_by": "penstock",
            "root": served.model_name,
            "parent": None,
            "max_model_len": served.sizing.max_model_len,
        }
        own = [{"id": name} | common for name in served.model_names]
        adapted = [common | card for card in served.adapters.cards()]
        return {"object": "list", "data": own + adapted}

    @app.post("/v1/chat/completions")
    async def chat_completions(http: Request) -> Response:
        return await exchange(served, http, OpenAIDialect(ChatCompletionRequest))

    @app.post("/v1/chat/completions/batch")
    async def chat_completions_batch(http: Request) -> Response:
        return await exchange(served, http, BatchDialect())

    @app.post("/v1/completions")
    async def completions(http: Request) -> Response:
        return await exchange(served, http, OpenAIDialect(CompletionRequest))

    @app.post("/v1/embeddings")
    async def embeddings(http: Request) -> Response:
        return await exchange(served, http, EmbeddingsDialect())

    @app.post("/pooling")
    async def pooling(http: Request) -> Response:
        return await exchange(served, http, PoolingDialect())

    @app.post("/invocations")
    async def invocations(http: Request) -> Response:
        return await exchange(served, http, InvocationsDialect())

    @app.post("/v1/messages")
    async def messages(http: Request) -> Response:
        return await exchange(served, http, MessagesDialect())

    @app.post("/v1/messages/count_tokens")
    async def count_tokens(http: Request) -> Response:
        return await counted(served, http)

    app.include_router(response_routes(served))
    app.include_router(tokenization(served))
    if served.config.enable_lora:
        app.include_router(adapter_routes(served.adapters))
    if served.options.enable_sleep_mode:
        app.include_router(sleeping(served))
    return _for_pages(Door(app, served), served.options)


def _for_pages(app: ASGIApp, options: ServeOptions) -> ASGIApp:
    """Lets pages of the allowed origins call. Outside the door: a preflight carries no key."""
    if not options.allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=options.allowed_origins,
        allow_methods=options.allowed_methods,
        allow_headers=options.allowed_headers,
        allow_credentials=options.allow_credentials,
    )


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
        return PlainTextResponse(served.state, 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(served.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> Response:
        await served.bridge.reset_prefix_cache()
        return Response()

    @app.get("/load")
    async def load() -> dict[str, int]:
        return {"server_load": served.in_flight}

    @app.get("/version")
    async def engine_version() -> dict[str, str]:
        return {"version": version("penstock")}
