"""A second gateway in a local cluster whose node has one address, and what it holds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from penstock.chart.names import GATEWAY, NAMESPACE
from penstock.clients.kubernetes.client import Object
from penstock.demo.stage import Stage
from penstock.local.record import GATEWAY_MANAGEMENT_PORT, GATEWAY_PORT

NAME = f"{GATEWAY}-second"
# Ports of the second gateway, which has the same address as the first.
PORT, MANAGEMENT_PORT = GATEWAY_PORT + 1, GATEWAY_MANAGEMENT_PORT + 1
SELECTOR = "second=true"


@contextmanager
def two_gateways(stage: Stage) -> Iterator[tuple[str, str]]:
    """The URLs of the cluster's gateway and of a second one, which is removed at the end."""
    first = stage.cluster.gateway_url
    second = first.replace(str(GATEWAY_PORT), str(PORT))
    assert second != first
    stage.apply(_deployment(stage))
    try:
        stage.kubectl("rollout", "status", f"deployment/{NAME}", "-n", NAMESPACE, "--timeout=60s")
        yield first, second
    finally:
        stage.kubectl("delete", "deployment", NAME, "-n", NAMESPACE)


def _deployment(stage: Stage) -> Object:
    """The Deployment of the first gateway, with a name and ports of its own."""
    text = stage.kubectl("get", "deployment", GATEWAY, "-n", NAMESPACE, "-o", "json")
    for of_first, of_second in ((GATEWAY_PORT, PORT), (GATEWAY_MANAGEMENT_PORT, MANAGEMENT_PORT)):
        text = text.replace(str(of_first), str(of_second))
    made: Object = json.loads(text)
    spec = made["spec"]
    label, _, value = SELECTOR.partition("=")
    for labels in (spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]):
        labels[label] = value
    made["metadata"] = {"name": NAME, "namespace": NAMESPACE}
    del made["status"]
    return made


async def is_held(client: aiohttp.ClientSession, stage: Stage, service: str) -> bool:
    """Whether the second gateway holds a request of the service "namespace/name"."""
    url = f"http://{stage.cluster.address}:{MANAGEMENT_PORT}/penstock/feed"
    async with client.get(url) as got:
        services = json.loads(await got.text())["services"]
    return bool(services[service]["queued"])


def restart(stage: Stage, *, is_killed: bool = False) -> None:
    """Delete the pod of the second gateway; its Deployment makes another one. is_killed: at once."""
    how = ("--grace-period=0", "--force") if is_killed else ("--wait=false",)
    stage.kubectl("delete", "pod", "-n", NAMESPACE, "-l", SELECTOR, *how)
