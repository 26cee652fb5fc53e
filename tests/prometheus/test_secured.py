"""Prometheus behind an HTTPS proxy that requires a bearer token."""

import ssl

import httpx
import pytest
import typer
from aiohttp import web

from penstock.cli.servers.operator import prometheus as server_of
from penstock.clients.machine.clock import steady
from penstock.clients.prometheus.promql import Server
from penstock.clients.prometheus.scraper import PrometheusScraper
from penstock.core.scaling.signals import EngineReading
from penstock.local.pki import Authority

POD, TOKEN = "chat-b-1", "s3cret"


@pytest.fixture
async def proxy(prometheus, port, tmp_path):
    """Start an HTTPS proxy for Prometheus that requires the token. Returns it and the CA file."""

    async def forward(request):
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise web.HTTPUnauthorized
        async with httpx.AsyncClient(base_url=prometheus.url) as client:
            answer = await client.get(request.path_qs.removeprefix("/behind"))
        return web.Response(body=answer.content, content_type="application/json")

    Authority(tmp_path).issue("door", "door", addresses=("127.0.0.1",))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "door.crt", tmp_path / "door.key")
    app = web.Application()
    app.router.add_get("/behind/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    yield f"https://127.0.0.1:{port}/behind", tmp_path / "ca.crt"
    await runner.cleanup()


async def test_token_and_certificate(prometheus, proxy, tmp_path):
    url, ca_file = proxy
    token_file = tmp_path / "token"
    await prometheus.until("up == 1")

    async def read(server):
        return (await PrometheusScraper(server, steady).read("default", [POD]))[POD]

    token_file.write_text("old\n")
    scraped = PrometheusScraper(Server(url, token_file, ca_file), steady)
    refused = (await scraped.read("default", [POD]))[POD]
    assert "HTTP Status Code 401" in refused.reason
    token_file.write_text(f"{TOKEN}\n")
    assert isinstance((await scraped.read("default", [POD]))[POD], EngineReading)
    stranger = await read(Server(url, token_file))
    assert "cannot be queried: SSLError" in stranger.reason
    token_file.unlink()
    nothing = await read(Server(url, token_file, ca_file))
    assert "cannot be queried: FileNotFoundError" in nothing.reason


@pytest.mark.parametrize(
    ("url", "token_file", "message"),
    [
        (None, "/token", "need --prometheus-url"),
        ("prometheus:9090", None, "must be http"),
        ("http://", None, "must be http"),
        ("https://me:mine@prometheus", None, "without a user name"),
        ("http://prometheus:9090", "/token", "with https"),
    ],
)
def test_invalid_or_insecure_options_are_refused(url, token_file, message):
    with pytest.raises(typer.BadParameter, match=message):
        server_of(url, token_file, None)
