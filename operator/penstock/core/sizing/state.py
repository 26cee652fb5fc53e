"""All that sizing remembers of one service between two looks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.core.sizing.demand import Demand
from penstock.core.sizing.hindsight import Hindsight
from penstock.core.sizing.iteration import Fit
from penstock.core.sizing.mixed import Known
from penstock.core.sizing.patience import Patience
from penstock.core.sizing.queue import Pressure
from penstock.core.sizing.silence import Silence
from penstock.core.sizing.startup import StartUp
from penstock.core.sizing.traffic import Readings, Traffic
from penstock.core.sizing.watch import Watch

# A growth is not taken back so soon, unless it was for a crowd that is over: the load is down to what it
# was so long before, or far too many replicas are there.
HOLD_S, BEFORE_S = 600.0, 120.0


@dataclass(frozen=True, slots=True)
class SizingState:
    """calm_s: since when one replica fewer has been enough, and none
    starts: in a closed loop no more comes until they serve. grew_s: when more were asked for last;
    grew_from: the level before the growth of which that was a part. news_s: when arrivals were counted
    last. known: of each variant; where there are some, fit is a belief that stays, as the unit of demand."""

    watch: Watch
    startup: StartUp
    readings: Readings = field(default_factory=Readings)
    traffic: Traffic = field(default_factory=Traffic)
    demand: Demand = field(default_factory=Demand)
    hindsight: Hindsight = field(default_factory=Hindsight)
    silence: Silence = field(default_factory=Silence)
    calm_s: float | None = None
    pressure: Pressure = field(default_factory=Pressure)
    grew_s: float | None = None
    grew_from: float = 0.0
    patience: Patience = field(default_factory=Patience)
    news_s: float = 0.0
    known: Mapping[str, Known] = field(default_factory=dict)

    @property
    def fit(self) -> Fit:
        return self.watch.fit

    def grown(self, now_s: float, *, by_queue: bool) -> "SizingState":
        """More are asked for: another step of the same growth, or the first one of a new one. No level is
        so low that it takes back what a queue asked for."""
        is_same = self.held_s(now_s) > 0
        before = self.grew_from if is_same else self.demand.level_at(now_s - BEFORE_S)
        return replace(self, grew_s=now_s, grew_from=0.0 if by_queue else before)

    def held_s(self, now_s: float) -> float:
        """For how long yet the last growth is not taken back; below 0: it may be."""
        return -math.inf if self.grew_s is None else self.grew_s + HOLD_S - now_s
