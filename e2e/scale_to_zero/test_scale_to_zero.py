"""A service without requests has no engine, and the next request starts one, at each of two gateways."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.support.cluster.second_gateway import is_held, restart, two_gateways

from penstock.clients.kubernetes.client import Object
from penstock.clients.machine.clock import monotonic
from penstock.demo.stage import Stage, poll_until

ROOT = Path(__file__).parents[2]
NAME = "sleeper"
CYCLES, CLIENTS = 3, 6
BODY = {
    "model": NAME,
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 4,
    "stream": True,
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.node_agent("the second gateway listens on the address of the node"),
]


def service() -> Object:
    made: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    made["metadata"] = {"name": NAME}
    made["spec"]["engine"].pop("lora")
    made["spec"]["scaling"] = {"minReplicas": 0, "maxReplicas": 1, "idleAfter": "4s"}
    return made


@pytest.fixture
async def gateways(stage: Stage) -> AsyncIterator[tuple[str, str]]:
    """The URLs of two gateways."""
    with two_gateways(stage) as urls:
        yield urls


async def ask(client: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """The status and the body of one stream."""
    async with client.post(f"{url}/v1/chat/completions", json=BODY) as got:
        return got.status, await got.text()


async def test_requests_wake_a_service_and_none_is_lost(
    stage: Stage, gateways: tuple[str, str]
) -> None:
    stage.apply(service())
    await stage.wait_for_engines(NAME, 1, within_s=180)
    async with aiohttp.ClientSession() as client:
        for _ in range(CYCLES):
            await stage.wait_for_reason(NAME, "ScaledToZero", within_s=60)
            await stage.wait_for_engines(NAME, 0, within_s=60)
            view = await stage.view(NAME)
            assert view.condition("Ready")["status"] == "True"
            assert view.condition("TrafficAvailable")["status"] == "True"
            assert view.scaling["startupSeconds"] >= 1

            asked_s = monotonic()
            answers = await asyncio.gather(*(ask(client, gateways[i % 2]) for i in range(CLIENTS)))
            print(f"answered after {monotonic() - asked_s:.1f} s")
            for status, body in answers:
                assert (status, body.endswith("data: [DONE]\n\n")) == (200, True), body
            await stage.wait_for_reason(NAME, "Ready", within_s=30)

        await stage.wait_for_reason(NAME, "ScaledToZero", within_s=60)
        await stage.wait_for_engines(NAME, 0, within_s=60)
        lost = asyncio.create_task(ask(client, gateways[1]))
        await poll_until(
            lambda: is_held(client, stage, f"default/{NAME}"),
            within_s=20,
            what="the second gateway holds it",
        )
        restart(stage, is_killed=True)
        status, body = await ask(client, gateways[0])
        assert (status, body.endswith("data: [DONE]\n\n")) == (200, True), body
        with pytest.raises(aiohttp.ClientError):
            await lost

    events = stage.kubectl("get", "events", "--field-selector", f"involvedObject.name={NAME}")
    for reason in ("ScaledToZero", "Waking", "ScaledUp", "ScaledDown"):
        assert reason in events, events
