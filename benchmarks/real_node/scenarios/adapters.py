"""LoRA adapters on two engines: each is loaded on demand, and answers with its own weights."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.real_node.lab import Lab
from benchmarks.real_node.model_folders import make_readable
from tests.support.cluster.adapted_service import (
    CLAIM,
    ENGINES,
    NAME,
    NUM_TOKENS,
    AdaptedService,
    adapter,
    service,
)
from tests.support.cluster.penstock_command import penstock
from tests.support.engine.merged import MergedModel

from penstock.clients.machine.clock import monotonic
from penstock.demo.stage import Stage, poll_until
from penstock.local.models_claim import folder_claim
from penstock_engine.make_model.adapters import make_adapters

PROMPT = list(range(40, 60))
NUM_ADAPTERS = 6
# The first adapter is on every engine. The engines have memory for eight copies together, and compute
# four at a time.
EVERYWHERE, *ON_DEMAND = (f"real-{number}" for number in range(NUM_ADAPTERS))


async def run(lab: Lab) -> dict[str, object]:
    folder = lab.out / CLAIM
    expected = await asyncio.to_thread(make, lab.models / "penstock-tiny", folder)
    async with lab.stage_in_namespace(NAME) as stage:
        stage.mount(folder_claim(CLAIM, folder.resolve(), stage.namespace))
        adapted = AdaptedService(stage)
        try:
            return await serve(adapted, expected)
        finally:
            await adapted.close()


def make(model: Path, folder: Path) -> dict[str, list[int]]:
    """Make the adapters. Returns the tokens of the model with each of them merged, by its name."""
    shutil.rmtree(folder, ignore_errors=True)
    made = make_adapters(model, folder, NUM_ADAPTERS)
    make_readable(folder)
    reference = MergedModel(model)
    return {
        name: reference.greedy(path, PROMPT, NUM_TOKENS)
        for name, path in zip((NAME, EVERYWHERE, *ON_DEMAND), (None, *made), strict=True)
    }


async def serve(adapted: AdaptedService, expected: Mapping[str, list[int]]) -> dict[str, object]:
    """Apply the service and its adapters, and ask for each of them, cold and warm. Returns times."""
    stage = adapted.stage
    stage.apply(
        service(),
        adapter(EVERYWHERE, "adapter-000", policy="All"),
        *(adapter(name, f"adapter-00{name[-1]}") for name in ON_DEMAND),
    )
    await stage.wait_for_engines(NAME, ENGINES, within_s=300)
    await adapted.wait_for(EVERYWHERE, within_s=60, Loaded="AllLoaded", Ready="Ready")
    await adapted.wait_for_models(ON_DEMAND)
    cold_s = await check_answers(adapted, expected)
    warm_s = await check_answers(adapted, expected)
    listed = await penstock(stage, "adapters", "--namespace", stage.namespace)
    assert all(name in listed for name in (EVERYWHERE, *ON_DEMAND)), listed
    assert await adapted.restarts() == 0
    await check_deletion(adapted, stage)
    return {
        "adapters": NUM_ADAPTERS,
        "engines": ENGINES,
        "slowest_first_answer_s": round(max(cold_s.values()), 2),
        "slowest_next_answer_s": round(max(warm_s.values()), 2),
    }


async def check_answers(
    adapted: AdaptedService, expected: Mapping[str, list[int]]
) -> dict[str, float]:
    """Ask for the model and all adapters at the same time. Returns the seconds, by name."""

    async def ask(name: str) -> float:
        started_s = monotonic()
        answer = await adapted.tokens(name, PROMPT)
        assert answer == expected[name], (name, answer, expected[name])
        return monotonic() - started_s

    assert len({tuple(tokens) for tokens in expected.values()}) == NUM_ADAPTERS + 1
    took_s = await asyncio.gather(*(ask(name) for name in expected))
    return dict(zip(expected, took_s, strict=True))


async def check_deletion(adapted: AdaptedService, stage: Stage) -> None:
    """Delete an adapter, and wait until its name is unknown."""
    stage.kubectl("delete", "lora", EVERYWHERE)

    async def is_unknown() -> bool:
        return (await adapted.ask(EVERYWHERE, PROMPT))[0] == 404

    await poll_until(is_unknown, within_s=30, what=f"{EVERYWHERE} is unknown")
