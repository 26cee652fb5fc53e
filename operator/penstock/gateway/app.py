"""The gateway's ASGI application: what engines answer, and what it answers itself."""

import logging
import uuid
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from penstock.clients import feed as feeds
from penstock.clients.clock import monotonic
from penstock.gateway.client import ClientLeft, Reply
from penstock.gateway.exchange import Exchange
from penstock.gateway.fleet import Fleet
from penstock.gateway.guard import Cause, Interrupted, Phase
from penstock.gateway.load import RetryBudget
from penstock.gateway.metrics import Metrics
from penstock.gateway.openai import CHAT_PATH, Refused, error_body, models
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.shared import Shared
from penstock.gateway.upstream import Upstream
from penstock_engine.wire import REQUEST_ID, REQUEST_ID_HEADER

logger = logging.getLogger(__name__)

ENGINE_ROUTES = (CHAT_PATH, "/v1/completions")
# The feed is for the operator, which requests it at the pod's own address. A request for another host
# or through a proxy comes from outside the cluster.
HTTP_PORT = 80  # clients leave it out of the Host header
PROXIED = frozenset({"forwarded", "via", "x-forwarded-for", "x-real-ip"})


class Gateway:
    """All of a gateway but its socket."""

    def __init__(
        self,
        fleet: Fleet,
        upstream: Upstream,
        settings: GatewaySettings,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.loop_lag_s = 0.0
        self.shared = Shared(
            fleet=fleet,
            upstream=upstream,
            settings=settings,
            metrics=Metrics(),
            budget=RetryBudget(settings.retry_budget_fraction, settings.min_retries),
            now=now,
        )
        self.app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
                Route(feeds.PATH, self._feed),
                Route("/v1/models", self._models),
                *(
                    Route(path, EngineRoute(self.shared), methods=["POST"])
                    for path in ENGINE_ROUTES
                ),
            ],
            exception_handlers={HTTPException: _http_error},
        )
        self.app.router.redirect_slashes = False

    def drain(self) -> None:
        """Be unready from now on, and let go of connections as their answers end."""
        self.shared.is_draining = True

    def stop(self) -> None:
        """End every request that is left: with a 503, or an error event in its stream."""
        for guard in list(self.shared.guards):
            guard.interrupt(Cause.SHUTDOWN)

    def note_loop_lag(self, seconds: float) -> None:
        self.loop_lag_s = seconds
        self.shared.metrics.loop_lag_s.set(seconds)

    async def _healthz(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "loop_lag_s": round(self.loop_lag_s, 4)})

    async def _readyz(self, _: Request) -> Response:
        if self.shared.is_draining:
            return JSONResponse({"status": "draining"}, 503)
        if not self.shared.fleet.is_synced:
            return JSONResponse({"status": "services and engines are not known yet"}, 503)
        return JSONResponse({"status": "ok"})

    async def _metrics(self, _: Request) -> Response:
        if self.shared.fleet.is_synced:
            self.shared.metrics.keep_only(self.shared.fleet.snapshot.revisions())
        return Response(self.shared.metrics.render(), media_type="text/plain; version=0.0.4")

    async def _feed(self, request: Request) -> Response:
        if PROXIED & set(request.headers) or not _is_asked_by_address(request):
            raise HTTPException(404, "Not Found")
        feed = self.shared.accounts.feed(self.shared.fleet.snapshot.services)
        return Response(feeds.write(feed), media_type="application/json")

    async def _models(self, _: Request) -> Response:
        return JSONResponse(models(self.shared.fleet.snapshot))


class EngineRoute:
    """The ASGI application of every route that engines answer."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = _request_id(scope)
        reply = Reply(send, request_id, closing=self._shared.is_draining)
        exchange = Exchange(self._shared, scope, reply, request_id)
        try:
            await exchange.run(receive)
        except ClientLeft:
            exchange.left(Phase.RECEIVING)
        except Refused as refused:
            await reply.refuse(refused)
        except Interrupted as end:
            await exchange.interrupted(end)
        except Exception:
            logger.exception("request %s failed", request_id)
            if not reply.has_begun:
                await reply.refuse(Refused(500, "the gateway failed"))
        finally:
            exchange.account()


def _is_asked_by_address(request: Request) -> bool:
    """Whether the Host header is the address that the connection was accepted at."""
    server = request.scope["server"]
    if server is None:
        return False
    host, port = server
    name = f"[{host}]" if ":" in host else host
    asked = request.headers.get("host")
    return asked == f"{name}:{port}" or (port == HTTP_PORT and asked == name)


def _request_id(scope: Scope) -> str:
    wanted = REQUEST_ID_HEADER.encode()
    given = next((value for name, value in scope["headers"] if name == wanted), b"")
    text: str = given.decode("latin-1")
    return text if REQUEST_ID.fullmatch(text) else uuid.uuid4().hex


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = error_body(error.status_code, error.detail)
    return Response(body, error.status_code, dict(error.headers or {}), "application/json")
