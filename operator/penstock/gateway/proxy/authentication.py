"""Lets requests of tenants in: the first application that a request meets, whatever its path."""

from collections.abc import Mapping
from typing import cast

from starlette.applications import Starlette
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.routing.apis import error_form
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.http.client import ClientResponse
from penstock.gateway.http.headers import client_address, request_id_of
from penstock.gateway.proxy.request_telemetry import RequestTelemetry
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.tenants.authorization import check_suspension
from penstock.gateway.tenants.caller import ANYONE, Caller
from penstock.observability.metrics.gateway import OTHER_ROUTE

# Where routes find the caller in the ASGI scope.
CALLER = "penstock.caller"


def caller_of(scope: Scope) -> Caller:
    """The caller of a request that was let in."""
    return cast(Caller, scope[CALLER])


class Authentication:
    """The ASGI application of the gateway: refuses a request, or passes it on with its caller.

    by_path: applications of POST requests to these paths. The routes of app would find them too, in 50 us.
    """

    def __init__(self, state: GatewayState, app: Starlette, by_path: Mapping[str, ASGIApp]) -> None:
        self._state = state
        self._app = app
        self._by_path = by_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        client = client_address(scope, state.settings.trusted_proxies)
        peer = scope["client"][0] if scope.get("client") else ""
        caller = ANYONE  # until it has proved who it is
        try:
            caller = await state.authenticator.authenticate(scope["headers"], peer, client)
            check_suspension(caller)
        except RequestError as error:
            await self._refuse(scope, send, error, caller)
            return
        scope[CALLER] = caller
        app = self._by_path.get(scope["path"]) if scope["method"] == "POST" else None
        await (app or self._app)(scope, receive, send)

    async def _refuse(self, scope: Scope, send: Send, error: RequestError, caller: Caller) -> None:
        """Send an error, and count and log it. The body of the request is not read."""
        request_id = request_id_of(scope)
        telemetry = RequestTelemetry(self._state, scope, request_id, self._route(scope))
        closing = self._state.is_draining
        client = ClientResponse(send, request_id, closing=closing, errors=error_form(scope["path"]))
        telemetry.note_caller(caller)
        telemetry.note_rejection(error)
        try:
            await client.send_error(error)
        finally:
            telemetry.close(client, None, is_cut=False)

    def _route(self, scope: Scope) -> str:
        """The path of the route that a request is for, with the names of parameters."""
        for route in self._app.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return OTHER_ROUTE
