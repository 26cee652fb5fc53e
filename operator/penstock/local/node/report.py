"""Writes a pod's status and its Events to the API server."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from penstock.clients.kubernetes.resources import PODS
from penstock.clients.machine.clock import unix_time
from penstock.core.formats.timestamps import timestamp
from penstock.core.spec.service import Object
from penstock.errors import KubeError, NotFound
from penstock.local.node.node import MANAGER, Node
from penstock.local.node.podstatus import ContainerRecord, PodRecord, Terminated

logger = logging.getLogger(__name__)

RETRY_S = 2.0


class PodReport:
    """Holds the record of a pod, and writes its status when it has changed."""

    def __init__(self, node: Node, pod: Object, pod_ip: str) -> None:
        self._node = node
        self._metadata: Object = pod["metadata"]
        spec, status = pod["spec"], pod.get("status", {})
        before = {c["name"]: c for c in status.get("containerStatuses", [])}
        conditions = status.get("conditions", [])
        self._record = PodRecord(
            restart_policy=spec.get("restartPolicy", "Always"),
            pod_ip=pod_ip,
            host_ip=node.cluster.address,
            start_time=status.get("startTime", timestamp(unix_time())),
            init=tuple(
                ContainerRecord(c["name"], c["image"]) for c in spec.get("initContainers", [])
            ),
            containers=tuple(_record_of(c, before.get(c["name"])) for c in spec["containers"]),
            scheduled=next((c for c in conditions if c["type"] == "PodScheduled"), {}),
        )
        self._sent: Object = status
        self._sending = asyncio.Lock()

    @property
    def restart_policy(self) -> str:
        return self._record.restart_policy

    def find(self, name: str) -> ContainerRecord:
        """Return the record of a container."""
        return next(r for r in (*self._record.init, *self._record.containers) if r.name == name)

    def update(self, name: str, change: Callable[[ContainerRecord], ContainerRecord]) -> None:
        """Change the record of a container; `send` writes it."""

        def changed(records: tuple[ContainerRecord, ...]) -> tuple[ContainerRecord, ...]:
            return tuple(change(r) if r.name == name else r for r in records)

        self._record = replace(
            self._record,
            init=changed(self._record.init),
            containers=changed(self._record.containers),
        )

    def set_waiting(self, name: str, reason: str, message: str) -> None:
        self.update(name, lambda record: record.waiting(reason, message))

    def set_ready(self, name: str, is_ready: bool) -> None:
        self.update(name, lambda record: replace(record, is_ready=is_ready))

    async def fail(self, reason: str, message: str) -> None:
        """Set the pod's phase to Failed."""
        self._record = replace(self._record, failure=(reason, message))
        await self.send()

    async def refuse(self, reason: str, message: str) -> None:
        """Fail the pod, or with restartPolicy Always let it wait.

        A controller would replace a failed pod at once, again and again.
        """
        await self.warn(reason, message)
        if self.restart_policy != "Always":
            await self.fail(reason, message)
            return
        waiting = tuple(c.waiting(reason, message) for c in self._record.containers)
        self._record = replace(self._record, containers=waiting)
        await self.send()

    async def send(self) -> None:
        """Write the status if it differs from the last one written. Retries until it succeeds."""
        namespace, name = self._metadata["namespace"], self._metadata["name"]
        async with self._sending:
            status = self._record.as_status(self._sent, timestamp(unix_time()))
            if all(self._sent.get(key) == value for key, value in status.items()):
                return
            body: Object = {"metadata": {"uid": self._metadata["uid"]}, "status": status}
            while True:
                try:
                    await self._node.kube.merge(
                        PODS, namespace, name, body, manager=MANAGER, sub="status"
                    )
                    self._sent = self._sent | status
                    return
                except NotFound:
                    return
                except KubeError as error:
                    logger.warning("status of %s: %s", name, error)
                    await asyncio.sleep(RETRY_S)

    async def warn(self, reason: str, message: str) -> None:
        await self.event("Warning", reason, message)

    async def event(self, kind: str, reason: str, message: str) -> None:
        """Post an event about the pod."""
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata}
        await self._node.events.post(about, kind, reason, message)


def _record_of(spec: Object, before: Object | None) -> ContainerRecord:
    """Create a container's record, with the restart count that an earlier agent reported."""
    record = ContainerRecord(spec["name"], spec["image"])
    if before is None or not (before.get("restartCount") or "running" in before.get("state", {})):
        return record
    lost = Terminated(137, "ContainerStatusUnknown", "the node agent was restarted", "", "")
    now = timestamp(unix_time())
    lost = replace(lost, started_at=now, finished_at=now)
    return replace(record, restarts=before.get("restartCount", 0), last=lost)
