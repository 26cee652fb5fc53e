"""Requests of the lowest class at an engine whose answers take much of what the objectives allow."""

import asyncio
import json

import pytest
from tests.gateway.support.front import until

from penstock.core.admission.batch_window import MAX_BATCH_SEQUENCES
from penstock.core.spec.objectives import Objectives

ANSWER = {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 5, "completion_tokens": 11}}
OBJECTIVES = Objectives(ttft_s=1.0, tpot_s=0.1)


class HoldingEngine:
    """An engine whose answers wait until the test releases them."""

    def __init__(self):
        self.num_running = 0
        self.is_released = asyncio.Event()

    async def __call__(self, request):
        self.num_running += 1
        await self.is_released.wait()
        await request.whole(json.dumps(ANSWER).encode())
        self.num_running -= 1


@pytest.mark.parametrize(("took_s", "num_sent"), [(0.4, 32), (1.2, 16)])
async def test_slow_answers_halve_it(start_engine, start_gateway, make_service, took_s, num_sent):
    now = [1000.0]
    held = HoldingEngine()
    front = await start_gateway(now=lambda: now[0])
    front.publish(make_service(await start_engine(held), objectives=OBJECTIVES))

    def send(number):
        return [
            asyncio.create_task(
                front.ask("/v1/completions", prompt="a", stream=False, service_tier="flex")
            )
            for _ in range(number)
        ]

    first = send(MAX_BATCH_SEQUENCES)
    await until(lambda: held.num_running == MAX_BATCH_SEQUENCES)
    now[0] += took_s
    held.is_released.set()
    assert {status for status, _ in await asyncio.gather(*first)} == {200}
    held.is_released.clear()
    second = send(MAX_BATCH_SEQUENCES + 1)
    num_waiting = MAX_BATCH_SEQUENCES + 1 - num_sent
    await until(lambda: (held.num_running, front.gateway.state.waiting) == (num_sent, num_waiting))
    held.is_released.set()
    assert {status for status, _ in await asyncio.gather(*second)} == {200}
