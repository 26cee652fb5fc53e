"""Routes that the gateway answers itself: health, readiness, metrics, models, and errors."""

import json

import pytest
from tests.gateway.test_management import PATHS

from penstock.core.routing.apis import APIS


async def get(front, path, **options):
    url = (front.management_url if path in PATHS else front.url) + path
    async with front.client.request(options.pop("method", "GET"), url, **options) as got:
        return got.status, got.headers, await got.read()


async def test_healthz_reports_the_event_loop_lag(start_gateway):
    front = await start_gateway()
    front.gateway.note_loop_lag(0.123456)
    status, headers, body = await get(front, "/healthz")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"status": "ok", "loop_lag_s": 0.1235}
    assert await front.metric("penstock_gateway_loop_lag_seconds") == 0.123456


async def test_ready_from_the_first_snapshot_until_the_drain(start_gateway, make_service):
    front = await start_gateway(synced=False)
    status, _, body = await get(front, "/readyz")
    assert (status, json.loads(body)) == (
        503,
        {"status": "services and engines are not known yet"},
    )
    front.publish(make_service())
    status, _, body = await get(front, "/readyz")
    assert (status, json.loads(body)) == (200, {"status": "ok"})
    front.gateway.drain()
    status, _, body = await get(front, "/readyz")
    assert (status, json.loads(body)) == (503, {"status": "draining"})


async def test_content_types_of_the_gateways_own_routes(start_gateway):
    front = await start_gateway(synced=False)
    for path, kind in (
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/penstock/feed", "application/json"),
        ("/v1/models", "application/json"),
    ):
        status, headers, body = await get(front, path)
        assert (status, headers["content-type"]) == (200, kind)
        assert body


async def test_errors_of_the_router_have_openais_form(start_gateway):
    front = await start_gateway()
    status, headers, body = await get(front, "/v1/completions")
    assert (status, headers["allow"]) == (405, "POST")
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["error"] == {
        "message": "/v1/completions does not take GET; send POST",
        "type": "invalid_request_error",
        "param": None,
        "code": 405,
    }


async def test_unknown_path_is_answered_with_the_routes_that_there_are(start_gateway):
    front = await start_gateway()
    status, _, body = await get(front, "/v1/no-such-route", method="POST")
    assert status == 404
    assert json.loads(body)["error"]["message"] == (
        "the gateway has no route POST /v1/no-such-route; it relays "
        f"{', '.join(api.path for api in APIS)} to engines, and has /v1/models"
    )
    _, _, body = await get(front, "/" + "x" * 1000)
    assert f"GET /{'x' * 199};" in json.loads(body)["error"]["message"]


async def test_exception_in_the_gateway_is_a_500(start_engine, start_gateway, monkeypatch, caplog):
    front = await start_gateway(await start_engine())

    def breaks(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("penstock.gateway.proxy.proxied_request.resolve", breaks)
    status, body = await front.ask()
    assert (status, json.loads(body)["error"]["type"]) == (500, "internal_error")
    assert json.loads(body)["error"]["message"] == "the gateway failed"
    assert "failed" in caplog.text
    assert await front.metric("penstock_gateway_responses_total", code="500", service="") == 1
    await front.idle()


@pytest.mark.parametrize(("given", "kept"), [("id-1", True), ("x" * 128, True), ("a b", False)])
async def test_valid_request_id_is_kept_and_another_is_replaced(
    start_engine, start_gateway, given, kept
):
    front = await start_gateway(await start_engine())
    used = set()
    for _ in range(2):
        _, headers, _ = await get(
            front,
            "/v1/completions",
            method="POST",
            json={"model": "chat"},
            headers={"x-request-id": given},
        )
        used.add(headers["x-request-id"])
    assert (used == {given}) == kept
    assert len(used) == (1 if kept else 2)
