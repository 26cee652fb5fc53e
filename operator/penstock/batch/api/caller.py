"""The caller of a request: a gateway, with the name of the tenant that it has authenticated."""

import hmac

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from penstock.batch.api.errors import ApiError
from penstock.batch.store.keys import TENANT_NAME
from penstock.core.batches.shared_token import TENANT_HEADER, SharedToken

TENANT = web.RequestKey("tenant", str)


def check_caller(token: SharedToken) -> Middleware:
    """Make the middleware that refuses requests without the shared token. Only gateways have it."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        expected = token.authorization.encode()
        if not hmac.compare_digest(given, expected):
            raise ApiError(401, "only gateways may send requests to the batch server")
        tenant = request.headers.get(TENANT_HEADER, "")
        if tenant and not TENANT_NAME.fullmatch(tenant):
            raise ApiError(400, f"the header {TENANT_HEADER} must name a Tenant, or be empty")
        request[TENANT] = tenant
        return await handler(request)

    return check


def tenant_of(request: web.Request) -> str:
    """Name of the request's tenant; empty if the cluster has none."""
    return request[TENANT]
