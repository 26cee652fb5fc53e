"""Knative Pod Autoscaler on concurrency: a stable window, and a short window for panic mode.

Source: knative/serving pkg/autoscaler/scaling/autoscaler.go. Left out: the activator's burst
capacity, activation scale, and the 30 s grace of the last pod.
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
class KpaState:
    """State of the rule.

    panic_s: last time over the threshold. peak: largest number of replicas in this panic.
    """

    concurrency: Samples = ()
    wanted: Samples = ()
    is_new: bool = True
    panic_s: float | None = None
    peak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kpa:
    """KPA rule. target: open requests per replica; default 70 % of Knative's soft limit of 100."""

    target: float = 70.0
    stable_window_s: float = 60.0
    panic_window_s: float = 6.0
    panic_threshold: float = 2.0
    max_up_rate: float = 1000.0
    max_down_rate: float = 2.0
    down_delay_s: float = 0.0
    period_s: float = 2.0

    def initial(self) -> KpaState:
        return KpaState()

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: KpaState
    ) -> tuple[Decision, KpaState]:
        now, ready = seen.now_s, len(seen.ready)
        if state.is_new:
            state = replace(state, is_new=False)
            if ready > 1:
                state = replace(state, panic_s=now, peak=ready)
        requests = open_requests(seen)
        if requests is not None:
            samples = added(state.concurrency, now, requests, self.stable_window_s)
            state = replace(state, concurrency=samples)
        stable = mean(state.concurrency, now, self.stable_window_s)
        panic = mean(state.concurrency, now, self.panic_window_s)
        if stable is None or panic is None:
            return held(bounds, seen, "No concurrency to scale on.", "NoData"), state
        by_stable, by_panic = stable / self.target, panic / self.target
        state = self._panicked(state, now, rounding.up(by_panic) / max(1, ready))
        calm, alarmed = self._clipped(by_stable, ready), self._clipped(by_panic, ready)
        why = (
            f"{stable:.1f} open requests over {self.stable_window_s:g} s, {self.target:g} a replica"
        )
        trail: tuple[TrailEntry, ...] = (TrailEntry("stable window", calm, why),)
        wanted = calm
        if state.panic_s is not None:
            state = replace(state, peak=max(state.peak, calm, alarmed))
            wanted = state.peak
            why = f"panic, {panic:.1f} open requests over {self.panic_window_s:g} s"
            trail += (TrailEntry("panic window", alarmed, why), TrailEntry("peak", wanted, "kept"))
        wanted, state = self._delayed(state, now, wanted)
        return decided(bounds, seen, wanted, why, trail), state

    def _clipped(self, ratio: float, ready: int) -> int:
        pods = max(1, ready)
        most = rounding.up(self.max_up_rate * pods)
        least = rounding.down(pods / self.max_down_rate)
        return min(max(rounding.up(ratio), least), most)

    def _panicked(self, state: KpaState, now_s: float, over: float) -> KpaState:
        if over >= self.panic_threshold:
            return replace(state, panic_s=now_s)
        if state.panic_s is not None and state.panic_s + self.stable_window_s < now_s:
            return replace(state, panic_s=None, peak=0)
        return state

    def _delayed(self, state: KpaState, now_s: float, wanted: int) -> tuple[int, KpaState]:
        if not self.down_delay_s:
            return wanted, state
        past = added(state.wanted, now_s, wanted, self.down_delay_s)
        return int(max(s.value for s in past)), replace(state, wanted=past)
