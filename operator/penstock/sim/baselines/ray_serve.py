"""Ray Serve default policy: mean ongoing requests over a window, with damped and delayed steps.

Source: ray python/ray/serve/autoscaling_policy.py and AutoscalingConfig's defaults. Ray's loop runs
every 0.1 s and counts ticks; here the same delays are times.
"""

from dataclasses import dataclass, replace

from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import rounding
from penstock.sim.baselines.answer import decided, held
from penstock.sim.baselines.load import open_requests
from penstock.sim.baselines.window import Samples, added, mean


@dataclass(frozen=True, slots=True)
class RayServeState:
    """State of the rule. leaning: direction of change, +1 or -1, unbroken since leaning_s."""

    ongoing: Samples = ()
    next_report_s: float = 0.0
    leaning: int = 0
    leaning_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayServe:
    """Ray Serve rule; the knobs are those of AutoscalingConfig."""

    target_ongoing_requests: float = 2.0
    look_back_period_s: float = 30.0
    metrics_interval_s: float = 10.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    upscaling_factor: float = 1.0
    downscaling_factor: float = 1.0
    period_s: float = 1.0

    def initial(self) -> RayServeState:
        return RayServeState()

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: RayServeState
    ) -> tuple[Decision, RayServeState]:
        now, target, running = seen.now_s, seen.provisioned, len(seen.ready)
        state = self._reported(seen, state)
        total = mean(state.ongoing, now, self.look_back_period_s)
        if total is None:
            return held(bounds, seen, "No report of ongoing requests.", "NoData"), state
        why = f"{total:.1f} ongoing requests, {self.target_ongoing_requests:g} a replica"
        if not running:
            woken = max(rounding.up(self.upscaling_factor), target) if total else target
            return decided(bounds, seen, woken, why), state
        wanted = bounds.clip(self._damped(total / self.target_ongoing_requests, running))
        late, state = self._delayed(state, now, wanted, target)
        trail = (
            TrailEntry("ongoing", wanted, why),
            TrailEntry("delay", late, f"{now - state.leaning_s:g} s in this direction"),
        )
        return decided(bounds, seen, late, why, trail), state

    def _reported(self, seen: Observation, state: RayServeState) -> RayServeState:
        """Add a report if one is due. A missing report leaves the average to the others."""
        if seen.now_s < state.next_report_s - 1e-6:
            return state
        state = replace(state, next_report_s=seen.now_s + self.metrics_interval_s)
        requests = open_requests(seen)
        if requests is None:
            return state
        ongoing = added(state.ongoing, seen.now_s, requests, self.look_back_period_s)
        return replace(state, ongoing=ongoing)

    def _damped(self, desired: float, running: int) -> int:
        delta = desired - running
        factor = self.upscaling_factor if delta > 0 else self.downscaling_factor
        scaled = rounding.up(running + factor * delta)
        is_stuck = rounding.up(desired) < running and scaled == running
        return scaled - 1 if is_stuck else scaled

    def _delayed(
        self, state: RayServeState, now_s: float, wanted: int, target: int
    ) -> tuple[int, RayServeState]:
        leaning = (wanted > target) - (wanted < target)
        if leaning != state.leaning:
            state = replace(state, leaning=leaning, leaning_s=now_s)
        if not leaning:
            return target, state
        delay_s = self.upscale_delay_s if leaning > 0 else self.downscale_delay_s
        if now_s - state.leaning_s < delay_s:
            return target, state
        floor = 0 if target == 1 else 1
        return max(floor, wanted), replace(state, leaning=0)
