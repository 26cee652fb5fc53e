"""The seeded part of the campaign of hostile connections that CI runs."""

from collections import Counter
from dataclasses import replace

from benchmarks.gateway import hostile_connections
from benchmarks.gateway.hostile_connections import corpus

from penstock.core.routing.pick import Endpoint

COUNT = 20


async def test_hostile_connections(start_gateway, make_service):
    """Two gateways, so that requests sent in full keep clear of the time limit that the others exceed."""
    engine = hostile_connections.RecordingEngine()
    server = await engine.start()
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    service = replace(make_service(), endpoints=(Endpoint("default/engine", address, "r1"),))
    cases = corpus(0, COUNT)
    statuses: dict[str, Counter[int]] = {}
    try:
        for is_complete, limit_s in ((True, 60.0), (False, 0.5)):
            front = await start_gateway(
                synced=False, head_timeout_s=limit_s, request_timeout_s=limit_s
            )
            front.publish(service)
            chosen = [case for case in cases if bool(case.ids) is is_complete]
            counts, wrong = await hostile_connections.campaign(
                "127.0.0.1", front.port, engine, chosen, clients=50
            )
            assert wrong == []
            for kind, count in counts.items():
                statuses.setdefault(kind, Counter()).update(count)
            await front.idle()
            assert front.gateway.state.limits.body_bytes.held == 0
    finally:
        server.close()
    assert len(statuses) == 5
    assert all(sum(counts.values()) >= COUNT for counts in statuses.values())
    assert len(engine.seen) > 2 * COUNT
