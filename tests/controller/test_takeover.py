"""Two operators, one writer: the second takes over from a leader that dies or is asked to stop."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.clients.kube import Kube
from penstock.clients.resources import (
    CLUSTER_ROLE_BINDINGS,
    INFERENCE_SERVICES,
    LEASES,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
)
from penstock.demo.stage import eventually
from penstock.errors import NotFound
from penstock.local.audit import AuditLog, account, writes_by
from penstock.local.cluster import Cluster
from penstock.local.components import kubeconfig

LEASE = "penstock-operator"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


class Replica:
    """An operator process with a ServiceAccount of its own, by which the audit log knows it."""

    def __init__(self, name: str, namespace: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.user = account(name, namespace)
        self.process = process


def service(namespace: str) -> dict[str, Any]:
    """One that no model will ever make Ready: its status is all that is written."""
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "s", "namespace": namespace},
        "spec": {"model": {"uri": "pvc://nowhere/x"}},
    }


@asynccontextmanager
async def replica(
    cluster: Cluster, kube: Kube, namespace: str, name: str
) -> AsyncIterator[Replica]:
    await kube.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": f"{namespace}-{name}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }  # fmt: skip
    await kube.create(CLUSTER_ROLE_BINDINGS, None, binding)
    request: dict[str, Any] = {"spec": {"expirationSeconds": 600}}
    answer = await kube.create(SERVICE_ACCOUNTS, namespace, request, name=name, sub="token")
    config = cluster.folder / f"kubeconfig-{namespace}-{name}"
    authority = cluster.folder / "pki" / "ca.crt"
    config.write_text(kubeconfig(cluster.server, authority, answer["status"]["token"]))
    process = await start(config, namespace, name)
    try:
        yield Replica(name, namespace, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await kube.delete(CLUSTER_ROLE_BINDINGS, None, f"{namespace}-{name}")
        config.unlink()


async def start(config: Path, namespace: str, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "operator", "run", "--engine-image", "penstock",
        "--host", "127.0.0.1", "--port", "0", "--lease-namespace", namespace,
        env=os.environ | {"KUBECONFIG": str(config), "POD_NAME": name},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def holder(kube: Kube, namespace: str) -> str:
    try:
        lease = await kube.get(LEASES, namespace, LEASE)
    except NotFound:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


async def reconciled(kube: Kube, namespace: str) -> bool:
    """Whether an operator has said how the service stands as its spec is now."""
    service = await kube.get(INFERENCE_SERVICES, namespace, "s")
    generation: int = service["metadata"]["generation"]
    return bool(service.get("status", {}).get("observedGeneration") == generation)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_the_standby_takes_over(
    cluster: Cluster, kube: Kube, namespace: str, end: signal.Signals
) -> None:
    """Also from a leader that stands still, and comes back to find that it leads no more."""
    log = AuditLog(cluster)
    since = log.position()
    quota = {"metadata": {"name": "odd"}, "spec": {"hard": {"requests.nvidia.com/gpu": "1e3"}}}
    await kube.create(RESOURCE_QUOTAS, namespace, quota)  # in a form that is rarely seen
    async with (
        replica(cluster, kube, namespace, "one") as one,
        replica(cluster, kube, namespace, "two") as two,
    ):
        await kube.create(INFERENCE_SERVICES, namespace, service(namespace))
        await eventually(lambda: reconciled(kube, namespace), within_s=30, what="the first word")
        is_one = (await holder(kube, namespace)).startswith("one-")
        leader, standby = (one, two) if is_one else (two, one)
        # What it had under way is done: a request that is being sent cannot be taken back.
        await asyncio.sleep(2)
        leader.process.send_signal(end)
        change = {"spec": {"engine": {"seed": 1}}}
        await kube.merge(INFERENCE_SERVICES, namespace, "s", change, manager="test")
        took_s = await eventually(
            lambda: reconciled(kube, namespace), within_s=30, what="the standby's word"
        )
        print(f"{end.name}: the change is reconciled by the standby {took_s:.1f} s later")
        assert (await holder(kube, namespace)).startswith(f"{standby.name}-")
        if end == signal.SIGSTOP:
            leader.process.send_signal(signal.SIGCONT)
        ended = await asyncio.wait_for(leader.process.wait(), 20)
        assert ended == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 0, signal.SIGSTOP: 1}[end]
        entries = log.entries(since)
        led, followed = (writes_by([r.user], entries) for r in (leader, standby))
        assert led
        assert followed
        assert max(entry.at for entry in led) < min(entry.at for entry in followed)
        await kube.delete(INFERENCE_SERVICES, namespace, "s")
