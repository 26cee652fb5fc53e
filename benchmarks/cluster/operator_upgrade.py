"""Upgrades the operator under load and checks that only restarted services get new pods.

.venv/bin/python -m benchmarks.cluster.operator_upgrade [--per-strategy 3]

Services of all four strategies are serving, two of them during a canary. The operator is replaced by one with
another engine image and another pod template. The revision records of every second service are changed to
those of a version that did not record pods. No pod may be replaced. Then a service of each strategy is
restarted and must get the new image by its strategy. Exits with 1 otherwise.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import get_args

from benchmarks.cluster.campaigns.phase_cases import Case
from benchmarks.cluster.campaigns.standing_services import StandingServices
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.cluster.campaigns.versions import NEXT, InstalledOperator
from benchmarks.options import option_parser

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    PODS,
)
from penstock.clients.machine.clock import monotonic
from penstock.core.spec.history import PODS_ANNOTATION, STABLE_ANNOTATION
from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL, TEMPLATE_HASH
from penstock.demo.load import Load, Workload, corpus
from penstock.demo.model import LONG_TRAIN_STEPS, ensure_model
from penstock.demo.stage import Stage

ROOT = Path(__file__).parents[2]
# Seconds in which a new leader reconciles everything several times.
QUIET_S = 60
PATIENCE_S = 600.0
# Time after a rollout in which the old pods are deleted, s.
END_S = 5.0
MANAGER = "upgrade"

Engines = Mapping[str, tuple[str, str, int]]


def case(name: str, strategy: Strategy, *, is_judged: bool) -> Case:
    """A service. is_judged: it stays in the middle of a canary."""
    settings: dict[Strategy, Object] = {
        "Canary": {
            "canary": {
                "minWeightPercent": 30, "maxWeightPercent": 40,
                "latencyTolerancePercent": 50, "maxDuration": "2h",
            }
        },
        "BlueGreen": {"blueGreen": {"scaleDownDelay": "2s"}},
    }  # fmt: skip
    spec: Object = {
        "engine": {"maxModelLen": 256, "maxNumSeqs": 4, "kvCache": {"memory": "8Mi"}},
        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
        "scaling": {"minReplicas": 1, "maxReplicas": 1},
        "rollout": {"strategy": strategy, "progressDeadline": "20m", **settings.get(strategy, {})},
    }
    if is_judged:
        return Case(name, "Judging", spec, (("Stable", {"engine": {"maxNumSeqs": 5}}),))
    return Case(name, "Stable", spec)


class Campaign:
    """Upgrade drill on one cluster. names: services by strategy."""

    def __init__(self, stage: Stage, names: Mapping[Strategy, list[str]]) -> None:
        self._stage, self._kube, self._names = stage, stage.kube, names
        self._operator = InstalledOperator(stage.kube)

    async def begin(self) -> None:
        """Create the services. All canaries but the last one are being judged."""
        judged = self._names["Canary"][:-1]
        cases = [
            case(name, strategy, is_judged=name in judged)
            for strategy, names in self._names.items()
            for name in names
        ]
        await StandingServices(self._stage, cases).begin()

    async def engines(self) -> Engines:
        """Engine pods by uid: service, image, and restarts of the container."""
        found, _ = await self._kube.list(PODS, "default", labelSelector=f"{ROLE_LABEL}={SERVE}")
        return {
            pod["metadata"]["uid"]: (
                pod["metadata"]["labels"][SERVICE_LABEL],
                pod["spec"]["containers"][0]["image"],
                sum(c["restartCount"] for c in pod["status"].get("containerStatuses", [])),
            )
            for pod in found
            if "deletionTimestamp"
            not in pod["metadata"]  # a terminating pod may finish its streams
        }

    async def images(self, name: str) -> set[str]:
        """Images of a service's engine pods. Waits up to END_S until only one is left.

        A Rolling rollout is Stable once its pods are ready: the last old pod is deleted after that.
        """
        started_s = monotonic()
        while True:
            found = {each[1] for each in (await self.engines()).values() if each[0] == name}
            if len(found) == 1 or monotonic() - started_s > END_S:
                return found
            await asyncio.sleep(0.2)

    async def upgrade(self) -> None:
        """Replace the operator by the next version. Half of the records lose what it did not write."""
        await self._operator.stop()
        for names in self._names.values():
            for name in names[::2]:
                await self._forget(name)
        await self._operator.run(NEXT)

    async def restart(self, name: str, strategy: Strategy) -> tuple[list[str], float]:
        """Restart a service. Returns its phases and the duration in seconds."""
        code, said = await self._stage.rollout("restart", name)
        if code:
            raise RuntimeError(said)
        started_s, phases, is_promoted = monotonic(), ["Stable"], False
        while monotonic() - started_s < PATIENCE_S:
            phase = await self._phase(name)
            if phase != phases[-1]:
                phases.append(phase)
            if phase == "Judging" and not is_promoted:
                is_promoted = True
                await self._stage.rollout("promote", name)
            if phase == "Stable" and len(phases) > 1:
                return phases[1:], monotonic() - started_s
            await asyncio.sleep(0.2)
        raise TimeoutError(f"{name} ({strategy}): {phases}")

    async def _phase(self, name: str) -> str:
        found = await self._kube.get(INFERENCE_SERVICES, "default", name)
        return str(found.get("status", {}).get("rollout", {}).get("phase", ""))

    async def _forget(self, name: str) -> None:
        """Remove the annotations that an older version did not write."""
        for resource, annotations in (
            (CONTROLLER_REVISIONS, (PODS_ANNOTATION, STABLE_ANNOTATION)),
            (DEPLOYMENTS, (TEMPLATE_HASH,)),
        ):
            selector = f"{SERVICE_LABEL}={name}"
            for each in (await self._kube.list(resource, "default", labelSelector=selector))[0]:
                patch = {"metadata": {"annotations": dict.fromkeys(annotations)}}
                child = each["metadata"]["name"]
                await self._kube.merge(resource, "default", child, patch, manager=MANAGER)


async def campaign(per_strategy: int) -> bool:
    names: dict[Strategy, list[str]] = {
        strategy: [f"{strategy.lower()}-{n}" for n in range(per_strategy)]
        for strategy in get_args(Strategy)
    }
    models = ensure_model(ROOT / "docs", steps=LONG_TRAIN_STEPS)
    async with temporary_stage("operator-upgrade", models) as stage, AsyncExitStack() as stack:
        made = Campaign(stage, names)
        await made.begin()
        words, loads = corpus(ROOT), []
        for name in (each for group in names.values() for each in group):
            workload = Workload(name, words, prompt_words=20, max_tokens=8, think_s=1.0)
            load = Load(stage.cluster.gateway_url, workload)
            loads.append(await stack.enter_async_context(load))
            load.set_clients(1)
        is_good = await _drill(made, names)
        for load in loads:
            await load.finish()
    ends = Counter(outcome.end for load in loads for outcome in load.outcomes)
    print(f"requests: {', '.join(f'{count} {end}' for end, count in ends.items())}")
    return is_good


async def _drill(made: Campaign, names: Mapping[Strategy, list[str]]) -> bool:
    before = await made.engines()
    print(f"{sum(map(len, names.values()))} services, {len(before)} engine pods", flush=True)
    await made.upgrade()
    await asyncio.sleep(QUIET_S)
    after = await made.engines()
    is_good = after == before
    restarts = sum(after[uid][2] > each[2] for uid, each in before.items() if uid in after)
    replaced = len(before.keys() ^ after.keys())
    print(f"upgraded: {replaced} pods replaced, {restarts} containers restarted", flush=True)
    for strategy, group in names.items():
        phases, took_s = await made.restart(group[-1], strategy)
        images = await made.images(group[-1])
        is_good = is_good and images == {NEXT.image}
        print(
            f"restart of {group[-1]}: {' '.join(phases)}, {took_s:.0f} s, now {', '.join(images)}",
            flush=True,
        )
    restarted = {group[-1] for group in names.values()}
    left = {uid: each for uid, each in before.items() if each[0] not in restarted}
    kept = {uid: each for uid, each in (await made.engines()).items() if each[0] not in restarted}
    print(f"of the others: {len(left.keys() ^ kept.keys())} of {len(left)} pods replaced")
    return is_good and left == kept


if __name__ == "__main__":
    options = option_parser(__doc__, per_strategy=3).parse_args()
    sys.exit(0 if asyncio.run(campaign(options.per_strategy)) else 1)
