"""The clairvoyant bound: it knows the arrivals, and asks ahead by the time a replica takes to start.

It still pays for replicas while they start. What is needed is work over what one replica can take, so its
attainment depends on how full that may be, and on how finely the future is cut.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import rounding
from penstock.sim.baselines.answer import decided


@dataclass(frozen=True, slots=True)
class Oracle:
    """needed: (from when, replicas) in order; before the first none are. ahead_s: the start-up."""

    needed: tuple[tuple[float, int], ...]
    ahead_s: float
    period_s: float = 5.0

    def initial(self) -> None:
        return None

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: None
    ) -> tuple[Decision, None]:
        """As many as are needed at any moment until a replica asked for next time would be ready."""
        until_s = seen.now_s + self.ahead_s + self.period_s
        wanted = self.most(seen.now_s, until_s)
        why = f"at most {wanted} are needed in the next {until_s - seen.now_s:g} s"
        return decided(bounds, seen, wanted, why), None

    def most(self, from_s: float, to_s: float) -> int:
        """Of replicas needed between the two times."""
        first = bisect_right(self.needed, from_s, key=lambda level: level[0]) - 1
        last = bisect_right(self.needed, to_s, key=lambda level: level[0])
        return max((n for _, n in self.needed[max(0, first) : last]), default=0)


def oracle_of(demand: Iterable[tuple[float, float]], ahead_s: float, cut_s: float = 60.0) -> Oracle:
    """demand: of each arrival its time, and for how long it alone would keep a replica busy."""
    busy_s: dict[int, float] = {}
    for at_s, replica_s in demand:
        busy_s[int(at_s // cut_s)] = busy_s.get(int(at_s // cut_s), 0.0) + replica_s
    needed = [busy_s.get(i, 0.0) / cut_s for i in range(max(busy_s, default=-1) + 2)]
    levels = tuple((i * cut_s, rounding.up(replicas)) for i, replicas in enumerate(needed))
    return Oracle(levels, ahead_s)
