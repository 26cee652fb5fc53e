"""How long a pod takes from being asked for to being ready: measured, never configured."""

from dataclasses import dataclass

from penstock.core.scaling.signals import PodView

REMEMBERED = 32
QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class StartUp:
    """times_s: of the last pods, in the order they became ready. seen: names that count already."""

    prior_s: float
    times_s: tuple[float, ...] = ()
    seen: frozenset[str] = frozenset()

    @property
    def expected_s(self) -> float:
        """The 90th percentile of what was measured; the prior until there is a pod."""
        if not self.times_s:
            return self.prior_s
        ordered = sorted(self.times_s)
        return ordered[min(len(ordered) - 1, int(QUANTILE * len(ordered)))]

    def after(self, pods: tuple[PodView, ...]) -> "StartUp":
        names = frozenset(pod.name for pod in pods)
        new = sorted(
            (pod.ready_s, pod.ready_s - pod.created_s, pod.name)
            for pod in pods
            if pod.ready_s is not None and pod.name not in self.seen
        )
        # Who was there already when it was first asked for did not start.
        took = tuple(took_s for _, took_s, _ in new if took_s > 0)
        if not new and self.seen <= names:
            return self
        times_s = (*self.times_s, *took)[-REMEMBERED:]
        return StartUp(self.prior_s, times_s, (self.seen & names) | {name for _, _, name in new})
