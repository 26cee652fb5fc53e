"""Brings the services of `phase_cases` to their phases."""

import asyncio
from collections.abc import Sequence

from benchmarks.cluster.campaigns.phase_cases import NO_SCHEDULER, Case, Step
from tests.support.cluster.manifests import service_manifest

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, PODS
from penstock.core.spec.service import SERVICE_LABEL
from penstock.demo.stage import Stage, poll_until

# Longest time of a step towards a service's phase.
PHASE_TIMEOUT_S = 600.0
# Services that are started at the same time: more of them only slow each other down.
NUM_AT_ONCE = 8
MANAGER = "drill"


class StandingServices:
    """Services on one cluster, each of which stays in its phase."""

    def __init__(self, stage: Stage, cases: Sequence[Case]) -> None:
        self._stage, self._kube, self._cases = stage, stage.kube, cases

    async def begin(self) -> None:
        """Create all services, and wait until each is in its phase."""
        slots = asyncio.Semaphore(NUM_AT_ONCE)

        async def prepare(case: Case) -> None:
            async with slots:
                await self._prepare(case)

        async with asyncio.TaskGroup() as group:
            for case in self._cases:
                group.create_task(prepare(case))

    async def unexpected(self) -> list[str]:
        """The services that are not in their phase, or not stalled as they should be, in words."""
        found, _ = await self._kube.list(INFERENCE_SERVICES, "default")
        bodies = {body["metadata"]["name"]: body for body in found}
        return [
            f"{case.name}: {_state(bodies[case.name])}, not {(case.phase, case.stalled)}"
            for case in self._cases
            if _state(bodies[case.name]) != (case.phase, case.stalled)
        ]

    async def annotate(self, value: str) -> None:
        """Change an annotation of all services: each is reconciled, and nothing else may follow."""
        patch = {"metadata": {"annotations": {"drill": value}}}
        for case in self._cases:
            await self._kube.merge(INFERENCE_SERVICES, "default", case.name, patch, manager=MANAGER)

    async def bodies(self) -> list[Object]:
        return (await self._kube.list(INFERENCE_SERVICES, "default"))[0]

    async def _prepare(self, case: Case) -> None:
        """Create a service, and bring it to its phase."""
        await self._kube.create(
            INFERENCE_SERVICES, "default", service_manifest(case.name, case.spec)
        )
        if case.spec.get("template", {}).get("spec", {}).get("schedulerName") == NO_SCHEDULER:
            await self._fail_image_pull(case.name)
        for step in case.steps:
            await self._take(case.name, step)
        await self._wait_for(case.name, (case.phase, case.stalled))

    async def _take(self, name: str, step: Step) -> None:
        phase, action = step
        await self._wait_for(name, (phase, ""))
        if isinstance(action, str):
            code, output = await self._stage.rollout(action, name)
            if code:
                raise RuntimeError(output)
        elif isinstance(action, int):
            await self._kube.scale(INFERENCE_SERVICES, "default", name, action, manager=MANAGER)
        else:
            patch = {"spec": action}
            await self._kube.merge(INFERENCE_SERVICES, "default", name, patch, manager=MANAGER)

    async def _wait_for(self, name: str, state: tuple[str, str]) -> None:
        async def is_there() -> bool:
            return _state(await self._kube.get(INFERENCE_SERVICES, "default", name)) == state

        await poll_until(is_there, within_s=PHASE_TIMEOUT_S, what=f"{name} is {state}")

    async def _fail_image_pull(self, name: str) -> None:
        """Give the service's first pod, which no node runs, the status of one without its image."""
        selector = f"{SERVICE_LABEL}={name}"

        async def has_pod() -> bool:
            return bool((await self._kube.list(PODS, "default", labelSelector=selector))[0])

        await poll_until(has_pod, within_s=PHASE_TIMEOUT_S, what=f"the pod of {name}")
        [pod] = (await self._kube.list(PODS, "default", labelSelector=selector))[0]
        container = pod["spec"]["containers"][0]
        waiting = {"reason": "ImagePullBackOff", "message": "the registry does not answer"}
        status = {
            "containerStatuses": [
                {
                    "name": container["name"], "image": container["image"], "imageID": "",
                    "ready": False, "restartCount": 0, "state": {"waiting": waiting},
                }
            ]
        }  # fmt: skip
        await self._kube.merge(
            PODS, "default", pod["metadata"]["name"], {"status": status}, manager=MANAGER,
            sub="status",
        )  # fmt: skip


def _state(body: Object) -> tuple[str, str]:
    """The phase of a service and why it is stalled; "" while there is none."""
    status = body.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    stalled = conditions.get("Stalled", {})
    reason = stalled["reason"] if stalled.get("status") == "True" else ""
    return status.get("rollout", {}).get("phase", ""), reason
