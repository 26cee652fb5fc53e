"""Which verified tokens are remembered, whose identities count, and how many invalid tokens are checked."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from benchmarks.gateway.token_check import KEYS, flood
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.gateway.tenants.verifier import CLIENT, FOUND, GROUP, Clocks, make_tokens, tenant
from tests.support.oidc_issuer import AUDIENCE, sign

from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.bearer_tokens import REMEMBERED_S, BearerTokens
from penstock.gateway.tenants.check_budget import BURST, PER_SECOND
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal
from penstock.gateway.tenants.signing_keys import SigningKey

ISSUER, OTHER_URL = "https://issuer", "https://elsewhere/keys"
KEY, OTHER_KEY = (ed25519.Ed25519PrivateKey.generate() for _ in range(2))


async def fetch(_: str, url: str) -> Mapping[str, SigningKey]:
    key = OTHER_KEY if url == OTHER_URL else KEY
    return {"one": SigningKey(key.public_key(), ("EdDSA",))}


def token(key: ed25519.Ed25519PrivateKey = KEY, **claims: Any) -> bytes:
    said = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 3600, **GROUP, **claims}
    return sign(said, key, {"kid": "one"})


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
async def tokens(clocks: Clocks) -> AsyncIterator[BearerTokens]:
    made = make_tokens(fetch, clocks)
    made.replace([tenant("search", ISSUER)])
    yield made
    made.close()


async def test_a_verified_token_is_remembered_for_minutes(
    tokens: BearerTokens, clocks: Clocks
) -> None:
    good = token()
    await tokens.verify(good, CLIENT)
    clocks.moved_s += REMEMBERED_S - 1
    assert tokens.find_remembered(good) == FOUND
    clocks.moved_s += 1
    assert tokens.find_remembered(good) is None


async def test_a_verified_token_is_remembered_until_it_expires(
    tokens: BearerTokens, clocks: Clocks
) -> None:
    short = token(exp=int(time.time()) + 60)
    await tokens.verify(short, CLIENT)
    clocks.moved_s += 80
    assert tokens.find_remembered(short) == FOUND
    clocks.moved_s += 11  # beyond the 30 s for clocks that differ
    assert tokens.find_remembered(short) is None


async def test_changes_of_identities_forget_tokens_and_other_changes_do_not(
    tokens: BearerTokens,
) -> None:
    good = token()
    await tokens.verify(good, CLIENT)
    tokens.replace([tenant("search", ISSUER)])
    assert tokens.find_remembered(good) == FOUND
    tokens.replace([tenant("search", ISSUER, "another group")])
    assert tokens.find_remembered(good) is None
    assert await tokens.verify(good, CLIENT) is TokenRefusal.NO_IDENTITY
    tokens.replace([])
    assert await tokens.verify(good, CLIENT) is TokenRefusal.UNKNOWN_ISSUER


async def test_what_changes_during_a_check_is_not_remembered(clocks: Clocks) -> None:
    may_answer = asyncio.Event()

    async def fetch_later(issuer: str, url: str) -> Mapping[str, SigningKey]:
        await may_answer.wait()
        return await fetch(issuer, url)

    tokens = make_tokens(fetch_later, clocks)
    tokens.replace([tenant("search", ISSUER)])
    good = token()
    checking = asyncio.create_task(tokens.verify(good, CLIENT))
    await asyncio.sleep(0)
    tokens.replace([tenant("renamed", ISSUER)])
    may_answer.set()
    await checking
    assert tokens.find_remembered(good) is None
    assert await tokens.verify(good, CLIENT) == ProvenIdentity("renamed", "sso")
    tokens.close()


async def test_the_oldest_tenant_has_an_identity_that_several_name(tokens: BearerTokens) -> None:
    tokens.replace([tenant("old", ISSUER), tenant("search", ISSUER)])
    assert await tokens.verify(token(), CLIENT) == ProvenIdentity("old", "sso")


async def test_the_keys_of_a_younger_tenant_do_not_prove_the_identity_of_an_older_one(
    tokens: BearerTokens,
) -> None:
    tokens.replace([tenant("old", ISSUER), tenant("young", ISSUER, jwks_url=OTHER_URL)])
    assert await tokens.verify(token(), CLIENT) == ProvenIdentity("old", "sso")
    assert await tokens.verify(token(OTHER_KEY), CLIENT) is TokenRefusal.NOT_ACCEPTED


async def test_keys_from_one_url_prove_nothing_to_a_tenant_that_names_another(
    tokens: BearerTokens,
) -> None:
    tokens.replace([tenant("search", ISSUER), tenant("young", ISSUER, "young", jwks_url=OTHER_URL)])
    assert await tokens.verify(token(), CLIENT) == FOUND
    assert await tokens.verify(token(groups="young"), CLIENT) is TokenRefusal.NOT_ACCEPTED
    assert await tokens.verify(token(OTHER_KEY), CLIENT) is TokenRefusal.NO_IDENTITY
    young = await tokens.verify(token(OTHER_KEY, groups="young"), CLIENT)
    assert young == ProvenIdentity("young", "sso")


async def test_invalid_tokens_of_a_network_are_checked_at_a_bounded_rate(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "now", lambda: clocks.moved_s)
    tokens = make_tokens(fetch, clocks)
    tokens.replace([tenant("search", ISSUER)])
    good = token()
    assert await tokens.verify(good, CLIENT) == FOUND
    for number in range(int(BURST)):
        wrong = token(OTHER_KEY, jti=str(number))
        assert await tokens.verify(wrong, "2001:db8::1") is TokenRefusal.NOT_ACCEPTED
    with pytest.raises(RequestError) as error:
        await tokens.verify(token(OTHER_KEY), "2001:db8::2")  # of the same network
    assert (error.value.status, error.value.retry_after_s) == (429, 1)
    assert await tokens.verify(token(jti="other"), CLIENT) == FOUND
    assert tokens.find_remembered(good) == FOUND
    clocks.moved_s += 1.5 / PER_SECOND
    assert await tokens.verify(token(jti="again"), "2001:db8::1") == FOUND
    tokens.close()


async def test_valid_tokens_are_no_part_of_the_budget(tokens: BearerTokens) -> None:
    for number in range(int(BURST) * 2):
        assert await tokens.verify(token(jti=str(number)), CLIENT) == FOUND


async def test_most_of_a_flood_of_invalid_tokens_is_not_checked() -> None:
    num_checked, _ = await flood(KEYS["EdDSA"]())
    assert num_checked == 149  # 50, and 10 a second for 10 s
