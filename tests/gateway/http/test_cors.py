"""Web pages of allowed origins may read the gateway's responses, and those of others may not."""

import pytest
from tests.gateway.engine_answers import DONE

from penstock.gateway.http.cors import check_origin

PAGE, OTHER = "https://chat.example.com", "https://other.example.com"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}
EXPOSED = (
    "x-request-id, x-penstock-service, x-penstock-revision, x-penstock-model, x-penstock-fallback, "
    "x-penstock-limited-fields, "
    "retry-after, x-ratelimit-limit-requests, "
    "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
    "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


def cors_headers(got):
    return {
        name.lower(): value
        for name, value in got.headers.items()
        if name.lower().startswith("access-control-") or name.lower() == "vary"
    }


async def send(front, method, origin, path="/v1/chat/completions", **headers):
    """Status, headers of CORS and body of a response to a page."""
    options = {"json": {"model": "chat", "stream": True}} if method == "POST" else {}
    headers |= {} if origin is None else {"origin": origin}
    async with front.client.request(method, front.url + path, headers=headers, **options) as got:
        return got.status, cors_headers(got), await got.read()


@pytest.mark.parametrize(("allowed", "named"), [(PAGE, PAGE), ("*", "*")])
async def test_page_of_an_allowed_origin(start_engine, start_gateway, allowed, named):
    engine = await start_engine()
    front = await start_gateway(engine, cors_origins=(allowed, "https://third.example.com"))
    readable = {
        "access-control-allow-origin": named, "access-control-expose-headers": EXPOSED, "vary": "origin",
    }  # fmt: skip
    preflight = readable | {
        "access-control-allow-methods": "GET, POST, DELETE", "access-control-max-age": "7200",
        "access-control-allow-headers": PREFLIGHT["access-control-request-headers"],
    }  # fmt: skip
    assert await send(front, "OPTIONS", PAGE, **PREFLIGHT) == (204, preflight, b"")
    assert not engine.requests
    status, headers, body = await send(front, "POST", PAGE)
    assert (status, headers, body.endswith(DONE)) == (200, readable, True)
    status, headers, _ = await send(front, "GET", PAGE, "/v1/models")
    assert (status, headers) == (200, readable)
    status, headers, _ = await send(front, "POST", PAGE, "/v1/no-such-route")
    assert (status, headers) == (404, readable)


@pytest.mark.parametrize("origins", [(), (PAGE,)])
@pytest.mark.parametrize("origin", [OTHER, "null", PAGE + ".evil.example", PAGE + ":8443", None])
async def test_no_headers_for_pages_of_other_origins(start_engine, start_gateway, origins, origin):
    front = await start_gateway(await start_engine(), cors_origins=origins)
    status, headers, _ = await send(front, "OPTIONS", origin, **PREFLIGHT)
    assert (status, headers) == (405, {})
    status, headers, _ = await send(front, "POST", origin)
    assert (status, headers) == (200, {})


async def test_options_without_a_method_is_no_preflight(start_gateway):
    front = await start_gateway(cors_origins=(PAGE,))
    status, headers, _ = await send(front, "OPTIONS", PAGE)
    assert (status, headers["access-control-allow-origin"]) == (405, PAGE)


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://Chat.example.com", PAGE), ("http://localhost:3000", "http://localhost:3000"),
        ("*", "*"), ("chat.example.com", None), (PAGE + "/", None), ("https://", None), ("ftp://a", None),
        ("https://a,https://b", None), ("https://*.example.com/x", None), ("", None),
    ],
)  # fmt: skip
def test_origins_are_checked(given, origin):
    if origin is not None:
        assert check_origin(given) == origin
        return
    with pytest.raises(ValueError, match="is no origin: give the scheme and the host"):
        check_origin(given)
