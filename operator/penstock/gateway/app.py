"""The gateway's ASGI applications: for clients, and for probes, metrics and the operator."""

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.clients.machine.clock import monotonic
from penstock.clients.machine.logs import fields
from penstock.core.batches.shared_token import SharedToken
from penstock.core.routing.apis import (
    APIS,
    BATCH_ROUTES,
    RESPONSES,
    STORED_RESPONSE_ROUTES,
    Api,
    error_form,
)
from penstock.gateway.apis.errors import RequestError, error_body
from penstock.gateway.apis.model_list import ModelList, model
from penstock.gateway.http.certificate import ServedCertificate
from penstock.gateway.http.client import ClientDisconnected, ClientResponse
from penstock.gateway.http.cors import Cors
from penstock.gateway.http.headers import request_id_of
from penstock.gateway.http.servers import HttpServers, http_servers
from penstock.gateway.limits.retry_budget import RetryBudget
from penstock.gateway.management import management_app
from penstock.gateway.proxy.authentication import Authentication, caller_of
from penstock.gateway.proxy.batch_request import BatchRequest
from penstock.gateway.proxy.proxied_request import ProxiedRequest
from penstock.gateway.proxy.stored_response import StoredResponseRequest
from penstock.gateway.quotas.store import Store
from penstock.gateway.request_lifecycle.cancellation import CancelCause, RequestCancelled
from penstock.gateway.request_lifecycle.timeline import RequestPhase
from penstock.gateway.selection.model_routing import claim_of
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.state.batch_server import BatchServer
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.tenants.authorization import ModelAccess
from penstock.gateway.tenants.batch_lines import BatchLines
from penstock.gateway.tenants.token_reviews import Review, no_review
from penstock.gateway.upstream.upstream import Upstream

if TYPE_CHECKING:
    from penstock.gateway.telemetry.tracing import RequestTracer

logger = logging.getLogger(__name__)

# Most characters of a path that an error repeats, which could be 32 KiB.
MAX_PATH_CHARACTERS = 200
# Identifiers of files and batches, or none: no other text becomes part of a path to the batch server.
IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{0,64}")


class Gateway:
    """A gateway without its sockets: the applications and their state.

    app: for clients. routes: those of app. management_app: for probes, metrics and the operator. now: the
    monotonic clock. tracer: None if traces are not exported. review: sends TokenReviews. quota_store: of
    limits that gateways share; None: each has an equal part of a limit.
    """

    def __init__(
        self,
        snapshots: SnapshotStore,
        upstream: Upstream,
        settings: GatewaySettings,
        now: Callable[[], float] = monotonic,
        tracer: "RequestTracer | None" = None,
        review: Review = no_review,
        quota_store: Store | None = None,
    ) -> None:
        self.state = GatewayState(
            snapshots=snapshots,
            upstream=upstream,
            settings=settings,
            metrics=Metrics(),
            retry_budget=RetryBudget(settings.retry_budget_fraction, settings.min_retries),
            now=now,
            tracer=tracer,
            review=review,
            quota_store=quota_store,
        )
        self._model_list = ModelList()
        engine_routes = {api.path: EngineRoute(self.state, api) for api in APIS}
        routes = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._model),
                *(Route(path, app, methods=["POST"]) for path, app in engine_routes.items()),
                *(
                    Route(path, StoredResponseRoute(self.state, path), methods=methods)
                    for path, methods in STORED_RESPONSE_ROUTES.items()
                ),
                *(
                    Route(path, BatchApplication(self.state, path), methods=route.methods)
                    for path, route in BATCH_ROUTES.items()
                ),
            ],
            exception_handlers={HTTPException: _http_error},
        )
        routes.router.redirect_slashes = False
        self.routes = routes.routes
        self.app: ASGIApp = Authentication(self.state, routes, engine_routes)
        self.management_app = management_app(self.state)

    def http_servers(self, certificate: ServedCertificate | None = None) -> HttpServers:
        """Make the servers of both applications. They do not listen yet.

        certificate: for TLS with clients; None: without TLS.
        """
        settings = self.state.settings
        app = Cors(self.app, settings.cors_origins) if settings.cors_origins else self.app
        return http_servers(app, self.management_app, settings, certificate)

    def serve_batches(self, token: SharedToken) -> None:
        """Relay requests about files and batches, and take the lines of batches.

        token: that gateways and the batch server share.
        """
        self.state.batch_server = BatchServer(self.state.settings.batch_url, token)
        self.state.authenticator.batch_lines = BatchLines(token)

    def drain(self) -> None:
        """Become unready, and close each connection with its next response."""
        self.state.is_draining = True
        self.state.metrics.draining.set(1)
        self.state.wake_calls.close()

    def cancel_requests(self) -> None:
        """End every open request, with a 503 or with an error event in its stream."""
        for cancellation in list(self.state.cancel_scopes):
            cancellation.cancel(CancelCause.SHUTDOWN)

    def note_loop_lag(self, seconds: float) -> None:
        """Record how late the event loop is."""
        self.state.loop_lag_s = seconds
        self.state.metrics.loop_lag_s.set(seconds)

    async def _models(self, request: Request) -> Response:
        access = ModelAccess(caller_of(request.scope).tenant)
        body = self._model_list.body(self.state.snapshots.current, access.allows)
        return Response(body, media_type="application/json")

    async def _model(self, request: Request) -> Response:
        snapshot, name = self.state.snapshots.current, request.path_params["name"]
        access = ModelAccess(caller_of(request.scope).tenant)
        try:
            claim = claim_of(snapshot, name, access)
            return JSONResponse(model(snapshot, name, claim, access.allows))
        except RequestError as error:
            return Response(error.body(), error.status, media_type="application/json")


class EngineRoute:
    """The ASGI application of a route that is proxied to engines."""

    def __init__(self, state: GatewayState, api: Api) -> None:
        self._state = state
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != self._api.path:  # Starlette's routes match a newline after the path too
            raise HTTPException(404, "Not Found")
        request_id = request_id_of(scope)
        response = ClientResponse(
            send, request_id, closing=self._state.is_draining, errors=self._api.errors
        )
        proxied = ProxiedRequest(self._state, self._api, scope, response, request_id)
        await _run(proxied, receive, response, request_id)


class StoredResponseRoute:
    """The ASGI application of a route about one stored response. route: the path with its parameter."""

    def __init__(self, state: GatewayState, route: str) -> None:
        self._state = state
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response_id = scope["path_params"]["response_id"]
        if scope["path"] != self._route.format(response_id=response_id):
            raise HTTPException(404, "Not Found")
        request_id = request_id_of(scope)
        response = ClientResponse(
            send, request_id, closing=self._state.is_draining, errors=RESPONSES.errors
        )
        stored = StoredResponseRequest(
            self._state, self._route, response_id, scope, response, request_id
        )
        await _run(stored, receive, response, request_id)


class BatchApplication:
    """The ASGI application of a route of files or batches. route: the path with its parameter."""

    def __init__(self, state: GatewayState, route: str) -> None:
        self._state = state
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identifier = scope["path_params"].get("id", "")
        if scope["path"] != self._route.format(id=identifier) or not IDENTIFIER.fullmatch(
            identifier
        ):
            raise HTTPException(404, "Not Found")
        request_id = request_id_of(scope)
        response = ClientResponse(send, request_id, closing=self._state.is_draining)
        request = BatchRequest(self._state, self._route, scope, response, request_id)
        await _run(request, receive, response, request_id)


async def _run(
    proxied: ProxiedRequest | StoredResponseRequest | BatchRequest,
    receive: Receive,
    response: ClientResponse,
    request_id: str,
) -> None:
    """Run a request to its end, whatever happens."""
    try:
        await proxied.run(receive)
    except ClientDisconnected:
        proxied.note_disconnect(RequestPhase.RECEIVE)
    except RequestError as error:
        await proxied.reject(error)
    except RequestCancelled as cancelled:
        await proxied.respond_to_cancellation(cancelled)
    except Exception:
        logger.exception("the gateway failed", extra=fields(request_id=request_id))
        if not response.is_started:
            await proxied.reject(RequestError(500, "the gateway failed"))
    finally:
        proxied.close()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers, path = dict(error.headers or {}), request.scope["path"][:MAX_PATH_CHARACTERS]
    message = error.detail
    if error.status_code == 404:
        message = _no_route(request.method, path)
    elif error.status_code == 405:
        message = f"{path} does not take {request.method}; send {headers['Allow']}"
    form = error_form(path)
    body = error_body(error.status_code, message, form=form)
    return Response(body, error.status_code, headers, "application/json")


def _no_route(method: str, path: str) -> str:
    """The error of a path that the gateway does not have. Engines may have it."""
    return (
        f"the gateway has no route {method} {path}; it relays {', '.join(api.path for api in APIS)} "
        "to engines, and has /v1/models"
    )
