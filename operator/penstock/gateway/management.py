"""The gateway's management endpoints: health, readiness, metrics and the stats report."""

from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from penstock.clients.metrics.page import MetricsPage
from penstock.clients.pods import stats_report, usage_report, wake_poll
from penstock.clients.pods.usage_report import MAX_DAYS
from penstock.gateway.quotas.store import StoreFailed
from penstock.gateway.quotas.usage import read_usage
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
            Route(usage_report.PATH, self._usage),
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

    async def _usage(self, request: Request) -> Response:
        """Report the ledger of usage. Queries: from_day, since the epoch; days, their number."""
        store = self._state.quotas.store
        if store is None:
            message = "the gateway has no store (--quota-store), so there is no ledger of usage"
            return PlainTextResponse(message, 404)
        from_day, num_days = (request.query_params.get(name, "") for name in ("from_day", "days"))
        if not (_is_count(from_day) and _is_count(num_days)) or int(num_days) > MAX_DAYS:
            message = f"send from_day, a day since the epoch, and days, at most {MAX_DAYS}"
            return PlainTextResponse(message, 400)
        try:
            rows = await read_usage(store, int(from_day), int(num_days))
        except StoreFailed as error:
            return PlainTextResponse(f"the quota store does not answer: {error}", 503)
        return Response(usage_report.encode(rows), media_type="application/json")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6


def management_app(state: GatewayState) -> Starlette:
    """Make the ASGI application of the management endpoints."""
    app = Starlette(routes=ManagementEndpoints(state).routes())
    app.router.redirect_slashes = False
    return app
