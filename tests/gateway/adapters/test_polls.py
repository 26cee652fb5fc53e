"""Polls of engines for their adapters, after lists that cannot be read."""

from gateway.adapters.adapter_engine import NAME, AdapterEngine, ask

from penstock.clients.engine_adapters import EngineAdapters


class HostileEngine(AdapterEngine):
    """An engine whose list has an infinite number while `is_hostile`."""

    is_hostile = False

    async def _list(self, request):
        if not self.is_hostile:
            await super()._list(request)
            return
        self.num_lists += 1
        await request.whole(b'{"data": [{"id": "a", "tier": "disk", "requests": 1e999}]}')


async def test_after_a_list_with_an_infinite_number_the_next_one_counts(pool, until):
    engine = HostileEngine(NAME)
    front = await pool(engine)
    residency = front.gateway.state.adapters.residency
    (pod,) = front.snapshots.current.services[0].lora_engines
    engine.is_hostile, num_before = True, engine.num_lists
    await until(lambda: engine.num_lists >= num_before + 2)
    assert residency.copies(pod).keys() == {NAME}
    engine.copies = {}
    engine.is_hostile = False
    await until(lambda: residency.copies(pod) == {})
    assert (await ask(front))[0] == 200


async def test_an_unexpected_error_ends_no_polls(pool, until, monkeypatch, caplog):
    engine = AdapterEngine(NAME)
    front = await pool(engine)
    residency = front.gateway.state.adapters.residency
    (pod,) = front.snapshots.current.services[0].lora_engines
    num_errors = 0

    async def fail(*_):
        nonlocal num_errors
        num_errors += 1
        raise OverflowError("too large")

    with monkeypatch.context() as patched:
        patched.setattr(EngineAdapters, "list", fail)
        await until(lambda: num_errors >= 2)
        engine.copies = {}
    await until(lambda: residency.copies(pod) == {})
    (told,) = [each for each in caplog.records if "does not list its adapters" in each.message]
    assert told.exc_info[0] is OverflowError
