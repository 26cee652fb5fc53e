"""Verifies tokens of Kubernetes ServiceAccounts by TokenReviews at the API server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from penstock.core.tenants.tenant import ServiceAccount
from penstock.errors import KubeError, Transient
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal, VerifiedToken
from penstock.gateway.tenants.token_cache import TokenCache
from penstock.gateway.tenants.unverified_token import UnverifiedToken

logger = logging.getLogger(__name__)

# Time for which a review is good, in seconds: after it, and 10 s for which the API server remembers a good
# token itself, that of a deleted pod or account is refused.
ACCEPTED_S, REFUSED_S = 60.0, 10.0
MAX_REFUSED = 10_000
# Reviews in progress, and those that wait for one to end. The API server takes some ms for each.
MAX_REVIEWS, MAX_WAITING = 8, 100
# Time limit of a review and its wait, in seconds.
TIMEOUT_S = 5.0
# `Retry-After` while reviews fail or too many wait, in seconds: most take some ms.
REVIEW_RETRY_AFTER_S = 1

# Sends a TokenReview, and returns it with its status. Raises from `penstock.errors`.
Review = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]


async def no_review(_: dict[str, Any]) -> Mapping[str, Any]:
    """The review of a gateway without an API server."""
    raise Transient("there is no API server")


class TokenReviews:
    """Verifies tokens of the ServiceAccounts that Tenants name.

    review: sends a TokenReview. audience: that tokens must be for. now: seconds since the epoch.
    """

    def __init__(self, review: Review, audience: str, now: Callable[[], float]) -> None:
        self._review = review
        self._audience = audience
        self._now = now
        self._identities: dict[str, ProvenIdentity] = {}
        self._refused: TokenCache[TokenRefusal] = TokenCache(MAX_REFUSED, now)
        self._in_progress: dict[bytes, asyncio.Task[VerifiedToken | TokenRefusal]] = {}
        self._places = asyncio.Semaphore(MAX_REVIEWS)
        self._is_failing = False

    def replace(self, identities: Iterable[tuple[str, ServiceAccount]]) -> None:
        """Set the identities, each with the name of its Tenant; those of the oldest Tenant first."""
        found: dict[str, ProvenIdentity] = {}
        for tenant, identity in identities:
            user = f"system:serviceaccount:{identity.namespace}:{identity.account}"
            found.setdefault(user, ProvenIdentity(tenant, identity.name))
        self._identities = found

    def may_accept(self, token: UnverifiedToken) -> bool:
        """Whether a token says that it is of a ServiceAccount of a Tenant, and for gateways.

        The API server is asked about no other one.
        """
        return token.subject in self._identities and self._audience in token.audiences

    async def verify(self, digest: bytes, token: UnverifiedToken) -> VerifiedToken | TokenRefusal:
        """Verify a token. digest: its hash. Raises RequestError while it cannot be reviewed."""
        if (refused := self._refused.get(digest)) is not None:
            return refused
        task = self._in_progress.get(digest)
        if task is None:
            if len(self._in_progress) >= MAX_REVIEWS + MAX_WAITING:
                raise _unavailable()
            task = asyncio.create_task(self._verify(digest, token))
            self._in_progress[digest] = task
            task.add_done_callback(lambda done: self._end(digest, done))
        return await asyncio.shield(task)  # its other clients stay when this one leaves

    def _end(self, digest: bytes, done: asyncio.Task[VerifiedToken | TokenRefusal]) -> None:
        del self._in_progress[digest]
        if not done.cancelled():
            done.exception()  # all of its clients may have left

    async def _verify(self, digest: bytes, token: UnverifiedToken) -> VerifiedToken | TokenRefusal:
        spec = {"token": token.text, "audiences": [self._audience]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            async with asyncio.timeout(TIMEOUT_S), self._places:
                status = (await self._review(body)).get("status", {})
        except (KubeError, TimeoutError) as error:
            if not self._is_failing:  # without the error's text, which may repeat the request
                logger.warning("TokenReviews fail: %s", type(error).__name__)
            self._is_failing = True
            raise _unavailable() from None
        self._is_failing = False
        identity = self._identity(status)
        if identity is None:
            self._refused.put(digest, TokenRefusal.NOT_ACCEPTED, self._now() + REFUSED_S)
            return TokenRefusal.NOT_ACCEPTED
        return VerifiedToken(identity, self._now() + ACCEPTED_S)

    def _identity(self, status: Mapping[str, Any]) -> ProvenIdentity | None:
        # Without the audience in its answer, the API server has checked the token for itself
        if status.get("authenticated") is not True:
            return None
        if self._audience not in (status.get("audiences") or ()):
            return None
        return self._identities.get((status.get("user") or {}).get("username", ""))


def _unavailable() -> RequestError:
    return RequestError(
        503,
        "ServiceAccount tokens cannot be checked at present; send the request again",
        retry_after_s=REVIEW_RETRY_AFTER_S,
        reason="token_review_failed",
    )
