"""Records what an upgrade must not change, and compares two records."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import aiohttp
from tests.support import gateway_snapshots

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import (
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    MODEL_ROUTES,
    PODS,
)
from penstock.clients.pods import stats_report
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.local.record import GATEWAY_MANAGEMENT_PORT, Cluster

# pods: uids, restarts and deletions. templates: Deployments with their pod template and replicas.
# traffic: shares and copies, with the number of their changes. conditions: with their transition times.
# phases: of rollouts, with their start and revisions. routes: what gateways route by.
Aspect = Literal["pods", "templates", "traffic", "conditions", "phases", "routes"]
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)

ROLLOUT_FIELDS = (
    "phase", "phaseTransitionTime", "strategy", "revision", "weightPercent", "rejected",
)  # fmt: skip

Record = Mapping[Aspect, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two records. None: the subject is not in that record."""

    aspect: Aspect
    subject: str
    before: object
    after: object

    def __str__(self) -> str:
        before, after = self.before, self.after
        if isinstance(before, dict) and isinstance(after, dict):
            names = [n for n in before | after if before.get(n) != after.get(n)]
            before, after = ({n: each.get(n) for n in names} for each in (before, after))
        return f"{self.aspect} of {self.subject}: {before} -> {after}"


def differences(before: Record, after: Record) -> Iterator[Difference]:
    for aspect in ASPECTS:
        for subject in sorted(before[aspect].keys() | after[aspect].keys()):
            was, now = before[aspect].get(subject), after[aspect].get(subject)
            if was != now:
                yield Difference(aspect, subject, was, now)


async def record(kube: Kube, cluster: Cluster) -> Record:
    """Record all services of the namespace default, and the gateway of the cluster."""
    services, _ = await kube.list(INFERENCE_SERVICES, "default")
    routes, _ = await kube.list(MODEL_ROUTES, "default")
    pods, _ = await kube.list(PODS, "default", labelSelector=SERVICE_LABEL)
    deployments, _ = await kube.list(DEPLOYMENTS, "default", labelSelector=SERVICE_LABEL)
    engines = [pod for pod in pods if pod["metadata"]["labels"][ROLE_LABEL] == SERVE]
    statuses = {_name(body): body["status"] for body in services}
    return {
        "pods": {_name(pod): _pod(pod) for pod in pods},
        "templates": {_name(each): _deployment(each) for each in deployments},
        "traffic": {
            name: [status.get(field) for field in ("traffic", "mirror", "trafficGeneration")]
            for name, status in statuses.items()
        },
        "conditions": {
            name: _conditions(status)
            for name, status in (
                *statuses.items(),
                *((f"route {_name(body)}", body["status"]) for body in routes),
            )
        },
        "phases": {_name(body): _phase(body) for body in services},
        "routes": await _gateway(cluster) | _routing(services, engines, routes),
    }


def _name(body: Object) -> str:
    return str(body["metadata"]["name"])


def _pod(pod: Object) -> object:
    restarts = sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
    return pod["metadata"]["uid"], restarts, "deletionTimestamp" in pod["metadata"]


def _deployment(body: Object) -> object:
    metadata = body["metadata"]
    # The generation changes only with the spec.
    return metadata["uid"], metadata["generation"], json.dumps(body["spec"], sort_keys=True)


def _conditions(status: Object) -> object:
    return {
        each["type"]: (each["status"], each["reason"], each["lastTransitionTime"])
        for each in status.get("conditions", [])
    }


def _phase(body: Object) -> object:
    status = body["status"]
    rollout = status.get("rollout", {})
    return {
        "generation": body["metadata"]["generation"],
        **{name: status.get(name) for name in ("observedGeneration", "stableRevision")},
        **{name: rollout.get(name) for name in ROLLOUT_FIELDS},
    }


def _routing(
    services: list[Object], engines: list[Object], routes: list[Object]
) -> dict[str, object]:
    """The routing snapshot that a gateway builds from these objects."""
    built = gateway_snapshots.build(services, engines, routes)
    return {each.key: each for each in built.services} | {
        f"route {each.key}": each for each in built.routes
    }


async def _gateway(cluster: Cluster) -> dict[str, object]:
    """The generations of traffic and of routes that the gateway reports, and its list of models."""
    management_url = f"http://{cluster.address}:{GATEWAY_MANAGEMENT_PORT}"
    async with aiohttp.ClientSession() as session:
        async with session.get(management_url + stats_report.PATH) as answer:
            report: Any = json.loads(await answer.text())
        async with session.get(f"{cluster.gateway_url}/v1/models") as answer:
            models: Any = await answer.json()
    return {
        "gateway": {"traffic": report["obeys"], "routes": report["routes"]},
        "models": sorted(each["id"] for each in models["data"]),
    }
