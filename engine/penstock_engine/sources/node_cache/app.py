"""HTTP routes of the server of a node's cache. Any pod that mounts the folder can send requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock_engine.contract.model_source import (
    MAX_URI_LENGTH,
    ModelSource,
    parse_model_source,
)
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.fetch import StoredModel
from penstock_engine.sources.node_cache.allowed import AllowedPrefix, is_allowed
from penstock_engine.sources.node_cache.fetches import Fetch, Fetches, TooManyFetches
from penstock_engine.sources.node_cache.holds import Holds
from penstock_engine.sources.node_cache.routes import (
    FETCH_PATH,
    HEALTH_PATH,
    HEARTBEAT_S,
    HOLD_PATH,
    PROGRESS_S,
)
from penstock_engine.sources.storage.lease import MAX_LEFT_S

MAX_BODY_BYTES = 4096  # of a request: a URI of 2048 characters, half of them escaped
BODY_TIMEOUT_S = 10.0  # in which a body has to arrive
# Requests at a time. A node has at most 250 pods or so, most of which serve no model.
MAX_REQUESTS = 256
# Requests of these that last: holds, and fetches that wait for their models. The rest is for those that are
# refused, so that a pod with many connections cannot keep others from extending their holds.
MAX_HOLDS, MAX_WAITING = 128, 96
# Time for which a model stays whose hold is refused, in seconds: its holder asks again every 3 s.
REFUSED_HOLD_S = 60.0

Uri = Annotated[str, Field(max_length=MAX_URI_LENGTH)]
Content = TypeVar("Content", bound=BaseModel)


class _FetchRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    uri: Uri
    hold_seconds: Annotated[float, Field(ge=0, le=MAX_LEFT_S, allow_inf_nan=False)] = 0.0


class _HoldRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    resolved_uri: Uri


class _Refusal(Exception):
    """A request is refused. message: for the log of the pod."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def build_app(allowed: Sequence[AllowedPrefix], fetches: Fetches, holds: Holds) -> ASGIApp:
    """The application of a server. allowed: beginnings of the URIs that it fetches."""

    async def fetch(request: Request) -> Response:
        wanted = await _read(request, _FetchRequest)
        source = _source(wanted.uri)
        if not is_allowed(source, allowed):
            raise _Refusal(
                403, "its server does not fetch from this source: --allow does not name it"
            )
        if fetches.num_waiting >= MAX_WAITING:
            raise _Refusal(503, "as many pods wait for its fetches as may at a time")
        try:
            joined, is_first = fetches.join(source)
        except TooManyFetches as error:
            raise _Refusal(503, "its server has reached its limit of parallel fetches") from error
        lines = _fetch_lines(joined, holds, wanted.hold_seconds, is_first=is_first)
        return _LineStream(lines, lambda: run_in_threadpool(fetches.leave, joined))

    async def hold(request: Request) -> Response:
        wanted = await _read(request, _HoldRequest)
        source = _source(wanted.resolved_uri)
        await run_in_threadpool(_take_hold, holds, source)
        return _LineStream(_heartbeats(), lambda: run_in_threadpool(holds.release, source))

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    return _RequestLimit(
        Starlette(
            routes=[
                Route(FETCH_PATH, fetch, methods=["POST"]),
                Route(HOLD_PATH, hold, methods=["POST"]),
                Route(HEALTH_PATH, health),
            ],
            exception_handlers={_Refusal: _refuse, ClientDisconnect: _end},
        )
    )


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, _Refusal)
    return JSONResponse({"message": error.message}, error.status)


async def _end(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _read(request: Request, kind: type[Content]) -> Content:
    """The content of a request. Raises _Refusal."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise _Refusal(413, f"a request has at most {MAX_BODY_BYTES} bytes")
        return kind.model_validate_json(bytes(body))
    except TimeoutError as error:
        raise _Refusal(408, "the request did not arrive in time") from error
    except ValidationError as error:
        names = ", ".join(kind.model_fields)
        raise _Refusal(400, f"the request has to be JSON with {names}") from error


def _source(uri: str) -> ModelSource:
    """The source of a request. Raises _Refusal."""
    try:
        return parse_model_source(uri)
    except ValueError as error:
        raise _Refusal(400, str(error)) from error


def _take_hold(holds: Holds, source: ModelSource) -> None:
    """Hold a model, or keep it for a time if there are too many holds. Raises _Refusal, OSError."""
    is_full = holds.num_connections >= MAX_HOLDS
    if is_full and holds.keep(source, REFUSED_HOLD_S):
        raise _Refusal(
            503,
            "its server has as many holds as it may, so this model stays for "
            f"{REFUSED_HOLD_S:.0f} s unless it is held again",
        )
    if is_full or not holds.take(source):
        raise _Refusal(404, "the cache has no such model")


async def _fetch_lines(
    fetch: Fetch, holds: Holds, hold_s: float, *, is_first: bool
) -> AsyncIterator[bytes]:
    """Yield the progress of a fetch, and its result.

    is_first: whether this request started the fetch. The downloaded bytes are reported to it alone.
    """
    done = asyncio.wrap_future(fetch.result)
    while not (await asyncio.wait({done}, timeout=PROGRESS_S))[0]:
        progress = asdict(fetch.progress.state())
        yield _line({"progress": progress if is_first else progress | {"downloaded_bytes": 0}})
    model = done.result()
    if isinstance(model, FetchError):
        yield _line({"failure": {"reason": model.reason, "message": model.message}})
        return
    if hold_s > 0:
        await run_in_threadpool(holds.extend, model.folder, hold_s)
    yield _line({"result": _result(model, fetch, is_first=is_first)})


def _result(model: StoredModel, fetch: Fetch, *, is_first: bool) -> dict[str, Any]:
    return {
        "manifest": asdict(model.manifest),
        "downloaded_bytes": fetch.progress.downloaded_bytes if is_first else 0,
        "num_cache_hits": model.num_cache_hits if is_first else len(model.manifest.files),
    }


async def _heartbeats() -> AsyncIterator[bytes]:
    while True:
        yield _line({"held": True})
        await asyncio.sleep(HEARTBEAT_S)


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


class _LineStream(StreamingResponse):
    """An answer of lines. at_end: called when the answer ends, also if the client disconnects."""

    def __init__(self, lines: AsyncIterator[bytes], at_end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(lines, media_type="application/x-ndjson")
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._at_end()


class _RequestLimit:
    """Refuses requests beyond MAX_REQUESTS open ones."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._num_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._num_open >= MAX_REQUESTS:
            refusal = JSONResponse({"message": "its server has too many connections"}, 503)
            await refusal(scope, receive, send)
            return
        self._num_open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._num_open -= 1
