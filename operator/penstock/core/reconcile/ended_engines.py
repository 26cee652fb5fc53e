"""Chooses the ended engine pods to delete. Kubernetes replaces an evicted pod, and leaves it behind."""

from collections.abc import Iterator

from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod

# Seconds after its end for which the last ended pod is kept, so that a person can look at it.
KEPT_S = 600.0


def ended_engines_to_delete(observed: ObservedState, now_s: float) -> Iterator[ObservedPod]:
    """Yield all ended engines but the last one of each side and variant, and that one after KEPT_S."""
    seen = set()
    for pod in observed.ended_engines():
        is_last = (pod.side, pod.variant) not in seen
        seen.add((pod.side, pod.variant))
        ended_s = parse_timestamp(pod.unready_at or pod.created_at)
        if not is_last or now_s - ended_s >= KEPT_S:
            yield pod
