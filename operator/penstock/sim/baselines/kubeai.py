"""KubeAI: moving average of active requests over a target; down only after consecutive low averages.

Source: substratusai/kubeai internal/modelautoscaler and modelclient. The average starts as a window of
zeros, so it rises slowly at first. Only a higher or equal average resets the count of low ones, so after
one scale-down the next may follow at once.
"""

from dataclasses import dataclass, replace

from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import rounding
from penstock.sim.baselines.answer import decided, held
from penstock.sim.baselines.load import open_requests


@dataclass(frozen=True, slots=True)
class KubeAiState:
    """State of the rule. active: the last window of readings, oldest first."""

    active: tuple[float, ...]
    downs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeAi:
    """KubeAI rule; the knobs are those of its model autoscaling."""

    target_requests: float = 100.0
    time_window_s: float = 600.0
    scale_down_delay_s: float = 30.0
    period_s: float = 10.0

    def initial(self) -> KubeAiState:
        return KubeAiState((0.0,) * rounding.up(self.time_window_s / self.period_s))

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: KubeAiState
    ) -> tuple[Decision, KubeAiState]:
        requests = open_requests(seen)
        if requests is None:
            return held(bounds, seen, "No count of active requests.", "NoMetrics"), state
        state = replace(state, active=(*state.active[1:], requests))
        average = sum(state.active) / len(state.active)
        asked = rounding.up(average / self.target_requests)
        needed = rounding.up(self.scale_down_delay_s / self.period_s)
        why = f"{average:.1f} active requests on average, {self.target_requests:g} a replica"
        trail: tuple[TrailEntry, ...] = (TrailEntry("average", asked, why),)
        wanted = asked
        if bounds.clip(asked) >= seen.provisioned:
            state = replace(state, downs=0)
        elif state.downs < needed:
            state = replace(state, downs=state.downs + 1)
            wanted = seen.provisioned
            trail += (TrailEntry("delay", wanted, f"{state.downs} of {needed} low averages"),)
        return decided(bounds, seen, wanted, why, trail), state
