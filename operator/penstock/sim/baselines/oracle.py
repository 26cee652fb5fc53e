"""Clairvoyant rule: knows all arrivals, and requests replicas one start-up time ahead.

It still pays for starting replicas. The need is the work divided by the capacity of one replica, so its
attainment depends on the assumed utilization and on the length of the time bins.
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
    """Oracle rule. needed: (start time, replicas) in order; 0 before the first. ahead_s: start-up time."""

    needed: tuple[tuple[float, int], ...]
    ahead_s: float
    period_s: float = 5.0

    def initial(self) -> None:
        return None

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: None
    ) -> tuple[Decision, None]:
        """Largest need until a replica that is requested at the next decision would be ready."""
        until_s = seen.now_s + self.ahead_s + self.period_s
        wanted = self.most(seen.now_s, until_s)
        why = f"at most {wanted} are needed in the next {until_s - seen.now_s:g} s"
        return decided(bounds, seen, wanted, why), None

    def most(self, from_s: float, to_s: float) -> int:
        """Largest need between the two times."""
        first = bisect_right(self.needed, from_s, key=lambda level: level[0]) - 1
        last = bisect_right(self.needed, to_s, key=lambda level: level[0])
        return max((n for _, n in self.needed[max(0, first) : last]), default=0)


def oracle_of(demand: Iterable[tuple[float, float]], ahead_s: float, cut_s: float = 60.0) -> Oracle:
    """Build the oracle. demand: (arrival time, replica-seconds of work). cut_s: length of a time bin."""
    busy_s: dict[int, float] = {}
    for at_s, replica_s in demand:
        busy_s[int(at_s // cut_s)] = busy_s.get(int(at_s // cut_s), 0.0) + replica_s
    needed = [busy_s.get(i, 0.0) / cut_s for i in range(max(busy_s, default=-1) + 2)]
    levels = tuple((i * cut_s, rounding.up(replicas)) for i, replicas in enumerate(needed))
    return Oracle(levels, ahead_s)
