"""How many replicas it takes, by what was learned.

The smallest number that takes in, at every horizon up to the time a new pod needs, all work but a small
share, when requests may wait as long as their TTFT allows:

    replicas >= (level * headroom(T) * T + backlog) / (busy * (T + slack))      for all T
"""

from penstock.core.scaling.by_objectives.capacity import (
    Capacity,
    Mix,
    Room,
    capacity,
    request_work_s,
)
from penstock.core.scaling.by_objectives.counterfactual import Counterfactual
from penstock.core.scaling.by_objectives.demand import Demand
from penstock.core.scaling.by_objectives.forecast_errors import HEADROOMS, HORIZONS_S
from penstock.core.scaling.by_objectives.iteration import IterationModel
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.core.spec.objectives import Objectives

# What bursts have asked for is kept until no more than this part of what may be late is.
RELIEF = 0.5


class Need:
    """One tick's inequality, with all its numbers."""

    def __init__(
        self,
        objectives: Objectives,
        seen: Observation,
        mix: Mix,
        model: IterationModel,
        room: Room,
        demand: Demand,
        hindsight: Counterfactual,
        *,
        horizon_s: float,
        backlog: float,
        unit: IterationModel,
    ) -> None:
        """horizon_s: until a pod that is asked for now is ready. backlog: the share of waiting work that
        it is to take over. unit: whose engine time demand is counted in."""
        self._mix, self._demand, self._now_s = mix, demand, seen.now_s
        self._hindsight = hindsight
        may_fail = 1 - objectives.attainment
        restraint = hindsight.restraint(may_fail)
        self._may_fail = may_fail * restraint
        self._failure = (
            f", as {hindsight.late_share(may_fail):.1%} were late" if restraint < 1 else ""
        )
        self.capacity: Capacity = capacity(model, mix, room, objectives)
        # A request is also computed while the clock of its TTFT runs, beside what decodes.
        own_s = model.time_s(mix.uncached_tokens, 0, 0) / max(0.1, 1 - 0.5 * self.capacity.busy)
        self.slack_s = max(0.1 * objectives.max_wait_s, objectives.max_wait_s - own_s)
        self.horizon_s = horizon_s
        self._request_s = request_work_s(unit, mix)
        self._backlog_s = backlog * self._waiting_s(seen)

    @property
    def capacity_note(self) -> str:
        found = self.capacity
        return (
            f"a replica takes {found.rate:.2f} requests/s of {self._mix.prompt_tokens:.0f} and "
            f"{self._mix.output_tokens:.0f} tokens ({found.limit}), {found.busy:.0%} busy"
        )

    def rate_of(self, seen: Observation) -> float:
        """Of the replicas that are ready: engine seconds a second."""
        return len(seen.ready) * self.capacity.rate * self._request_s

    def replicas(
        self,
        share: float,
        longest_s: float,
        most_headroom: float = HEADROOMS[-1],
        *,
        is_sure: bool = False,
        spare: float = 0.0,
    ) -> tuple[int, str]:
        """The smallest number that holds at each horizon up to the longest, and why.

        share: of the requests that may fail. most_headroom: whatever was seen. is_sure: of the level
        only what is beyond doubt. spare: by so much of it more than enough.
        """
        needed, note = self.exactly(share, longest_s, most_headroom, is_sure=is_sure, spare=spare)
        return -int(-needed // 1), note

    def exactly(
        self,
        share: float,
        longest_s: float,
        most_headroom: float = HEADROOMS[-1],
        *,
        is_sure: bool = False,
        spare: float = 0.0,
    ) -> tuple[float, str]:
        """As `replicas`, which may be parts of one."""
        loss = share * self._may_fail
        found, level = self.capacity, self._demand.level
        request_s = self._request_s
        if is_sure:
            level *= self._demand.sure_share(self._now_s, request_s)
            most_headroom = 1 + (most_headroom - 1) * self._demand.known_share(self._now_s)
        most, why = 0.0, "nothing more"
        for horizon_s in (*(h for h in HORIZONS_S if h < longest_s), longest_s):
            headroom = min(most_headroom, self._demand.headroom(horizon_s, loss, request_s))
            work = level * headroom * horizon_s
            if horizon_s >= min(longest_s, self.horizon_s):
                work += self._backlog_s
            needed = work / (found.rate * request_s * (horizon_s + self.slack_s))
            if needed > most:
                most = needed
                why = f"{headroom - 1:.0%} more within {horizon_s:.0f} s"
        fixed = self._hindsight.rate(loss, RELIEF * loss if spare else loss)
        if fixed > most * found.rate * request_s:
            most, why = fixed / (found.rate * request_s), "bursts as there were"
        note = f"{level / request_s:.2f} requests/s, and {why}, need {most:.2f}"
        if spare:
            note += f" and {spare:.0%}"
        return (1 + spare) * most, note + self._failure

    def _waiting_s(self, seen: Observation) -> float:
        pending = sum(reading.prefill_tokens_pending for reading in seen.readings)
        if isinstance(seen.gateway, GatewayReading):
            pending += seen.gateway.queued_prompt_tokens
        share = seen.waiting + pending / max(1.0, self._mix.prompt_tokens)
        return share / 2 * self._request_s
