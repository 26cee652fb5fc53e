"""Computes the status of a LoraAdapter, and the Events of its changes."""

from collections.abc import Iterator
from typing import Any

from penstock.core.adapters.fetched import as_objects as as_fetched_objects
from penstock.core.adapters.pool import PoolStatus
from penstock.core.adapters.resource import AdapterResource
from penstock.core.adapters.shown_demand import ShownDemand
from penstock.core.formats.conditions import conditions_by_type, find_condition
from penstock.core.formats.timestamps import timestamp
from penstock.core.reconcile.adapter_conditions import adapter_conditions
from penstock.core.reconcile.adapter_state import AdapterState, Instance, LoadError
from penstock.core.reconcile.status import as_objects
from penstock.core.reconcile.status_events import rollout_events
from penstock.core.rollout.adapter_rollout import AdapterRollout
from penstock.core.spec.service import Object

# Bound on the pods in the status, as in the schema; further ones are only counted.
MAX_INSTANCES = 64
# Fields whose next values are computed from their stored ones.
POOL_FIELDS = ("pool", "dedicatedService", "poolGeneration", "poolChangeTime")
# Reasons of RolledOut for a version that was rolled out and does not go on.
ENDED_ROLLOUTS = ("Rejected", "NoAdapterSlot")
# Reasons of PoolReady that need a change by a person; each is reported as an Event.
REFUSED_POOLS = ("ServiceNameInUse", "ServiceRefused", "ServiceStalled")


def adapter_status(
    resource: AdapterResource,
    state: AdapterState,
    demand: ShownDemand | None,
    stored: Object,
    now: str,
    rollout: AdapterRollout | None = None,
) -> Object:
    """The status without the fields about versions. A field without a value is None.

    resource: with the version that has the traffic. rollout: None if the service does not take the adapter.
    stored: the status so far, which gives the times of unchanged conditions, and rank and size of a version
    that no engine has in memory. demand: None: as stored. now: RFC 3339.
    """
    revision = resource.version.revision
    same = stored if stored.get("revision") == revision else {}
    rank = same.get("rank") or state.rank
    size = same.get("sizeBytes") or state.size_bytes
    was_resolved = is_resolved(stored, revision)
    conditions = adapter_conditions(resource, state, rollout, was_resolved=was_resolved)
    return {
        "observedGeneration": resource.generation,
        "modelName": _answered_name(resource.model_name, stored, can_answer=state.can_answer),
        "revision": revision,
        "rank": rank,
        "sizeBytes": size,
        "desiredReplicas": state.wanted or 0,
        "loadedReplicas": state.loaded,
        "instances": [_instance(each) for each in state.instances[:MAX_INSTANCES]],
        **_pool(state),
        **_demand(demand, stored),
        "fetchedVersions": _fetched(state, stored),
        "conditions": as_objects(conditions, stored, resource.generation, now),
    }


def changed_fields(stored: Object, after: Object) -> Object:
    """The merge patch that makes the stored status the new one; empty if it is that already."""
    return {
        name: value
        for name, value in after.items()
        if stored.get(name, [] if name == "instances" else None) != _without_none(value)
    }


def adapter_events(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    """Events of a change of the status, each as (Normal or Warning, reason, message)."""
    rollout = after.get("rollout") or {}
    rejected = (rollout.get("rejected") or {}).get("revision")
    yield from rollout_events(before.get("rollout") or {}, rollout, rejected)
    old, new = conditions_by_type(before), conditions_by_type(after)
    for kind, is_warning in (("Accepted", True), ("Resolved", True), ("Loaded", False)):
        was, now = old.get(kind, {}), new[kind]
        if (was.get("status"), was.get("reason")) == (now["status"], now["reason"]):
            continue
        if now["status"] == "False" and (is_warning or now["reason"] == "LoadFailed"):
            if kind == "Loaded" and new["Resolved"]["status"] == "False":
                continue  # the Event of Resolved says why
            yield "Warning", now["reason"], now["message"]
        elif now["reason"] == "AllLoaded":
            yield "Normal", "Loaded", now["message"]
    was, now = old.get("RolledOut", {}), new["RolledOut"]
    if now["reason"] != was.get("reason") and _is_failed_fetch(new):
        yield "Warning", now["reason"], now["message"]
    was, now = old.get("PoolReady", {}), new.get("PoolReady", {})
    if before.get("pool", "Shared") != after["pool"]:
        yield "Normal", "PoolChanged", now.get("message", "")
    elif now.get("reason") in REFUSED_POOLS and now["reason"] != was.get("reason"):
        yield "Warning", now["reason"], now["message"]


def _is_failed_fetch(conditions: dict[str, Object]) -> bool:
    """Whether a version cannot be fetched while another one serves; `rollout_events` reports other ends."""
    reason = conditions["RolledOut"]["reason"]
    return (
        conditions["Stalled"]["reason"] == reason
        and reason not in ENDED_ROLLOUTS
        and conditions["Resolved"]["reason"] != reason
        and conditions["Accepted"]["status"] == "True"
    )


def _answered_name(model_name: str, stored: Object, *, can_answer: bool) -> str | None:
    """The model name if the adapter can answer under it, or did so before; None before."""
    return model_name if can_answer or stored.get("modelName") == model_name else None


def _without_none(value: Any) -> Any:
    """An object without the fields that the API server drops."""
    if not isinstance(value, dict):
        return value
    return {name: _without_none(each) for name, each in value.items() if each is not None}


def is_resolved(stored: Object, revision: str) -> bool:
    """Whether an engine has read this version, as the stored status says."""
    if stored.get("revision") != revision:
        return False
    return bool(find_condition(stored, "Resolved", "True"))


def stored_errors(stored: Object, revision: str) -> dict[str, LoadError]:
    """The failed loads of a version by pod, as the stored status says; "" if it names no pod."""
    if stored.get("revision") != revision:
        return {}
    resolved = find_condition(stored, "Resolved")
    if resolved.get("status") != "False":
        return {}
    failed = [each for each in stored.get("instances", []) if each["state"] == "Failed"]
    reason, message = resolved["reason"], resolved["message"]
    return {
        each["podName"]: LoadError(reason, each.get("message", message)) for each in failed
    } or {"": LoadError(reason, message)}


def _instance(instance: Instance) -> Object:
    made = {"podName": instance.pod, "state": instance.state}
    if instance.revision:
        made["revision"] = instance.revision
    if instance.message:
        made["message"] = instance.message[:1024]
    return made


def _pool(state: AdapterState) -> Object:
    """The fields about the pool."""
    pool = PoolStatus() if state.pool is None else state.pool.state
    return {
        "pool": pool.serving,
        "dedicatedService": pool.service or None,
        "poolGeneration": pool.generation or None,
        "poolChangeTime": pool.change_time or None,
    }


def _fetched(state: AdapterState, stored: Object) -> list[Object] | None:
    """The fetched versions; None if there are none."""
    if state.fetched is None:
        return stored.get("fetchedVersions")
    return as_fetched_objects(state.fetched) or None


def _demand(demand: ShownDemand | None, stored: Object) -> Object:
    """The fields about demand; those that are stored if it is unknown, none before the first request."""
    kept = {name: stored.get(name) for name in ("demand", "lastUsedTime")}
    if demand is None or (demand.is_zero and kept["demand"] is None):
        return kept
    shown: Object = {"demand": {"requestsPerSecond": demand.requests_per_s}}
    if demand.last_used_s is not None:
        shown["lastUsedTime"] = timestamp(demand.last_used_s)
    return kept | shown
