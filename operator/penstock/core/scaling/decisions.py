"""Builds decisions from the steps of their trail: the clip to bounds, the code, and the reason."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.core.scaling.rule import (
    IDLE,
    IDLE_UNKNOWN,
    UNATTAINABLE,
    Bounds,
    Decision,
    DecisionCode,
    TrailEntry,
)
from penstock.core.scaling.signals import Observation

# Steps whose notes belong to the reason.
REASON_STEPS = frozenset({"blind", UNATTAINABLE, "forecast", "need", "delay", "down", "swap"})
# Steps whose notes belong to the reason if they changed the number.
CHANGE_STEPS = frozenset({"queue", "up"})


def bounded_decision(
    bounds: Bounds, current: int, desired: int, code: DecisionCode, trail: Sequence[TrailEntry]
) -> Decision:
    """The decision for `desired` replicas, within bounds. current: the provisioned replicas.

    code: of the decision if the bounds do not change it.
    """
    clipped = bounds.clip(desired)
    code = _code_within_bounds(code, current, desired, clipped)
    note, reason = f"within {bounds.min_replicas} to {bounds.max_replicas}", reason_of(trail)
    if clipped < desired:
        note = f"bounded by maxReplicas {bounds.max_replicas}"
    elif clipped > desired:
        note = f"bounded by minReplicas {bounds.min_replicas}"
    if clipped != desired:
        reason = f"{reason}; {note}"
    entries = (*trail, TrailEntry("bounds", clipped, note))
    return Decision(clipped, reason, code, entries, code != "MetricsMissing")


def with_idle(bounds: Bounds, seen: Observation, decision: Decision) -> Decision:
    """The decision of a rule, as far as the service is not at zero.

    A service that wakes has one replica before its metrics could say how many it needs.
    """
    idle = bounds.idle
    if idle is None:
        return decision
    if idle.is_zero:
        none = dict.fromkeys(decision.by_variant, 0)
        entry = TrailEntry(IDLE, 0, idle.reason)
        return Decision(0, idle.reason, "ScaledToZero", (entry,), by_variant=none)
    step = IDLE_UNKNOWN if idle.action == "Hold" else IDLE
    trail = (*decision.trail, TrailEntry(step, decision.desired, idle.reason))
    if seen.provisioned or not decision.desired:
        return replace(decision, trail=trail)
    return replace(decision, reason=idle.reason, code="ScaleUp", trail=trail, valid=True)


def held_decision(
    bounds: Bounds, seen: Observation, why: str, code: DecisionCode = "MetricsMissing"
) -> Decision:
    """Hold the provisioned replicas, but at least one while requests wait or run."""
    held = max(seen.provisioned, 0 if seen.is_idle else 1)
    decision = bounded_decision(bounds, seen.provisioned, held, code, [held_entry(held, why)])
    if decision.desired != seen.provisioned:
        return decision
    return replace(decision, by_variant=seen.by_variant)


def held_entry(replicas: int, why: str) -> TrailEntry:
    """The step that holds a number of replicas because metrics are missing."""
    word = "replica is" if replicas == 1 else "replicas are"
    return TrailEntry("blind", replicas, f"{why}; {replicas} {word} held")


def source_entries(seen: Observation) -> list[TrailEntry]:
    """The step that names the engines whose metrics come from Prometheus; none if there are none."""
    note = seen.prometheus_note
    return [] if note is None else [TrailEntry("source", seen.provisioned, note)]


def reason_of(trail: Iterable[TrailEntry]) -> str:
    """The reason as a sentence: the need, and each later step that changed or held the number."""
    notes: list[str] = []
    before: int | None = None
    for entry in trail:
        is_change = entry.step in CHANGE_STEPS and entry.replicas != before
        if entry.step in REASON_STEPS or is_change:
            notes.append(entry.note)
        before = entry.replicas
    return "; ".join(notes)


def _code_within_bounds(
    code: DecisionCode, current: int, desired: int, clipped: int
) -> DecisionCode:
    if clipped == desired or _direction(current, clipped) == _direction(current, desired):
        return code
    if clipped == current:
        return "AtMaximum" if desired > current else "Steady"
    return "Bounded"


def _direction(before: int, after: int) -> int:
    return (after > before) - (after < before)
