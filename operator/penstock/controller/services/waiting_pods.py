"""Reads what pods wait for that do not run yet: volumes to mount, and models to fetch."""

import logging

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import EVENTS
from penstock.controller.services.fetch_progress import ReadProgress, with_fetch_progress
from penstock.core.observed.children import ObservedState
from penstock.core.observed.mount_failures import (
    EVENTS_AFTER_S,
    is_due,
    mount_failure,
    pods_to_explain,
    with_trouble,
)
from penstock.core.rollout.wake import earlier_s
from penstock.errors import Forbidden

logger = logging.getLogger(__name__)


async def explain_waiting_pods(
    kube: Kube, read: ReadProgress, namespace: str, observed: ObservedState, now_s: float
) -> tuple[ObservedState, float | None]:
    """Read the Events of pods that a node has not started for some time, and the progress of fetches.

    Returns the state with what was found, and after how many seconds to look again, as nothing else may
    change; None without such pods.
    """
    observed, events_s = await _with_mount_failures(kube, namespace, observed, now_s)
    observed, progress_s = await with_fetch_progress(read, namespace, observed)
    return observed, earlier_s(events_s, progress_s)


async def _with_mount_failures(
    kube: Kube, namespace: str, observed: ObservedState, now_s: float
) -> tuple[ObservedState, float | None]:
    """The state with failures to mount volumes as the trouble of pods, and the delay."""
    waiting = pods_to_explain(observed)
    if not waiting:
        return observed, None
    failures = []
    for pod in waiting:
        if not is_due(pod, now_s):
            continue
        selector = f"involvedObject.kind=Pod,involvedObject.uid={pod.uid}"
        try:
            events, _ = await kube.list(EVENTS, namespace, fieldSelector=selector)
        except Forbidden as error:  # rights of an earlier version
            logger.warning("why the pod %s does not start is unknown: %s", pod.name, error)
            return observed, None
        if failure := mount_failure(events):
            failures.append((pod, failure))
    return with_trouble(observed, failures), EVENTS_AFTER_S
