"""The routes of the Responses API."""

import logging
import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from penstock_engine.server.answers.answer import Answer
from penstock_engine.server.handlers.handler import handle_request, respond
from penstock_engine.server.handlers.response_store import ResponseStore
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.requests.dialects import Dialect
from penstock_engine.server.routes.responses.answer import ResponsesDialect
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import encode

logger = logging.getLogger(__name__)

JSON = "application/json"


def response_routes(state: ServerState) -> APIRouter:
    """Returns the routes. Those of stored responses exist only if responses are stored."""
    router = APIRouter()

    @router.post("/v1/responses")
    async def create(http: Request) -> Response:
        dialect = ResponsesDialect(http.scope["request_id"], int(time.time()), state.responses)

        async def finish(_: Dialect, answer: Answer) -> Response:
            if dialect.is_background and state.responses is not None:
                return _start_background(state, state.responses, dialect, answer)
            return await respond(dialect, answer)

        return await handle_request(state, http, dialect, finish)

    store = state.responses
    if store is not None:

        @router.get("/v1/responses/{response_id}")
        async def retrieve(response_id: str, http: Request) -> Response:
            for name in ("stream", "starting_after"):
                if http.query_params.get(name, "false") != "false":
                    raise RequestError(400, f"{name} is not supported: poll instead", param=name)
            return Response(store.get(response_id).body, media_type=JSON)

        @router.post("/v1/responses/{response_id}/cancel")
        async def cancel(response_id: str) -> Response:
            return Response(await store.cancel(response_id), media_type=JSON)

    return router


def _start_background(
    state: ServerState, store: ResponseStore, dialect: ResponsesDialect, answer: Answer
) -> Response:
    """Starts a background response, which counts as in flight, and returns its initial state."""

    def end(_: object) -> None:
        state.in_flight -= 1

    body = dialect.initial_response("queued", answer.generator.model)
    store.put(body, dialect.items)
    state.in_flight += 1
    store.start(body["id"], _compute(store, dialect, answer)).add_done_callback(end)
    return Response(encode(body), media_type=JSON)


async def _compute(store: ResponseStore, dialect: ResponsesDialect, answer: Answer) -> None:
    model = answer.generator.model
    try:
        store.put(dialect.initial_response("in_progress", model), dialect.items)
        await respond(dialect, answer)  # the dialect stores the response
    except RequestError as error:
        store.put(dialect.failed_response(model, error), dialect.items)
    except Exception:
        logger.exception("a background response failed")
        failure = RequestError(500, "the request failed inside the server")
        store.put(dialect.failed_response(model, failure), dialect.items)
