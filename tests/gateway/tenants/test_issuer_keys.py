"""The keys of an issuer: rotation, outages, and documents that are not what they should be."""

import asyncio
import gzip
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.gateway.tenants.verifier import CLIENT, FOUND, GROUP, Clocks, make_tokens, tenant
from tests.support.oidc_issuer import OidcIssuer, running_issuer
from tests.support.sources.certificates import loopback_certificate

from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.bearer_tokens import BearerTokens
from penstock.gateway.tenants.issuer_documents import (
    IssuerUnavailable,
    fetch_keys,
    is_allowed_url,
)
from penstock.gateway.tenants.issuer_keys import (
    MAX_AGE_S,
    MAX_WAITING,
    MIN_INTERVAL_S,
)
from penstock.gateway.tenants.proven_identity import TokenRefusal

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


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


async def status(tokens: BearerTokens, token: bytes, client: str = CLIENT) -> int:
    """Status of the error for a token that cannot be verified."""
    with pytest.raises(RequestError) as error:
        await tokens.verify(token, client)
    return error.value.status


async def test_a_new_key_is_fetched_when_a_token_names_it(
    issuer: OidcIssuer, tokens: BearerTokens, clocks: Clocks
) -> None:
    old = issuer.token(**GROUP)
    assert await tokens.verify(old, CLIENT) == FOUND
    clocks.moved_s += MIN_INTERVAL_S
    issuer.keys["two"] = ed25519.Ed25519PrivateKey.generate()
    new = [issuer.token("two", **GROUP, jti=str(number)) for number in range(20)]
    found = await asyncio.gather(*(tokens.verify(token, CLIENT) for token in new))
    assert found == [FOUND] * 20
    assert issuer.requests.count("/keys") == 2
    assert tokens.find_remembered(old) == FOUND  # its key is still there


async def test_tokens_of_a_withdrawn_key_are_refused_after_the_next_fetch(
    issuer: OidcIssuer, tokens: BearerTokens, clocks: Clocks
) -> None:
    old = issuer.token(**GROUP)
    assert await tokens.verify(old, CLIENT) == FOUND
    issuer.keys = {"two": ed25519.Ed25519PrivateKey.generate()}
    clocks.moved_s += MIN_INTERVAL_S
    assert await tokens.verify(issuer.token("two", **GROUP), CLIENT) == FOUND
    assert tokens.find_remembered(old) is None
    assert await tokens.verify(old, CLIENT) is TokenRefusal.NOT_ACCEPTED


async def test_a_flood_of_unknown_keys_leads_to_one_fetch_at_a_time(
    issuer: OidcIssuer, tokens: BearerTokens, clocks: Clocks
) -> None:
    assert await tokens.verify(issuer.token(**GROUP), CLIENT) == FOUND
    issuer.requests.clear()
    for _ in range(3):
        clocks.moved_s += MIN_INTERVAL_S
        flood = [issuer.token(**GROUP, headers={"kid": f"k{number}"}) for number in range(300)]
        outcomes = await asyncio.gather(
            *(tokens.verify(token, f"192.0.2.{i % 200}") for i, token in enumerate(flood)),
            return_exceptions=True,
        )
        assert outcomes.count(TokenRefusal.NOT_ACCEPTED) >= MAX_WAITING
        assert {each.status for each in outcomes if isinstance(each, RequestError)} <= {503}
    assert issuer.requests.count("/keys") == 3
    assert await tokens.verify(issuer.token(**GROUP, jti="next"), CLIENT) == FOUND


async def test_the_last_keys_stay_while_the_issuer_is_down(
    issuer: OidcIssuer, tokens: BearerTokens, clocks: Clocks
) -> None:
    assert await tokens.verify(issuer.token(**GROUP), CLIENT) == FOUND
    issuer.respond = error_500
    issuer.keys["two"] = ed25519.Ed25519PrivateKey.generate()
    clocks.moved_s += MAX_AGE_S - 60
    assert await tokens.verify(issuer.token("two", **GROUP), CLIENT) is TokenRefusal.NOT_ACCEPTED
    assert await tokens.verify(issuer.token(**GROUP, jti="down"), CLIENT) == FOUND
    clocks.moved_s += 60
    assert await status(tokens, issuer.token(**GROUP, jti="too old")) == 503
    issuer.respond = None
    clocks.moved_s += MIN_INTERVAL_S
    assert await tokens.verify(issuer.token(**GROUP, jti="back"), CLIENT) == FOUND


async def error_500(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="secret-detail")


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError


async def test_a_slow_issuer_delays_nobody_of_another_one(
    issuer: OidcIssuer, tokens: BearerTokens, clocks: Clocks
) -> None:
    async with running_issuer() as slow:
        slow.respond = never
        tokens.replace([tenant("slow", slow.url), tenant("search", issuer.url)])
        waiting = [
            asyncio.create_task(
                tokens.verify(slow.token(**GROUP, jti=str(number)), f"10.0.{number}.1")
            )
            for number in range(MAX_WAITING)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await status(tokens, slow.token(**GROUP), "10.1.0.1") == 503  # too many wait
        assert await tokens.verify(issuer.token(**GROUP), CLIENT) == FOUND
        assert not any(task.done() for task in waiting)
        tokens.replace([tenant("search", issuer.url)])
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert {getattr(each, "status", each) for each in outcomes} == {503}


async def test_without_a_first_fetch_tokens_are_a_503_with_retry_after(
    issuer: OidcIssuer, clocks: Clocks,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    issuer.respond = error_500
    tokens = make_tokens(fetch_keys, clocks)
    tokens.replace([tenant("search", issuer.url)])
    token = issuer.token(**GROUP)
    with pytest.raises(RequestError) as error:
        await tokens.verify(token, CLIENT)
    assert (error.value.status, error.value.retry_after_s) == (503, 5)
    tokens.close()
    assert "answers with status 500" in caplog.text
    for text in (caplog.text, error.value.message):
        assert token.decode() not in text
        assert "secret-detail" not in text


async def redirect(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://127.0.0.1:1/keys")


async def huge(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b" " * ((1 << 20) + 1))


async def bomb(_: web.Request) -> web.StreamResponse:
    body = gzip.compress(b" " * (64 << 20))
    return web.Response(body=body, headers={"content-encoding": "gzip"})


async def cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "100"})
    await response.prepare(request)
    assert request.transport is not None
    request.transport.abort()
    return response


def says(content: object) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=json.dumps(content))

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (error_500, "answers with status 500"),
        (redirect, "answers with status 302"),
        (huge, "larger than 1 MiB"),
        (bomb, "larger than 1 MiB"),
        (cut, "cannot be read"),
        (says([]), "no issuer and jwks_uri"),
        (says("[" * 9), "no issuer and jwks_uri"),
        (says({"issuer": "https://other.example", "jwks_uri": "x"}), "of another issuer"),
    ],
)
async def test_documents_that_are_not_used(issuer: OidcIssuer, answer: Answer, reason: str) -> None:
    issuer.respond = answer
    with pytest.raises(IssuerUnavailable, match=reason):
        await fetch_keys(issuer.url, "")


@pytest.mark.parametrize("uri", ["http://192.0.2.1/keys", "file:///etc/passwd", "//x/keys", "keys"])
async def test_keys_are_fetched_by_https_alone(issuer: OidcIssuer, uri: str) -> None:
    issuer.respond = says({"issuer": issuer.url, "jwks_uri": uri})
    with pytest.raises(IssuerUnavailable, match="no https URL"):
        await fetch_keys(issuer.url, "")
    with pytest.raises(IssuerUnavailable, match="no https URL"):
        await fetch_keys(issuer.url, uri)
    assert issuer.requests == ["/.well-known/openid-configuration"]


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://sso.example/realms/x", True),
        ("https://10.0.0.1", True),
        ("http://localhost:8080/x", True),
        ("http://127.0.0.1", True),
        ("http://[::1]:80", True),
        ("http://sso.example", False),
        ("http://localhost.example", False),
        ("http://127.0.0.1.example", False),
        ("http://localhost@sso.example", False),
        ("ftp://localhost", False),
        ("https://", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_allowed_urls(url: str, is_allowed: bool) -> None:
    assert is_allowed_url(url) is is_allowed


async def test_an_issuer_of_https_does_not_lead_to_http(
    issuer: OidcIssuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, authority = loopback_certificate(tmp_path)
    app = web.Application()
    app.router.add_get("/{path:.*}", issuer.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    plain, issuer.url = issuer.url, f"https://localhost:{runner.addresses[0][1]}"
    try:
        with pytest.raises(IssuerUnavailable, match="Certificate"):
            await fetch_keys(issuer.url, "")
        new_session, trusting = aiohttp.ClientSession, ssl.create_default_context(cafile=authority)
        monkeypatch.setattr(
            aiohttp, "ClientSession",
            lambda: new_session(connector=aiohttp.TCPConnector(ssl=trusting)),
        )  # fmt: skip
        assert list(await fetch_keys(issuer.url, "")) == ["one"]
        issuer.respond = says({"issuer": issuer.url, "jwks_uri": f"{plain}/keys"})
        with pytest.raises(IssuerUnavailable, match="no https URL"):
            await fetch_keys(issuer.url, "")
    finally:
        await runner.cleanup()
