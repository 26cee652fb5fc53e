"""Failed loads of adapters, as a gateway remembers them."""

from dataclasses import replace

from tests.gateway.adapters.adapter_engine import (
    BUILT,
    NAME,
    AdapterEngine,
    EndingEngine,
    adapter,
    ask,
)
from tests.support.gateway_snapshots import build

from penstock.clients.pods.engine_adapters import EngineFailure
from penstock.core.routing.pick import Endpoint
from penstock.gateway.adapters.failures import AdapterFailures
from penstock.gateway.snapshots.snapshot import Snapshot

REFUSED = EngineFailure("Refused", "BadFile", "pickle file")
(RENAMED,) = build([], [], [], [adapter("again", model="chat-sql")]).adapters


async def recreate(front, again, until):
    """Delete the adapters, create this one, and wait until the copies of all engines are known."""
    (service,) = front.snapshots.current.services
    front.snapshots.publish(Snapshot((service,)))
    front.snapshots.publish(Snapshot((service,), (), (again,)))
    residency = front.gateway.state.adapters.residency
    await until(lambda: all(residency.copies(pod) is not None for pod in service.lora_engines))


async def test_an_adapter_that_is_created_again_is_tried_no_sooner(pool, until):
    """Under another name too: each load may cost another adapter its slot."""
    engine = AdapterEngine()
    engine.errors = dict.fromkeys([NAME, RENAMED.engine_name], ("400 Bad Request", "pickle file"))
    front = await pool(engine)
    assert (await ask(front))[0] == 424
    for again in (BUILT, RENAMED):
        await recreate(front, again, until)
        assert (await ask(front))[0] == 424
    assert engine.calls == [("load", NAME)]


async def test_an_adapter_that_ends_engines_ends_no_more_after_it_is_created_again(pool, until):
    engines = [EndingEngine() for _ in range(5)]
    front = await pool(*engines)
    for _ in range(3):
        await recreate(front, BUILT, until)
        assert (await ask(front))[0] == 424
    assert sum(len(engine.calls) for engine in engines) == 2


def refused(pods: int) -> tuple[AdapterFailures, list[Endpoint], list[float]]:
    """Failures, engines of one revision, and the time in a list."""
    endpoints = [Endpoint(f"default/p{number}", "127.0.0.1:1", "r1") for number in range(pods)]
    now_s = [0.0]
    return AdapterFailures(lambda: now_s[0]), endpoints, now_s


def test_the_pause_after_refusals_by_several_engines_doubles_whichever_engines_they_are() -> None:
    failures, endpoints, now_s = refused(8)
    for number, pause_s in enumerate((5.0, 10.0, 20.0, 40.0)):
        assert failures.find(BUILT, endpoints[2 * number :]) == {}
        for endpoint in endpoints[2 * number : 2 * number + 2]:
            failures.note_failure(BUILT, endpoint, REFUSED)
        assert {each.retry_at_s for each in failures.find(BUILT, endpoints).values()} == {
            now_s[0] + pause_s
        }
        now_s[0] += pause_s
    failures.note_success(BUILT, endpoints[0])
    for endpoint in endpoints[2:4]:
        failures.note_failure(BUILT, endpoint, REFUSED)
    assert failures.find(BUILT, endpoints[:1])[endpoints[0].pod].retry_at_s == now_s[0] + 5.0


def test_failures_of_engines_that_are_gone_are_forgotten_after_an_hour() -> None:
    failures, (engine,), now_s = refused(1)
    failures.note_failure(BUILT, engine, REFUSED)
    now_s[0] = 3604.0
    failures.update(Snapshot((), (), (BUILT,)))
    failures.note_failure(BUILT, engine, REFUSED)
    assert failures.find(BUILT, [engine])[engine.pod].times == 2
    now_s[0] += 3610.0
    failures.update(Snapshot((), (), (BUILT,)))
    failures.note_failure(BUILT, engine, REFUSED)
    assert failures.find(BUILT, [engine])[engine.pod].times == 1


def test_many_failures_in_a_namespace_make_a_gateway_forget_none_of_another():
    failures, (engine,), now_s = refused(1)
    failures.note_failure(BUILT, engine, REFUSED)
    now_s[0] = 10.0
    for number in range(1000):
        version = replace(BUILT.version, uri=f"pvc://a/{number}")
        failures.note_failure(
            replace(BUILT, service="other/chat", version=version), engine, REFUSED
        )
    failures.update(Snapshot((), (), ()))
    failures.note_failure(BUILT, engine, REFUSED)
    assert failures.find(BUILT, [engine])[engine.pod].times == 2
