"""ModelRoutes whose backends are adapters."""

import json
from collections import Counter
from dataclasses import replace

from tests.gateway.adapters.adapter_engine import NAME, AdapterEngine, ask
from tests.support.gateway_snapshots import build

from penstock.gateway.snapshots.snapshot import Snapshot


def route(*backends):
    """A ModelRoute as the API server returns it."""
    metadata = {"name": "route", "namespace": "default"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"modelName": "any", "rules": [{"backendRefs": list(backends)}]},
    }


def publish_route(front, *backends):
    routes = build([], [], [route(*backends)]).routes
    front.snapshots.publish(replace(front.snapshots.current, routes=routes))


async def test_an_adapter_and_its_base_model_share_a_route(pool):
    engine = AdapterEngine(NAME)
    front = await pool(engine)
    publish_route(front, {"name": "chat"}, {"kind": "LoraAdapter", "name": "sql"})
    for _ in range(40):
        assert (await ask(front, "any"))[0] == 200
    served = Counter(engine.served)
    assert set(served) == {NAME, "chat"}
    assert min(served.values()) > 5  # one in 60,000 times by chance
    assert (
        await front.metric(
            "penstock_gateway_model_route_requests_total", model_route="default/route"
        )
        == 40
    )
    assert await front.metric("penstock_gateway_adapter_requests_total") == served[NAME]


async def test_a_cold_adapter_of_a_route_is_loaded(pool):
    engine = AdapterEngine()
    front = await pool(engine)
    publish_route(front, {"kind": "LoraAdapter", "name": "sql"})
    assert (await ask(front, "any"))[0] == 200
    assert engine.calls == [("load", NAME)]


async def test_a_route_to_a_missing_adapter_is_a_503(pool):
    front = await pool(AdapterEngine())
    front.snapshots.publish(Snapshot(front.snapshots.current.services))
    publish_route(front, {"kind": "LoraAdapter", "name": "sql"})
    status, body = await front.ask(model="any")
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (503, "route_broken")
    assert error["message"] == (
        "the ModelRoute default/route sends this request to the LoraAdapter sql, which the namespace "
        "default does not have: create it, or change the route"
    )
