"""Plays the kubelet for pods that no scheduler sees: they become ready, crash, or lack their image."""

import asyncio
import contextlib

from benchmarks.cluster.campaigns.phase_cases import NO_SCHEDULER

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import NODES, PODS
from penstock.clients.machine.clock import unix_time
from penstock.core.formats.timestamps import parse_timestamp, timestamp
from penstock.core.spec.service import ROLE_LABEL, SERVE, SERVICE_LABEL
from penstock.errors import KubeError, NotFound

# Images of pods that do not start, and of engines that crash.
MISSING, CRASHING = "registry.example/missing:1", "registry.example/crashing:1"
LOST_NODE = "lost"
MANAGER = "scripted-pods"
POLL_S = 0.3
# Age at which a pod gets its status, in seconds. An engine is then younger than its service by a full second,
# which tells orphaned pods from those of an earlier service of the same name.
MIN_AGE_S = 1.0
# An address at which nothing listens. The campaign needs no metrics of engines.
ADDRESS = "127.9.9.9"


class ScriptedPods:
    """Writes the statuses of the pods of all services whose scheduler is NO_SCHEDULER."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._played: set[str] = set()

    async def run(self) -> None:
        """Play until cancelled."""
        while True:
            # A pod may be gone meanwhile, and the API server busy.
            with contextlib.suppress(KubeError):
                for pod in (await self._kube.list(PODS, labelSelector=SERVICE_LABEL))[0]:
                    if pod["spec"].get("schedulerName") == NO_SCHEDULER:
                        await self._play(pod)
            await asyncio.sleep(POLL_S)

    async def _play(self, pod: Object) -> None:
        metadata = pod["metadata"]
        age_s = unix_time() - parse_timestamp(metadata["creationTimestamp"])
        is_played = metadata["uid"] in self._played or "deletionTimestamp" in metadata
        if is_played or age_s < MIN_AGE_S:
            return
        with contextlib.suppress(NotFound):
            await _write(self._kube, pod, played_status(pod))
        self._played.add(metadata["uid"])


def played_status(pod: Object) -> Object:
    """Status of a pod by its role and the image of its container."""
    [container] = pod["spec"]["containers"]
    is_engine = pod["metadata"]["labels"][ROLE_LABEL] == SERVE
    if container["image"] == MISSING:
        return _waiting(container, "ImagePullBackOff", restarts=0)
    if not is_engine:
        return {"phase": "Succeeded"}
    if container["image"] == CRASHING:
        return _waiting(container, "CrashLoopBackOff", restarts=3)
    return {"phase": "Running", "podIP": ADDRESS, "conditions": _conditions(is_ready=True)}


def _waiting(container: Object, reason: str, *, restarts: int) -> Object:
    state = {
        "name": container["name"], "image": container["image"], "imageID": "", "ready": False,
        "restartCount": restarts, "state": {"waiting": {"reason": reason, "message": "played"}},
    }  # fmt: skip
    return {"containerStatuses": [state], "conditions": _conditions(is_ready=False)}


def _conditions(*, is_ready: bool) -> list[Object]:
    now = timestamp(unix_time())
    return [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
        {"type": "Ready", "status": str(is_ready), "lastTransitionTime": now},
    ]


async def create_lost_node(kube: Kube) -> None:
    """Create a node without a kubelet, so that pods on it are not collected as those of no node."""
    await kube.create(NODES, None, {"metadata": {"name": LOST_NODE}})


async def lose(kube: Kube, pod: Object) -> None:
    """Put a pod on the lost node, and write its status as the node controller does."""
    metadata = pod["metadata"]
    body = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": LOST_NODE}}
    await kube.create(
        PODS, metadata["namespace"], body, name=metadata["name"], sub="binding"
    )  # fmt: skip
    await _write(kube, pod, {"conditions": _conditions(is_ready=False)})


async def _write(kube: Kube, pod: Object, status: Object) -> None:
    metadata = pod["metadata"]
    await kube.merge(
        PODS, metadata["namespace"], metadata["name"], {"status": status}, manager=MANAGER,
        sub="status",
    )  # fmt: skip


def is_serving(pod: Object) -> bool:
    """Whether a pod is a ready engine that does not terminate."""
    metadata, conditions = pod["metadata"], pod["status"].get("conditions", [])
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    is_engine = metadata["labels"].get(ROLE_LABEL) == SERVE
    return is_engine and is_ready and "deletionTimestamp" not in metadata
