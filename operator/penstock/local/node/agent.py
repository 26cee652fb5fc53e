"""Node agent: registers the node, sends heartbeats, and starts a worker for each pod."""

import asyncio
import contextlib
import logging
import math
import os
import shutil
import signal

import psutil

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.events import EventRecorder
from penstock.clients.kubernetes.informer import Informer, Key
from penstock.clients.kubernetes.resources import LEASES, NODES, PODS
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.core.formats.timestamps import timestamp
from penstock.errors import Conflict, KubeError, NotFound
from penstock.local import processes
from penstock.local.components import KUBELET_PORT
from penstock.local.node.kubelet_api import serve_logs
from penstock.local.node.node import MANAGER, Node
from penstock.local.node.worker import PodWorker
from penstock.local.record import AGENT_NODE, Cluster

logger = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
# After a longer gap between heartbeats the node writes its status again: the node controller sets it
# to Unknown after 40 s without a heartbeat, and only the node can reset that.
STATUS_AFTER_S = 20.0
LEASE_NAMESPACE = "kube-node-lease"
STOP_GRACE_S = 8.0
MAX_LOG_BYTES = 16 * 2**20
# CPU is not reserved for processes, so the node offers enough for many small pods even on a laptop
# with two cores.
MIN_ALLOCATABLE_CPU = 64


class NodeAgent:
    """Runs the pods of one node as processes."""

    def __init__(self, kube: Kube, cluster: Cluster) -> None:
        self._kube = kube
        self._cluster = cluster
        self._node = Node(AGENT_NODE, cluster, kube, EventRecorder(kube, MANAGER, AGENT_NODE))
        self._workers: dict[str, PodWorker] = {}
        self._stopping_pods: set[asyncio.Task[None]] = set()
        self._last_address = 0
        self._last_beat_s = -math.inf
        self._pods = Informer(
            kube, PODS, field_selector=f"spec.nodeName={AGENT_NODE}", changed=self._pod_changed
        )

    async def run(self) -> None:
        """Run until SIGTERM, then end the pods' processes. The pods stay, for the next agent to restart."""
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        # Processes of an earlier agent are not this one's children, so it cannot wait for them: they
        # are ended and started again.
        await asyncio.to_thread(processes.end_all, self._find_leftovers, grace_s=1.0)
        async with asyncio.TaskGroup() as group:
            logs = await serve_logs(self._cluster, self._pods, self._has_ended)
            tasks = [
                group.create_task(self._register_and_beat()),
                group.create_task(self._pods.run()),
                group.create_task(self._cap_logs()),
            ]
            await stopping.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*(w.stop(STOP_GRACE_S) for w in self._workers.values()))
            await logs.cleanup()

    def _find_leftovers(self) -> list[psutil.Process]:
        return processes.find(self._cluster.cluster_id, processes.POD)

    def _pod_changed(self, key: Key) -> None:
        pod = self._pods.get(key)
        for worker in list(self._workers.values()):
            metadata = worker.pod["metadata"]
            same_name = (metadata["namespace"], metadata["name"]) == key
            if same_name and (pod is None or pod["metadata"]["uid"] != worker.uid):
                self._end(worker, grace_s=0)
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            worker = self._workers.get(uid) or PodWorker(self._node, pod, "")
            self._end(worker, pod["metadata"].get("deletionGracePeriodSeconds", 30))
        elif uid not in self._workers and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            worker = PodWorker(self._node, pod, self._address(pod))
            self._workers[uid] = worker
            worker.start()

    def _end(self, worker: PodWorker, grace_s: float) -> None:
        if any(task.get_name() == worker.uid for task in self._stopping_pods):
            worker.shorten(grace_s)
            return
        task = asyncio.create_task(self._stop_and_remove(worker, grace_s), name=worker.uid)
        self._stopping_pods.add(task)
        task.add_done_callback(self._stopping_pods.discard)

    async def _stop_and_remove(self, worker: PodWorker, grace_s: float) -> None:
        await worker.stop(grace_s)
        while True:
            try:
                await worker.remove()
                break
            except KubeError as error:
                logger.warning("removing %s: %s", worker.pod["metadata"]["name"], error)
                await asyncio.sleep(1)
        shutil.rmtree(worker.folder, ignore_errors=True)
        self._workers.pop(worker.uid, None)

    def _has_ended(self, uid: str, container: str) -> bool:
        worker = self._workers.get(uid)
        return worker is None or worker.has_ended(container)

    def _address(self, pod: Object) -> str:
        """Choose an address 127.N.x.y for a pod. Each is used once before any is used again."""
        if pod["spec"].get("hostNetwork"):
            return self._cluster.address
        taken = {worker.pod_ip for worker in self._workers.values()}
        while True:
            self._last_address = self._last_address % 60_000 + 1
            high, low = divmod(self._last_address, 250)
            address = f"127.{self._cluster.network}.{high + 1}.{low + 1}"
            if address not in taken:
                return address

    async def _register_and_beat(self) -> None:
        while True:
            try:
                await self._beat()
            except KubeError as error:
                logger.warning("heartbeat: %s", error)
                await asyncio.sleep(0.3)
                continue
            await asyncio.sleep(HEARTBEAT_S)

    async def _beat(self) -> None:
        if monotonic() - self._last_beat_s > STATUS_AFTER_S:
            await self._register()
        try:
            await self._renew_lease()
        except NotFound:
            await self._renew_lease(create=True)
        self._last_beat_s = monotonic()

    async def _register(self) -> None:
        resources = self._resources()
        body: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": AGENT_NODE,
                "labels": {"kubernetes.io/hostname": AGENT_NODE, "kubernetes.io/os": "linux"},
            },
        }
        with contextlib.suppress(Conflict):
            await self._kube.create(NODES, None, body)
        now = timestamp(unix_time())
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "AgentReady",
            "message": "pods run as processes",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [ready],
            "addresses": [
                {"type": "InternalIP", "address": self._cluster.address},
                {"type": "Hostname", "address": AGENT_NODE},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        }
        await self._kube.merge(
            NODES, None, AGENT_NODE, {"status": status}, manager=MANAGER, sub="status"
        )

    def _resources(self) -> dict[str, str]:
        """Resources of this machine that pods may request."""
        memory_kib = psutil.virtual_memory().total // 1024
        disk_kib = shutil.disk_usage(self._cluster.folder).total // 1024
        return {
            "cpu": str(max(MIN_ALLOCATABLE_CPU, os.cpu_count() or 1)),
            "memory": f"{memory_kib}Ki",
            "ephemeral-storage": f"{disk_kib}Ki",  # for models that pods fetch
            "pods": "500",
            **self._cluster.allocatable,
        }

    async def _renew_lease(self, *, create: bool = False) -> None:
        renewed = timestamp(unix_time()).replace("Z", ".000000Z")
        spec: Object = {
            "holderIdentity": AGENT_NODE,
            "leaseDurationSeconds": 40,
            "renewTime": renewed,
        }
        if not create:
            await self._kube.merge(
                LEASES, LEASE_NAMESPACE, AGENT_NODE, {"spec": spec}, manager=MANAGER
            )
            return
        body: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": AGENT_NODE},
            "spec": spec,
        }
        await self._kube.create(LEASES, LEASE_NAMESPACE, body)

    async def _cap_logs(self) -> None:
        """Truncate logs above MAX_LOG_BYTES to their last quarter. Writers append, so they continue."""
        while True:
            await asyncio.sleep(20)
            for log in (self._cluster.folder / "pods").glob("*/containers/*/log"):
                if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
                    with log.open("r+b") as file:
                        file.seek(-MAX_LOG_BYTES // 4, os.SEEK_END)
                        kept = file.read()
                        file.seek(0)
                        file.write(kept)
                        file.truncate()
