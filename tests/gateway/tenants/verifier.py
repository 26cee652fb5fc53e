"""A verifier of bearer tokens with clocks that a test moves."""

import time
from typing import Any

from tests.support.oidc_issuer import AUDIENCE

from penstock.core.tenants.tenant import Jwt, Tenant
from penstock.gateway.tenants.bearer_tokens import BearerTokens
from penstock.gateway.tenants.json_web_tokens import FetchKeys
from penstock.gateway.tenants.proven_identity import ProvenIdentity

CLIENT = "192.0.2.1"
GROUP = {"groups": ["staff", "search"]}
FOUND = ProvenIdentity("search", "sso")


class Clocks:
    """Both clocks of a verifier; a test moves them."""

    moved_s = 0.0

    def now(self) -> float:
        return time.monotonic() + self.moved_s

    def unix_time(self) -> float:
        return time.time() + self.moved_s


def make_tokens(fetch: FetchKeys, clocks: Clocks) -> BearerTokens:
    async def no_review(_: object) -> dict[str, Any]:
        raise AssertionError("no token is of a ServiceAccount")

    return BearerTokens(
        no_review,
        audience="penstock-gateway",
        now=clocks.now,
        unix_now=clocks.unix_time,
        fetch=fetch,
    )


def tenant(name: str, issuer: str, value: str = "search", jwks_url: str = "") -> Tenant:
    return Tenant(name, 1, (Jwt("sso", issuer, AUDIENCE, "groups", value, jwks_url),))
