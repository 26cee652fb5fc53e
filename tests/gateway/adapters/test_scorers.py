"""A scorer is in force for each way in which the gateway chooses an engine."""

import pytest
from tests.gateway.adapters.adapter_engine import NAME, AdapterEngine

from penstock.core.routing import scorers
from penstock.core.routing.affinity import affinity_key
from penstock.core.routing.apis import CHAT
from penstock.core.routing.route import Mirror, RouteRule
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.snapshot import Route, Snapshot

OBJECTIVES = Objectives.parse("1s", None, None)
NUM_REQUESTS = 12  # to three engines by chance: one in 180,000 would meet the same one each time


class Preference:
    """A scorer that prefers one pod to any load. keys: what it was given of each request."""

    def __init__(self, pod):
        self._pod = pod
        self.keys = []

    def __call__(self, candidates):
        self.keys.append(candidates.key)
        return [1e9 if engine.pod == self._pod else 0.0 for engine in candidates.engines]


@pytest.fixture
def prefer(monkeypatch):
    """`prefer(pod)` adds a scorer, which it returns."""

    def add(pod):
        scorer = Preference(pod)
        monkeypatch.setattr(scorers, "SCORERS", (*scorers.SCORERS, (1.0, scorer)))
        return scorer

    return add


@pytest.mark.parametrize("objectives", [None, OBJECTIVES], ids=["at once", "queued"])
@pytest.mark.parametrize("model", ["chat", "chat-sql"])
async def test_requests_for_models_and_adapters(pool, prefer, model, objectives):
    engines = [AdapterEngine(NAME) for _ in range(3)]
    front = await pool(*engines, more={"objectives": objectives, "affinity": "User"})
    scorer = prefer(front.snapshots.current.services[0].endpoints[1].pod)
    for _ in range(NUM_REQUESTS):
        assert (await front.ask(model=model, stream=False, user="u"))[0] == 200
    assert [len(engine.served) for engine in engines] == [0, NUM_REQUESTS, 0]
    assert scorer.keys == NUM_REQUESTS * [affinity_key("User", {"user": "u"}, CHAT)]


async def test_mirrored_copies(start_engine, start_gateway, make_service, prefer):
    main, *others = [await start_engine() for _ in range(4)]
    front = await start_gateway()
    services = make_service(main, name="old"), make_service(*others, name="new")
    rule = RouteRule((), (("old", 1),), mirrors=(Mirror("new", None, 100),))
    front.snapshots.publish(Snapshot(services, (Route("default", "route", "chat", 0, (rule,)),)))
    prefer(services[1].endpoints[1].pod)
    for _ in range(NUM_REQUESTS):
        assert (await front.ask())[0] == 200
    await front.idle_with_copies()
    assert [len(engine.requests) for engine in others] == [0, NUM_REQUESTS, 0]
