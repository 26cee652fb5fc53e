"""The report of `penstock adapters` on a LoraAdapter: its status, and the operator's last placement."""

from dataclasses import dataclass

from penstock.core.adapters.demand import AdapterCounts
from penstock.core.adapters.placement_record import AdapterRecord, PlacementRecord
from penstock.core.adapters.pool import Pool, PoolStatus
from penstock.core.adapters.resource import adapter_resource
from penstock.core.adapters.versions import stable_version
from penstock.core.formats.conditions import find_condition
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class PodReport:
    """An engine pod that has the adapter, or could have it.

    state: of the copy; empty if there is none. requests: for the adapter on this pod. used_slots, slots: of
    all adapters. None: unknown without the placement.
    """

    pod: str
    state: str
    requests: int | None = None
    used_slots: int | None = None
    slots: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """A LoraAdapter with its copies. None: unknown without the placement, or never."""

    namespace: str
    name: str
    service: str
    model_name: str
    uri: str  # of the version that serves
    # Percent of the traffic by version, the serving version first
    versions: dict[str, int]
    rank: int | None
    size_bytes: int | None
    loaded: int
    wanted: int
    # All engines of the pool that take adapters, if the placement is known, else those with a copy
    pods: tuple[PodReport, ...]
    requests_per_s: float
    counts: AdapterCounts | None  # of all gateways
    last_used_s: float | None  # Unix time
    is_ready: bool
    # Why it is not ready, else why it has so many copies
    reason: str
    pool: Pool = "Shared"  # pool that serves it
    dedicated_service: str | None = None  # name of its own InferenceService; None if it has none
    pool_message: str = ""  # of the condition PoolReady; empty if it never had a dedicated pool


def adapter_report(body: Object, placement: PlacementRecord | None) -> AdapterReport:
    """Put together what is known. placement: of the service that serves it; None if it cannot be read."""
    resource, status = adapter_resource(body), body.get("status") or {}
    serving = stable_version(resource.version, status)
    engine_name = serving.engine_name
    records = {each.engine_name: each for each in (placement.adapters if placement else ())}
    record, pool = records.get(engine_name), PoolStatus.of(status)
    return AdapterReport(
        namespace=resource.namespace,
        name=resource.name,
        service=resource.service,
        model_name=resource.model_name,
        uri=serving.uri,
        versions=_versions(status, serving.revision),
        rank=status.get("rank"),
        size_bytes=status.get("sizeBytes"),
        loaded=status.get("loadedReplicas", 0),
        wanted=status.get("desiredReplicas", 0),
        pods=_pods(status, engine_name, placement),
        requests_per_s=float((status.get("demand") or {}).get("requestsPerSecond", 0)),
        counts=record.counts if record else None,
        last_used_s=_last_used_s(status, record),
        is_ready=find_condition(status, "Ready").get("status") == "True",
        reason=_reason(status, record),
        pool=pool.serving,
        dedicated_service=pool.service or None,
        pool_message=str(find_condition(status, "PoolReady").get("message", "")),
    )


def _versions(status: Object, revision: str) -> dict[str, int]:
    shares = {each["revision"]: each["percent"] for each in status.get("traffic") or []}
    return {revision: shares.get(revision, 0 if shares else 100)} | shares


def _pods(
    status: Object, engine_name: str, placement: PlacementRecord | None
) -> tuple[PodReport, ...]:
    replicas = {each.pod: each for each in (placement.replicas if placement else ())}
    instances = {each["podName"]: each for each in status.get("instances") or []}
    found = []
    for pod in sorted(instances.keys() | replicas.keys()):
        instance, replica = instances.get(pod, {}), replicas.get(pod)
        state = instance.get("state", "")
        if revision := instance.get("revision"):
            state = f"{state} {revision}"
        message = instance.get("message", "")
        if replica is None:
            found.append(PodReport(pod, state, message=message))
            continue
        copy = replica.copies.get(engine_name)
        used_slots = sum(each.state != "Evicted" for each in replica.copies.values())
        requests = 0 if copy is None else copy.requests
        found.append(PodReport(pod, state, requests, used_slots, replica.slots, message))
    return tuple(found)


def _last_used_s(status: Object, record: AdapterRecord | None) -> float | None:
    """Time of the last request: the status has it to the minute, the placement to the tick."""
    shown = status.get("lastUsedTime")
    times = [parse_timestamp(shown)] if shown else []
    if record is not None and record.demand.last_request_s is not None:
        times.append(record.demand.last_request_s)
    return max(times, default=None)


def _reason(status: Object, record: AdapterRecord | None) -> str:
    ready = find_condition(status, "Ready")
    if not ready:
        return "the operator has not seen it yet"
    message = str(ready["message"])
    if record is None:
        return message
    if ready["status"] == "True":
        return record.reason
    return f"{message}; next load in {record.retry_in_s:.0f} s" if record.retry_in_s else message
