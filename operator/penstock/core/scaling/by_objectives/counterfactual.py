"""Model of how each fixed number of replicas would have met the TTFT objective in the last hours.

Level and headroom follow a load that lasts. They do not cover bursts that end before a new pod could start.
If such bursts recur and too much work is late, the service keeps as many replicas as would have been enough.

A fluid model for each of RATES: work that waits for longer than the TTFT objective allows is late, and is
served after all other work, as by admission. The late requests that gateways counted correct the result.
"""

import math
from dataclasses import dataclass, field, replace

from penstock.core.scaling.by_objectives.outcomes import Outcomes

# Rates of work, in engine seconds per second: from a quarter of an engine to three hundred, 15% apart.
RATES = tuple(0.25 * 1.15**k for k in range(52))
# Observations decay by 63% in this time, s.
MEMORY_S = 7200.0
# Prior: nothing was late for this time, s.
PRIOR_S = 1800.0
# Bursts recur if there were at least so many, decayed: three recent ones, or one an hour.
MIN_BURSTS = 2.5
# Minimum busy time of one more engine with work that was late without it, as a multiple of the allowed
# loss: 4.5% of its time by default. With 1.5% one of five slices of ServeGen's second week cost 13.6 instead
# of 10.7 GPU-hours, for 98.95 instead of 98.68%.
MIN_BUSY_GAIN = 3.0
# If the late share exceeds FAILURE times the allowed one, less may be late: in proportion, and at least
# MOST_CAREFUL of it.
FAILURE, MOST_CAREFUL = 2.0, 0.3
# Prior of the correction, counted and modelled, as a fraction of the allowed loss: the model is right.
TRUST = 0.1
# The recent rate of work decays by 63% in QUIET_S. A burst is over when that rate is below QUIET times the
# rate of the model.
QUIET_S, QUIET = 20.0, 0.5


@dataclass(frozen=True, slots=True)
class RateOutcome:
    """Outcome of the model at one rate.

    waiting_s: waiting work. late_s, bursts: late work, and the number of bursts with late work, decayed.
    is_late: whether work of the current burst was late.
    """

    waiting_s: float = 0.0
    late_s: float = 0.0
    bursts: float = 0.0
    is_late: bool = False

    def with_interval(
        self,
        rate: float,
        elapsed_s: float,
        work_s: float,
        slack_s: float,
        recent: float,
        faded: float,
    ) -> "RateOutcome":
        """The outcome with one more interval.

        work_s: work that arrived. slack_s: how long work may wait. recent: recent rate of work. faded: factor
        by which earlier observations decayed.
        """
        waiting_s = max(0.0, self.waiting_s + work_s - rate * elapsed_s)
        # Work arrives in the middle of the interval on average. If it may not wait for longer than that, the
        # interval shows too little of what queued in it.
        left_s = max(slack_s / 2, slack_s - elapsed_s / 2)
        late_s = max(0.0, waiting_s - rate * left_s)
        is_late = late_s > 0 or (self.is_late and recent > QUIET * rate)
        bursts = self.bursts * faded + (is_late and not self.is_late)
        return RateOutcome(waiting_s - late_s, self.late_s * faded + late_s, bursts, is_late)


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Late work at each rate, and at the rate of the replicas that ran.

    at_s, total_s: time of the last observation, and all work until then. came_s, watched_s: arrived work and
    observed time, decayed. recent: recent rate of work. outcomes: requests that gateways counted, decayed.
    own: at the rate of the replicas that ran. paces: at each of RATES.
    """

    at_s: float | None = None
    total_s: float = 0.0
    came_s: float = 0.0
    watched_s: float = 0.0
    recent: float = 0.0
    outcomes: Outcomes = field(default_factory=Outcomes)
    own: RateOutcome = RateOutcome()
    paces: tuple[RateOutcome, ...] = (RateOutcome(),) * len(RATES)

    def with_observation(
        self, now_s: float, total_s: float, slack_s: float, rate: float, outcomes: Outcomes
    ) -> "Counterfactual":
        """The estimate with one more observation.

        total_s: all work that ever arrived. slack_s: how long it may wait. rate: of the running replicas;
        while there are none, requests wait for the first one and count as no burst. outcomes: since the
        last observation.
        """
        if self.at_s is None or now_s <= self.at_s:
            return replace(self, at_s=now_s, total_s=total_s)
        if not rate:
            waited = replace(self.outcomes, waiting=outcomes.waiting)
            return replace(self, at_s=now_s, total_s=total_s, outcomes=waited)
        elapsed_s, work_s = now_s - self.at_s, max(0.0, total_s - self.total_s)
        share, faded = 1 - math.exp(-elapsed_s / QUIET_S), math.exp(-elapsed_s / MEMORY_S)
        recent = self.recent + share * (work_s / elapsed_s - self.recent)
        return Counterfactual(
            now_s,
            total_s,
            self.came_s * faded + work_s,
            self.watched_s * faded + elapsed_s,
            recent,
            self.outcomes.after(faded, outcomes),
            self.own.with_interval(rate, elapsed_s, work_s, slack_s, recent, faded),
            tuple(
                pace.with_interval(each, elapsed_s, work_s, slack_s, recent, faded)
                for each, pace in zip(RATES, self.paces, strict=True)
            ),
        )

    def kept(self) -> "Counterfactual":
        """The part that is stored: without waiting work."""
        paces = tuple(RateOutcome(0.0, pace.late_s, pace.bursts) for pace in self.paces)
        own = RateOutcome(0.0, self.own.late_s, self.own.bursts)
        return Counterfactual(
            came_s=self.came_s,
            watched_s=self.watched_s,
            outcomes=replace(self.outcomes, waiting=0.0),
            own=own,
            paces=paces,
        )

    def true_part(self, loss: float) -> float:
        """Ratio of the counted late work to that of the model, at most 1. loss: the allowed fraction."""
        if not self.outcomes.requests or not self.own.late_s:
            return 1.0
        trust = TRUST * loss
        measured = self.outcomes.late / self.outcomes.requests
        return min(1.0, (measured + trust) / (self.own.late_s / self.came_s + trust))

    def late_share(self, may_fail: float) -> float:
        """Fraction of requests that gateways counted as late; without data the allowed one, `may_fail`."""
        believed = PRIOR_S / max(self.watched_s, 1.0) * self.outcomes.requests
        all_of_them = believed + self.outcomes.requests
        return (may_fail * believed + self.outcomes.late) / all_of_them if all_of_them else may_fail

    def restraint(self, may_fail: float) -> float:
        """Factor for the allowed loss, at most 1; lower after too much was late in the last hours."""
        late = self.late_share(may_fail)
        most = FAILURE * may_fail
        return 1.0 if late <= most else max(MOST_CAREFUL, most / late)

    def rate(self, loss: float, enough: float) -> float:
        """The lowest rate at which no more than `loss` of the work would have been late.

        Counts recurring bursts only, and adds engines only if they would have been busy enough. 0 while no
        more than `enough` of the work was late for the replicas that ran.
        """
        believed_s = self.came_s * max(1.0, PRIOR_S / max(self.watched_s, 1.0))
        true = self.true_part(loss)
        if true * self.own.late_s <= enough * believed_s:
            return 0.0
        may_s = loss * believed_s / true
        worth = MIN_BUSY_GAIN * loss * max(self.watched_s, PRIOR_S) / true
        above, rate = self.paces[-1], RATES[-1]
        for each, pace in zip(RATES[-2::-1], self.paces[-2::-1], strict=True):
            spared_s = pace.late_s - above.late_s
            is_worth = spared_s >= worth * (rate - each)
            if pace.late_s > may_s and pace.bursts >= MIN_BURSTS and is_worth:
                part = min(1.0, max(0.0, (pace.late_s - may_s) / spared_s))
                return each + part * (rate - each)
            above, rate = pace, each
        return 0.0
