"""All that sizing remembers of one service between two looks."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.core.scaling.by_objectives.capacity import request_work_s, work_s
from penstock.core.scaling.by_objectives.counterfactual import Counterfactual
from penstock.core.scaling.by_objectives.demand import Demand
from penstock.core.scaling.by_objectives.idle_gap import IdleGap
from penstock.core.scaling.by_objectives.iteration import Fit, IterationModel
from penstock.core.scaling.by_objectives.mixed import Known, Variant
from penstock.core.scaling.by_objectives.queue import Pressure
from penstock.core.scaling.by_objectives.startup import StartUp
from penstock.core.scaling.by_objectives.traffic import Pair, Readings, Traffic
from penstock.core.scaling.by_objectives.watch import Watch
from penstock.core.scaling.delays import ScaleUpDelay
from penstock.core.scaling.signals import Observation

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
    hindsight: Counterfactual = field(default_factory=Counterfactual)
    silence: IdleGap = field(default_factory=IdleGap)
    calm_s: float | None = None
    pressure: Pressure = field(default_factory=Pressure)
    grew_s: float | None = None
    grew_from: float = 0.0
    patience: ScaleUpDelay = field(default_factory=ScaleUpDelay)
    news_s: float = 0.0
    known: Mapping[str, Known] = field(default_factory=dict)

    @property
    def fit(self) -> Fit:
        return self.watch.fit

    def after(
        self, seen: Observation, variants: Iterable[Variant], startup_s: float
    ) -> "SizingState":
        """With what this look tells of engines, pods and arrivals. startup_s: believed of a variant until
        one of its pods has started."""
        pairs = self.readings.pairs(seen)
        watch, known = self._watched(pairs, seen, variants, startup_s)
        traffic = self.traffic.after(self.readings, seen, pairs.values())
        is_new = self.readings.are_older_than(seen)
        silence = self.silence
        if is_new:
            is_waiting = seen.waiting > 0
            silence = silence.with_interval(seen.now_s, traffic.arrivals, is_waiting=is_waiting)
        if silence.heard_s is not None and silence.lasts(seen.now_s):
            demand = self.demand.until(silence.heard_s)
        else:
            demand = self._demanded(seen.now_s, traffic, watch.fit.model) if is_new else self.demand
        return replace(
            self,
            watch=watch,
            startup=self.startup.after(seen.pods),
            readings=self.readings.after(seen),
            traffic=traffic,
            demand=demand,
            silence=silence,
            news_s=seen.now_s if is_new else self.news_s,
            known=known,
        )

    def _watched(
        self,
        pairs: Mapping[str, Pair],
        seen: Observation,
        variants: Iterable[Variant],
        startup_s: float,
    ) -> tuple[Watch, Mapping[str, Known]]:
        """With what engines did since the last look, each variant's by itself."""
        prompt_tokens = self.traffic.prompt.value
        known = {
            variant.name: (self.known.get(variant.name) or Known.initial(variant, startup_s)).after(
                self.readings, seen.of_variant(variant.name), prompt_tokens
            )
            for variant in variants
        }
        return (self.watch if known else self.watch.after(pairs, prompt_tokens)), known

    def _demanded(self, now_s: float, traffic: Traffic, model: IterationModel) -> Demand:
        """With what came since the last look, in engine time by the model."""
        mix, demand = traffic.mix, self.demand
        if mix is None:
            return demand
        if self.silence.lasts(now_s):
            demand = demand.resumed(self.news_s)
        request_s = request_work_s(model, mix)
        if (before := self.traffic.mix) is not None:
            demand = demand.restated(now_s, request_s / request_work_s(self.fit.model, before))
        uncached = traffic.prompt_tokens * mix.uncached_tokens / max(1.0, mix.prompt_tokens)
        output_tokens = mix.output_tokens * traffic.arrivals
        arrived_s = work_s(model, uncached, output_tokens, mix.kv_tokens)
        return demand.after(now_s, arrived_s, request_s)

    def grown(self, now_s: float, *, by_queue: bool) -> "SizingState":
        """More are asked for: another step of the same growth, or the first one of a new one. No level is
        so low that it takes back what a queue asked for."""
        is_same = self.held_s(now_s) > 0
        before = self.grew_from if is_same else self.demand.level_at(now_s - BEFORE_S)
        return replace(self, grew_s=now_s, grew_from=0.0 if by_queue else before)

    def held_s(self, now_s: float) -> float:
        """For how long yet the last growth is not taken back; below 0: it may be."""
        return -math.inf if self.grew_s is None else self.grew_s + HOLD_S - now_s
