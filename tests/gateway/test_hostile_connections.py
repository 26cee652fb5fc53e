"""The seeded part of the campaign of hostile connections that CI runs."""

from dataclasses import replace

import hostile_connections

from penstock.core.routing.pick import Endpoint

COUNT = 20


async def test_hostile_connections(start_gateway, make_service):
    engine = hostile_connections.RecordingEngine()
    server = await engine.start()
    front = await start_gateway(synced=False, head_timeout_s=0.5, request_timeout_s=0.5)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    front.show(replace(make_service(), endpoints=(Endpoint("default/engine", address, "r1"),)))

    statuses, wrong = await hostile_connections.campaign(
        "127.0.0.1", front.port, engine, seed=0, count=COUNT, clients=50
    )

    assert wrong == []
    assert len(statuses) == 5
    assert all(sum(counts.values()) >= COUNT for counts in statuses.values())
    assert len(engine.seen) > 2 * COUNT
    await front.idle()
    assert front.gateway.shared.bodies.held_bytes == 0
    server.close()
