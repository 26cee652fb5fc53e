"""Start-up time: how long pods take from their creation until they are ready, as measured."""

from dataclasses import dataclass, replace

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
# Least time of a fetch, in seconds, in a cold start-up. A pod that waits for another one's fetch takes as
# long; with the model in a cache, a fetch takes less than a second.
COLD_FETCH_S = 5.0


@dataclass(frozen=True, slots=True)
class StartUp:
    """Start-up times of warm pods, which found their model, and of cold ones, which fetched it."""

    prior_s: float  # before any was measured
    times_s: tuple[float, ...] = ()  # of the last warm pods, by the time they became ready
    seen: frozenset[str] = frozenset()  # names of present pods that are counted already
    cold_times_s: tuple[float, ...] = ()  # of the last cold pods
    is_cold: bool = False  # whether the last pod was cold

    @property
    def expected_s(self) -> float:
        """The 90th percentile of the times of pods like the last one; the prior if there are none."""
        alike, others = self.times_s, self.cold_times_s
        if self.is_cold:
            alike, others = others, alike
        if not (times_s := alike or others):
            return self.prior_s
        ordered = sorted(times_s)
        return ordered[min(len(ordered) - 1, int(QUANTILE * len(ordered)))]

    @property
    def is_measured(self) -> bool:
        return bool(self.times_s or self.cold_times_s)

    def updated(self, pods: tuple[PodView, ...]) -> "StartUp":
        """Add the pods that became ready since the last observation."""
        names = frozenset(pod.name for pod in pods)
        new = sorted(
            (pod.ready_s, pod.ready_s - pod.created_s, pod.fetch_s >= COLD_FETCH_S, pod.name)
            for pod in pods
            if pod.ready_s is not None and pod.name not in self.seen
        )
        if not new and self.seen <= names:
            return self
        # Pods that were ready when they were created, as a simulation's first ones, did not start.
        took = [(took_s, is_cold) for _, took_s, is_cold, _ in new if 0 < took_s <= LONGEST_S]
        warm, cold = ([s for s, is_cold in took if is_cold is kind] for kind in (False, True))
        return replace(
            self,
            times_s=(*self.times_s, *warm)[-REMEMBERED:],
            cold_times_s=(*self.cold_times_s, *cold)[-REMEMBERED:],
            seen=(self.seen & names) | {name for *_, name in new},
            is_cold=took[-1][1] if took else self.is_cold,
        )


def is_any_starting(seen: Observation, startup_s: float) -> bool:
    """Whether a pod is starting that was created recently enough to become ready."""
    since_s = seen.now_s - max(PROGRESS_DEADLINE_S, 2 * startup_s)
    return any(pod.created_s > since_s for pod in seen.starting)
