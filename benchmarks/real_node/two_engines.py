"""A small service with an engine on each node, and streams of requests to it, for the scenarios of faults."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from benchmarks.real_node.lab import ROOT, Lab
from tests.support.cluster.manifests import service_manifest

from penstock.chart.names import NAMESPACE
from penstock.clients.kubernetes.client import Object
from penstock.core.formats.strategic_merge import merge
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.demo.load import End, Load, Workload, corpus

NUM_ENGINES = 2
# A process for each engine and one core for all: starts take long.
READY_S = 240.0
ANTI_AFFINITY = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
    "weight": 100,
    "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {ROLE_LABEL: SERVE}},
        "matchLabelKeys": ["pod-template-hash"],
    },
}]}}  # fmt: skip
SPEC: Object = {
    "engine": {"maxModelLen": 512, "maxNumSeqs": 8, "kvCache": {"memory": "8Mi"}},
    "scaling": {"minReplicas": NUM_ENGINES, "maxReplicas": NUM_ENGINES},
    "terminationGracePeriodSeconds": 33,
    "template": {"spec": {"affinity": ANTI_AFFINITY}},
}


def service(name: str, **changes: object) -> Object:
    """Manifest of a service with two engines. changes: fields merged into its spec."""
    return service_manifest(name, merge(SPEC, changes))


async def start(lab: Lab, name: str, namespace: str, **changes: object) -> float:
    """Apply a service, and wait until both engines are ready. Returns the seconds. Raises TimeoutError."""
    lab.stage.apply(service(name, **changes), namespace=namespace)
    return await lab.stage.wait_for_engines(
        name, NUM_ENGINES, within_s=READY_S, namespace=namespace
    )


def engines(lab: Lab, name: str, namespace: str) -> list[Object]:
    """Read the engine pods of a service that have not ended, by name."""
    return pods(lab, namespace, f"{SERVICE_LABEL}={name},{ROLE_LABEL}={SERVE}")


def pods(lab: Lab, namespace: str, selector: str = "") -> list[Object]:
    """Read the pods of a namespace that have not ended, such as by an eviction, by name."""
    chosen = (f"--selector={selector}",) if selector else ()
    text = lab.kubectl("get", "pods", "-n", namespace, "-o", "json", *chosen)
    found = (pod for pod in json.loads(text)["items"] if not ObservedPod.of(pod).is_over)
    return sorted(found, key=name_of)


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def restarts(lab: Lab, namespaces: Collection[str]) -> dict[str, int]:
    """Container restarts of all pods of these namespaces, by uid."""
    return {
        pod["metadata"]["uid"]: sum(
            each["restartCount"] for each in pod["status"].get("containerStatuses", [])
        )
        for namespace in namespaces
        for pod in pods(lab, namespace)
    }


def watched(namespace: str) -> tuple[str, str]:
    """The namespaces whose pods a fault may not harm: that of the service, and Penstock's."""
    return namespace, NAMESPACE


@asynccontextmanager
async def requests(lab: Lab, name: str, *, url: str = "") -> AsyncIterator[Load]:
    """Send streams to a service while the block runs, and wait for the last ones at its end.

    url: of the gateway; empty for that of its Service.
    """
    workload = Workload(name, corpus(ROOT), prompt_words=30, max_tokens=24, think_s=0.3)
    async with Load(url or lab.cluster.gateway_url, workload) as load:
        load.set_clients(3)
        await asyncio.sleep(3)
        yield load
        await asyncio.sleep(3)
        await load.finish()


def check_outcomes(load: Load, *, may_cut: bool = False) -> dict[str, object]:
    """Return the number of requests by outcome. Raises AssertionError if one failed.

    may_cut: whether streams that had begun may have ended with an error event, as their engine was killed.
    """
    ends = Counter(each.end for each in load.outcomes)
    allowed = (End.DONE, End.CUT) if may_cut else (End.DONE,)
    bad = [each for each in load.outcomes if each.end not in allowed]
    assert not bad, f"{len(bad)} of {len(load.outcomes)} requests failed, the first: {bad[0]}"
    assert ends[End.DONE] > 0, "no request was answered"
    return {"requests": len(load.outcomes), "cut_streams": ends[End.CUT]}


async def condition_with(lab: Lab, name: str, namespace: str, kind: str, reason: str) -> Object:
    """Wait until a condition has a reason, and return it. Raises TimeoutError."""
    await lab.stage.wait_for_reason(name, reason, kind=kind, within_s=READY_S, namespace=namespace)
    return (await lab.stage.view(name, namespace)).condition(kind)
