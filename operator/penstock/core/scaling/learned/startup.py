"""Start-up time: how long pods take from their creation until they are ready, as measured."""

from dataclasses import dataclass

from penstock.core.scaling.signals import Observation, PodView

# Start-up time of a pod before one has started, in seconds.
PRIOR_STARTUP_S = 120.0
# Number of the last pods whose start-up times are kept.
REMEMBERED = 32
# Quantile of these times that is expected of the next pod. If it takes longer, requests wait for it.
QUANTILE = 0.9
# Longest start-up that counts, in seconds. A pod that took longer waited for a node, which says nothing about
# the next pod.
LONGEST_S = 3600.0
# A pod that takes longer than this and than two start-ups may never become ready: nothing waits for it.
PROGRESS_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class StartUp:
    """Start-up times.

    prior_s: before any was measured. times_s: of the last pods, in the order in which they became ready.
    seen: names of present pods that are counted already.
    """

    prior_s: float
    times_s: tuple[float, ...] = ()
    seen: frozenset[str] = frozenset()

    @property
    def expected_s(self) -> float:
        """The 90th percentile of the measured times; the prior if there are none."""
        if not self.times_s:
            return self.prior_s
        ordered = sorted(self.times_s)
        return ordered[min(len(ordered) - 1, int(QUANTILE * len(ordered)))]

    def updated(self, pods: tuple[PodView, ...]) -> "StartUp":
        """Add the pods that became ready since the last observation."""
        names = frozenset(pod.name for pod in pods)
        new = sorted(
            (pod.ready_s, pod.ready_s - pod.created_s, pod.name)
            for pod in pods
            if pod.ready_s is not None and pod.name not in self.seen
        )
        # Pods that were ready when they were created, as a simulation's first ones, did not start.
        took = tuple(took_s for _, took_s, _ in new if 0 < took_s <= LONGEST_S)
        if not new and self.seen <= names:
            return self
        times_s = (*self.times_s, *took)[-REMEMBERED:]
        return StartUp(self.prior_s, times_s, (self.seen & names) | {name for _, _, name in new})


def is_any_starting(seen: Observation, startup_s: float) -> bool:
    """Whether a pod is starting that was created recently enough to become ready."""
    since_s = seen.now_s - max(PROGRESS_DEADLINE_S, 2 * startup_s)
    return any(pod.created_s > since_s for pod in seen.starting)
