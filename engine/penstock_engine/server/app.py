"""Builds the ASGI application with all HTTP routes of the engine."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.adapters.folders import AdapterFolders
from penstock_engine.server.handlers.handler import handle_request
from penstock_engine.server.handlers.middleware import RequestMiddleware
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import CompletionRequest
from penstock_engine.server.requests.dialects import Dialect, OpenAIDialect
from penstock_engine.server.routes.adapters import adapter_routes
from penstock_engine.server.routes.batch import BatchDialect
from penstock_engine.server.routes.embeddings import EmbeddingsDialect, PoolingDialect
from penstock_engine.server.routes.invocations import InvocationsDialect
from penstock_engine.server.routes.messages.answer import MessagesDialect
from penstock_engine.server.routes.messages.count import count_tokens_route
from penstock_engine.server.routes.openapi import openapi_document
from penstock_engine.server.routes.responses.routes import response_routes
from penstock_engine.server.routes.sleep import sleep_routes
from penstock_engine.server.routes.tokenization import tokenization_routes
from penstock_engine.server.transport.arriving_bodies import ClientDisconnected
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.lingering_close import LingeringClose

CLIENT_CLOSED_REQUEST = 499

# Formats of the routes that generate. /v1/responses, whose answers may be stored, has a module of its own.
DIALECTS: Mapping[str, Callable[[], Dialect]] = {
    "/invocations": InvocationsDialect,
    "/pooling": PoolingDialect,
    "/v1/chat/completions": partial(OpenAIDialect, ChatCompletionRequest),
    "/v1/chat/completions/batch": BatchDialect,
    "/v1/completions": partial(OpenAIDialect, CompletionRequest),
    "/v1/embeddings": EmbeddingsDialect,
    "/v1/messages": MessagesDialect,
}


def build_app(state: ServerState) -> ASGIApp:
    """Returns the application with the routes that the engine's flags enable."""
    app = FastAPI(title="Penstock engine", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.openapi = partial(openapi_document, state.options, state.config)  # type: ignore[method-assign]
    _add_error_handlers(app)
    _add_state_routes(app, state)

    _add_generation_routes(app, state)
    app.include_router(response_routes(state))
    app.include_router(tokenization_routes(state))
    if state.config.enable_lora:
        folders = AdapterFolders(state.options.lora_dir)
        app.include_router(adapter_routes(state.adapters, folders, state.bodies))
    if state.options.enable_sleep_mode:
        app.include_router(sleep_routes(state))
    counting = RequestMiddleware(app, state, {*DIALECTS, "/v1/responses"})
    return LingeringClose(_with_cors(counting, state.options))


def _add_generation_routes(app: FastAPI, state: ServerState) -> None:
    for path, make_dialect in DIALECTS.items():
        _add_generation_route(app, state, path, make_dialect)

    @app.post("/v1/messages/count_tokens")
    async def count_tokens(http: Request) -> Response:
        return await count_tokens_route(state, http)


def _add_generation_route(
    app: FastAPI, state: ServerState, path: str, make_dialect: Callable[[], Dialect]
) -> None:
    @app.post(path)
    async def answer(http: Request) -> Response:
        return await handle_request(state, http, make_dialect())


def _with_cors(app: ASGIApp, options: ServeOptions) -> ASGIApp:
    """Adds CORS for the allowed origins. It wraps the API key check, as a preflight has no key."""
    if not options.allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=options.allowed_origins,
        allow_methods=options.allowed_methods,
        allow_headers=options.allowed_headers,
        allow_credentials=options.allow_credentials,
    )


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> Response:
        return error.response()

    @app.exception_handler(ClientDisconnected)
    async def client_disconnected(_: Request, __: ClientDisconnected) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        answer = RequestError(error.status_code, error.detail).response()
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def internal_error(_: Request, __: Exception) -> Response:
        return RequestError(500, "the request failed inside the server").response()


def _add_state_routes(app: FastAPI, state: ServerState) -> None:
    @app.get("/health")
    @app.get("/ping")
    @app.post("/ping")
    async def health() -> Response:
        return Response(status_code=200 if state.engine.alive else 503)

    @app.get("/ready")
    async def ready() -> Response:
        if state.is_ready:
            return PlainTextResponse("ready")
        return PlainTextResponse(state.status, 503)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        common = {
            "object": "model",
            "created": state.created,
            "owned_by": "penstock",
            "root": state.model_name,
            "parent": None,
            "max_model_len": state.memory_plan.max_model_len,
        }
        own = [{"id": name} | common for name in state.model_names]
        adapted = [common | card for card in state.adapters.model_cards()]
        return {"object": "list", "data": own + adapted}

    @app.get("/metrics")
    async def metrics(http: Request) -> Response:
        body, content_type = state.metrics.exposition(http.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> Response:
        await state.engine.reset_prefix_cache()
        return Response()

    @app.get("/load")
    async def load() -> dict[str, int]:
        return {"server_load": state.in_flight}

    @app.get("/version")
    async def engine_version() -> dict[str, str]:
        return {"version": version("penstock")}
