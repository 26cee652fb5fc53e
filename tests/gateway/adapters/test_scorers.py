"""A scorer is in force for each way in which the gateway chooses an engine."""

import pytest
from tests.gateway.adapters.adapter_engine import NAME, AdapterEngine

from penstock.core.routing import scorers
from penstock.core.routing.apis import CHAT
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.routing.route import Mirror, RouteRule
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.snapshot import Route, Snapshot

OBJECTIVES = Objectives.parse("1s", None, None)
NUM_REQUESTS = 12  # to three engines by chance: one in 180,000 would meet the same one each time
USERS = ("ada", "bob")
MESSAGES = [{"role": "user", "content": "Hello"}]


def attributes_of(user):
    fields = {"user": user, "messages": MESSAGES}
    return RequestAttributes.of(fields, CHAT.prompt_of(fields))


class Preference:
    """A scorer that prefers a user's pod to any load. seen: attributes of each request."""

    def __init__(self, pods):
        self._pods = {attributes_of(user).user_key: pod for user, pod in pods.items()}
        self.seen = []

    def __call__(self, candidates):
        self.seen.append(candidates.request)
        pod = self._pods[candidates.request.user_key]
        return [1e9 if engine.pod == pod else 0.0 for engine in candidates.engines]


@pytest.fixture
def prefer(monkeypatch):
    """`prefer(endpoints)` adds a scorer by which each of `USERS` prefers an endpoint, and returns it."""

    def add(endpoints):
        pods = (endpoint.pod for endpoint in endpoints)
        scorer = Preference(dict(zip(USERS, pods, strict=True)))
        monkeypatch.setattr(scorers, "SCORERS", (*scorers.SCORERS, (1.0, scorer)))
        return scorer

    return add


@pytest.mark.parametrize("objectives", [None, OBJECTIVES], ids=["at once", "queued"])
@pytest.mark.parametrize("model", ["chat", "chat-sql"])
async def test_requests_for_models_and_adapters(pool, prefer, model, objectives):
    engines = [AdapterEngine(NAME) for _ in range(3)]
    front = await pool(*engines, more={"objectives": objectives})
    scorer = prefer(front.snapshots.current.services[0].endpoints[1:])
    for _ in range(NUM_REQUESTS):
        for user in USERS:
            asking = front.ask(model=model, stream=False, user=user, messages=MESSAGES)
            assert (await asking)[0] == 200
    assert [len(engine.served) for engine in engines] == [0, NUM_REQUESTS, NUM_REQUESTS]
    assert scorer.seen == NUM_REQUESTS * [attributes_of(user) for user in USERS]


async def test_mirrored_copies(start_engine, start_gateway, make_service, prefer):
    main, *others = [await start_engine() for _ in range(4)]
    front = await start_gateway()
    services = make_service(main, name="old"), make_service(*others, name="new")
    rule = RouteRule((), (("old", 1),), mirrors=(Mirror("new", None, 100),))
    front.snapshots.publish(Snapshot(services, (Route("default", "route", "chat", 0, (rule,)),)))
    prefer(services[1].endpoints[1:])
    for _ in range(NUM_REQUESTS):
        for user in USERS:
            assert (await front.ask(user=user))[0] == 200
    await front.idle_with_copies()
    assert [len(engine.requests) for engine in others] == [0, NUM_REQUESTS, NUM_REQUESTS]
