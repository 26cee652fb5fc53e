"""Copy of a service's rollout state on its ControllerRevisions, from which a lost status is restored.

A restore from a backup loses the status, and so does a client that replaces it. The status is written
after the record, so the record is never older.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.core.observed.stored_status import current_names
from penstock.core.spec.service import GROUP, Object

# On a ControllerRevision. The one with the highest number counts: a record moves with the stable revision.
ANNOTATION = f"{GROUP}/rollout-state"
# Status fields that are state. RESULTS in `rollout` are left out: the judge computes them again.
STATE_FIELDS = (
    "modelName", "stableRevision", "candidateRevision", "traffic", "mirror", "trafficGeneration", "rollout",
)  # fmt: skip
RESULTS = ("evidence", "gates")


@dataclass(frozen=True, slots=True)
class StateRecord:
    """Recorded status fields of a service. number: of the record; 0 if there is none."""

    number: int = 0
    status: Object = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Object]) -> "StateRecord":
        """The latest record on the service's ControllerRevisions; unreadable ones do not count."""
        parsed = map(cls._parse, records)
        return max(parsed, key=lambda record: record.number, default=cls())

    @classmethod
    def _parse(cls, body: Object) -> "StateRecord":
        try:
            text = body["metadata"]["annotations"][ANNOTATION]
            found = json.loads(text)
            return cls(int(found["number"]), current_names(found["status"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()

    def restored(self, status: Object) -> Object:
        """The status, with its state from the record if the status has lost it.

        An API server with a newer schema drops fields that it does not know, such as renamed ones.
        """
        has_rollout = "phaseTransitionTime" in (status.get("rollout") or {})
        has_traffic = all("percent" in target for target in status.get("traffic", []))
        return status if has_rollout and has_traffic else status | self.status

    def updated(self, status: Object) -> "StateRecord | None":
        """The record of a status to write; None if this one is up to date."""
        state = {name: status[name] for name in STATE_FIELDS if status.get(name) is not None}
        state["rollout"] = {
            name: value
            for name, value in status["rollout"].items()
            if name not in RESULTS and value is not None
        }
        return None if state == self.status else StateRecord(self.number + 1, state)

    def as_text(self) -> str:
        return json.dumps({"number": self.number, "status": self.status}, sort_keys=True)
