"""Two operators, one writer: the standby takes over from a leader that dies, stops or hangs."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster.audit import AuditLog, service_account_user, writes_by

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import (
    CLUSTER_ROLE_BINDINGS,
    INFERENCE_SERVICES,
    LEASES,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
)
from penstock.demo.stage import poll_until
from penstock.errors import NotFound
from penstock.local.cluster import Cluster
from penstock.local.components import kubeconfig

LEASE = "penstock-operator"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


class Replica:
    """An operator process with its own ServiceAccount, which identifies it in the audit log."""

    def __init__(self, name: str, namespace: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.user = service_account_user(name, namespace)
        self.process = process


def service(namespace: str) -> dict[str, Any]:
    """Return a service that never becomes ready, so the operator writes only its status."""
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
    config.write_text(kubeconfig(cluster.server, authority, {"token": answer["status"]["token"]}))
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
    """Whether an operator has written the status for the service's current generation."""
    service = await kube.get(INFERENCE_SERVICES, namespace, "s")
    generation: int = service["metadata"]["generation"]
    return bool(service.get("status", {}).get("observedGeneration") == generation)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_the_standby_takes_over(
    cluster: Cluster, kube: Kube, namespace: str, end: signal.Signals
) -> None:
    """A leader that hangs (SIGSTOP) ends when it continues and finds that it has lost the Lease."""
    log = AuditLog(cluster)
    start_at = log.position()
    quota = {"metadata": {"name": "odd"}, "spec": {"hard": {"requests.nvidia.com/gpu": "1e3"}}}
    await kube.create(RESOURCE_QUOTAS, namespace, quota)  # a rare but valid form of a quantity
    async with (
        replica(cluster, kube, namespace, "one") as one,
        replica(cluster, kube, namespace, "two") as two,
    ):
        await kube.create(INFERENCE_SERVICES, namespace, service(namespace))
        await poll_until(lambda: reconciled(kube, namespace), within_s=30, what="the first status")
        is_one = (await holder(kube, namespace)).startswith("one-")
        leader, standby = (one, two) if is_one else (two, one)
        # Let requests in progress end: one that is already sent cannot be cancelled.
        await asyncio.sleep(2)
        leader.process.send_signal(end)
        change = {"spec": {"engine": {"seed": 1}}}
        await kube.merge(INFERENCE_SERVICES, namespace, "s", change, manager="test")
        elapsed_s = await poll_until(
            lambda: reconciled(kube, namespace), within_s=30, what="the standby's status"
        )
        print(f"{end.name}: the change is reconciled by the standby {elapsed_s:.1f} s later")
        assert (await holder(kube, namespace)).startswith(f"{standby.name}-")
        if end == signal.SIGSTOP:
            leader.process.send_signal(signal.SIGCONT)
        ended = await asyncio.wait_for(leader.process.wait(), 20)
        assert ended == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 0, signal.SIGSTOP: 1}[end]
        entries = log.entries(start_at)
        led, followed = (writes_by([r.user], entries) for r in (leader, standby))
        assert led
        assert followed
        assert max(entry.at for entry in led) < min(entry.at for entry in followed)
        await kube.delete(INFERENCE_SERVICES, namespace, "s")
