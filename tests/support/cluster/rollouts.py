"""Rolls out good and bad releases of a service under load, and records how each ended."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from tests.support.cluster.manifests import service_manifest

from penstock.chart.names import GATEWAY, NAMESPACE
from penstock.clients.kubernetes.resources import PODS
from penstock.clients.machine.clock import monotonic
from penstock.clients.pods.exposition import Samples, label
from penstock.core.formats.addresses import host_port
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import Object
from penstock.demo.load import End, Load, Workload
from penstock.demo.stage import Stage, View
from penstock.local.record import GATEWAY_MANAGEMENT_PORT

SETTLED = ("Stable", "Rejected")


@dataclass(frozen=True, slots=True)
class Ending:
    """Outcome of a release. met: requests that the new revision answered before the decision.

    ends: outcomes of the requests sent between the patch and the end.
    """

    name: str
    phase: str
    reason: str
    took_s: float
    met: int
    ends: Mapping[End, int]

    @property
    def refused(self) -> int:
        """Requests without an answer, or with one that stopped without an error event."""
        return self.ends.get(End.REFUSED, 0) + self.ends.get(End.BROKEN, 0)

    def __str__(self) -> str:
        total = sum(self.ends.values())
        ends = ", ".join(f"{count} {end}" for end, count in self.ends.items() if count)
        share = f"{100 * self.met / total:.1f} %" if total else "none"
        return (
            f"{self.name}: {self.phase} after {self.took_s:.0f} s; {total} requests: {ends}; "
            f"{self.met} of them ({share}) met it; {self.reason}"
        )


def service(name: str, rollout: Object, *, replicas: int = 1) -> Object:
    """Manifest of a small service with objectives, so that the canary is judged on them as well."""
    return service_manifest(
        name,
        {
            "engine": {"maxModelLen": 512, "maxNumSeqs": 8, "kvCache": {"memory": "8Mi"}},
            "objectives": {"ttft": "5s", "tpot": "500ms"},
            "scaling": {"minReplicas": replicas, "maxReplicas": replicas},
            "terminationGracePeriodSeconds": 33,
            "rollout": rollout,
        },
    )


# Changes to the spec. SLOW: prefill in chunks of 16 tokens. SMALL: a KV cache for one or two requests, so
# that others wait. SPREAD: tensor parallel over two processes, which synchronize several times per step.
GOOD: Object = {"engine": {"seed": 7}}
LABELED: Object = {"template": {"metadata": {"labels": {"team": "search"}}}}
ROOMIER: Object = {"engine": {"maxNumBatchedTokens": 1024}}
SLOW: Object = {"engine": {"maxNumBatchedTokens": 16}}
SMALL: Object = {"engine": {"maxModelLen": 256, "kvCache": {"memory": "512Ki"}}}
SPREAD: Object = {
    "resources": {"limits": {"memory": "2Gi"}},
    "template": {
        "spec": {
            "containers": [
                {
                    "name": "engine",
                    "command": [
                        "bash", "-c", 'exec penstock-engine "$@" --tensor-parallel-size 2', "engine",
                    ],
                }
            ]
        }
    }
}  # fmt: skip
MISSING: Object = {"model": {"uri": "pvc://models/nowhere"}}


def crashing(after_s: int) -> Object:
    """Spec change: the engine is killed this long after each start."""
    command = ["timeout", "-s", "KILL", str(after_s), "penstock-engine"]
    return {"template": {"spec": {"containers": [{"name": "engine", "command": command}]}}}


def other_model(folder: Path) -> Object:
    """Spec change: another model folder on this machine."""
    return {"model": {"uri": f"file://{folder}"}}


async def release(
    stage: Stage, load: Load, name: str, title: str, change: Object, *, within_s: float
) -> Ending:
    """Patch the spec and wait until the rollout has ended. Raises TimeoutError."""
    before = len(load.outcomes)
    began_s, generation = monotonic(), (await stage.view(name)).status["observedGeneration"]
    stage.patch(name, change)

    def has_ended(view: View) -> bool:
        status = view.status
        is_new = status["observedGeneration"] > generation
        return is_new and status["rollout"]["phase"] in SETTLED and _is_due(status)

    await stage.wait_until(has_ended, name, within_s=within_s, what=f"the end of {title}")
    status = (await stage.view(name)).status
    rollout = status["rollout"]
    evidence = {each["metric"]: each for each in rollout.get("evidence", [])}
    rejected = rollout.get("rejected")
    judged = evidence.get("Errors", {}).get("canarySamples", 0)
    return Ending(
        name=title,
        phase=rollout["phase"],
        reason=(rejected or rollout)["message"],
        took_s=monotonic() - began_s,
        met=await _answered(stage, rejected["revision"]) if rejected else judged,
        ends=Counter(outcome.end for outcome in load.outcomes[before:]),
    )


async def _answered(stage: Stage, revision: str) -> int:
    """Requests that the gateways answered from the engines of a revision."""
    pods, _ = await stage.kube.list(
        PODS, NAMESPACE, labelSelector=f"app.kubernetes.io/name={GATEWAY}"
    )
    addresses = [pod["status"]["podIP"] for pod in pods if ObservedPod.of(pod).is_ready]
    async with aiohttp.ClientSession() as session:
        counts = await asyncio.gather(*(_responses(session, each, revision) for each in addresses))
    return sum(counts)


async def _responses(session: aiohttp.ClientSession, address: str, revision: str) -> int:
    """Responses of one gateway from the engines of a revision."""
    name = "penstock_gateway_responses_total"
    url = f"http://{host_port(address, GATEWAY_MANAGEMENT_PORT)}/metrics"
    async with session.get(url) as answer:
        samples = Samples.read(await answer.text(), [name])
    series = samples.series.get(name, [])
    return round(sum(value for labels, value in series if label(labels, "revision") == revision))


def _is_due(status: Object) -> bool:
    """Whether the ended rollout belongs to the current spec."""
    observed = {c["type"]: c for c in status["conditions"]}["RolledOut"]
    return bool(observed["observedGeneration"] == status["observedGeneration"])


async def campaign(
    stage: Stage,
    words: Sequence[str],
    releases: Sequence[tuple[str, Object]],
    *,
    rollout: Object,
    clients: int,
    within_s: float,
) -> list[Ending]:
    """Roll out all releases in turn under constant load; each bad one is reverted before the next."""
    name = "released"
    stage.apply(service(name, rollout))
    await stage.wait_until_ready(name, within_s=180)
    workload = Workload(name, words, prompt_words=60, max_tokens=16, seed=1)
    endings = []
    async with Load(stage.cluster.gateway_url, workload) as load:
        load.set_clients(clients)
        await asyncio.sleep(3)
        for title, change in releases:
            ending = await release(stage, load, name, title, change, within_s=within_s)
            endings.append(ending)
            print(ending, flush=True)
            if ending.phase == "Rejected":
                spec = service(name, rollout)["spec"]
                patch = json.dumps([{"op": "replace", "path": "/spec", "value": spec}])
                stage.kubectl("patch", "psvc", name, "--type=json", "-p", patch)
                await stage.wait_for_phase(name, "Stable", within_s=60)
        await load.finish()
    return endings
