"""Reads why pods that fetch adapters do not start: a Secret or a claim that cannot be mounted."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import EVENTS
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.core.observed.adapter_fetches import AdapterFetchPod
from penstock.core.observed.mount_failures import EVENTS_AFTER_S, is_due, mount_failure


class FetchMounts:
    """Failures to mount volumes, by the uid of the pod. Only Events of the pods say them.

    Events are read of pods that have waited for some time, every EVENTS_AFTER_S seconds.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._failures: dict[str, tuple[str, str] | None] = {}
        self._waiting: dict[str, str] = {}  # namespaces by the uid of the pod, in this pass
        self._next_s = 0.0  # monotonic time of the next reading

    @property
    def is_due(self) -> bool:
        """Whether there are Events to read."""
        return bool(self._waiting) and monotonic() >= self._next_s

    def start_pass(self) -> None:
        """Forget pods that do not wait any more."""
        self._failures = {uid: each for uid, each in self._failures.items() if uid in self._waiting}
        self._waiting = {}

    def explain(self, namespace: str, pods: Sequence[AdapterFetchPod]) -> list[AdapterFetchPod]:
        """The pods of an adapter, each with its failure as its trouble, if it is known."""
        return [self._explain(namespace, each) for each in pods]

    async def read(self) -> None:
        """Read the Events of the pods that wait. Raises KubeError."""
        self._next_s = monotonic() + EVENTS_AFTER_S
        for uid, namespace in tuple(self._waiting.items()):
            selector = f"involvedObject.kind=Pod,involvedObject.uid={uid}"
            events, _ = await self._kube.list(EVENTS, namespace, fieldSelector=selector)
            self._failures[uid] = mount_failure(events)

    def _explain(self, namespace: str, found: AdapterFetchPod) -> AdapterFetchPod:
        pod = found.pod
        if not pod.is_creating or pod.is_ending or not is_due(pod, unix_time()):
            return found
        self._waiting[pod.uid] = namespace
        trouble = pod.trouble or self._failures.get(pod.uid)
        return replace(found, pod=replace(pod, trouble=trouble))
