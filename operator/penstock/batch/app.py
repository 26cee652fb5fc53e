"""The batch server's applications: for gateways, and for probes and metrics."""

import logging
from collections.abc import Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.batch.api.batches import BatchRoutes
from penstock.batch.api.caller import check_caller
from penstock.batch.api.errors import ApiError
from penstock.batch.api.files import FileRoutes
from penstock.batch.running.runner import BatchRunner
from penstock.batch.settings import BatchSettings
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.object_store import NotStored, StoreError
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.batch.telemetry import BatchMetrics
from penstock.clients.metrics.page import MetricsPage
from penstock.core.batches.shared_token import SharedToken

logger = logging.getLogger(__name__)


def api_app(
    catalog: Catalog,
    storage: TenantStorage,
    runner: BatchRunner,
    settings: BatchSettings,
    token: SharedToken,
    now: Callable[[], float],
) -> web.Application:
    """Make the application for gateways. token: that they share. now: Unix time."""
    app = web.Application(middlewares=[_answer_errors, check_caller(token)])
    routes: Sequence[web.RouteDef] = (
        *FileRoutes(catalog, storage, settings, now).routes(),
        *BatchRoutes(catalog, storage, runner, settings, now).routes(),
    )
    app.add_routes(routes)
    return app


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors in the form of the API."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:  # the path or the method
        return ApiError(
            error.status, f"{request.method} {request.path[:200]}: {error.reason}"
        ).response()
    except NotStored:
        return ApiError(404, "the file was deleted").response()
    except StoreError as error:
        logger.warning("a request fails: %s", error)
        return ApiError(503, "the store of batches cannot be used now: try again later").response()
    except (ConnectionError, OSError):
        raise
    except Exception:
        logger.exception("the batch server failed")
        return ApiError(500, "the batch server failed").response()


class Management:
    """Endpoints for kubelet and Prometheus. is_ready: whether this process leads."""

    def __init__(self, metrics: BatchMetrics) -> None:
        self.is_ready = False
        self._page = MetricsPage(metrics.render)

    def app(self) -> web.Application:
        """Make the application."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        return app

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        if not self.is_ready:
            return web.json_response(
                {"status": "another process leads, or has just ended"}, status=503
            )
        return web.json_response({"status": "ok"})

    async def _metrics(self, request: web.Request) -> web.Response:
        text, content_type = await self._page.get(request.headers.get("accept", ""))
        return web.Response(body=text, headers={"Content-Type": content_type})
