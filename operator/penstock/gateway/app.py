"""The gateway's ASGI application: routes that are proxied to engines, and its own endpoints."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from penstock.clients import stats_report
from penstock.clients.clock import monotonic
from penstock.clients.logs import fields
from penstock.gateway.cancellation import CancelCause, Phase, RequestCancelled
from penstock.gateway.client import ClientDisconnected, ClientResponse
from penstock.gateway.gateway_state import GatewayState
from penstock.gateway.metrics import Metrics
from penstock.gateway.model_routing import claim_of
from penstock.gateway.openai import CHAT_PATH, RequestError, error_body, model, models
from penstock.gateway.proxied_request import ProxiedRequest
from penstock.gateway.retry_budget import RetryBudget
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot_store import SnapshotStore
from penstock.gateway.upstream import Upstream
from penstock_engine.wire import REQUEST_ID, REQUEST_ID_HEADER

if TYPE_CHECKING:
    from penstock.gateway.tracing import RequestTracer

logger = logging.getLogger(__name__)

ENGINE_ROUTES = (CHAT_PATH, "/v1/completions")
HTTP_PORT = 80  # clients leave it out of the Host header
# The stats report is for the operator, which requests it at the pod's own address. A request for another
# host, or with one of these headers, which proxies add, comes from outside the cluster.
PROXY_HEADERS = frozenset({"forwarded", "via", "x-forwarded-for", "x-real-ip"})


class Gateway:
    """A gateway without its socket: the application and its state.

    now: the monotonic clock. tracer: None if traces are not exported.
    """

    def __init__(
        self,
        snapshots: SnapshotStore,
        upstream: Upstream,
        settings: GatewaySettings,
        now: Callable[[], float] = monotonic,
        tracer: "RequestTracer | None" = None,
    ) -> None:
        self.loop_lag_s = 0.0
        self.state = GatewayState(
            snapshots=snapshots,
            upstream=upstream,
            settings=settings,
            metrics=Metrics(),
            retry_budget=RetryBudget(settings.retry_budget_fraction, settings.min_retries),
            now=now,
            tracer=tracer,
        )
        self.app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
                Route(stats_report.PATH, self._stats_report),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._model),
                *(Route(path, EngineRoute(self.state), methods=["POST"]) for path in ENGINE_ROUTES),
            ],
            exception_handlers={HTTPException: _http_error},
        )
        self.app.router.redirect_slashes = False

    def drain(self) -> None:
        """Become unready, and close each connection with its next response."""
        self.state.is_draining = True
        self.state.metrics.draining.set(1)

    def cancel_requests(self) -> None:
        """End every open request, with a 503 or with an error event in its stream."""
        for cancellation in list(self.state.cancel_scopes):
            cancellation.cancel(CancelCause.SHUTDOWN)

    def note_loop_lag(self, seconds: float) -> None:
        """Record how late the event loop is."""
        self.loop_lag_s = seconds
        self.state.metrics.loop_lag_s.set(seconds)

    async def _healthz(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "loop_lag_s": round(self.loop_lag_s, 4)})

    async def _readyz(self, _: Request) -> Response:
        if self.state.is_draining:
            return JSONResponse({"status": "draining"}, 503)
        if not self.state.snapshots.is_synced:
            return JSONResponse({"status": "services and engines are not known yet"}, 503)
        return JSONResponse({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        self.state.update_metrics()
        # In a thread: with many services it takes longer than the time between two tokens.
        accept = request.headers.get("accept", "")
        text, content_type = await asyncio.to_thread(self.state.metrics.render, accept)
        return Response(text, headers={"Content-Type": content_type})

    async def _stats_report(self, request: Request) -> Response:
        if PROXY_HEADERS & set(request.headers) or not _is_host_own_address(request):
            raise HTTPException(404, "Not Found")
        report = self.state.stats.report(self.state.snapshots.current)
        return Response(stats_report.encode(report), media_type="application/json")

    async def _models(self, _: Request) -> Response:
        return JSONResponse(models(self.state.snapshots.current))

    async def _model(self, request: Request) -> Response:
        snapshot, name = self.state.snapshots.current, request.path_params["name"]
        try:
            return JSONResponse(model(snapshot, name, claim_of(snapshot, name)))
        except RequestError as error:
            return Response(error.body(), error.status, media_type="application/json")


class EngineRoute:
    """The ASGI application of every route that is proxied to engines."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["path"] not in ENGINE_ROUTES
        ):  # Starlette's routes match a newline after the path too
            raise HTTPException(404, "Not Found")
        request_id = _request_id(scope)
        response = ClientResponse(send, request_id, closing=self._state.is_draining)
        proxied = ProxiedRequest(self._state, scope, response, request_id)
        try:
            await proxied.run(receive)
        except ClientDisconnected:
            proxied.note_disconnect(Phase.RECEIVING)
        except RequestError as error:
            await proxied.reject(error)
        except RequestCancelled as cancelled:
            await proxied.respond_to_cancellation(cancelled)
        except Exception:
            logger.exception("the gateway failed", extra=fields(request_id=request_id))
            if not response.has_begun:
                await proxied.reject(RequestError(500, "the gateway failed"))
        finally:
            proxied.close()


def _is_host_own_address(request: Request) -> bool:
    """Whether the Host header is the address that the connection was accepted at."""
    server = request.scope["server"]
    if server is None:
        return False
    host, port = server
    name = f"[{host}]" if ":" in host else host
    requested = request.headers.get("host")
    return requested == f"{name}:{port}" or (port == HTTP_PORT and requested == name)


def _request_id(scope: Scope) -> str:
    """The client's request id if engines accept it, else a new one."""
    header = REQUEST_ID_HEADER.encode()
    value = next((value for name, value in scope["headers"] if name == header), b"")
    text: str = value.decode("latin-1")
    return text if REQUEST_ID.fullmatch(text) else uuid.uuid4().hex


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = error_body(error.status_code, error.detail)
    return Response(body, error.status_code, dict(error.headers or {}), "application/json")
