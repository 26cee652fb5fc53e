"""Bad requests of tenants get a sentence in the form of the API, beside good ones of a neighbor."""

from collections import Counter

from benchmarks.gateway import refusals


async def test_bad_requests_are_refused_with_a_reason(start_gateway, start_engine):
    engine = await start_engine()
    front = await start_gateway(synced=False)
    front.publish(*refusals.services(engine.endpoint().address))
    refusals.give_tenants(front.gateway)
    times = refusals.Times()
    wrong = await refusals.campaign(
        "127.0.0.1", front.port, times, rounds=1, clients=4, alone_s=0.0
    )
    assert wrong == []
    assert times.failed == Counter()
    assert times.beside_bad != []
    bad = refusals.bad_requests()
    assert len({(each.kind, each.data) for each in bad}) == len(bad) >= 150
    # The engine got the good requests alone.
    assert {request.body for request in engine.requests} == {refusals.GOOD_BODY}
    await front.idle()
