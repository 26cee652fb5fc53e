"""Writes the status of a service, its Events, and the record from which a lost status is restored."""

from contextlib import suppress

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.events import EventRecorder
from penstock.clients.kubernetes.informer import Key
from penstock.clients.kubernetes.resources import CONTROLLER_REVISIONS, INFERENCE_SERVICES
from penstock.controller.process.field_managers import OPERATOR_MANAGER, STATE_MANAGER
from penstock.core.formats.json_merge import if_unchanged, merged
from penstock.core.observed.children import ObservedState
from penstock.core.observed.state_record import ANNOTATION, StateRecord
from penstock.core.reconcile.status_events import new_events
from penstock.core.spec.service import ServiceSpec
from penstock.errors import Conflict, NotFound


class StatusWriter:
    """Writes the status of services, and nothing if it has not changed."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._events = EventRecorder(kube, OPERATOR_MANAGER)

    async def write_status(
        self,
        key: Key,
        body: Object,
        before: Object,
        after: Object,
        revision: str | None,
        written: list[str],
    ) -> bool:
        """Write the status if it changed, and post its Events.

        Returns False if the service changed meanwhile. before: the last known status, for the Events.
        revision: the spec's; None if the spec is invalid. The write is added to `written`.
        """
        stored = body.get("status") or {}
        # Fields of another version of Penstock stay, and are no reason to write again.
        changed = {
            name: value for name, value in after.items() if merged(stored, {name: value}) != stored
        }
        if not changed:
            return True
        patch = if_unchanged(body, {"status": changed})  # this status may be out of date then
        try:
            await self._kube.merge(
                INFERENCE_SERVICES, *key, patch, manager=OPERATOR_MANAGER, sub="status"
            )
        except (NotFound, Conflict):
            return False
        written.append(f"status {', '.join(sorted(changed))}")
        for kind, reason, message in new_events(before, after, revision):
            await self._events.post(body, kind, reason, message)
        return True

    async def write_record(
        self,
        spec: ServiceSpec,
        observed: ObservedState,
        record: StateRecord | None,
        written: list[str],
    ) -> None:
        """Write the record to the ControllerRevision of the stable revision, else to the latest one.

        Before the first revision is recorded there is none, and no state that could be lost. The write
        is added to `written`.
        """
        owned = [each for each in observed.history if not each.is_orphan]
        if record is None or not owned:
            return
        stable = record.status.get("stableRevision")
        holder = max(owned, key=lambda each: (each.revision == stable, each.number))
        patch = {"metadata": {"annotations": {ANNOTATION: record.as_text()}}}
        with suppress(NotFound):
            await self._kube.merge(
                CONTROLLER_REVISIONS, spec.namespace, holder.name, patch, manager=STATE_MANAGER
            )
            written.append(f"annotate ControllerRevision/{holder.name}")
