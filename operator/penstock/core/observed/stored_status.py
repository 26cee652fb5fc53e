"""Reads the stored status of a service, also one that an earlier version of Penstock wrote.

Renamed fields are read under both names for one release. In the release after it, the tables are deleted.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.formats.conditions import find_condition
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share
from penstock.core.spec.service import CONTROL, Object

# Name of a cohort in the status -> label of its pods.
COHORTS: Mapping[str, str] = {"Primary": "", "Control": CONTROL}
COHORT_NAMES: Mapping[str, str] = {label: name for name, label in COHORTS.items()}

# Old name -> name, by the object that has the field.
OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "status": {"servedName": "modelName", "copies": "mirror"},
    "traffic": {"weight": "percent"},
    "mirror": {"share": "percent", "sides": "targets"},
    "rollout": {"reason": "message", "since": "phaseTransitionTime", "weight": "weightPercent"},
    "rejected": {"reason": "message", "at": "rejectionTime"},
    "evidence": {"isWithin": "verdict"},
    "scaling": {"desired": "desiredReplicas", "reason": "message", "at": "lastScaleTime"},
}
# Old value of a field -> value.
OLD_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "share": lambda fraction: max(1, round(100 * fraction)),
    "isWithin": lambda is_within: "Within" if is_within else "Undecided",
}
# Reasons of WorkloadReady for objects that the API server refused. One that exceeds a quota is refused only
# until the quota has room: the operator goes on trying to create it.
POD_FORBIDDEN, POD_TEMPLATE_REJECTED = "PodForbidden", "PodTemplateRejected"
QUOTA_EXCEEDED = "QuotaExceeded"
REFUSAL_REASONS = (POD_FORBIDDEN, POD_TEMPLATE_REJECTED, QUOTA_EXCEEDED)
OLD_COHORTS: Mapping[str, str] = COHORT_NAMES
OLD_PHASES: Mapping[str, str] = {"Shadowing": "Mirroring"}


def stored_status(body: Object) -> Object:
    """The status of a service with the current names of its fields; empty before the first write."""
    status = body.get("status")
    return {} if status is None else current_names(status)


def stored_phase(body: Object) -> str:
    """The rollout's phase in the stored status; empty before the first write."""
    phase: str = (stored_status(body).get("rollout") or {}).get("phase", "")
    return phase


def current_names(status: Object) -> Object:
    """A status with the current names of its fields, and without the generation -1 of the schema."""
    found = _renamed("status", status)
    if found.get("observedGeneration") == -1:
        del found["observedGeneration"]
    if isinstance(found.get("traffic"), list):
        found["traffic"] = [_target("traffic", each) for each in found["traffic"]]
    if found.get("mirror"):
        mirror = found["mirror"] = _renamed("mirror", found["mirror"])
        if "targets" in mirror:
            mirror["targets"] = [_target("targets", each) for each in mirror["targets"]]
    if found.get("rollout"):
        found["rollout"] = _rollout(found["rollout"])
    if found.get("scaling"):
        found["scaling"] = _renamed("scaling", found["scaling"])
    return found


def _rollout(stored: Object) -> Object:
    rollout = _renamed("rollout", stored)
    if "phase" in rollout:
        rollout["phase"] = OLD_PHASES.get(rollout["phase"], rollout["phase"])
    if rollout.get("rejected"):
        rollout["rejected"] = _renamed("rejected", rollout["rejected"])
    if rollout.get("evidence"):
        rollout["evidence"] = [_renamed("evidence", each) for each in rollout["evidence"]]
    return rollout


def _target(kind: str, stored: Object) -> Object:
    target = _renamed(kind, stored)
    cohort = target.get("cohort", "")
    return target | {"cohort": OLD_COHORTS.get(cohort, cohort)}


def _renamed(kind: str, stored: Object) -> Object:
    """A copy of the object with the current names. A field that has both names keeps the current one."""
    names = OLD_NAMES.get(kind, {})
    found = {name: value for name, value in stored.items() if name not in names}
    for old, name in names.items():
        if old in stored and name not in found:
            found[name] = OLD_VALUES.get(old, lambda value: value)(stored[old])
    return found


def side_of(target: Object) -> Side:
    """The revision and the cohort of a target of traffic or of mirroring in a status."""
    return Side(target["revision"], COHORTS[target["cohort"]])


def traffic_of(status: Object) -> tuple[Share, ...]:
    """The traffic shares in a status, without those of 0 % and those that have lost their share."""
    return tuple(
        Share(side_of(target), target["percent"])
        for target in status.get("traffic", [])
        if target.get("percent", 0) > 0
    )


def refusal_of(status: Object) -> tuple[str, str] | None:
    """(reason, message) of a refused object of the revision that is rolled out; None if none was."""
    found = find_condition(status, "WorkloadReady")
    return (found["reason"], found["message"]) if found.get("reason") in REFUSAL_REASONS else None


def mirror_of(status: Object) -> RolloutMirror | None:
    """The mirroring in a status; None if it has none."""
    mirror = status.get("mirror")
    if not mirror or "percent" not in mirror:
        return None
    return RolloutMirror(tuple(map(side_of, mirror["targets"])), mirror["percent"])
