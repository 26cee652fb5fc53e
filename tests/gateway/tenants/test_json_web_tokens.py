"""Tokens of a local OIDC issuer, verified by its keys."""

import hmac
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.utils import base64url_encode
from tests.gateway.tenants.verifier import CLIENT, FOUND, GROUP, Clocks, make_tokens, tenant
from tests.support.oidc_issuer import AUDIENCE, OidcIssuer, rsa_key, running_issuer, sign, unsigned

from penstock.gateway.tenants.bearer_tokens import BearerTokens
from penstock.gateway.tenants.issuer_documents import fetch_keys
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal
from penstock.gateway.tenants.signing_keys import SigningKey


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
    async with running_issuer() as running:
        yield running


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
async def tokens(issuer: OidcIssuer, clocks: Clocks) -> AsyncIterator[BearerTokens]:
    made = make_tokens(fetch_keys, clocks)
    made.replace([tenant("search", issuer.url)])
    yield made
    made.close()


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa_key(), "RS256"), (rsa_key(), "RS512"), (rsa_key(), "PS256"), (rsa_key(), "PS384"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)  # fmt: skip
async def test_a_token_proves_the_identity_of_its_claim(
    issuer: OidcIssuer, tokens: BearerTokens, key: Any, algorithm: str
) -> None:
    issuer.keys = {"one": key}
    claims = {"iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 60, **GROUP}
    token = sign(claims, key, {"kid": "one"}, algorithm)
    assert tokens.find_remembered(token) is None
    assert await tokens.verify(token, CLIENT) == FOUND
    assert tokens.find_remembered(token) == FOUND
    assert issuer.requests == ["/.well-known/openid-configuration", "/keys"]


async def test_only_good_tokens_are_accepted(issuer: OidcIssuer, tokens: BearerTokens) -> None:
    now_s, stranger = int(time.time()), ed25519.Ed25519PrivateKey.generate()
    issuer.keys["rsa"] = rsa_key()
    public = (
        rsa_key()
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    claims = {"iss": issuer.url, "aud": AUDIENCE, "exp": now_s + 60, **GROUP}
    good = issuer.token(**GROUP)
    head, payload, signature = good.split(b".")
    refusals = {
        issuer.token(**GROUP, exp=now_s - 31): TokenRefusal.EXPIRED,
        issuer.token(**GROUP, nbf=now_s + 90): TokenRefusal.NOT_YET_VALID,
        issuer.token(**GROUP, iat=now_s + 90): TokenRefusal.NOT_YET_VALID,
        issuer.token(**GROUP, exp=None): TokenRefusal.NOT_ACCEPTED,
        issuer.token(**GROUP, exp="soon"): TokenRefusal.NOT_ACCEPTED,
        issuer.token(**GROUP, exp=float("inf")): TokenRefusal.NOT_ACCEPTED,
        issuer.token(**GROUP, aud="other"): TokenRefusal.NO_IDENTITY,
        issuer.token(**GROUP, aud=None): TokenRefusal.NO_IDENTITY,
        issuer.token(groups=["staff"]): TokenRefusal.NO_IDENTITY,
        issuer.token(groups="search.x"): TokenRefusal.NO_IDENTITY,
        issuer.token(**GROUP, iss="https://other.example"): TokenRefusal.UNKNOWN_ISSUER,
        issuer.token(**GROUP, iss=f"{issuer.url}/"): TokenRefusal.UNKNOWN_ISSUER,
        issuer.token(**GROUP, iss=None): TokenRefusal.UNKNOWN_ISSUER,
        issuer.token(**GROUP, headers={"crit": ["x"], "x": 1}): TokenRefusal.NOT_ACCEPTED,
        sign(claims, stranger, {"kid": "one"}): TokenRefusal.NOT_ACCEPTED,
        sign(claims, issuer.keys["one"], {}): TokenRefusal.NOT_ACCEPTED,
        sign(claims, issuer.keys["one"], {"kid": "rsa"}): TokenRefusal.NOT_ACCEPTED,
        unsigned(claims, {"alg": "none", "kid": "one"}): TokenRefusal.NOT_ACCEPTED,
        unsigned(claims, {"alg": "None", "kid": "one"}): TokenRefusal.NOT_ACCEPTED,
        unsigned(claims, {"alg": ["EdDSA"], "kid": "one"}): TokenRefusal.NOT_ACCEPTED,
        unsigned(claims, {"kid": "one"}): TokenRefusal.NOT_ACCEPTED,
        hmac_signed(claims, public): TokenRefusal.NOT_ACCEPTED,
        b".".join((head, payload, b"")): TokenRefusal.NOT_ACCEPTED,
        b".".join((head, payload, signature[:-2])): TokenRefusal.NOT_ACCEPTED,
        b".".join((head, issuer.token(groups=["x"]).split(b".")[1], signature)):
            TokenRefusal.NOT_ACCEPTED,
        good + b"." + signature: TokenRefusal.MALFORMED,
        b".".join((head, payload)): TokenRefusal.MALFORMED,
        b"..": TokenRefusal.MALFORMED,
        b"": TokenRefusal.MALFORMED,
        b"W10.W10.": TokenRefusal.MALFORMED,
        issuer.token(**GROUP, filler="x" * 8192): TokenRefusal.TOO_LONG,
    }  # fmt: skip
    for number, (token, refusal) in enumerate(refusals.items()):
        assert await tokens.verify(token, f"192.0.2.{number}") is refusal, (number, refusal)
        assert tokens.find_remembered(token) is None
    assert await tokens.verify(good, CLIENT) == FOUND
    # Neither unknown issuers nor unknown keys have led to a request
    assert issuer.requests == ["/.well-known/openid-configuration", "/keys"]


def hmac_signed(claims: dict[str, Any], secret: bytes) -> bytes:
    """A token whose HMAC has the issuer's public key as its secret."""
    signed = unsigned(claims, {"alg": "HS256", "kid": "rsa"}).removesuffix(b".")
    return signed + b"." + base64url_encode(hmac.digest(secret, signed, "sha256"))


PARTS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["alg", "kid", "b64", "crit", "typ"]), inner)
    ),
    max_leaves=9,
)
CLAIMS = st.dictionaries(
    st.sampled_from(["iss", "aud", "exp", "nbf", "sub", "groups"]),
    st.sampled_from(["https://issuer", AUDIENCE, 1, None, {}, [], [[]], 1e999]),
)
MALFORMED = st.one_of(
    st.binary(max_size=200),
    st.lists(st.binary(max_size=60), min_size=3, max_size=3).map(b".".join),
    st.builds(unsigned, CLAIMS, PARTS),
    st.builds(unsigned, CLAIMS, st.fixed_dictionaries({"alg": PARTS, "kid": st.just("one")})),
)
ISSUER_KEY = ed25519.Ed25519PrivateKey.generate()


async def check_of(token: bytes) -> ProvenIdentity | TokenRefusal:
    """Verify a token with an issuer whose only key is ISSUER_KEY."""

    async def fetch(*_: str) -> Mapping[str, SigningKey]:
        return {"one": SigningKey(ISSUER_KEY.public_key(), ("EdDSA",))}

    made = make_tokens(fetch, Clocks())
    made.replace([tenant("search", "https://issuer")])
    try:
        return await made.verify(token, CLIENT)
    finally:
        made.close()


@settings(max_examples=200, deadline=None)
@given(MALFORMED)
async def test_malformed_tokens_are_refused_without_an_exception(token: bytes) -> None:
    assert isinstance(await check_of(token), TokenRefusal)


@settings(max_examples=100, deadline=None)
@given(CLAIMS)
async def test_signed_tokens_of_any_claims_are_refused_without_an_exception(
    claims: dict[str, Any],
) -> None:
    token = sign(claims | {"iss": "https://issuer"}, ISSUER_KEY, {"kid": "one"})
    assert isinstance(await check_of(token), TokenRefusal)
