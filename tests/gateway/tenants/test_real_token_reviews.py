"""Tokens that a real API server has made for ServiceAccounts, and reviews."""

import asyncio
import hashlib
import time
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.support.oidc_issuer import sign

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import SERVICE_ACCOUNTS, TOKEN_REVIEWS
from penstock.core.tenants.tenant import ServiceAccount
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal, VerifiedToken
from penstock.gateway.tenants.token_reviews import TokenReviews
from penstock.gateway.tenants.unverified_token import UnverifiedToken, read_token

pytestmark = pytest.mark.cluster

AUDIENCE = "penstock-gateway"


async def token_of(kube: Kube, namespace: str, account: str, audience: str) -> UnverifiedToken:
    body = {"spec": {"audiences": [audience], "expirationSeconds": 600}}
    made = await kube.create(SERVICE_ACCOUNTS, namespace, body, name=account, sub="token")
    read = read_token(made["status"]["token"].encode())
    assert read is not None
    return read


async def test_tokens_of_accounts(kube: Kube, namespace: str) -> None:
    for account in ("runner", "other", "deleted"):
        await kube.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": account}})

    reviews = TokenReviews(partial(kube.create, TOKEN_REVIEWS, None), AUDIENCE, time.time)
    reviews.replace(
        ("batch", ServiceAccount(account, namespace, account)) for account in ("runner", "deleted")
    )

    async def outcome(token: UnverifiedToken) -> VerifiedToken | TokenRefusal:
        return await reviews.verify(hashlib.sha256(token.text.encode()).digest(), token)

    good = await token_of(kube, namespace, "runner", AUDIENCE)
    assert reviews.may_accept(good)
    verified = await outcome(good)
    assert isinstance(verified, VerifiedToken)
    assert verified.identity == ProvenIdentity("batch", "runner")

    for_others = await token_of(kube, namespace, "runner", "another-audience")
    other = await token_of(kube, namespace, "other", AUDIENCE)
    stranger = ed25519.Ed25519PrivateKey.generate()
    claims = {"sub": good.subject, "aud": [AUDIENCE], "iss": good.issuer}
    forged = read_token(sign(claims, stranger, {"kid": good.key_id}))
    assert forged is not None
    assert [reviews.may_accept(token) for token in (for_others, other, forged)] == [
        False, False, True,
    ]  # fmt: skip
    for token in (for_others, other, forged):
        assert await outcome(token) is TokenRefusal.NOT_ACCEPTED

    deleted = await token_of(kube, namespace, "deleted", AUDIENCE)
    await kube.delete(SERVICE_ACCOUNTS, namespace, "deleted")
    for _ in range(100):  # the API server itself remembers a good token for 10 s
        if await outcome(deleted) is TokenRefusal.NOT_ACCEPTED:
            return
        await asyncio.sleep(0.5)
    pytest.fail("the token of the deleted account is still accepted")
