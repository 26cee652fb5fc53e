"""Requests with tokens and forwarded identities through a gateway: who is let in, and what engines get."""

import ipaddress
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.gateway.tenants.verifier import GROUP
from tests.support.oidc_issuer import AUDIENCE, OidcIssuer, running_issuer, sign, unsigned

from penstock.core.tenants.tenant import Access, Header, Jwt, ServiceAccount, Tenant

ACCESS = (Access("default"),)
PROXY = ipaddress.ip_network("127.0.0.0/8")
ACCOUNT = "system:serviceaccount:batch:runner"
COMPLETIONS = "/v1/completions"


def tenants(issuer: str) -> list[Tenant]:
    return [
        Tenant("sso", 1, (Jwt("groups", issuer, AUDIENCE, "groups", "search"),), ACCESS),
        Tenant("batch", 1, (ServiceAccount("runner", "batch", "runner"),), ACCESS),
        Tenant("proxied", 1, (Header("team", "x-team", "search"),), ACCESS),
    ]


async def review(body: dict[str, Any]) -> Mapping[str, Any]:
    """Accept the tokens of the account whose signature is `good`."""
    is_good = body["spec"]["token"].endswith(".good")
    user = {"username": ACCOUNT}
    return {
        "status": {"authenticated": is_good, "user": user, "audiences": body["spec"]["audiences"]}
    }


def account_token(signature: bytes) -> bytes:
    claims = {"sub": ACCOUNT, "aud": ["penstock-gateway"], "iss": "https://kubernetes"}
    return unsigned(claims, {"alg": "RS256", "kid": "x"}) + signature


class Stand:
    """A gateway with three Tenants, an engine behind it, and an issuer."""

    def __init__(self, front: Any, engine: Any, issuer: OidcIssuer) -> None:
        self.front, self.engine, self.issuer = front, engine, issuer

    async def send(self, headers: Any) -> tuple[int, Any]:
        async with self.front.client.post(
            self.front.url + COMPLETIONS, json={"model": "chat", "prompt": "x"}, headers=headers
        ) as got:
            return got.status, await got.json()

    async def bearer(self, token: bytes) -> tuple[int, Any]:
        return await self.send({"authorization": f"Bearer {token.decode()}"})


@pytest.fixture
async def start_stand(
    start_engine: Callable[..., Awaitable[Any]], start_gateway: Callable[..., Awaitable[Any]]
) -> AsyncIterator[Callable[..., Awaitable[Stand]]]:
    async with running_issuer() as issuer:

        async def start(**settings: Any) -> Stand:
            engine = await start_engine()
            front = await start_gateway(engine, review=review, **settings)
            front.gateway.state.authenticator.tenants.publish(tenants(issuer.url))
            return Stand(front, engine, issuer)

        yield start


async def test_tokens_let_their_tenants_in(start_stand: Callable[..., Awaitable[Stand]]) -> None:
    stand = await start_stand()
    good = stand.issuer.token(**GROUP)
    for token in (good, good, account_token(b"good")):
        status, _ = await stand.bearer(token)
        assert status == 200
    async with stand.front.client.get(
        stand.front.url + "/v1/models", headers={"x-api-key": good.decode()}
    ) as got:
        assert got.status == 200
    for request in stand.engine.requests:
        assert not {"authorization", "x-api-key"} & request.headers.keys()


async def test_bad_tokens_are_a_401_that_says_why_without_the_token(
    start_stand: Callable[..., Awaitable[Stand]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stand = await start_stand()
    issuer, stranger = stand.issuer, ed25519.Ed25519PrivateKey.generate()
    claims = {"iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 60, **GROUP}
    bad = {
        issuer.token(**GROUP, exp=1): "has expired",
        issuer.token(**GROUP, nbf=int(time.time()) + 600): "is not valid yet",
        issuer.token(groups="other"): "no Tenant has an identity",
        issuer.token(**GROUP, iss="https://x"): "of no issuer and no ServiceAccount",
        sign(claims, stranger, {"kid": "one"}): "is not accepted",
        unsigned(claims, {"alg": "none", "kid": "one"}): "is not accepted",
        account_token(b"bad"): "is not accepted",
        issuer.token(filler="x" * 9000): "is longer than 8 KiB",
        b"sk-proj-x": "the API key or the token is not valid",
        b"a.b.c": "the API key or the token is not valid",
    }
    texts = [caplog.text]
    for token, message in bad.items():
        status, body = await stand.bearer(token)
        assert (status, body["error"]["code"]) == (401, "invalid_api_key"), token
        assert message in body["error"]["message"]
        texts.append(json.dumps(body))
    async with stand.front.client.get(stand.front.management_url + "/metrics") as got:
        texts.append(await got.text())
    texts.append(caplog.text)
    for token in bad:
        for part in token.decode().split("."):
            assert len(part) < 8 or not any(part in text for text in texts)
    assert stand.engine.requests == []
    assert (
        await stand.front.metric("penstock_gateway_rejections_total", reason="credentials_expired")
        == 1
    )


async def test_an_issuer_that_is_down_is_a_503_with_retry_after(
    start_stand: Callable[..., Awaitable[Stand]],
) -> None:
    stand = await start_stand()
    unreachable = "http://127.0.0.1:1"
    stand.front.gateway.state.authenticator.tenants.publish(tenants(unreachable))
    token = stand.issuer.token(**GROUP, iss=unreachable)
    headers = {"authorization": f"Bearer {token.decode()}"}
    async with stand.front.client.get(stand.front.url + "/v1/models", headers=headers) as got:
        assert (got.status, got.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize(
    ("trusted", "headers", "status"),
    [
        ((PROXY,), {"x-team": "search"}, 200),
        ((PROXY,), {"X-Team": "search"}, 200),
        ((PROXY,), {"x-team": "other"}, 401),
        ((PROXY,), {"x-team": ""}, 401),
        ((PROXY,), {}, 401),
        ((PROXY,), [("x-team", "search"), ("x-team", "search")], 400),
        ((PROXY,), {"x-team": "search", "x-forwarded-for": "192.0.2.1"}, 200),
        # A proof of the client's own counts, and has to be valid
        ((PROXY,), {"x-team": "search", "authorization": "Bearer wrong"}, 401),
        ((PROXY,), {"x-team": "search", "authorization": "Basic eDp5"}, 401),
        ((PROXY,), {"x-team": "search", "x-api-key": "wrong"}, 401),
        # The connection counts, whatever X-Forwarded-For says
        ((ipaddress.ip_network("192.0.2.0/24"),), {"x-team": "search"}, 401),
        (
            (ipaddress.ip_network("192.0.2.0/24"),),
            {"x-team": "search", "x-forwarded-for": "192.0.2.1"},
            401,
        ),
        ((), {"x-team": "search"}, 401),
    ],
)
async def test_headers_of_trusted_proxies_let_their_tenants_in(
    start_stand: Callable[..., Awaitable[Stand]], trusted: Any, headers: Any, status: int
) -> None:
    stand = await start_stand(trusted_proxies=trusted)
    assert (await stand.send(headers))[0] == status
    assert len(stand.engine.requests) == (status == 200)


async def test_engines_get_no_header_of_an_identity(
    start_stand: Callable[..., Awaitable[Stand]],
) -> None:
    stand = await start_stand(trusted_proxies=(PROXY,))
    token = stand.issuer.token(**GROUP)
    status, _ = await stand.send(
        {"authorization": f"Bearer {token.decode()}", "x-team": "search", "x-other": "kept"}
    )
    assert status == 200
    (request,) = stand.engine.requests
    assert "x-team" not in request.headers
    assert request.headers["x-other"] == "kept"
