"""Adapters while engines evict, unload, refuse, restart and hang, and clients disconnect."""

import asyncio
import json
import random
from collections import Counter

import pytest
from tests.gateway.adapters.adapter_engine import AdapterEngine, adapter
from tests.support.gateway_snapshots import build

from penstock.core.spec.objectives import Objectives

pytestmark = pytest.mark.slow

SECONDS = 4.0
NUM_ADAPTERS, NUM_ENGINES, SLOTS, NUM_CLIENTS = 10, 4, 3, 24
BODIES = [adapter(f"a{n}", day=n + 1, uri=f"pvc://a/{n}") for n in range(NUM_ADAPTERS)]
NAMES = {each.name: each.engine_name for each in build([], [], [], BODIES).adapters}


class WildEngine(AdapterEngine):
    """An engine that answers with the name of the model, and at times misbehaves."""

    def __init__(self, draw):
        super().__init__(slots=SLOTS)
        self.draw = draw
        self.is_wild = True

    async def __call__(self, request):
        if self.is_wild and self.draw.random() < 0.02:
            request.reset()
            return
        if request.path == "/v1/load_lora_adapter":
            self.load_s = self.draw.uniform(0.0, 0.1)
            self.errors.clear()
            if self.is_wild and self.draw.random() < 0.1:
                name = json.loads(request.body)["lora_name"]
                self.errors[name] = "503 Service Unavailable", "all adapters are in use"
            resident = [name for name, tier in self.copies.items() if tier == "host"]
            if len(resident) >= SLOTS:
                self.copies[self.draw.choice(resident)] = "disk"
        await super().__call__(request)

    async def _complete(self, request, model):
        if model not in (*self.copies, "chat"):
            await request.whole(b'{"error": {"message": "no such model"}}', "404 Not Found")
            return
        await asyncio.sleep(self.draw.uniform(0.0, 0.02))
        await request.whole(json.dumps({"model": model}).encode())


@pytest.mark.parametrize("objectives", [None, Objectives.parse("1s", None, None)])
async def test_every_answer_is_of_the_model_that_was_asked_for(pool, until, objectives):
    draw = random.Random(1)
    behaviors = [WildEngine(draw) for _ in range(NUM_ENGINES)]
    front = await pool(
        *behaviors, adapters=BODIES, slots=SLOTS, more={"objectives": objectives}, min_retries=50
    )
    statuses = Counter()
    ends_at_s = asyncio.get_running_loop().time() + SECONDS

    async def ask_once(model):
        status, body = await front.ask(model=model, stream=False)
        if status == 200:
            assert json.loads(body)["model"] == NAMES.get(model, "chat")
        return status

    async def client():
        while asyncio.get_running_loop().time() < ends_at_s:
            model = draw.choice([*NAMES, "chat"])
            asking = asyncio.create_task(ask_once(model))
            if draw.random() < 0.1:
                await asyncio.sleep(draw.uniform(0, 0.05))
                asking.cancel()
            (result,) = await asyncio.gather(asking, return_exceptions=True)
            if not isinstance(result, asyncio.CancelledError):
                assert isinstance(result, int), result
                statuses[result] += 1

    async def operator():
        """Unloads copies at random, as the operator and other gateways do."""
        while asyncio.get_running_loop().time() < ends_at_s:
            await asyncio.sleep(0.05)
            engine = draw.choice(behaviors)
            for name in draw.sample(sorted(engine.copies), k=min(2, len(engine.copies))):
                del engine.copies[name]

    await asyncio.gather(operator(), *(client() for _ in range(NUM_CLIENTS)))
    assert statuses.keys() <= {200, 502, 503}
    assert statuses[200] > 0.95 * statuses.total()
    for engine in behaviors:
        engine.is_wild = False
    await front.idle()
    state = front.gateway.state
    await until(lambda: not state.adapters.loads._tasks)
    counts = state.stats.adapters.of_service("default/chat")
    assert all(not stats.waiting and not stats.pods.total for stats in counts.values())
    copies = [state.adapters.residency.copies(f"default/engine-{n}") for n in range(NUM_ENGINES)]
    assert all(copy.state != "Loading" for each in copies for copy in (each or {}).values())
    await asyncio.sleep(1.2)  # ejections end
    for model in (*NAMES, "chat"):
        assert await ask_once(model) == 200
