"""Services with objectives: requests wait at the gateway while no engine would answer in time.

The gateway's clock advances only when an engine computes a prompt.
"""

import asyncio
import json
import math

import pytest
from tests.gateway.engine_answers import DONE

from penstock.clients.pods.stats_report import PATH, parse
from penstock.core.spec.objectives import Objectives

# Two prompts of 0.2 s fit with a margin of a tenth. A third would be late.
OBJECTIVES = Objectives(0.61, 0.5)
# The gateway estimates about 10,000 tokens.
PROMPT = "x" * 40_000  # most of its time is that of its tokens


class ManualClock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


class SerialEngine:
    """An engine that computes prompts one after the other. may_compute: how many more it may compute."""

    def __init__(self, clock, prompt_s):
        self.clock = clock
        self.prompt_s = prompt_s
        self.may_compute = math.inf
        self.order = []
        self._turn = asyncio.Lock()

    async def __call__(self, request):
        self.order.append(json.loads(request.body).get("user"))
        async with self._turn:
            while not self.may_compute:  # noqa: ASYNC110 - a number has no events
                await asyncio.sleep(0.001)
            self.may_compute -= 1
            self.clock.now_s += self.prompt_s
        if not request.is_stream or request.path == "/tokenize":
            await request.whole(b"{}")
            return
        await request.head()
        for _ in range(3):
            await request.chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
        await request.chunk(DONE)
        await request.end()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def learned_gateway(start_engine, start_gateway, make_service, clock):
    """A gateway that has learned that its engine takes 0.2 s per prompt, so that three do not fit."""
    behavior = SerialEngine(clock, 0.2)
    engine = await start_engine(behavior)
    front = await start_gateway(now=clock)
    front.publish(make_service(engine, objectives=OBJECTIVES))
    for _ in range(3):
        assert (await front.ask(prompt=PROMPT))[0] == 200
    behavior.order.clear()
    return front, engine, behavior


def ask(front, user, **more):
    return asyncio.create_task(front.ask(prompt=PROMPT, user=user, **more))


async def reading(front):
    async with front.client.get(front.management_url + PATH) as got:
        return parse("g", await got.text()).services["default/chat"]


async def test_requests_beyond_the_objective_wait_at_the_gateway(learned_gateway, until):
    front, engine, behavior = learned_gateway
    behavior.may_compute = 0
    requests = [ask(front, str(n)) for n in range(6)]
    await until(lambda: front.gateway.state.waiting == 4 and engine.active == 2)
    stats = await reading(front)
    assert (stats.queued, stats.in_flight) == (4, 2)
    assert stats.queued_prompt_tokens == pytest.approx(4 * 10_000, rel=0.2)
    behavior.may_compute = math.inf
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 6
    assert sorted(behavior.order) == ["0", "1", "2", "3", "4", "5"]
    await front.idle()


async def test_request_that_can_be_in_time_goes_before_a_late_one(learned_gateway, until):
    front, _, behavior = learned_gateway
    behavior.may_compute = 0
    requests = [ask(front, "first")]
    await until(lambda: len(behavior.order) == 1)
    requests.append(ask(front, "second"))
    await until(lambda: len(behavior.order) == 2)
    requests.append(ask(front, "late"))
    await until(lambda: front.gateway.state.waiting == 1)
    behavior.may_compute = 1
    await requests[0]  # the second prompt is computed next, so one more request fits
    requests.append(ask(front, "new"))
    await until(lambda: len(behavior.order) == 3)
    behavior.may_compute = math.inf
    await asyncio.gather(*requests)
    assert behavior.order == ["first", "second", "new", "late"]


async def test_request_for_which_the_model_computes_nothing_does_not_wait(learned_gateway, until):
    front, engine, behavior = learned_gateway
    behavior.may_compute = 0
    requests = [ask(front, str(n)) for n in range(3)]
    await until(lambda: front.gateway.state.waiting == 1 and engine.active == 2)
    counting = asyncio.create_task(front.ask("/tokenize", prompt=PROMPT, user="counts"))
    await until(lambda: engine.active == 3)
    assert (front.gateway.state.waiting, behavior.order[-1]) == (1, "counts")
    behavior.may_compute = math.inf
    assert [status for status, _ in await asyncio.gather(counting, *requests)] == [200] * 4


async def test_disconnected_request_leaves_the_queue(learned_gateway, until):
    front, _, behavior = learned_gateway
    behavior.may_compute = 0
    requests = [ask(front, "served") for _ in range(2)]
    await until(lambda: len(behavior.order) == 2)
    leaving = ask(front, "left")
    await until(lambda: front.gateway.state.waiting == 1)
    leaving.cancel()
    await until(lambda: front.gateway.state.waiting == 0)
    behavior.may_compute = math.inf
    await asyncio.gather(*requests)
    await front.ask(prompt=PROMPT)
    assert "left" not in behavior.order
    assert await front.metric("penstock_gateway_disconnects_total", phase="waiting") == 1
    await front.idle()


async def test_full_queue_is_a_503_with_retry_after(
    start_engine, start_gateway, make_service, until, clock
):
    behavior = SerialEngine(clock, 0.4)
    front = await start_gateway(max_waiting=2, now=clock)
    front.publish(make_service(await start_engine(behavior), objectives=Objectives(0.5, 0.5)))
    await front.ask(prompt=PROMPT)
    behavior.may_compute = 0
    requests = [ask(front, "served") for _ in range(3)]
    await until(lambda: front.gateway.state.waiting == 2)
    async with front.post(prompt=PROMPT) as got:
        assert got.status == 503
        assert 1 <= int(got.headers["retry-after"]) <= 5
        assert "too many requests wait" in (await got.json())["error"]["message"]
    behavior.may_compute = math.inf
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 3
    await front.idle()
    assert (await reading(front)).shed == 1


@pytest.mark.parametrize(
    ("limit_s", "expected"),
    [
        (0.7, "no engine had room in time"),
        # Two prompts of 0.2 s each are ahead of it.
        (0.3, "the requests ahead take longer than this one may wait"),
    ],
)
async def test_wait_limit_in_the_queue_is_a_503(
    start_engine, start_gateway, make_service, until, clock, limit_s, expected
):
    behavior = SerialEngine(clock, 0.2)
    front = await start_gateway(wait_for_endpoint_s=limit_s, now=clock)
    front.publish(make_service(await start_engine(behavior), objectives=OBJECTIVES))
    await front.ask(prompt=PROMPT)
    behavior.may_compute = 0
    requests = [ask(front, "served") for _ in range(2)]
    await until(lambda: len(behavior.order) == 3)
    status, body = await front.ask(prompt=PROMPT)
    assert (status, json.loads(body)["error"]["message"]) == (503, expected)
    behavior.may_compute = math.inf
    await asyncio.gather(*requests)
    await front.idle()


async def test_new_engine_takes_waiting_requests(
    learned_gateway, start_engine, make_service, until, clock
):
    front, engine, behavior = learned_gateway
    behavior.may_compute = 0
    requests = [ask(front, "a") for _ in range(5)]
    await until(lambda: front.gateway.state.waiting == 3)
    second = await start_engine(SerialEngine(clock, 0.01))
    front.publish(make_service(engine, second, objectives=OBJECTIVES))
    await until(lambda: front.gateway.state.waiting == 0)
    behavior.may_compute = math.inf
    await asyncio.gather(*requests)
    assert len(second.requests) == 3


@pytest.mark.parametrize("how", ["weight", "engines"])
async def test_removed_side_sends_its_queue_to_the_other_side(
    learned_gateway, start_engine, make_service, until, clock, how
):
    front, engine, behavior = learned_gateway
    behavior.may_compute = 0
    requests = [ask(front, "a") for _ in range(4)]
    await until(lambda: front.gateway.state.waiting == 2 and engine.active == 2)
    other = await start_engine(SerialEngine(clock, 0.01), "r2")
    engines = [engine, other] if how == "weight" else [other]
    weights = {"r1": 0, "r2": 100} if how == "weight" else {"r1": 50, "r2": 50}
    front.publish(make_service(*engines, objectives=OBJECTIVES, weights=weights))
    await until(lambda: front.gateway.state.waiting == 0)
    behavior.may_compute = math.inf
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 4
    assert len(other.requests) == 2
    await front.idle()


async def test_each_side_has_its_own_queue(
    learned_gateway, start_engine, make_service, until, clock
):
    """A slow canary makes only its own requests wait."""
    front, engine, behavior = learned_gateway
    other = await start_engine(SerialEngine(clock, 0.01), "r2")
    front.publish(make_service(engine, other, objectives=OBJECTIVES, weights={"r1": 50, "r2": 50}))
    behavior.may_compute = 0
    requests = [ask(front, str(n)) for n in range(24)]
    await until(
        lambda: engine.active == 2 and len(other.requests) + front.gateway.state.waiting + 2 == 24
    )
    assert len(other.requests) == 24 - 2 - front.gateway.state.waiting
    behavior.may_compute = math.inf
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 24


async def test_complete_responses_do_not_hold_up_the_queue(
    start_engine, start_gateway, make_service, clock
):
    """Their first token is not visible, so it is assumed to come at its predicted time."""
    behavior = SerialEngine(clock, 0.01)
    engine = await start_engine(behavior)
    front = await start_gateway(now=clock)
    front.publish(make_service(engine, objectives=OBJECTIVES))
    answers = await asyncio.gather(*(ask(front, "a", stream=False) for _ in range(50)))
    assert [status for status, _ in answers] == [200] * 50
    await front.idle()


async def test_engine_of_unknown_throughput_gets_one_prompt_first(
    start_engine, start_gateway, make_service, until, clock
):
    """The first token shows the throughput. The other requests wait for it."""
    front = await start_gateway(now=clock)
    front.publish(make_service(objectives=OBJECTIVES))
    requests = [ask(front, str(n)) for n in range(10)]
    await until(lambda: front.gateway.state.waiting == 10)
    behavior = SerialEngine(clock, 0.05)
    behavior.may_compute = 0
    engine = await start_engine(behavior)
    front.publish(make_service(engine, objectives=OBJECTIVES))
    await until(lambda: front.gateway.state.waiting == 9 and engine.active == 1)
    behavior.may_compute = math.inf
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 10


async def test_queued_request_is_retried_when_its_engine_is_unreachable(
    learned_gateway, start_engine, make_service, clock
):
    front, engine, _ = learned_gateway
    await engine.stop()
    second = await start_engine(SerialEngine(clock, 0.01))
    front.publish(make_service(engine, second, objectives=OBJECTIVES))
    answers = await asyncio.gather(*(ask(front, "a") for _ in range(8)))
    assert [status for status, _ in answers] == [200] * 8
    await front.idle()
