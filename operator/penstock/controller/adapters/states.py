"""States of the adapters of a service after a pass of the placement loop, for their statuses."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.controller.adapters.copy_changes import Change
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.adapters.service import AdapterService
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.replica import AdapterReplica, Copy
from penstock.core.adapters.retention import is_own_name
from penstock.core.reconcile.adapter_state import AdapterState, Instance, InstanceState, LoadError
from penstock.core.reconcile.engine_conditions import zero_reason
from penstock.core.rollout.adapter_rollout import AdapterRollout

# Copies of an adapter: (pod, revision, copy, state).
_Found = tuple[str, str, Copy, InstanceState]


class AdapterStates:
    """States of the adapters of one service. pods: by key. changes: on each pod, by name in engines."""

    def __init__(
        self,
        service: AdapterService,
        pods: Mapping[Key, LoraPod],
        changes: Mapping[Key, Mapping[str, Change]],
    ) -> None:
        self._service = service
        self._is_loading = any(
            change.kind == "load" and change.state != "Done"
            for of_pod in changes.values()
            for change in of_pod.values()
        )
        self._is_full = service.is_full
        by_name = {key[1]: of_pod for key, of_pod in changes.items() if key in pods}
        self._pods = frozenset(key[1] for key in pods)
        self._copies: dict[str, list[_Found]] = {}
        for replica in service.replicas:
            self._add(replica, by_name.get(replica.pod, {}))

    def of(self, version: AdapterVersion) -> AdapterState:
        """The state of an adapter that the service takes."""
        name = version.engine_name
        wanted = self._service.plan.adapters.get(name)
        errors = self._service.errors.get(name, {})
        found = self._copies.get(version.name, ())
        instances: dict[str, Instance] = {}
        current: Copy | None = None
        for pod, revision, copy, state in found:
            if revision == version.revision:
                instances[pod] = Instance(pod, state)
                current = copy if state == "Loaded" and copy.rank is not None else current
            else:
                instances.setdefault(pod, Instance(pod, state, revision=revision))
        for pod in errors.keys() & self._pods:
            instances.setdefault(pod, Instance(pod, "Failed", errors[pod].message))
        last_error = next(reversed(errors.values()), None)
        return AdapterState(
            num_engines=len(self._pods),
            wanted=None if wanted is None else wanted.copies,
            is_full=self._is_full,
            has_slot=wanted is None or wanted.is_met or self._is_loading,
            instances=tuple(instances[pod] for pod in sorted(instances)),
            failure=last_error,
            rank=current.rank if current else None,
            size_bytes=current.size_bytes or None if current else None,
        )

    def has_slot_for(self, rollout: AdapterRollout) -> bool:
        """Whether the version that is rolled out has or gets memory for its copies."""
        candidates = (each for each in rollout.placed if each.revision == rollout.state.revision)
        return all(self.of(each).has_slot for each in candidates)

    def _add(self, replica: AdapterReplica, changes: Mapping[str, Change]) -> None:
        for engine_name, copy in replica.copies.items():
            if not is_own_name(engine_name):
                continue
            name, _, revision = engine_name.rpartition("@")
            found = replica.pod, revision, copy, _state(copy, changes.get(engine_name))
            self._copies.setdefault(name, []).append(found)
        for engine_name, change in changes.items():  # planned in this pass
            if change.kind == "load" and engine_name not in replica.copies:
                name, _, revision = engine_name.rpartition("@")
                found = replica.pod, revision, Copy("Loading"), _state(Copy("Loading"), change)
                self._copies.setdefault(name, []).append(found)


def with_zero(
    state: AdapterState, errors: Iterable[LoadError], service: Object | None
) -> AdapterState:
    """The state of an adapter, with why it has no engine if its service was idle.

    errors: of its last loads, by its status: a version that engines refused stays refused until another
    engine has tried to load it.
    """
    reason = zero_reason((service or {}).get("status") or {})
    if state.num_engines or not reason:
        return state
    return replace(state, at_zero=reason, failure=state.failure or next(iter(errors), None))


def _state(copy: Copy, change: Change | None) -> InstanceState:
    if copy.state == "Resident":
        return "Loaded"
    if copy.state == "Evicted":
        return "Evicted"
    is_waiting = change is not None and change.state == "Waiting"
    return "Pending" if is_waiting else "Loading"
