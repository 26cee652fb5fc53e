"""What a fixed number of replicas would have lost, of what came in the last hours.

The level and its headroom follow what lasts. A burst that is over before a pod starts is no level, and
none that is many times what came before is worth its price, once. Where such bursts come again and
again, and too much is late for it, there must be as many replicas all the time as would have done.

For each of a row of rates at which work could have been done: what waits for longer than TTFT leaves is
late, and is set behind, as admission does with it. That is a fluid's account, in work; of how many requests
were late in truth, where a gateway tells, it takes the part that it was wrong by.
"""

import math
from dataclasses import dataclass, field, replace

from penstock.core.scaling.by_objectives.outcomes import Outcomes

# Engine seconds a second: a quarter of an engine to three hundred, 15% apart.
RATES = tuple(0.25 * 1.15**k for k in range(52))
# What was seen is forgotten by 63% in this time.
MEMORY_S = 7200.0
# Before any data nothing was late, for so long.
PRIOR_S = 1800.0
# So many bursts are a habit: three of late, or one an hour.
HABIT = 2.5
# Of its time, over the loss, an engine more must have been busy with what was late without it: as
# shipped 4.5%. With 1.5% one of five slices of ServeGen's second week cost 13.6 instead of 10.7 GPU-hours
# for 98.95 instead of 98.68%.
WORTH = 3.0
# To miss more than so many times what may is a failure. Who fails is careful, and lets come as little as
# that part of what it would.
FAILURE, MOST_CAREFUL = 2.0, 0.3
# How much of what may fail was late, and was said to be, before any data: that the account is true.
TRUST = 0.1
# Over how long it is looked whether a burst has gone, and what has come down by half in it has.
QUIET_S, QUIET = 20.0, 0.5


@dataclass(frozen=True, slots=True)
class Pace:
    """At one rate. waiting_s: work that waits. late_s: what was late, and bursts: how often some was, both
    fading. is_late: in the burst that there is."""

    waiting_s: float = 0.0
    late_s: float = 0.0
    bursts: float = 0.0
    is_late: bool = False

    def after(
        self,
        rate: float,
        elapsed_s: float,
        work_s: float,
        slack_s: float,
        recent: float,
        faded: float,
    ) -> "Pace":
        """faded: what is left of what was seen before."""
        waiting_s = max(0.0, self.waiting_s + work_s - rate * elapsed_s)
        # What came did so in the middle of the look, on average; and where it may wait for no longer, a
        # look shows too little of what queued in it.
        left_s = max(slack_s / 2, slack_s - elapsed_s / 2)
        late_s = max(0.0, waiting_s - rate * left_s)
        is_late = late_s > 0 or (self.is_late and recent > QUIET * rate)
        bursts = self.bursts * faded + (is_late and not self.is_late)
        return Pace(waiting_s - late_s, self.late_s * faded + late_s, bursts, is_late)


@dataclass(frozen=True, slots=True)
class Hindsight:
    """at_s, total_s: of the last look, and all work until then. came_s, watched_s: work, and time, fading.
    recent: the rate of late. outcomes: of requests, fading. own: at the rate of the replicas that there
    were. paces: at RATES."""

    at_s: float | None = None
    total_s: float = 0.0
    came_s: float = 0.0
    watched_s: float = 0.0
    recent: float = 0.0
    outcomes: Outcomes = field(default_factory=Outcomes)
    own: Pace = Pace()
    paces: tuple[Pace, ...] = (Pace(),) * len(RATES)

    def after(
        self, now_s: float, total_s: float, slack_s: float, rate: float, outcomes: Outcomes
    ) -> "Hindsight":
        """total_s: of all work that ever came. slack_s: how long it may wait. rate: of the replicas
        that are there; while there are none, whoever waits does for the first, and is no burst.
        outcomes: since the last look."""
        if self.at_s is None or now_s <= self.at_s:
            return replace(self, at_s=now_s, total_s=total_s)
        if not rate:
            waited = replace(self.outcomes, waiting=outcomes.waiting)
            return replace(self, at_s=now_s, total_s=total_s, outcomes=waited)
        elapsed_s, work_s = now_s - self.at_s, max(0.0, total_s - self.total_s)
        share, faded = 1 - math.exp(-elapsed_s / QUIET_S), math.exp(-elapsed_s / MEMORY_S)
        recent = self.recent + share * (work_s / elapsed_s - self.recent)
        return Hindsight(
            now_s,
            total_s,
            self.came_s * faded + work_s,
            self.watched_s * faded + elapsed_s,
            recent,
            self.outcomes.after(faded, outcomes),
            self.own.after(rate, elapsed_s, work_s, slack_s, recent, faded),
            tuple(
                pace.after(each, elapsed_s, work_s, slack_s, recent, faded)
                for each, pace in zip(RATES, self.paces, strict=True)
            ),
        )

    def kept(self) -> "Hindsight":
        """As it is written down: without what waits."""
        paces = tuple(Pace(0.0, pace.late_s, pace.bursts) for pace in self.paces)
        own = Pace(0.0, self.own.late_s, self.own.bursts)
        return Hindsight(
            came_s=self.came_s,
            watched_s=self.watched_s,
            outcomes=replace(self.outcomes, waiting=0.0),
            own=own,
            paces=paces,
        )

    def true_part(self, loss: float) -> float:
        """Of what is said to have been late, at most all. loss: what may be."""
        if not self.outcomes.requests or not self.own.late_s:
            return 1.0
        trust = TRUST * loss
        measured = self.outcomes.late / self.outcomes.requests
        return min(1.0, (measured + trust) / (self.own.late_s / self.came_s + trust))

    def late_share(self, may_fail: float) -> float:
        """Of requests, as gateways measured it; before any data what may be."""
        believed = PRIOR_S / max(self.watched_s, 1.0) * self.outcomes.requests
        all_of_them = believed + self.outcomes.requests
        return (may_fail * believed + self.outcomes.late) / all_of_them if all_of_them else may_fail

    def restraint(self, may_fail: float) -> float:
        """What part of what else is let come, as too much was late in the last hours; at most all."""
        late = self.late_share(may_fail)
        most = FAILURE * may_fail
        return 1.0 if late <= most else max(MOST_CAREFUL, most / late)

    def rate(self, loss: float, enough: float) -> float:
        """The least that would have been late for no more than `loss` of the work, by what came as a habit
        and as far as it is worth it; 0 while no more than `enough` of it was late as it was."""
        believed_s = self.came_s * max(1.0, PRIOR_S / max(self.watched_s, 1.0))
        true = self.true_part(loss)
        if true * self.own.late_s <= enough * believed_s:
            return 0.0
        may_s = loss * believed_s / true
        worth = WORTH * loss * max(self.watched_s, PRIOR_S) / true
        above, rate = self.paces[-1], RATES[-1]
        for each, pace in zip(RATES[-2::-1], self.paces[-2::-1], strict=True):
            spared_s = pace.late_s - above.late_s
            is_worth = spared_s >= worth * (rate - each)
            if pace.late_s > may_s and pace.bursts >= HABIT and is_worth:
                part = min(1.0, max(0.0, (pace.late_s - may_s) / spared_s))
                return each + part * (rate - each)
            above, rate = pace, each
        return 0.0
