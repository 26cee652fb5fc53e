"""The clairvoyant bound: it knows the arrivals, and asks ahead by the time a replica takes to start.

It still pays for replicas while they start. What is needed is a rate over what one replica sustains,
so its attainment depends on `replica_rps` and on how finely the future is cut.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.rule import Bounds, Decision, Objectives
from penstock.core.rules import rounding
from penstock.core.rules.answer import decided
from penstock.core.signals import Observation


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


def oracle_of(
    arrivals_s: Sequence[float], replica_rps: float, ahead_s: float, cut_s: float = 60.0
) -> Oracle:
    """arrivals_s: ascending. replica_rps: what one replica sustains within the objectives."""
    counts: dict[int, int] = {}
    for at_s in arrivals_s:
        counts[int(at_s // cut_s)] = counts.get(int(at_s // cut_s), 0) + 1
    end = max(counts, default=-1)
    rates = [counts.get(i, 0) / cut_s for i in range(end + 1)] + [0.0]
    levels = tuple((i * cut_s, rounding.up(rate / replica_rps)) for i, rate in enumerate(rates))
    return Oracle(levels, ahead_s)
