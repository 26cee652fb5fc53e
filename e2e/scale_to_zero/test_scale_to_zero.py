"""A service without requests has no engine, and the next request starts one, at each of two gateways."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from penstock.chart.names import GATEWAY, NAMESPACE
from penstock.clients.kubernetes.client import Object
from penstock.clients.machine.clock import monotonic
from penstock.demo.stage import Stage, poll_until
from penstock.local.record import GATEWAY_MANAGEMENT_PORT, GATEWAY_PORT

ROOT = Path(__file__).parents[2]
NAME, SECOND = "sleeper", f"{GATEWAY}-second"
CYCLES, CLIENTS = 3, 6
# The second gateway shares the node's address with the first, so its ports differ.
PORT, MANAGEMENT_PORT = GATEWAY_PORT + 1, GATEWAY_MANAGEMENT_PORT + 1
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


def second_gateway(stage: Stage) -> Object:
    """A Deployment of another gateway, with ports of its own."""
    text = stage.kubectl("get", "deployment", GATEWAY, "-n", NAMESPACE, "-o", "json")
    for of_first, of_second in ((GATEWAY_PORT, PORT), (GATEWAY_MANAGEMENT_PORT, MANAGEMENT_PORT)):
        text = text.replace(str(of_first), str(of_second))
    made: Object = json.loads(text)
    spec = made["spec"]
    for labels in (spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]):
        labels["second"] = "true"
    made["metadata"] = {"name": SECOND, "namespace": NAMESPACE}
    del made["status"]
    return made


@pytest.fixture
async def gateways(stage: Stage) -> AsyncIterator[tuple[str, str]]:
    """The URLs of two gateways."""
    first = stage.cluster.gateway_url
    second = first.replace(str(GATEWAY_PORT), str(PORT))
    assert second != first
    stage.apply(second_gateway(stage))
    try:
        stage.kubectl("rollout", "status", f"deployment/{SECOND}", "-n", NAMESPACE, "--timeout=60s")
        yield first, second
    finally:
        stage.kubectl("delete", "deployment", SECOND, "-n", NAMESPACE)


async def ask(client: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """The status and the body of one stream."""
    async with client.post(f"{url}/v1/chat/completions", json=BODY) as got:
        return got.status, await got.text()


async def is_held_by_second(client: aiohttp.ClientSession, stage: Stage) -> bool:
    """Whether the second gateway holds a request of the service."""
    url = f"http://{stage.cluster.address}:{MANAGEMENT_PORT}/penstock/feed"
    async with client.get(url) as got:
        services = json.loads(await got.text())["services"]
    return bool(services[f"default/{NAME}"]["queued"])


def kill_second_gateway(stage: Stage) -> None:
    stage.kubectl(
        "delete", "pod", "-n", NAMESPACE, "-l", "second=true", "--grace-period=0", "--force"
    )


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
            lambda: is_held_by_second(client, stage),
            within_s=20,
            what="the second gateway holds it",
        )
        kill_second_gateway(stage)
        status, body = await ask(client, gateways[0])
        assert (status, body.endswith("data: [DONE]\n\n")) == (200, True), body
        with pytest.raises(aiohttp.ClientError):
            await lost

    events = stage.kubectl("get", "events", "--field-selector", f"involvedObject.name={NAME}")
    for reason in ("ScaledToZero", "Waking", "ScaledUp", "ScaledDown"):
        assert reason in events, events
