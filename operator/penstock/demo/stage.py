"""Access to a running cluster for the demo, the end-to-end tests and the campaigns."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    PODS,
)
from penstock.clients.machine.clock import monotonic, steady
from penstock.clients.pods.scrape import Scraper
from penstock.core.formats.addresses import host_port
from penstock.core.formats.conditions import find_condition
from penstock.core.observed.pods import ObservedPod
from penstock.core.scaling.signals import EngineReading
from penstock.core.spec.service import ENGINE_PORT, ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.demo.kubectl import Kubectl
from penstock.errors import NotFound
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster
from penstock.local.models_claim import models_claim

POLL_S = 0.3


@dataclass(frozen=True, slots=True)
class View:
    """The state of a service at one moment."""

    status: Object
    pods: tuple[ObservedPod, ...]

    @property
    def ready(self) -> int:
        return sum(pod.is_ready and not pod.is_ending for pod in self.pods)

    @property
    def scaling(self) -> Object:
        scaling: Object = self.status.get("scaling", {})
        return scaling

    def condition(self, kind: str) -> Object:
        return find_condition(self.status, kind)


class Stage:
    """A running cluster with Penstock, and its API clients.

    namespace: of objects and of kubectl's commands without another one; None: default, and the kubeconfig's.
    """

    def __init__(self, cluster: Cluster, kube: Kube, namespace: str | None = None) -> None:
        self.cluster = cluster
        self.kube = kube
        self.namespace = namespace or "default"
        program = ensure_binaries(lambda _: None)["kubectl"]
        self.kubectl = Kubectl(program, cluster.kubeconfig, namespace)
        self._scraper = Scraper(steady)

    async def close(self) -> None:
        await self._scraper.close()

    def mount_models(self, folder: Path, namespace: str | None = None) -> None:
        """Apply the claim `models` on a folder of this machine."""
        self.mount(models_claim(folder, namespace or self.namespace))

    def mount(self, claim: Sequence[Object]) -> None:
        """Apply a claim and its volume."""
        self.apply(*claim)

    def apply(self, *bodies: Object, namespace: str | None = None) -> None:
        """Apply objects. namespace: of those that name none."""
        into = () if namespace is None else ("-n", namespace)
        whole = {"apiVersion": "v1", "kind": "List", "items": bodies}
        self.kubectl("apply", *into, "-f", "-", stdin=json.dumps(whole))

    def patch(
        self, name: str, spec: Object, *, kind: str = "psvc", namespace: str | None = None
    ) -> None:
        """Merge fields into the spec of a service, or of an object of another kind."""
        body = json.dumps({"spec": spec})
        into = ("-n", namespace or self.namespace)
        self.kubectl("patch", kind, name, *into, "--type=merge", "-p", body)

    async def rollout(self, command: str, *arguments: str) -> tuple[int, str]:
        """Run `kubectl penstock rollout COMMAND`. Returns its exit code and output.

        Raises TimeoutError after three minutes.
        """
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("kubectl-penstock"), "rollout", command,
            "-n", self.namespace, *arguments,
            env=os.environ | {"KUBECONFIG": str(self.cluster.kubeconfig), "COLUMNS": "200"},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 180)
        return process.returncode or 0, out.decode()

    async def view(self, name: str, namespace: str | None = None) -> View:
        """Read the state of a service. Raises NotFound if it does not exist."""
        namespace = namespace or self.namespace
        service = await self.kube.get(INFERENCE_SERVICES, namespace, name)
        selector = f"{SERVICE_LABEL}={name},{ROLE_LABEL}={SERVE}"
        pods, _ = await self.kube.list(PODS, namespace, labelSelector=selector)
        return View(service.get("status", {}), tuple(ObservedPod.of(pod) for pod in pods))

    async def kv_usage(self, view: View) -> float | None:
        """Read the mean KV use of the ready engines of a view; None if none answers."""
        found = await asyncio.gather(
            *(
                self._scraper.read(self.namespace, pod.name, host_port(pod.address, ENGINE_PORT))
                for pod in view.pods
                if pod.is_ready
            )
        )
        used = [each.kv_usage for each in found if isinstance(each, EngineReading)]
        return sum(used) / len(used) if used else None

    async def wait_until(
        self,
        done: Callable[[View], bool], name: str,
        *, within_s: float, what: str, namespace: str | None = None,
    ) -> float:  # fmt: skip
        """Wait until `done` returns true, and return the seconds. Raises TimeoutError that names `what`."""
        started_s = monotonic()
        while not done(view := await self.view(name, namespace)):
            if monotonic() - started_s > within_s:
                ready = view.condition("Ready")
                raise TimeoutError(
                    f"{what}: not within {within_s:.0f} s; {view.ready} engines are ready, "
                    f"Ready is {ready.get('status')}: {ready.get('message')}"
                )
            await asyncio.sleep(POLL_S)
        return monotonic() - started_s

    async def wait_until_ready(
        self, name: str, *, within_s: float, namespace: str | None = None
    ) -> float:
        """Wait until a service has the condition Ready, and return the seconds. Raises TimeoutError."""
        return await self.wait_until(
            lambda view: view.condition("Ready").get("status") == "True",
            name, within_s=within_s, what=f"{name} is Ready", namespace=namespace,
        )  # fmt: skip

    async def wait_for_reason(
        self, name: str, reason: str, *, kind: str = "Ready", within_s: float, namespace: str | None = None
    ) -> float:  # fmt: skip
        """Wait until a condition has this reason, and return the seconds. Raises TimeoutError."""
        return await self.wait_until(
            lambda view: view.condition(kind).get("reason") == reason,
            name, within_s=within_s, what=f"{name} has {reason} in {kind}", namespace=namespace,
        )  # fmt: skip

    async def wait_for_phase(self, name: str, phase: str, *, within_s: float) -> Object:
        """Wait until the rollout of a service is in a phase, and return its status. Raises TimeoutError."""
        await self.wait_until(
            lambda view: view.status["rollout"]["phase"] == phase,
            name, within_s=within_s, what=f"the rollout of {name} is {phase}",
        )  # fmt: skip
        rollout: Object = (await self.view(name)).status["rollout"]
        return rollout

    async def wait_for_engines(
        self, name: str, number: int, *, within_s: float, namespace: str | None = None
    ) -> float:
        """Wait until so many engines of a service are ready, and return the seconds. Raises TimeoutError."""
        return await self.wait_until(
            lambda view: view.ready == number,
            name, within_s=within_s, what=f"{number} engines of {name}", namespace=namespace,
        )  # fmt: skip

    async def remains(self, name: str, namespace: str | None = None) -> list[str]:
        """List what exists of a service: the object, its finalizers and its children."""
        namespace = namespace or self.namespace
        left = []
        try:
            service = await self.kube.get(INFERENCE_SERVICES, namespace, name)
            left += [f"finalizer {f}" for f in service["metadata"].get("finalizers", [])]
            left.append(f"inferenceservice/{name}")
        except NotFound:
            pass
        for resource in (DEPLOYMENTS, PODS, CONFIG_MAPS, CONTROLLER_REVISIONS):
            selector = f"{SERVICE_LABEL}={name}"
            items, _ = await self.kube.list(resource, namespace, labelSelector=selector)
            left += [f"{resource.plural}/{item['metadata']['name']}" for item in items]
        return left

    async def wait_until_gone(self, name: str, *, within_s: float) -> float:
        """Wait until nothing of a service remains, and return the seconds. Raises TimeoutError."""
        return await poll_until(lambda: self._is_gone(name), within_s=within_s, what=f"{name} gone")

    async def _is_gone(self, name: str) -> bool:
        return not await self.remains(name)


async def poll_until(check: Callable[[], Awaitable[bool]], *, within_s: float, what: str) -> float:
    """Wait until `check` returns true, and return the seconds. Raises TimeoutError that names `what`."""
    started_s = monotonic()
    while not await check():
        if monotonic() - started_s > within_s:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        await asyncio.sleep(POLL_S)
    return monotonic() - started_s
