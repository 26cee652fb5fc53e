"""Tenants at two gateways of a cluster: keys, limits, a batch beside requests, revocation, suspension."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from e2e.nodes import temporary_cluster
from tests.support.cluster.batch_server import (
    ENDED,
    BatchClient,
    batch_values,
    completion_lines,
    prepare_batch_server,
)
from tests.support.cluster.penstock_command import penstock
from tests.support.cluster.second_gateway import two_gateways
from tests.support.cluster.service_proxy import ServiceProxy
from tests.support.cluster.tenants import create_key, tenant_manifest
from tests.support.engine.forked_command import forked_engine_command
from tests.support.tools.redis_process import redis_process

from penstock.chart.names import BATCH, NAMESPACE
from penstock.chart.values.values import merged
from penstock.clients.kubernetes.client import Object, connect
from penstock.core.formats.conditions import find_condition
from penstock.demo.stage import Stage, poll_until
from penstock.local.install import install
from penstock.local.node.container import COMMANDS

ROOT = Path(__file__).parents[2]
NAME = "fronted"
LIMIT = 20  # requests of `research` in a day
NUM_LINES = 50
REVOKED_WITHIN_S = 2.0

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(420),
    pytest.mark.node_agent(
        "the quota store listens on the machine's loopback, and a proxy stands in for a Service"
    ),
]


@dataclass(frozen=True, slots=True)
class Front:
    """A cluster with two gateways. urls: of the gateways."""

    stage: Stage
    urls: tuple[str, str]
    client: httpx.AsyncClient

    async def complete(self, url: str, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        body = {"model": NAME, "prompt": "a pod", "max_tokens": 4}
        return await self.client.post(f"{url}/v1/completions", json=body, headers=headers)

    async def until_both_answer(self, wanted: int, key: str | None, within_s: float = 20) -> None:
        """Wait until both gateways answer with a status."""
        async with asyncio.timeout(within_s):
            for url in self.urls:
                while (await self.complete(url, key)).status_code != wanted:  # noqa: ASYNC110 - polls a server
                    await asyncio.sleep(0.05)


@pytest.fixture
async def front(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Front]:
    """A cluster of its own: with a Tenant, the gateway of the other scenarios would refuse them."""
    with (
        redis_process(tmp_path) as redis,
        forked_engine_command() as commands,
        monkeypatch.context() as patch,
    ):
        patch.setenv(COMMANDS, str(commands))
        with temporary_cluster("tenants", "agent") as cluster:
            async with (
                await connect(cluster.kubeconfig) as kube,
                ServiceProxy(kube, NAMESPACE, BATCH) as batch,
                httpx.AsyncClient(timeout=60) as client,
            ):
                stage = Stage(cluster, kube)
                stage.mount_models(models)
                prepare_batch_server(stage)
                quotas = {"gateway": {"quotaStore": {"url": redis.url}}}
                values = merged(batch_values(batch.url, cluster.gateway_url), quotas)
                await install(cluster, say=lambda _: None, values=values)
                with two_gateways(stage) as urls:
                    yield Front(stage, urls, client)
                await stage.close()


def tenant(name: str, **spec: object) -> Object:
    access = [{"namespace": "default", "modelNames": [NAME]}]
    return tenant_manifest(name, access=access, **spec)


async def test_three_teams_share_two_gateways(front: Front) -> None:
    stage = front.stage
    service: Object = yaml.safe_load((ROOT / "examples" / "tiny-model.yaml").read_text())
    service["metadata"] = {"name": NAME}
    stage.apply(service)
    await stage.wait_until_ready(NAME, within_s=120)
    await until_access(front, "False", "NoTenants")
    await front.until_both_answer(200, None)
    stage.apply(
        tenant("assistant", priority=100),
        tenant(
            "research",
            limits=[{"name": "daily", "resource": "Requests", "limit": LIMIT, "unit": "Day"}],
        ),
        tenant("reports"),
    )
    await until_access(front, "True", "Tenants")
    await front.until_both_answer(401, None)
    assistant, research, reports = [
        await create_key(stage, name) for name in ("assistant", "research", "reports")
    ]
    for key in (assistant, reports):
        await front.until_both_answer(200, key)
    await limit_holds(front, research)
    await batch_runs_beside_requests(front, reports, assistant)
    await usage_is_told(front)
    await penstock(stage, "keys", "revoke", assistant.split("_")[1])
    await front.until_both_answer(401, assistant, REVOKED_WITHIN_S)
    stage.patch("reports", {"suspend": "RejectNew"}, kind="ptenant")
    await front.until_both_answer(403, reports)


async def until_access(front: Front, status: str, reason: str) -> None:
    """Wait until the service says who may use it."""

    async def is_said() -> bool:
        found = find_condition((await front.stage.view(NAME)).status, "AccessControlled")
        return (found.get("status"), found.get("reason")) == (status, reason)

    await poll_until(is_said, within_s=30, what=f"AccessControlled={status} by {reason}")


async def limit_holds(front: Front, key: str) -> None:
    """Both gateways together answer as many requests as the limit allows."""

    async def models_are_listed() -> bool:
        listed = [
            await front.client.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})
            for url in front.urls
        ]
        return {each.status_code for each in listed} == {200}

    await poll_until(models_are_listed, within_s=20, what="a key that both gateways accept")
    answers = await asyncio.gather(
        *(front.complete(url, key) for url in front.urls for _ in range(LIMIT))
    )
    assert Counter(each.status_code for each in answers) == {200: LIMIT, 429: LIMIT}
    for each in answers:
        if each.status_code == 429:
            assert each.json()["error"]["code"] == "insufficient_quota"
            assert int(each.headers["Retry-After"]) >= 1


async def batch_runs_beside_requests(front: Front, key: str, interactive_key: str) -> None:
    """Each line of a batch is answered once, and no request beside it fails."""
    lines = completion_lines(NAME, NUM_LINES, max_tokens=8)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=front.urls[1], headers=headers, timeout=60) as http:
        api = BatchClient(http)
        batch = await api.create(lines)
        statuses: Counter[int] = Counter()
        async with asyncio.timeout(90):
            while batch["status"] not in ENDED:
                statuses[(await front.complete(front.urls[0], interactive_key)).status_code] += 1
                batch = await api.get(batch["id"]) or batch
        assert batch["request_counts"] == {"total": NUM_LINES, "completed": NUM_LINES, "failed": 0}
        answered = sorted(each["custom_id"] for each in await api.results(batch))
    assert answered == sorted(each["custom_id"] for each in lines)
    assert set(statuses) == {200}, statuses
    print(f"a batch of {NUM_LINES} lines beside {statuses.total()} requests")


async def usage_is_told(front: Front) -> None:
    """The ledger has the requests of all gateways."""

    async def is_complete() -> bool:
        rows = json.loads(await penstock(front.stage, "usage", "-o", "json"))
        requests = {each["tenant"]: each["requests"] for each in rows}
        return requests.get("research") == LIMIT and requests.get("reports", 0) > NUM_LINES

    await poll_until(is_complete, within_s=20, what="the usage of both gateways")
