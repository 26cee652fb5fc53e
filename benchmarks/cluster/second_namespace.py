"""Creates random objects in a second namespace beside one whose clients must not notice.

.venv/bin/python -m benchmarks.cluster.second_namespace [--objects 500] [--seed 1]

The first namespace has a service, an adapter and a route, whose clients ask all the time. The owner of the
second one has a service of the same name that answers, and creates, changes and deletes services, routes,
adapters and pods, valid or not, most of them with the names of the first. No request of the first namespace's
clients may get another answer, and none of its conditions may change. Exits with 1 otherwise.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import aiohttp
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser
from tests.support.cluster.adapter_folders import make_folders
from tests.support.cluster.foreign_objects import ADAPTER, ROUTE, SERVICE, draw_object
from tests.support.cluster.manifests import adapter_manifest, route_manifest, service_manifest

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import (
    INFERENCE_SERVICES,
    LORA_ADAPTERS,
    MODEL_ROUTES,
    NAMESPACES,
    PODS,
    Resource,
)
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage, poll_until
from penstock.errors import AlreadyExists, KubeError
from penstock.local.models_claim import folder_claim

ROOT = Path(__file__).parents[2]
FIRST, SECOND = "default", "second"
KINDS = {
    "InferenceService": INFERENCE_SERVICES, "ModelRoute": MODEL_ROUTES, "LoraAdapter": LORA_ADAPTERS,
    "Pod": PODS,
}  # fmt: skip
OWN = (
    (INFERENCE_SERVICES, SERVICE), (LORA_ADAPTERS, ADAPTER), (MODEL_ROUTES, ROUTE),
)  # fmt: skip
# Fraction of the draws that delete an object in place of creating one.
DELETIONS = 0.2
# Pause between two requests, two changes, and the end of the changes and that of the campaign, in seconds.
ASK_S, CHANGE_S, SETTLE_S = 0.2, 0.1, 30.0
START_S = 240.0


def first_objects() -> list[Object]:
    """The first namespace: a service that takes adapters, an adapter, and a route to the service."""
    lora = {"maxAdapters": 2, "maxRank": 16, "sources": ["pvc://adapters"]}
    engine = {"maxModelLen": 256, "dtype": "float32", "lora": lora}
    uri = "pvc://adapters/adapter-000"
    return [
        service_manifest(SERVICE, {"engine": engine}),
        adapter_manifest(ADAPTER, SERVICE, uri, placement={"policy": "All"}),
        route_manifest(ROUTE, SERVICE),
    ]


class Watcher:
    """Asks for the models of the first namespace and reads its conditions, and counts what changes."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._expected: dict[str, object] = {}
        self.num_reads = 0
        self.is_started = asyncio.Event()
        self.changes: Counter[str] = Counter()

    async def run(self) -> None:
        """Compare until cancelled. The first reads are what is expected later."""
        async with aiohttp.ClientSession() as session:
            while True:
                for name in (SERVICE, ADAPTER, ROUTE):
                    self._compare(f"answer of {name}", await self._ask(session, name))
                self._compare("list of models", await self._models(session))
                for resource, name in OWN:
                    found = await self._conditions(resource, name)
                    self._compare(f"conditions of {resource.plural}/{name}", found)
                self.is_started.set()
                await asyncio.sleep(ASK_S)

    def _compare(self, what: str, found: object) -> None:
        self.num_reads += 1
        expected = self._expected.setdefault(what, found)
        if found != expected:
            self.changes[what] += 1
            print(f"{what}: {found}, not {expected}")

    async def _ask(self, session: aiohttp.ClientSession, name: str) -> tuple[int, object]:
        body = {"model": name, "prompt": "The gateway", "max_tokens": 4, "temperature": 0}
        url = f"{self._stage.cluster.gateway_url}/v1/completions"
        async with session.post(url, json=body) as got:
            answer = await got.json()
            return got.status, answer["choices"][0]["text"] if got.status == 200 else answer

    async def _models(self, session: aiohttp.ClientSession) -> list[str]:
        async with session.get(f"{self._stage.cluster.gateway_url}/v1/models") as got:
            listed = [each["id"] for each in (await got.json())["data"]]
        return sorted(name for name in listed if name in (SERVICE, ADAPTER, ROUTE))

    async def _conditions(self, resource: Resource, name: str) -> dict[str, tuple[str, str]]:
        body = await self._stage.kube.get(resource, FIRST, name)
        conditions = (body.get("status") or {}).get("conditions", [])
        return {each["type"]: (each["status"], each["reason"]) for each in conditions}


async def change_second(kube: Kube, random: Random, num_objects: int) -> Counter[str]:
    """Create random objects in the second namespace, and delete some. Returns the outcomes."""
    outcomes: Counter[str] = Counter()
    made: list[tuple[Resource, str]] = []
    for number in range(num_objects):
        if made and random.random() < DELETIONS:
            resource, name = made.pop(random.randrange(len(made)))
            await kube.delete(resource, SECOND, name)
            outcomes["deleted"] += 1
        body = draw_object(random, f"object-{number}")
        resource, name = KINDS[body["kind"]], body["metadata"]["name"]
        try:
            outcome = await _apply(kube, body)
        except KubeError:
            outcome = "refused by the API server"
        outcomes[outcome] += 1
        if outcome == f"created {body['kind']}":
            made.append((resource, name))
        await asyncio.sleep(CHANGE_S)
    return outcomes


async def _apply(kube: Kube, body: Object) -> str:
    """Create an object, or change the one of this name. Returns what was done. Raises KubeError."""
    resource, name = KINDS[body["kind"]], body["metadata"]["name"]
    try:
        await kube.create(resource, SECOND, body)
    except AlreadyExists:
        await kube.merge(resource, SECOND, name, {"spec": body["spec"]}, manager="second")
        return "changed"
    return f"created {body['kind']}"


async def prepare(stage: Stage, models: Path) -> None:
    """Create the objects of the first namespace, then a service of the same name in the second."""
    for body in first_objects():
        await stage.kube.create(KINDS[body["kind"]], FIRST, body)
    for resource, name in OWN:
        is_ready = partial(_is_ready, stage.kube, resource, FIRST, name)
        await poll_until(is_ready, within_s=START_S, what=f"{name} is ready")
    await stage.kube.create(NAMESPACES, None, {"metadata": {"name": SECOND}})
    stage.mount_models(models, SECOND)
    await stage.kube.create(INFERENCE_SERVICES, SECOND, service_manifest(SERVICE, {}))


async def _is_ready(kube: Kube, resource: Resource, namespace: str, name: str) -> bool:
    conditions = ((await kube.get(resource, namespace, name)).get("status") or {}).get(
        "conditions", []
    )
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def campaign(num_objects: int, seed: int) -> bool:
    """Run the campaign. Returns whether nothing changed."""
    models = ensure_model(ROOT / "docs")
    with tempfile.TemporaryDirectory() as folder:
        make_folders(models / "penstock-tiny", Path(folder), 1)
        async with temporary_stage("second-namespace", models) as stage:
            stage.mount(folder_claim("adapters", Path(folder)))
            await prepare(stage, models)
            watcher = Watcher(stage)
            watching = asyncio.create_task(watcher.run())
            await watcher.is_started.wait()
            outcomes = await change_second(stage.kube, Random(seed), num_objects)
            await asyncio.sleep(SETTLE_S)
            other = await _is_ready(stage.kube, INFERENCE_SERVICES, SECOND, SERVICE)
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching  # raises what ended it before
    print("| outcome | objects |\n| --- | --- |")
    for what, number in sorted(outcomes.items()):
        print(f"| {what} | {number} |")
    print(
        f"{watcher.num_reads} reads, {watcher.changes.total()} of them changed; the service of the "
        f"same name is {'' if other else 'not '}ready"
    )
    return not watcher.changes and watcher.num_reads > num_objects


def main() -> int:
    args = option_parser(__doc__, objects=500, seed=1).parse_args()
    return 0 if asyncio.run(campaign(args.objects, args.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
