"""The gateway's management endpoints: health, readiness, metrics and the stats report."""

from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from penstock.clients.metrics.page import MetricsPage
from penstock.clients.pods import stats_report, wake_poll
from penstock.gateway.state.gateway_state import GatewayState


class ManagementEndpoints:
    """Endpoints for kubelet, Prometheus and the operator, about one gateway."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._page = MetricsPage(state.metrics.render, state.update_metrics)

    def routes(self) -> list[Route]:
        """The routes of all endpoints."""
        return [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route(stats_report.PATH, self._stats_report),
            Route(wake_poll.PATH, self._wake_poll),
        ]

    async def _healthz(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "loop_lag_s": round(self._state.loop_lag_s, 4)})

    async def _readyz(self, _: Request) -> Response:
        if self._state.is_draining:
            return JSONResponse({"status": "draining"}, 503)
        if not self._state.snapshots.is_synced:
            return JSONResponse({"status": "services and engines are not known yet"}, 503)
        if not self._state.authenticator.is_synced:
            return JSONResponse({"status": "tenants and their API keys are not known yet"}, 503)
        return JSONResponse({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        text, content_type = await self._page.get(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    async def _stats_report(self, _: Request) -> Response:
        report = replace(
            self._state.stats.report(self._state.snapshots.current),
            tenants=self._state.authenticator.tenants.generations,
        )
        return Response(stats_report.encode(report), media_type="application/json")

    async def _wake_poll(self, request: Request) -> Response:
        """Answer when a request comes for a service at zero, or without one after some time."""
        token = request.query_params.get(wake_poll.TOKEN, "")
        return PlainTextResponse(await self._state.wake_calls.wait(token, wake_poll.POLL_S))


def management_app(state: GatewayState) -> Starlette:
    """Make the ASGI application of the management endpoints."""
    app = Starlette(routes=ManagementEndpoints(state).routes())
    app.router.redirect_slashes = False
    return app
