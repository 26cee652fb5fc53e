"""Reads why volumes of pods cannot be mounted."""

import logging

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import EVENTS
from penstock.core.observed.children import ObservedState
from penstock.core.observed.mount_failures import (
    EVENTS_AFTER_S,
    is_due,
    mount_failure,
    pods_to_explain,
    with_trouble,
)
from penstock.errors import Forbidden

logger = logging.getLogger(__name__)


async def explain_waiting_pods(
    kube: Kube, namespace: str, observed: ObservedState, now_s: float
) -> tuple[ObservedState, float | None]:
    """Read the Events of pods that a node has not started for some time.

    Returns the state with what was found as the pods' trouble, and after how many seconds to look again,
    as nothing else may change; None without such pods.
    """
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
