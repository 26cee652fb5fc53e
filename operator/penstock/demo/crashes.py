"""A service's life with the operator killed before or after chosen writes, and how it ends.

The life: applied, Ready, changed to another revision with more replicas, Ready again; a canary is
promoted by hand. A proxy stands between the operator and the API server. It counts writes; at a
chosen one it kills the operator, either before the write goes on or after it was made and before
the answer comes back.
"""

import asyncio
import os
import re
import secrets
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.adapters.kube import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    LEASES,
    NAMESPACES,
    PODS,
    Kube,
    Object,
)
from penstock.core.rollout import commands
from penstock.core.rollout.phases import Strategy
from penstock.core.service import REVISION_LABEL, SERVICE_LABEL
from penstock.demo.killing_proxy import KillingProxy, Moment
from penstock.demo.stage import eventually
from penstock.local.cluster import Cluster
from penstock.local.components import kubeconfig

SERVICE = "chat"
# Merged into the spec once the service is Ready: another revision, and one engine more.
CHANGE: Object = {
    "engine": {"maxModelLen": 128},
    "scaling": {"minReplicas": 2, "maxReplicas": 2},
}


# What every life has, however many writes of the status fall together.
_ALWAYS = {
    "patch controllerrevisions": 2,
    "create pods": 2,  # a preflight of each revision
    "patch deployments": 2,
    "patch deployments/scale": 2,
    "delete deployments": 1,
    "delete pods": 1,
    "patch inferenceservices/status": 8,
    "create events": 3,
}
_OCCUR: dict[Strategy, dict[str, int]] = {
    "Rolling": _ALWAYS,
    "BlueGreen": _ALWAYS,
    "Recreate": _ALWAYS,
    # With a control, and more phases.
    "Canary": _ALWAYS
    | {"patch deployments": 3, "delete deployments": 2, "patch inferenceservices/status": 12},
}


def moments(strategy: Strategy) -> tuple[Moment, ...]:
    """All that a life with this strategy has for certain."""
    return tuple(
        Moment(write, nth, after)
        for write, times in _OCCUR[strategy].items()
        for nth in range(1, times + 1)
        for after in (False, True)
    )


@dataclass(frozen=True, slots=True)
class Life:
    """writes: verb and resource of each. missed: the moments that never came."""

    end: Mapping[str, object]
    writes: tuple[str, ...]
    missed: frozenset[Moment]


class OperatorEnded(Exception):
    """An operator ended that nobody had killed."""


async def survive(
    cluster: Cluster,
    kube: Kube,
    moments: Collection[Moment],
    model_uri: str,
    strategy: Strategy,
) -> Life:
    """Live a service's life; an operator that dies at one of `moments` is followed by another.

    The life has a namespace of its own. Raises TimeoutError when the service does not come to
    rest, or OperatorEnded.
    """
    namespace = f"crash-{secrets.token_hex(4)}"
    await kube.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    proxy = KillingProxy(cluster, namespace, moments)
    async with proxy.listening() as url:
        config = cluster.folder / f"kubeconfig-{namespace}"
        config.write_text(kubeconfig(url, cluster.folder / "pki" / "ca.crt", "unused"))
        operators = asyncio.create_task(_run_operators(proxy, kube, config, namespace))
        life = asyncio.create_task(_live(kube, namespace, model_uri, strategy))
        try:
            await asyncio.wait({operators, life}, return_when=asyncio.FIRST_COMPLETED)
            if operators.done():
                await operators
            return Life(await life, tuple(proxy.writes), frozenset(proxy.to_come))
        finally:
            for task in (life, operators):
                task.cancel()
            await asyncio.gather(life, operators, return_exceptions=True)
            config.unlink()
            await kube.delete(NAMESPACES, None, namespace)


async def _run_operators(proxy: KillingProxy, kube: Kube, config: Path, namespace: str) -> None:
    """One operator, and another each time the proxy has killed one. Raises OperatorEnded."""
    started = 0
    try:
        while True:
            proxy.operator = await _start(config, namespace)
            started += 1
            returncode = await proxy.operator.wait()
            if proxy.kills < started:
                raise OperatorEnded(f"exit status {returncode}")
            # A dead leader's Lease runs out by itself, in ten seconds; this saves the wait.
            await kube.delete(LEASES, namespace, "penstock-operator")
    finally:
        if proxy.operator is not None and proxy.operator.returncode is None:
            proxy.operator.kill()
            await proxy.operator.wait()


async def _start(config: Path, namespace: str) -> asyncio.subprocess.Process:
    environment = {k: v for k, v in os.environ.items() if k != "PENSTOCK_SERVICE_ACCOUNT_DIR"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "operator", "run", "--engine-image", "penstock",
        "--host", "127.0.0.1", "--port", "0", "--lease-namespace", namespace,
        env=environment | {"KUBECONFIG": str(config)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def _live(
    kube: Kube, namespace: str, model_uri: str, strategy: Strategy
) -> dict[str, object]:
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": SERVICE, "namespace": namespace},
        "spec": {
            "model": {"uri": model_uri},
            "engine": {"maxModelLen": 256, "kvCache": {"memory": "8Mi"}},
            "resources": {"memory": "1Gi"},
            "rollout": {"strategy": strategy, "blueGreen": {"previousKept": "2s"}},
        },
    }
    await kube.create(INFERENCE_SERVICES, namespace, body)
    await eventually(lambda: _has_settled(kube, namespace), within_s=120, what="settled")
    body = {"spec": CHANGE}
    await kube.merge(INFERENCE_SERVICES, namespace, SERVICE, body, manager="crashes")
    if strategy == "Canary":
        await eventually(lambda: _is_promoted(kube, namespace), within_s=120, what="judged")
    await eventually(lambda: _has_settled(kube, namespace), within_s=120, what="settled again")
    await asyncio.sleep(3)  # whatever a confused operator would still do
    return await end_state(kube, namespace)


async def _is_promoted(kube: Kube, namespace: str) -> bool:
    """Once it is judged, a person has seen enough."""
    found = await kube.get(INFERENCE_SERVICES, namespace, SERVICE)
    rollout = found["status"]["rollout"]
    if rollout["phase"] != "Judging":
        return False
    text = commands.write("promote", rollout["revision"], "1")
    body = {"metadata": {"annotations": {commands.ANNOTATION: text}}}
    await kube.merge(INFERENCE_SERVICES, namespace, SERVICE, body, manager="crashes")
    return True


async def _has_settled(kube: Kube, namespace: str) -> bool:
    """Ready as the spec stands, scaled as decided, and nothing left of another revision."""
    found = await kube.get(INFERENCE_SERVICES, namespace, SERVICE)
    status = found.get("status", {})
    ready = {c["type"]: c["status"] for c in status.get("conditions", [])}.get("Ready")
    children = await _children(kube, namespace)
    return (
        ready == "True"
        and status["observedGeneration"] == found["metadata"]["generation"]
        and status.get("scaling", {}).get("desired") == status["readyReplicas"]
        and {c["metadata"]["labels"][REVISION_LABEL] for _, c in children}
        == {status["stableRevision"]}
    )


async def _children(kube: Kube, namespace: str) -> list[tuple[str, Object]]:
    """(plural, object) of what belongs to the service."""
    found = []
    for resource in (DEPLOYMENTS, PODS):
        items, _ = await kube.list(resource, namespace, labelSelector=f"{SERVICE_LABEL}={SERVICE}")
        found += [(resource.plural, item) for item in items]
    return found


async def end_state(kube: Kube, namespace: str) -> dict[str, object]:
    """Children by kind and name without random parts, and what the status says of them."""
    found = await kube.get(INFERENCE_SERVICES, namespace, SERVICE)
    children = [
        f"{plural}/{re.sub(r'-[a-z0-9]{8,10}-[a-z0-9]{5}$', '', child['metadata']['name'])}"
        for plural, child in await _children(kube, namespace)
    ]
    status = found["status"]
    history, _ = await kube.list(CONTROLLER_REVISIONS, namespace)
    return {
        "children": sorted(children),
        "conditions": {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]},
        "traffic": status["traffic"],
        "rollout": [status["rollout"].get(name) for name in ("phase", "revision", "rejected")],
        "history": [entry["revision"] for entry in history],
        "replicas": (status["replicas"], status["readyReplicas"]),
        "desired": status["scaling"]["desired"],
    }
