"""Volumes that cannot be mounted: which pods wait for one, and why. Only Events of the pods say it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.spec.service import PREFLIGHT, SERVE, Object

# Age of a pod from which its Events are read, in seconds; and the pause until they are read again. Most pods
# start sooner.
EVENTS_AFTER_S = 10.0
# Reasons of the kubelet's and the attach controller's Events.
FAILURES = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")


def pods_to_explain(observed: ObservedState) -> tuple[ObservedPod, ...]:
    """Pods of which a node has started no container: each preflight, and one engine of each revision.

    Engines of a revision of which one is ready need no explanation.
    """
    waiting = [pod for pod in observed.pods if pod.is_creating and not pod.is_ending]
    found = {pod.name: pod for pod in waiting if pod.role == PREFLIGHT}
    for pod in sorted(waiting, key=lambda pod: pod.name):
        if pod.role == SERVE and not observed.ready(pod.revision):
            found.setdefault(pod.revision, pod)
    return tuple(found.values())


def is_due(pod: ObservedPod, now_s: float) -> bool:
    """Whether the pod has waited for so long that its Events are read."""
    return now_s - parse_timestamp(pod.created_at) >= EVENTS_AFTER_S


def mount_failure(events: Iterable[Object]) -> tuple[str, str] | None:
    """(reason, message) of the last of a pod's Events, if it is a failure to mount a volume; else None.

    A later Event shows that the pod got further, such as to the pull of its image.
    """
    last = max(events, key=_time, default=None)
    if last is None or last.get("reason") not in FAILURES:
        return None
    return last["reason"], last.get("message", "")


def _time(event: Object) -> str:
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp", "")
    )


def with_trouble(
    observed: ObservedState, failures: Sequence[tuple[ObservedPod, tuple[str, str]]]
) -> ObservedState:
    """The state with these failures as what keeps the pods from becoming ready."""
    by_uid = {pod.uid: failure for pod, failure in failures}
    pods = (replace(pod, trouble=by_uid.get(pod.uid, pod.trouble)) for pod in observed.pods)
    return replace(observed, pods=tuple(pods))
