"""Chooses the change of replicas for an estimated need: scale up, scale down, swap variants, or hold."""

import math
from dataclasses import replace

from penstock.core.scaling.by_objectives.need import Need
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.delays import ScaleUpDelay
from penstock.core.scaling.learned.startup import is_any_starting
from penstock.core.scaling.rule import Bounds, DecisionCode, TrailEntry
from penstock.core.scaling.signals import Observation
from penstock.core.scaling.variants.mixed import MixedNeed

# Scale-up delay, as a fraction of a start-up: shorter peaks are over before a pod could help.
SCALE_UP_DELAY = 0.05
# Most replicas after one scale-up, as a multiple of the present ones: the default of an HPA. A growth by k is
# requested at most log2(k) delays later. Without it, a burst of one decision requested 20 where 4 are enough.
MAX_GROWTH = 2
# Dead band of scale-down: fewer replicas must hold the need and this fraction more. Without it, a load near a
# whole number would reverse removals.
SPARE = 0.05
# Time after a scale-up in which a single replica is not removed, as it would soon be needed again.
SCALE_UP_HOLD_S = 600.0
# Time for which another mix of variants must have been cheaper. Both are paid for until one goes.
SWAP_DELAY_S = 600.0

Step = tuple[DecisionCode, ObjectivesState, list[TrailEntry]]


def choose_step(
    bounds: Bounds,
    seen: Observation,
    need: Need,
    mixed: MixedNeed | None,
    state: ObjectivesState,
    lead_s: float,
    min_scale_down_delay_s: float,
) -> Step:
    """Choose more replicas, fewer, another mix of variants, or the same.

    lead_s: time from a decision until its pod serves.
    """
    current = seen.provisioned
    is_busy = state.busy_s == seen.now_s
    wanted, note = _round_up(need.replicas, need.note, mixed)
    entries = [
        TrailEntry("forecast", current, need.forecast_note),
        TrailEntry("need", wanted, note),
    ]
    if wanted > current and (current or is_busy):
        return _scale_up(bounds, seen, wanted, state.restart_scale_down_delay(), lead_s, entries)
    state = replace(state, up=ScaleUpDelay())
    delay_s = max(min_scale_down_delay_s, lead_s)
    if is_any_starting(seen, lead_s) or seen.missing or state.news_s < seen.now_s:
        held = TrailEntry("steady", current, f"{current} are held until all replicas report")
        return "Steady", state.restart_scale_down_delay(), [*entries, held]
    return _scale_down(bounds, seen, need, mixed, state, delay_s, entries)


def _scale_down(
    bounds: Bounds,
    seen: Observation,
    need: Need,
    mixed: MixedNeed | None,
    state: ObjectivesState,
    delay_s: float,
    entries: list[TrailEntry],
) -> Step:
    """Remove the replicas that have been too many for delay_s, or swap variants for cheaper ones."""
    current, is_busy = seen.provisioned, state.busy_s == seen.now_s
    spared = (1 + SPARE) * need.replicas
    needs = state.needs.updated(seen.now_s, spared, delay_s)
    state = replace(state, needs=needs)
    kept = _min_replicas(spared, bounds, mixed, is_busy=is_busy)
    was_busy = is_busy or seen.now_s < state.busy_s + delay_s
    least = _min_replicas(max(needs.largest, need.replicas_now), bounds, mixed, is_busy=was_busy)
    entry = needs.entry(current, least, seen.now_s, delay_s)
    age_s = math.inf if state.grew_s is None else seen.now_s - state.grew_s
    if entry.replicas == current - 1 > 0 and age_s < SCALE_UP_HOLD_S:
        note = f"{current} are held: one fewer is enough, {age_s:.0f} s after a scale-up"
        entry = TrailEntry("delay", current, note)
    if entry.replicas < current:
        return "ScaleDown", state, [*entries, entry]
    is_cheaper = mixed is not None and mixed.replicas_with_swap() > current
    state = replace(state, swap=state.swap.updated(seen.now_s, is_low=is_cheaper))
    if mixed is not None and state.swap.is_over(SWAP_DELAY_S):
        swap = TrailEntry("swap", mixed.replicas_with_swap(), mixed.swap_note)
        return "Swap", state.restart_scale_down_delay(), [*entries, swap]
    return "ScaleDownDelayed" if kept < current else "Steady", state, [*entries, entry]


def _scale_up(
    bounds: Bounds,
    seen: Observation,
    wanted: int,
    state: ObjectivesState,
    lead_s: float,
    entries: list[TrailEntry],
) -> Step:
    """Request more replicas once they have been needed for the scale-up delay.

    The first ones are added at once, later ones at most MAX_GROWTH times the present number. At the
    maximum nothing can be added, so nothing is waited for.
    """
    if seen.provisioned >= bounds.max_replicas:
        return "ScaleUp", replace(state, up=ScaleUpDelay()), entries
    grown = replace(state, up=ScaleUpDelay(), grew_s=seen.now_s)
    if not seen.provisioned:
        return "ScaleUp", grown, entries
    up, entry = state.up.delay(wanted, seen.provisioned, seen.now_s, SCALE_UP_DELAY * lead_s)
    if entry.step == "up":
        return "ScaleUp", grown, [*entries, _bound_growth(entry, seen.provisioned)]
    return "Steady", replace(state, up=up), [*entries, entry]


def _bound_growth(up: TrailEntry, current: int) -> TrailEntry:
    """The step of a scale-up, with at most MAX_GROWTH times the present replicas."""
    limit = MAX_GROWTH * current
    if up.replicas <= limit:
        return up
    return replace(
        up, replicas=limit, note=f"{up.note}; at most {MAX_GROWTH} x {current} at a time"
    )


def _round_up(replicas: float, note: str, mixed: MixedNeed | None) -> tuple[int, str]:
    """Round a need up to whole replicas, of the cheapest variants if there are some; with the reason."""
    if mixed is None:
        return math.ceil(replicas - 1e-9), note
    count, which = mixed.replicas(replicas)
    return count, f"{note}: {which}"


def _min_replicas(need: float, bounds: Bounds, mixed: MixedNeed | None, *, is_busy: bool) -> int:
    """Whole replicas for a need. The last one is kept only while requests wait or run."""
    replicas, _ = _round_up(need, "", mixed)
    return max(bounds.min_replicas, replicas if replicas > 1 else int(is_busy))
