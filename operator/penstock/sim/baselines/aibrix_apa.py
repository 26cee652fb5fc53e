"""AIBrix APA: scales in proportion to the mean per pod over a window, with tolerances and cooldowns.

Source: vllm-project/aibrix pkg/controller/podautoscaler. Reproduced as published: the up cooldown takes the
largest recommendation of its window and the down cooldown the smallest, the opposite of an HPA. The ratio
multiplies the desired replicas, so starting pods are requested again; guards_pending is the later fix
(PR 2671).
"""

from dataclasses import dataclass, replace
from typing import Literal

from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import rounding
from penstock.sim.baselines.answer import decided, held
from penstock.sim.baselines.hpa.behavior import Stamped
from penstock.sim.baselines.window import Samples, added, mean


@dataclass(frozen=True, slots=True)
class ApaState:
    means: Samples = ()
    recommendations: tuple[Stamped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AibrixApa:
    """APA rule. target: mean over pods of KV use (0 to 1), or of waiting requests."""

    metric: Literal["kv", "waiting"] = "kv"
    target: float = 0.5
    tolerance_up: float = 0.1
    tolerance_down: float = 0.1
    max_up_rate: float = 2.0
    max_down_rate: float = 2.0
    window_s: float = 180.0
    up_cooldown_s: float = 0.0
    down_cooldown_s: float = 300.0
    guards_pending: bool = False
    period_s: float = 10.0

    def initial(self) -> ApaState:
        return ApaState()

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: ApaState
    ) -> tuple[Decision, ApaState]:
        now, n = seen.now_s, seen.provisioned
        if n == 0 and bounds.min_replicas:
            return decided(bounds, seen, bounds.min_replicas, "below the minimum"), state
        values = [r.kv_usage if self.metric == "kv" else r.waiting for r in seen.readings]
        if not values:
            return held(bounds, seen, "No pod has a value.", "NoMetrics"), state
        means = added(state.means, now, sum(values) / len(values), self.window_s)
        value = mean(means, now, self.window_s) or 0.0
        raw = self.recommended(n, value)
        guarded = self._guarded(raw, n, len(seen.ready), value) if self.guards_pending else raw
        past = (*state.recommendations, Stamped(now, guarded))
        wanted = self._cooled(past, guarded, n, now)
        oldest = now - max(self.up_cooldown_s, self.down_cooldown_s)
        kept = tuple(r for r in past if r.at_s > oldest)
        why = f"{self.metric} {value:.3g} a pod, target {self.target:g}"
        trail = (
            TrailEntry("ratio", raw, why),
            TrailEntry("pending", guarded, f"{len(seen.ready)} of {n} ready"),
            TrailEntry("cooldown", wanted, f"{len(kept)} recommendations"),
        )
        return decided(bounds, seen, wanted, why, trail), replace(
            state, means=means, recommendations=kept
        )

    def recommended(self, n: int, value: float) -> int:
        ratio = value / self.target
        if ratio > 1 + self.tolerance_up:
            return min(rounding.up(n * ratio), rounding.up(n * self.max_up_rate))
        if ratio < 1 - self.tolerance_down:
            return max(rounding.up(n * ratio), rounding.down(n / self.max_down_rate))
        return n

    def _guarded(self, raw: int, n: int, ready: int, value: float) -> int:
        """Count starting pods as empty on the way up, and as loaded to the target on the way down."""
        pending = n - ready
        if pending <= 0 or raw == n or not n:
            return raw
        if raw > n:
            return min(raw, max(n, rounding.up(value * ready / self.target)))
        return max(raw, min(n, rounding.up((value * ready + self.target * pending) / self.target)))

    def _cooled(self, past: tuple[Stamped, ...], wanted: int, n: int, now_s: float) -> int:
        if wanted == n:
            return n
        window_s = self.up_cooldown_s if wanted > n else self.down_cooldown_s
        recent = [r.replicas for r in past if r.at_s > now_s - window_s] or [wanted]
        return max(recent) if wanted > n else min(recent)
