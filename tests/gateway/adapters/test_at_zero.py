"""Requests for an adapter of a service at zero wake the service, by the adapter's name and by a route."""

import asyncio
from dataclasses import replace

import pytest
from tests.gateway.adapters.adapter_engine import NAME, AdapterEngine, ask
from tests.gateway.adapters.test_routes import publish_route

from penstock.core.observed.lora_engine import LoraEngine


@pytest.mark.parametrize("model", ["chat-sql", "any"])
async def test_a_held_request_loads_the_adapter_on_the_first_engine(
    pool, start_engine, until, model
):
    front = await pool(more={"wakes_in_s": 42.0, "weights": {}})
    if model == "any":
        publish_route(front, {"kind": "LoraAdapter", "name": "sql"})
    before = front.gateway.state.wake_calls.token
    asking = asyncio.create_task(ask(front, model))
    await until(lambda: front.gateway.state.waiting == 1)
    assert front.gateway.state.wake_calls.token != before
    report = front.gateway.state.stats.report(front.snapshots.current)
    assert (report.services["default/chat"].arrivals, report.services["default/chat"].queued) == (
        1,
        1,
    )

    behavior = AdapterEngine()
    engine = await start_engine(behavior)
    endpoint = engine.endpoint()
    (service,) = front.snapshots.current.services
    awake = replace(
        service,
        weights={endpoint.side: 100},
        endpoints=(endpoint,),
        sides={endpoint.pod: endpoint.side},
        lora_engines={endpoint.pod: LoraEngine("Penstock", 4)},
    )
    front.snapshots.publish(replace(front.snapshots.current, services=(awake,)))
    assert (await asking)[0] == 200
    assert behavior.calls == [("load", NAME)]
