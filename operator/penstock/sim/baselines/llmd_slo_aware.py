"""llm-d slo-aware KEDA rule: keeps the latency tail, as a fraction of the objective, within a band.

Source: llm-d docs/architecture/autoscaling/slo-aware-keda.md: P90 over 1 min, clamped at 2, averaged
over 45 s; up above 0.55, reduced by starting replicas; down below 0.40. The metric is the desired replica
count itself, with a target of 1.
"""

from dataclasses import dataclass, replace

from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import rounding
from penstock.sim.baselines.hpa.autoscaler import Activation, Hpa
from penstock.sim.baselines.hpa.behavior import Behavior, Direction, Policy
from penstock.sim.baselines.hpa.metric import AverageMetric
from penstock.sim.baselines.latency_tail import Scrapes, add_scrape, latency_ratio
from penstock.sim.baselines.window import Samples, added, mean

# Limit of a recorded ratio, and the period of the recording rule, in seconds.
CLAMP, RECORD_S = 2.0, 15.0


@dataclass(frozen=True, slots=True)
class SloSeries:
    """Series of the rule. recorded: clamped ratio of the recording rule, every RECORD_S."""

    scrapes: Scrapes = ()
    recorded: Samples = ()
    next_record_s: float | None = None
    provisioned: int = 0
    ready: int = 0


def llmd_slo_aware(
    up_at: float = 0.55,
    down_at: float = 0.40,
    down_period_s: float = 120,
    smoothing_s: float = 45,
) -> Hpa[SloSeries]:
    """Build the rule on measured latency, the published fallback where no router predicts it."""
    source = SloBand(up_at, down_at, smoothing_s)
    up = Direction((Policy("Percent", 100, 60), Policy("Pods", 4, 60)), window_s=30)
    down = Direction((Policy("Pods", 1, down_period_s),), window_s=180)
    behavior = Behavior(up, down)
    return Hpa(source=source, behavior=behavior, scrape_s=5, activation=Activation())


@dataclass(frozen=True, slots=True)
class SloBand:
    """Source of the desired replicas, from the ratio of latency to objective."""

    up_at: float
    down_at: float
    smoothing_s: float

    def initial(self) -> SloSeries:
        return SloSeries()

    def scrape(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, series: SloSeries
    ) -> SloSeries:
        """Add a scrape; the recording rule runs every RECORD_S."""
        scrapes = add_scrape(seen, series.scrapes)
        n, ready = seen.provisioned, len(seen.ready)
        counts = replace(series, scrapes=scrapes, provisioned=n, ready=ready)
        now = seen.now_s
        if series.next_record_s is not None and now < series.next_record_s - 1e-6:
            return counts
        clamped = min(latency_ratio(objectives, scrapes, now), CLAMP)
        recorded = added(series.recorded, now, clamped, self.smoothing_s)
        return replace(counts, recorded=recorded, next_record_s=now + RECORD_S)

    def metrics(self, series: SloSeries) -> tuple[AverageMetric, ...]:
        if not series.recorded:
            return ()
        newest = series.recorded[-1].at_s
        smooth = mean(series.recorded, newest, self.smoothing_s) or 0.0
        desired = self.desired(smooth, series.provisioned, series.ready)
        return (AverageMetric(f"replicas by slo at {smooth:.2f}", 1.0, desired),)

    def desired(self, ratio: float, provisioned: int, ready: int) -> int:
        """Published formula. Starting replicas reduce a scale-up only."""
        n = provisioned
        credit = ready / n if 0 < ready < n else 1.0
        if ratio > self.up_at:
            return n + rounding.up(n * (ratio * credit / self.up_at - 1))
        if ratio < self.down_at:
            return n - rounding.down(n * (1 - ratio / self.down_at))
        return n
