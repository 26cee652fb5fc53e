"""Verifies bearer tokens that are no API keys, and remembers those that are good."""

import hashlib
from collections.abc import Callable, Iterable

from penstock.clients.machine.clock import monotonic, unix_time
from penstock.core.tenants.identity_claims import held_identities
from penstock.core.tenants.tenant import Identity, Jwt, ServiceAccount, Tenant
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.limits.client_network import client_network
from penstock.gateway.tenants.check_budget import CheckBudget
from penstock.gateway.tenants.issuer_documents import fetch_keys
from penstock.gateway.tenants.json_web_tokens import FetchKeys, JsonWebTokens
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal, VerifiedToken
from penstock.gateway.tenants.token_cache import TokenCache
from penstock.gateway.tenants.token_reviews import Review, TokenReviews
from penstock.gateway.tenants.unverified_token import MAX_TOKEN_BYTES, UnverifiedToken, read_token

# Time for which a verified token is not checked again, in seconds, and how many are remembered (3 MiB).
REMEMBERED_S = 300.0
MAX_REMEMBERED = 10_000
# `Retry-After` of a network with too many invalid tokens: then `CheckBudget` has checks for it again.
INVALID_RETRY_AFTER_S = 1


class BearerTokens:
    """Verifies tokens of OIDC issuers and ServiceAccounts.

    review: sends a TokenReview. audience: that ServiceAccounts' tokens must be for. now: the monotonic
    clock. unix_now: seconds since the epoch. fetch: gets the keys of an issuer.
    """

    def __init__(
        self,
        review: Review,
        *,
        audience: str,
        now: Callable[[], float] = monotonic,
        unix_now: Callable[[], float] = unix_time,
        fetch: FetchKeys = fetch_keys,
    ) -> None:
        self._verified: TokenCache[ProvenIdentity] = TokenCache(MAX_REMEMBERED, unix_now)
        self._web_tokens = JsonWebTokens(fetch, self._forget, now)
        self._reviews = TokenReviews(review, audience, unix_now)
        self._budget = CheckBudget(now)
        self._identities: list[tuple[str, Identity]] = []
        self._unix_now = unix_now
        self._version = 0

    def replace(self, tenants: Iterable[Tenant]) -> None:
        """Set the Tenants. An identity that several name counts for the oldest."""
        identities = [(tenant.name, each) for tenant, each in held_identities(tenants)]
        if identities == self._identities:
            return
        self._identities = identities
        self._web_tokens.replace((name, each) for name, each in identities if isinstance(each, Jwt))
        self._reviews.replace(
            (name, each) for name, each in identities if isinstance(each, ServiceAccount)
        )
        self._forget()

    def close(self) -> None:
        """Stop fetching keys of issuers."""
        self._web_tokens.close()

    def find_remembered(self, token: bytes) -> ProvenIdentity | None:
        """Return the identity that a token has proved before; None: it has to be verified."""
        if len(token) > MAX_TOKEN_BYTES:
            return None
        return self._verified.get(hashlib.sha256(token).digest())

    async def verify(self, token: bytes, client: str) -> ProvenIdentity | TokenRefusal:
        """Verify a token. client: address of the client.

        Raises RequestError if it cannot be verified at present, or the client's network has sent too many
        invalid ones.
        """
        if len(token) > MAX_TOKEN_BYTES:
            return TokenRefusal.TOO_LONG
        unverified = read_token(token)
        if unverified is None:
            return TokenRefusal.MALFORMED
        if not self._may_accept(unverified):
            return TokenRefusal.UNKNOWN_ISSUER
        network = client_network(client)
        if not self._budget.take(network):
            raise _too_many()
        try:
            outcome = await self._check(token, unverified)
        except RequestError:
            self._budget.give_back(network)
            raise
        if isinstance(outcome, ProvenIdentity):
            self._budget.give_back(network)
        return outcome

    def _may_accept(self, token: UnverifiedToken) -> bool:
        return self._web_tokens.knows(token.issuer) or self._reviews.may_accept(token)

    async def _check(
        self, token: bytes, unverified: UnverifiedToken
    ) -> ProvenIdentity | TokenRefusal:
        digest, version = hashlib.sha256(token).digest(), self._version
        if self._web_tokens.knows(unverified.issuer):
            outcome = await self._web_tokens.verify(unverified)
        else:
            outcome = await self._reviews.verify(digest, unverified)
        if not isinstance(outcome, VerifiedToken):
            return outcome
        if version == self._version:  # else it was verified by what has changed meanwhile
            until_s = min(outcome.expires_s, self._unix_now() + REMEMBERED_S)
            self._verified.put(digest, outcome.identity, until_s)
        return outcome.identity

    def _forget(self) -> None:
        """Check all tokens again, as identities have changed or keys were withdrawn."""
        self._version += 1
        self._verified.clear()


def _too_many() -> RequestError:
    return RequestError(
        429,
        "too many invalid tokens came from this address; wait, and send a valid one",
        retry_after_s=INVALID_RETRY_AFTER_S,
        reason="too_many_invalid_tokens",
    )
