"""Copy of a service's rollout state on its ControllerRevisions, from which a lost status is restored.

A restore from a backup loses the status, and so does a client that replaces it. The status is written
after the record, so the record is never older.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from penstock.core.formats.json_text import parse_json
from penstock.core.observed.rollout_state import has_types, is_readable
from penstock.core.observed.stored_status import COHORTS, current_names
from penstock.core.spec.service import GROUP, REVISION_LABEL, Object

# On a ControllerRevision. The one with the highest number counts: a record moves with the stable revision.
ANNOTATION = f"{GROUP}/rollout-state"
# Status fields that are state. RESULTS in `rollout` are left out: the judge computes them again.
STATE_FIELDS = (
    "modelName", "stableRevision", "candidateRevision", "traffic", "mirror", "trafficGeneration", "rollout",
)  # fmt: skip
RESULTS = ("evidence", "gates")
# Types of the state fields beside the rollout.
_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "modelName": (str, NoneType), "stableRevision": (str, NoneType), "traffic": list,
    "candidateRevision": (str, NoneType), "mirror": (dict, NoneType), "trafficGeneration": int,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StateRecord:
    """Recorded status fields of a service.

    number: of the record; 0 if there is none. status: empty if this version cannot continue from it.
    holder: the revision whose ControllerRevision has the record.
    """

    number: int = 0
    status: Object = field(default_factory=dict)
    holder: str = ""

    @classmethod
    def of(cls, records: Iterable[Object]) -> "StateRecord":
        """The latest record on the service's ControllerRevisions; those without a number do not count.

        The latest one counts even if it is unreadable: the traffic of an earlier one may be for pods
        that are gone.
        """
        parsed = map(cls._parse, records)
        return max(parsed, key=lambda record: record.number, default=cls())

    @classmethod
    def _parse(cls, body: Object) -> "StateRecord":
        try:
            text = body["metadata"]["annotations"][ANNOTATION]
            found = parse_json(text)
            number = int(found["number"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return cls()
        holder = body["metadata"].get("labels", {}).get(REVISION_LABEL, "")
        try:
            status = current_names(found["status"])
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            status = {}
        return cls(number, status if _is_whole(status) else {}, holder)

    def restored(self, status: Object) -> Object:
        """The status, with its state from the record if the status has lost it.

        An API server with a newer schema drops fields that it does not know, such as renamed ones.
        """
        has_stable = "stableRevision" in status or "stableRevision" not in self.status
        if not self.status or (has_stable and _is_whole(status)):
            return status
        rest = {name: value for name, value in status.items() if name not in STATE_FIELDS}
        return rest | self.status

    def updated(self, before: Object, after: Object) -> "StateRecord | None":
        """The record of a status to write; None if this one is up to date.

        before: the status until now. An operator that ends between both writes leaves a record that is ahead
        of it. The next operator takes the same step: its state differs in times alone, and is not recorded
        again, so that operators that end at each record still get on. The record is then behind the status,
        whose times the next call records.
        """
        state, is_ahead = _state_of(after), self._is_ahead_of(_state_of(before))
        if state == self.status or (is_ahead and _timeless(state) == _timeless(self.status)):
            return None
        return StateRecord(self.number + 1, state)

    def _is_ahead_of(self, state: Object) -> bool:
        """Whether the record is of a step that a status with this state has not taken."""
        is_other_step = _timeless(self.status) != _timeless(state)
        return is_other_step or _phase_time(self.status) > _phase_time(state)

    def as_text(self) -> str:
        return json.dumps({"number": self.number, "status": self.status}, sort_keys=True)


def _state_of(status: Object) -> Object:
    """The fields of a status that are recorded."""
    state = {name: status[name] for name in STATE_FIELDS if status.get(name) is not None}
    rollout = state.get("rollout") or {}
    state["rollout"] = {
        name: value for name, value in rollout.items() if name not in RESULTS and value is not None
    }
    return state


def _phase_time(state: Object) -> str:
    """When the phase began: a later time is greater. Empty if the state has none."""
    rollout = state.get("rollout") or {}
    return str(rollout.get("phaseTransitionTime", ""))


def _timeless(state: Object) -> Object:
    """A state without the times of its steps."""
    rollout = dict(state.get("rollout") or {})
    rollout.pop("phaseTransitionTime", None)
    if rejected := rollout.get("rejected"):
        rollout["rejected"] = {k: v for k, v in rejected.items() if k != "rejectionTime"}
    return state | {"rollout": rollout}


def _is_whole(status: Object) -> bool:
    """Whether a status has all fields that the operator continues from."""
    return (
        has_types(status, _FIELDS)
        and is_readable(status.get("rollout"))
        and all(
            _is_target(each) and has_types(each, {"percent": int}) for each in status["traffic"]
        )
        and (not status.get("mirror") or _is_mirror(status["mirror"]))
    )


def _is_mirror(mirror: Object) -> bool:
    is_typed = has_types(mirror, {"percent": int, "targets": list})
    return is_typed and all(map(_is_target, mirror["targets"]))


def _is_target(target: Any) -> bool:
    return has_types(target, {"revision": str, "cohort": str}) and target["cohort"] in COHORTS
