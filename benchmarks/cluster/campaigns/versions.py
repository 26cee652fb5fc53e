"""Installs the CRDs and the operator of this version and of the next one."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from penstock.chart.names import NAMESPACE, OPERATOR
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import DEPLOYMENTS, INFERENCE_SERVICES, LEASES, PODS
from penstock.demo.stage import poll_until
from penstock.errors import Rejected
from penstock.local.install import MANAGER

NEXT_VERSION = Path(__file__).with_name("next_version.py")
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Version:
    """A version of Penstock. command: of its operator's container. image: of the engines it creates."""

    name: str
    command: tuple[str, ...]
    image: str


THIS = Version("this", ("penstock",), "penstock")
# The program as text: the container would look for a path below /tmp in its own /tmp.
NEXT = Version("next", ("python", "-c", NEXT_VERSION.read_text()), "penstock-next")


class InstalledOperator:
    """The operator of a cluster, whose version can be changed."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def stop(self) -> None:
        """Scale the operator to zero, and wait until its pods are gone."""
        await self._patch({"spec": {"replicas": 0}})
        await poll_until(self._is_gone, within_s=TIMEOUT_S, what="the operator has gone")

    async def run(self, version: Version) -> None:
        """Run this version, and wait until it leads and no other operator is left."""
        before = await self._holder()
        deployment = await self._kube.get(DEPLOYMENTS, NAMESPACE, OPERATOR)
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        args = [
            f"--engine-image={version.image}" if arg.startswith("--engine-image=") else arg
            for arg in container["args"]
        ]
        container |= {"command": list(version.command), "args": args}
        template = {"spec": {"containers": [container]}}
        await self._patch({"spec": {"replicas": 1, "template": template}})

        async def leads_alone() -> bool:
            return await self._holder() not in (before, "") and len(await self.pods()) == 1

        await poll_until(leads_alone, within_s=TIMEOUT_S, what=f"the {version.name} version leads")

    async def pods(self) -> list[Object]:
        selector = f"app.kubernetes.io/name={OPERATOR}"
        return (await self._kube.list(PODS, NAMESPACE, labelSelector=selector))[0]

    async def _holder(self) -> str:
        lease = await self._kube.get(LEASES, NAMESPACE, OPERATOR)
        return str(lease["spec"].get("holderIdentity") or "")

    async def _is_gone(self) -> bool:
        return not await self.pods()

    async def _patch(self, patch: Object) -> None:
        await self._kube.merge(DEPLOYMENTS, NAMESPACE, OPERATOR, patch, manager=MANAGER)


async def apply_crds(kube: Kube, version: Version, probe: Object) -> None:
    """Apply the CRDs of a version, and wait until the API server validates with them.

    probe: an InferenceService with the next version's field.
    """
    for crd in await _crds(version):
        await kube.apply(crd, manager=MANAGER)

    async def is_known() -> bool:
        try:
            await kube.create(
                INFERENCE_SERVICES, "default", probe, dryRun="All", fieldValidation="Strict"
            )
        except Rejected:
            return False
        return True

    async def is_in_effect() -> bool:
        return await is_known() == (version is NEXT)

    await poll_until(
        is_in_effect, within_s=TIMEOUT_S, what=f"the CRDs of the {version.name} version are served"
    )


async def _crds(version: Version) -> list[Object]:
    """The CRDs that this version's `penstock manifests` prints."""
    program = ("-m", "penstock") if version is THIS else (str(NEXT_VERSION),)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *program, "manifests", "--image", version.image,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"`penstock manifests` of the {version.name} version failed")
    found = yaml.safe_load_all(out)
    return [each for each in found if each["kind"] == "CustomResourceDefinition"]
