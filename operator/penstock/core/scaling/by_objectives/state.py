"""State of the scaling rule by objectives: all that it keeps of one service between two decisions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.core.engine_time.iteration import Fit
from penstock.core.scaling.blind import missing_metrics
from penstock.core.scaling.by_objectives.backlog import Backlog
from penstock.core.scaling.by_objectives.correction import Correction
from penstock.core.scaling.by_objectives.forecast import MEMORY_S, Forecast
from penstock.core.scaling.by_objectives.offered_load import OfferedLoad
from penstock.core.scaling.by_objectives.outcomes import Outcomes
from penstock.core.scaling.delays import ScaleDownDelay, ScaleDownWindow, ScaleUpDelay
from penstock.core.scaling.learned.footprint import Footprint
from penstock.core.scaling.learned.startup import StartUp, is_any_starting
from penstock.core.scaling.learned.traffic import Readings, Traffic
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.signals import Observation
from penstock.core.scaling.variants.mixed import LearnedVariant, Variant
from penstock.core.spec.objectives import Objectives


@dataclass(frozen=True, slots=True)
class ObjectivesState:
    """State of one service."""

    watch: Watch
    startup: StartUp
    readings: Readings = field(default_factory=Readings)
    traffic: Traffic = field(default_factory=Traffic)
    load: OfferedLoad = field(default_factory=OfferedLoad)
    forecast: Forecast = field(default_factory=Forecast)
    backlog: Backlog = field(default_factory=Backlog)
    outcomes: Outcomes = field(default_factory=Outcomes)
    ended: Outcomes = field(default_factory=Outcomes)  # outcomes since the last observation
    correction: Correction = field(default_factory=Correction)
    # up, needs: delays of scale-up and scale-down
    up: ScaleUpDelay = field(default_factory=ScaleUpDelay)
    needs: ScaleDownWindow = field(default_factory=ScaleDownWindow)
    # Delay of a swap to another mix of variants, counted from when it became cheaper
    swap: ScaleDownDelay = field(default_factory=ScaleDownDelay)
    grew_s: float | None = None  # time of the last scale-up, if there was one
    news_s: float = 0.0  # time of the last new metrics
    seen_s: float = 0.0  # time of the last decision; 0 before the first
    busy_s: float = 0.0  # last time at which a request arrived, waited or ran
    # Learned state of each variant. If there are variants, watch keeps the prior of the first one, whose
    # replicas are the unit of the forecast.
    known: Mapping[str, LearnedVariant] = field(default_factory=dict)
    objectives: Objectives | None = None  # objectives that the forecast is for

    @property
    def fit(self) -> Fit:
        return self.watch.fit

    def updated(
        self, seen: Observation, variants: Iterable[Variant], startup_s: float
    ) -> "ObjectivesState":
        """Add an observation of engines, pods and requests.

        startup_s: start-up time of a variant until one of its pods has started.
        """
        pairs = self.readings.pairs(seen)
        prompt_tokens = self.traffic.prompt.value
        known = {
            variant.name: (
                self.known.get(variant.name) or LearnedVariant.initial(variant, startup_s)
            ).updated(self.readings, seen.of_variant(variant.name), prompt_tokens)
            for variant in variants
        }
        traffic = self.traffic.updated(self.readings, seen, pairs.values())
        is_busy = traffic.arrivals > 0 or not seen.is_idle or not self.seen_s
        faded = math.exp(-(seen.now_s - self.seen_s) / MEMORY_S) if self.seen_s else 1.0
        ended = Outcomes.between(self.readings.gateway, seen.gateway)
        return replace(
            self,
            watch=self.watch if known else self.watch.updated(pairs, prompt_tokens),
            startup=self.startup.updated(seen.pods),
            readings=self.readings.updated(seen),
            traffic=traffic,
            outcomes=self.outcomes.updated(faded, ended, is_served=bool(seen.ready)),
            ended=ended,
            news_s=seen.now_s if self.readings.are_older_than(seen) else self.news_s,
            seen_s=seen.now_s,
            busy_s=seen.now_s if is_busy else self.busy_s,
            known=known,
        )

    def with_load(
        self, seen: Observation, footprint: Footprint, lead_s: float
    ) -> "ObjectivesState":
        """Add the backlog, the load of the arrivals and its forecast, in replicas of a footprint.

        Arrivals count whether engines report or not. Without their metrics the backlog is unknown. It begins
        anew while pods are starting: they were requested for what waits now, and will serve it.
        """
        backlog = self.backlog
        if missing_metrics(seen, uses_gateway=True) is None:
            kept = Backlog() if is_any_starting(seen, lead_s) else backlog
            backlog = kept.updated(seen, lead_s)
        if self.news_s < seen.now_s:  # the metrics are those of the last observation
            return replace(self, backlog=backlog)
        traffic = self.traffic
        load = self.load.updated(seen.now_s, traffic.arrivals, traffic.prompt_tokens, footprint)
        forecast = self.forecast
        if load.is_known:
            ahead = load.ahead(lead_s, footprint)
            forecast = forecast.updated(
                seen.now_s,
                footprint.replicas(load.now(footprint)),
                footprint.replicas(ahead),
                lead_s=lead_s,
            )
        return replace(self, backlog=backlog, load=load, forecast=forecast)

    def restart_scale_down_delay(self) -> "ObjectivesState":
        """The state with the scale-down delay started again."""
        return replace(self, needs=ScaleDownWindow(), swap=ScaleDownDelay())
