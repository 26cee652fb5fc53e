"""Rollout of an adapter's version: from its status and the engines' copies to the next status.

    events -> phase -> traffic shares for gateways, versions for the placement, history for `undo`

Both versions are on the same engines. So the control of a canary is the stable version: no new pods are
needed for a fair comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.core.adapters import versions
from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.versions import History
from penstock.core.canary.verdict import Continue
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.rollout.adapter_events import (
    AdapterInputs,
    StoredTraffic,
    detect_adapter_events,
    is_late,
    waiting_reason,
)
from penstock.core.rollout.adapter_targets import traffic_shares, wanted_copies
from penstock.core.rollout.step import Context, advance
from penstock.core.rollout.targets import percent
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class AdapterRollout:
    """The rollout of an adapter after a step."""

    wanted: str  # revision of the spec
    state: RolloutState
    history: History
    # Versions that engines are to have, with bounds on their copies
    placed: tuple[AdapterVersion, ...]
    traffic: Sequence[Object]  # in the status's format
    generation: int
    waiting_for: str = ""  # what the phase waits for, in words
    # Whether the version has no copy yet although enough time has passed for a load
    is_late: bool = False

    @property
    def rejection(self) -> Rejection | None:
        """The rejection of the version that the spec asks for; None if it was not rejected."""
        rejected = self.state.rejection
        return rejected if rejected is not None and rejected.revision == self.wanted else None

    def as_status(self, stored: Object, evidence: Sequence[Object] | None) -> Object:
        """The fields of the status about versions.

        stored: the status so far. evidence: of the judge; None: the stored one stays.
        """
        is_other = PHASES[self.state.phase].is_first
        last = {} if is_other else stored.get("rollout") or {}
        return {
            "stableRevision": self.state.stable,
            "candidateRevision": self.state.revision,
            "versions": versions.as_objects(self.history),
            "traffic": list(self.traffic),
            "trafficGeneration": self.generation,
            "rollout": self.state.as_object()
            | {
                "evidence": list(last.get("evidence", []) if evidence is None else evidence),
                "gates": list(last.get("gates", [])),
            },
        }


def step_adapter(version: AdapterVersion, status: Object, inputs: AdapterInputs) -> AdapterRollout:
    """Advance the rollout of an adapter by at most one phase. version: of the spec."""
    history = versions.history_of(status)
    before = _stored_state(status, history, inputs.now_s)
    now = timestamp(inputs.now_s)
    if before is None:
        state = _first(version, inputs.now_s)
        history = versions.with_start((), version, now)
    else:
        traffic = stored_traffic(status)
        state = _advanced(before, inputs, traffic)
        if PHASES[state.phase].is_first and state != before:
            history = versions.with_start(history, version, now)
    history = versions.with_stable(history, state.stable or "", now)
    history = versions.bounded(history, (state.stable, state.revision))
    shares = versions.as_traffic(traffic_shares(state), history)
    generation: int = status.get("trafficGeneration") or 0
    is_changed = shares != (status.get("traffic") or [])
    generation += is_changed
    return AdapterRollout(
        version.revision,
        state,
        history,
        placed_versions(version, state, history, inputs),
        shares,
        generation,
        waiting_reason(state, inputs, StoredTraffic(traffic_shares(state), generation)),
        is_late=is_late(state, inputs) and not inputs.resident(state.revision),
    )


def stored_traffic(status: Object) -> StoredTraffic:
    """The traffic in a status."""
    shares = {
        target["revision"]: target["percent"]
        for target in status.get("traffic") or []
        if target.get("percent", 0) > 0
    }
    return StoredTraffic(shares, status.get("trafficGeneration") or 0)


def placed_versions(
    version: AdapterVersion, state: RolloutState, history: History, inputs: AdapterInputs
) -> tuple[AdapterVersion, ...]:
    """Versions that engines are to have. version: of the spec, whose placement holds for all.

    The stable one keeps its placement until the other has all of the traffic.
    """
    uris = {each.revision: each.uri for each in history}
    placed = []
    if state.stable in uris:
        placed.append(replace(version, uri=uris[state.stable]))
    if state.revision in uris and PHASES[state.phase].awaits != "RemovedPods":
        placement = _candidate_placement(version.placement, state, inputs)
        placed.append(AdapterVersion(version.name, uris[state.revision], placement))
    return tuple(placed)


def _candidate_placement(
    placement: Placement, state: RolloutState, inputs: AdapterInputs
) -> Placement:
    """Bounds on the copies of the version that is rolled out: as many as its share needs."""
    if PHASES[state.phase].is_accepted and placement.policy != "OnDemand":
        return placement
    least = wanted_copies(state, inputs.canary)
    most = placement.max_copies
    return replace(
        placement,
        policy="OnDemand",
        min_copies=least if most is None else min(least, most),
        is_pinned=False,
    )


def _first(version: AdapterVersion, now_s: float) -> RolloutState:
    """The state of a new adapter: its first version has all of the traffic at once."""
    reason = f"revision {version.revision} is the first"
    return RolloutState("Recreate", "Stable", now_s, reason, version.revision, None, replicas=1)


def _stored_state(status: Object, history: History, now_s: float) -> RolloutState | None:
    """The state in a status; None if it has none, or has lost the URI of the stable version."""
    state = RolloutState.of(status, now_s)
    known = {each.revision for each in history}
    if state is None or state.stable not in known:
        return None
    if state.revision is not None and state.revision not in known:
        return RolloutState("Canary", "Stable", now_s, "it already serves", state.stable, None, 1)
    return state


def _advanced(state: RolloutState, inputs: AdapterInputs, traffic: StoredTraffic) -> RolloutState:
    context = Context(
        now_s=inputs.now_s,
        wanted=inputs.wanted,
        total=max(1, inputs.resident(state.stable)),
        # BlueGreen: a load decides, because there are no requests to compare the versions by.
        strategy="Canary" if inputs.is_used else "BlueGreen",
        min_weight_percent=percent(inputs.canary.min_weight, with_control=False),
    )
    earned = 0
    if isinstance(inputs.verdict, Continue):
        earned = percent(inputs.verdict.weight, with_control=False)
    events = detect_adapter_events(state, inputs, traffic)
    return advance(state, events, context, inputs.command, earned)
