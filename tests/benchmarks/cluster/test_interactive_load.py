"""Interactive requests at a server that answers in different ways, and which of them count as in time."""

import asyncio
import json

from aiohttp import web
from benchmarks.cluster.campaigns.interactive_load import InteractiveLoad, Objectives, Timing
from tests.support.http_server import served

OBJECTIVES = Objectives(ttft_s=1.0, tpot_s=0.1)
WORDS = ["a", "pod", "starts"]


async def load_of(*events: str, status: int = 200) -> InteractiveLoad:
    """Send requests until three are answered with these events."""
    answered = asyncio.Semaphore(0)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for event in events:
            await response.write(f"data: {event}\n\n".encode())
        answered.release()
        return response

    app = web.Application()
    app.add_routes([web.post("/v1/completions", answer)])
    async with served(app) as address:
        load = InteractiveLoad(
            f"http://{address}", "chat", WORDS, rate=100.0, prompt_words=1, max_tokens=2
        )
        async with load.running(seed=1):
            for _ in range(3):
                await answered.acquire()
    return load


def event(finish_reason: str | None) -> str:
    return json.dumps({"choices": [{"text": "a", "finish_reason": finish_reason}]})


async def test_whole_answers_count() -> None:
    load = await load_of(event(None), event("length"), "[DONE]")
    assert load.num_lost == 0
    assert len(load.timings) >= 3
    assert load.attainment(Objectives(ttft_s=60.0, tpot_s=60.0)) == 1.0


async def test_cut_and_refused_answers_are_lost() -> None:
    for load in (await load_of(event(None)), await load_of("{}", status=503)):
        assert load.num_lost == len(load.timings) >= 3
        assert load.attainment(Objectives(ttft_s=60.0, tpot_s=60.0)) == 0.0


def test_attainment_and_quantiles() -> None:
    load = InteractiveLoad("", "chat", WORDS, rate=1.0)
    load.timings = [
        Timing(1.0, 0.1, is_whole=True),
        Timing(1.1, 0.05, is_whole=True),
        Timing(0.5, 0.2, is_whole=True),
        Timing(0.0, 0.0, is_whole=False),
    ]
    assert load.attainment(OBJECTIVES) == 0.25
    assert load.num_lost == 1
    assert load.quantile_s(lambda timing: timing.ttft_s) == 1.1
