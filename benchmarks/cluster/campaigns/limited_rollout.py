"""Runs one rollout in a namespace with a limit or a fault, and compares its end with the expected one."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from benchmarks.cluster.campaigns.limit_cases import (
    LIMITS,
    PROGRESS_DEADLINE_S,
    QUOTA,
    REPLICAS,
    TERMINATION_S,
    Case,
    Ending,
    Outcome,
)
from benchmarks.cluster.campaigns.scripted_pods import is_serving, lose
from tests.support.background import background
from tests.support.cluster.manifests import service_manifest

from penstock.cli.rollout import revisions as rollout_revisions
from penstock.cli.rollout.status import follow
from penstock.cli.rollout.target import Refused, RolloutTarget
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import (
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    Resource,
)
from penstock.clients.machine.clock import monotonic
from penstock.core.observed.rollout_phases import SETTLED_PHASES
from penstock.core.rollout import commands
from penstock.core.rollout.deadlines import REMOVAL_S
from penstock.core.spec.service import COHORT_LABEL, REVISION_LABEL
from penstock.demo.stage import poll_until
from penstock.errors import KubeError

NAME = "chat"
MANAGER = "limited-rollout"
LIMIT_RANGES = Resource("v1", "limitranges")
# Time limits of a service's start, and of the last pods' end after a rollout, in seconds.
START_S, SETTLE_S = 120.0, 20.0
POLL_S = 0.3
# Bound of a rollout: two progress deadlines (forwards and back), the end of pods that hang, and time for a
# machine with other work, in seconds.
WITHIN_S = 2 * PROGRESS_DEADLINE_S + TERMINATION_S + REMOVAL_S + 45.0


@dataclass(slots=True)
class Result:
    """Outcome of a case. least: fewest pods that served. missed: what was not as expected, in words."""

    ending: str = ""
    took_s: float = 0.0
    least: int = REPLICAS
    missed: list[str] = field(default_factory=list)


class LimitedRollout:
    """Runs one case in a namespace of its own."""

    def __init__(self, kube: Kube, case: Case) -> None:
        self._kube, self._case, self._result = kube, case, Result()
        self._namespace = f"case-{case.number}"
        self._target = RolloutTarget(INFERENCE_SERVICES, NAME)

    async def run(self) -> Result:
        try:
            await self._prepare()
            old = (await self._status())["stableRevision"]
            async with background(self._sample()):
                await self._roll_out()
            self._check(await self._status(), old)
            if self._case.ending.outcome != "Stalled":
                numbers = self._case.num_left
                left = self._has_ready(numbers, self._case.ending.outcome)
                await poll_until(left, within_s=SETTLE_S, what=f"{numbers} engines left")
        except (TimeoutError, Refused, KubeError, RuntimeError) as error:
            self._result.missed.append(f"{type(error).__name__}: {error}")
        return self._result

    async def _prepare(self) -> None:
        """Start the service with all of its engines, then bring about the fault."""
        await self._kube.create(NAMESPACES, None, {"metadata": {"name": self._namespace}})
        await self._until(self._has_account, "the service account")
        if self._case.fault == "quota":
            await self._create(RESOURCE_QUOTAS, {"hard": QUOTA})
            await self._until(self._is_quota_enforced, "the quota")
        if self._case.fault == "limits":
            await self._create(LIMIT_RANGES, LIMITS)
        body = service_manifest(NAME, self._case.spec)
        await self._kube.create(INFERENCE_SERVICES, self._namespace, body)
        await self._until(self._has_ready([REPLICAS]), "all engines")
        await self._break()

    async def _break(self) -> None:
        match self._case.fault:
            case "terminating":
                pod = (await self._engines())[0]
                name = pod["metadata"]["name"]
                hold = {"metadata": {"finalizers": ["example.com/held"]}}
                await self._kube.merge(PODS, self._namespace, name, hold, manager=MANAGER)
                await self._kube.delete(PODS, self._namespace, name)
                await self._until(self._has_ready([REPLICAS]), "another engine")
            case "lost":
                await lose(self._kube, (await self._engines())[0])
                await self._until(self._has_ready([REPLICAS - 1]), "the loss")
            case _:  # "orphaned" begins with the edit
                pass

    async def _roll_out(self) -> None:
        """Edit the spec, act as its user, and watch the rollout to its end."""
        started_s = monotonic()
        if self._case.fault == "orphaned":
            [deployment] = (await self._kube.list(DEPLOYMENTS, self._namespace))[0]
            await self._kube.delete(
                DEPLOYMENTS, self._namespace, deployment["metadata"]["name"], propagation="Orphan"
            )
        await self._merge({"spec": self._case.change})
        async with asyncio.timeout(WITHIN_S):
            if self._case.edit == "undo":
                await self._until(self._is_rolling_out, "a rollout")
                is_success = await rollout_revisions.undo(
                    self._kube, self._namespace, self._target, None, watch=True
                )
            else:
                promoting = asyncio.create_task(self._promote())
                try:
                    is_success = await follow(self._kube, self._namespace, self._target, watch=True)
                finally:
                    promoting.cancel()
        self._result.took_s = monotonic() - started_s
        if is_success != (self._case.ending.outcome == "RolledOut"):
            self._result.missed.append(f"--watch exits with {0 if is_success else 1}")

    async def _promote(self) -> None:
        """Promote the canary once it is judged: without requests nothing else ends that."""
        await self._until(self._is_judged, "the judgement")
        revision = (await self._status())["rollout"]["revision"]
        text = commands.format_command("promote", revision, "1")
        await self._merge({"metadata": {"annotations": {commands.ANNOTATION: text}}})

    async def _sample(self) -> None:
        """Find the fewest pods that serve.

        A pod serves if its revision and cohort have traffic. Pods are read before and after the traffic, and
        the larger number counts, as either may change between the reads.
        """
        while True:
            before = await self._engines()
            targets = {(t["revision"], t["cohort"]) for t in (await self._status())["traffic"]}
            after = await self._engines()
            serving = max(_num_serving(pods, targets) for pods in (before, after))
            self._result.least = min(self._result.least, serving)
            await asyncio.sleep(POLL_S)

    def _check(self, status: Object, old: str) -> None:
        """Compare the end with the expected one."""
        expected, ended = self._case.ending, _ending(status)
        self._result.ending = f"{ended.outcome} {ended.cause}".strip()
        if ended.outcome != expected.outcome or expected.cause not in ended.cause:
            self._result.missed.append(f"expected {expected.outcome} {expected.cause}".strip())
        if self._result.least < self._case.min_serving:
            self._result.missed.append(f"only {self._result.least} pods served")
        is_new = ended.outcome == "RolledOut" and self._case.edit == "good"
        if ended.outcome != "Stalled" and (status["stableRevision"] != old) != is_new:
            self._result.missed.append(f"revision {status['stableRevision']} is stable")

    async def _create(self, resource: Resource, spec: Object) -> None:
        body = {"metadata": {"name": "limited"}, "spec": spec}
        await self._kube.create(resource, self._namespace, body)

    async def _merge(self, body: Object) -> None:
        await self._kube.merge(INFERENCE_SERVICES, self._namespace, NAME, body, manager=MANAGER)

    async def _status(self) -> Object:
        found = await self._kube.get(INFERENCE_SERVICES, self._namespace, NAME)
        status: Object = found.get("status", {})
        return status

    async def _engines(self) -> list[Object]:
        pods, _ = await self._kube.list(PODS, self._namespace)
        return [pod for pod in pods if is_serving(pod)]

    async def _until(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        await poll_until(check, within_s=START_S, what=what)

    def _has_ready(
        self, numbers: Collection[int], outcome: Outcome = "RolledOut"
    ) -> Callable[[], Awaitable[bool]]:
        """Returns a check that one of these numbers of engines is ready, by the status and by the pods."""
        phase = "Stable" if outcome == "RolledOut" else outcome

        async def has_ready() -> bool:
            status = await self._status()
            is_settled = status.get("rollout", {}).get("phase") == phase
            number = len(await self._engines())
            return is_settled and number in numbers and status.get("readyReplicas") == number

        return has_ready

    async def _has_account(self) -> bool:
        found, _ = await self._kube.list(SERVICE_ACCOUNTS, self._namespace)
        return bool(found)

    async def _is_quota_enforced(self) -> bool:
        found = await self._kube.get(RESOURCE_QUOTAS, self._namespace, "limited")
        return bool(found["status"].get("hard") == QUOTA)

    async def _is_rolling_out(self) -> bool:
        rollout = (await self._status())["rollout"]
        return rollout["phase"] not in SETTLED_PHASES and bool(rollout.get("revision"))

    async def _is_judged(self) -> bool:
        return bool((await self._status())["rollout"]["phase"] == "Judging")


def _num_serving(pods: list[Object], targets: set[tuple[str, str]]) -> int:
    sides = [
        (pod["metadata"]["labels"][REVISION_LABEL], pod["metadata"]["labels"].get(COHORT_LABEL, ""))
        for pod in pods
    ]
    return sum((revision, cohort or "Primary") in targets for revision, cohort in sides)


def _ending(status: Object) -> Ending:
    """The end that the conditions say."""
    conditions = {each["type"]: each for each in status["conditions"]}
    stalled, rolled_out = conditions["Stalled"], conditions["RolledOut"]
    if rolled_out["reason"] == "Rejected":
        return Ending("Rejected", rolled_out["message"])
    if stalled["status"] == "True":
        return Ending("Stalled", f"{stalled['reason']}: {stalled['message']}")
    if rolled_out["status"] == "True":
        return Ending("RolledOut")
    return Ending("Stalled", f"not ended: {rolled_out['reason']}: {rolled_out['message']}")
