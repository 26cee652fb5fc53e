"""The series that /metrics keeps."""

from dataclasses import replace

from penstock.core.routing.pick import Side


async def series(front) -> set[tuple[str, str]]:
    """The services and revisions that have series."""
    async with front.client.get(front.management_url + "/metrics") as got:
        text = await got.text()
    lines = [line for line in text.splitlines() if 'service="default/' in line]
    return {
        (
            line.split('service="')[1].split('"')[0],
            line.split('revision="')[1].split('"')[0] if 'revision="' in line else "",
        )
        for line in lines
    }


async def test_series_are_removed_with_their_revision_and_service(
    start_engine, start_gateway, make_service
):
    engine = await start_engine()
    front = await start_gateway(synced=False)
    other = make_service(engine, name="other")
    for number in range(30):
        revision = f"r{number}"
        engine.revision = revision
        front.publish(make_service(engine, weights={revision: 100}), other)
        assert (await front.ask(stream=False))[0] == 200
    engine.revision = "r1"
    assert (await front.ask(stream=False, model="other"))[0] == 200
    await front.idle()

    kept = {("default/chat", "r29"), ("default/chat", ""), ("default/other", "r1")}
    assert await series(front) == kept | {("default/other", "")}

    front.publish(other)
    assert await series(front) == {("default/other", "r1"), ("default/other", "")}


async def test_rare_events_are_counted_from_zero(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    async with front.client.get(front.management_url + "/metrics") as got:
        lines = (await got.text()).splitlines()
    assert 'penstock_gateway_ejections_total{service="default/chat"} 0.0' in lines
    assert 'penstock_gateway_wait_seconds_count{service="default/chat"} 0.0' in lines


async def test_revision_without_weight_keeps_its_series_while_it_has_pods(
    start_engine, start_gateway, make_service
):
    old, new = await start_engine(), await start_engine(revision="r2")
    front = await start_gateway(old)
    assert (await front.ask(stream=False))[0] == 200
    await front.idle()
    service = make_service(old, new, weights={"r2": 100})
    front.publish(service)
    assert ("default/chat", "r1") in await series(front)
    front.publish(replace(service, sides={"default/engine-1": Side("r2")}))
    assert ("default/chat", "r1") not in await series(front)


async def test_a_path_with_a_newline_is_no_route(start_engine, start_gateway):
    engine = await start_engine()
    front = await start_gateway(engine)
    async with front.client.post(
        front.url + "/v1/completions%0a", json={"model": "chat", "prompt": "x"}
    ) as got:
        assert got.status == 404
    assert engine.requests == []
    async with front.client.get(front.management_url + "/metrics") as got:
        assert "/v1/completions\\n" not in await got.text()
