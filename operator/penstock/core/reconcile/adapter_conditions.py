"""Conditions of a LoraAdapter."""

from penstock.core.adapters.adapter import Placement
from penstock.core.adapters.pool import PoolStep
from penstock.core.adapters.resource import AdapterResource
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.reconcile.adapter_state import AdapterState, FetchStep
from penstock.core.reconcile.condition_types import SCALED_TO_ZERO, WAKING, Condition, Truth
from penstock.core.reconcile.name_conflict import name_conflict
from penstock.core.rollout.adapter_rollout import AdapterRollout

MORE_SLOTS = (
    "raise the service's spec.engine.lora.maxCPUAdapters or its replicas, or let other adapters have fewer "
    "copies"
)
# A refusal for one of these reasons may end without a change of the adapter.
WAITING_REASONS = ("ServiceNotFound",)


def adapter_conditions(
    resource: AdapterResource,
    state: AdapterState,
    rollout: AdapterRollout | None,
    *,
    was_resolved: bool,
) -> tuple[Condition, ...]:
    """All conditions of an adapter.

    resource: with the version that has the traffic. was_resolved: whether an engine has read it before.
    """
    own = _own_conditions(resource, state, rollout, was_resolved=was_resolved)
    return *own, *name_conflict(state.name_conflict)


def has_been_read(state: AdapterState, *, was_resolved: bool) -> bool:
    """Whether an engine has read the adapter. was_resolved: whether the last status says so."""
    return bool(state.loaded) or (was_resolved and not (state.failure and state.failure.is_final))


def _own_conditions(
    resource: AdapterResource,
    state: AdapterState,
    rollout: AdapterRollout | None,
    *,
    was_resolved: bool,
) -> tuple[Condition, ...]:
    accepted = _accepted(resource, state)
    if state.refusal is not None:
        rest = [
            Condition(kind, "Unknown", accepted.reason, accepted.message)
            for kind in ("Resolved", "Loaded", "RolledOut", *(["PoolReady"] if state.pool else []))
        ]
        ready = Condition("Ready", "False", accepted.reason, accepted.message)
        return accepted, *rest, ready, *_progress(accepted, None)
    if state.fetch is not None and rollout is None:
        return accepted, *_without_version(state.fetch, state.pool)
    resolved = _resolved(state, was_resolved)
    loaded = _loaded(state)
    ready = _ready(state, resolved, loaded, resource.version.placement)
    rolled_out = _rolled_out(resource, state, rollout)
    pool = None if state.pool is None else _pool_ready(state.pool)
    return (
        accepted,
        resolved,
        loaded,
        rolled_out,
        *([] if pool is None else [pool]),
        ready,
        *_progress(
            accepted,
            rollout,
            resolved,
            None if _is_enough(state, loaded, resource.version.placement) else loaded,
            rolled_out,
            pool,
            state.fetch,
        ),
    )


def _without_version(fetch: FetchStep, pool: PoolStep | None) -> tuple[Condition, ...]:
    """The conditions of an adapter whose first version is not there yet, but Accepted."""
    status: Truth = "False" if fetch.is_final else "Unknown"
    resolved, loaded, rolled_out = (
        Condition(kind, status, fetch.reason, fetch.message)
        for kind in ("Resolved", "Loaded", "RolledOut")
    )
    ready = Condition("Ready", "False", fetch.reason, fetch.message)
    own_pool = [] if pool is None else [_pool_ready(pool)]
    return resolved, loaded, rolled_out, *own_pool, ready, *_progress(resolved, None, resolved)


def _accepted(resource: AdapterResource, state: AdapterState) -> Condition:
    if state.refusal is not None:
        return Condition("Accepted", "False", state.refusal.reason, state.refusal.message)
    message = f"{resource.service} takes the adapter {resource.model_name!r}"
    return Condition("Accepted", "True", "Accepted", message)


def _resolved(state: AdapterState, was_resolved: bool) -> Condition:
    if has_been_read(state, was_resolved=was_resolved):
        return Condition("Resolved", "True", "Resolved", "an engine has read this version")
    if state.failure is not None and state.failure.is_final:
        return Condition("Resolved", "False", state.failure.reason, state.failure.message)
    return Condition("Resolved", "Unknown", "NotRead", "no engine has read this version yet")


def _loaded(state: AdapterState) -> Condition:
    if state.at_zero == SCALED_TO_ZERO:
        message = "no engine runs until a request comes, which loads the adapter"
        return Condition("Loaded", "True", SCALED_TO_ZERO, message)
    if state.at_zero == WAKING:
        message = "an engine starts, and loads the adapter for the requests that wait"
        return Condition("Loaded", "False", WAKING, message)
    if not state.num_engines:
        message = "no engine of the service that takes adapters is ready"
        return Condition("Loaded", "False", "NoEngines", message)
    if state.wanted is None:
        return Condition("Loaded", "Unknown", "Loading", "the placement is being computed")
    counted = f"{state.loaded} of {state.wanted} copies are loaded"
    if state.wanted and state.loaded >= state.wanted:
        return Condition("Loaded", "True", "AllLoaded", counted)
    if state.failure is not None:
        message = f"{counted}; the last load failed: {state.failure.message}"
        return Condition("Loaded", "False", "LoadFailed", message)
    if not state.wanted and state.is_full:
        message = (
            f"every slot of the engines has a copy that is pinned (eviction: Never); {MORE_SLOTS}"
        )
        return Condition("Loaded", "False", "NoAdapterSlot", message)
    if not state.wanted:
        return Condition("Loaded", "True", "OnDemand", "engines load it when requests come")
    if not state.has_slot:
        message = f"{counted}: all slots have copies that are worth more; {MORE_SLOTS}"
        return Condition("Loaded", "False", "NoAdapterSlot", message)
    return Condition("Loaded", "False", "Loading", counted)


def _is_enough(state: AdapterState, loaded: Condition, placement: Placement) -> bool:
    """Whether only copies are missing that demand asks for, which come and go with it."""
    if state.at_zero:
        return True
    is_waiting = loaded.reason in ("Loading", "NoAdapterSlot")
    return is_waiting and placement.policy == "OnDemand" and state.loaded >= placement.min_copies


def _ready(
    state: AdapterState, resolved: Condition, loaded: Condition, placement: Placement
) -> Condition:
    is_loadable = loaded.status == "True" or (
        loaded.reason == "Loading" and _is_enough(state, loaded, placement)
    )
    if state.at_zero and resolved.status != "False":
        return Condition("Ready", "True", state.at_zero, loaded.message)
    if state.loaded or (is_loadable and resolved.status != "False"):
        where = "from memory" if state.loaded else "after a load on demand"
        return Condition("Ready", "True", "Ready", f"requests are answered {where}")
    cause = resolved if resolved.status == "False" else loaded
    return Condition("Ready", "False", cause.reason, cause.message)


def _rolled_out(
    resource: AdapterResource, adapter: AdapterState, rollout: AdapterRollout | None
) -> Condition:
    """Whether the version of the spec has all of the traffic."""
    if adapter.fetch is not None:
        message = f"{adapter.fetch.message}; revision {resource.version.revision} serves"
        return Condition("RolledOut", "False", adapter.fetch.reason, message)
    if rollout is None or (rollout.state.is_settled and rollout.state.stable == rollout.wanted):
        message = f"revision {resource.version.revision} receives all traffic"
        return Condition("RolledOut", "True", "Stable", message)
    state, rejection = rollout.state, rollout.rejection
    if rejection is not None:
        message = (
            f"revision {rejection.revision} was rejected: {rejection.reason}; "
            f"revision {state.stable} serves"
        )
        return Condition("RolledOut", "False", "Rejected", message)
    if state.is_settled:
        message = f"the spec asks for revision {rollout.wanted}; revision {state.stable} serves"
        return Condition("RolledOut", "False", "RevisionPending", message)
    if rollout.is_late and not adapter.has_candidate_slot:
        message = (
            f"all slots have copies that revision {state.revision} may not replace; {MORE_SLOTS}; "
            f"revision {state.stable} serves"
        )
        return Condition("RolledOut", "False", "NoAdapterSlot", message)
    message = f"{state.reason}; {rollout.waiting_for}" if rollout.waiting_for else state.reason
    return Condition("RolledOut", "False", state.phase, message)


def _pool_ready(pool: PoolStep) -> Condition:
    return Condition("PoolReady", "True" if pool.is_settled else "False", pool.reason, pool.message)


def _progress(
    accepted: Condition,
    rollout: AdapterRollout | None,
    resolved: Condition | None = None,
    loaded: Condition | None = None,
    rolled_out: Condition | None = None,
    pool: Condition | None = None,
    fetch: FetchStep | None = None,
) -> tuple[Condition, Condition]:
    """Reconciling and Stalled. Only what the adapter or its service must change for is stalled."""
    is_rolling = rollout is not None and not rollout.state.is_settled
    stalled: Condition | None = None
    if accepted.status == "False" and accepted.reason not in WAITING_REASONS:
        stalled = accepted
    elif rolled_out is not None and (
        rolled_out.reason in ("Rejected", "NoAdapterSlot") or (fetch is not None and fetch.is_final)
    ):
        stalled = rolled_out
    elif resolved is not None and resolved.status == "False" and not is_rolling:
        stalled = resolved
    elif pool is not None and pool.reason in ("ServiceNameInUse", "ServiceStalled"):
        stalled = pool
    if stalled is not None:
        return (
            Condition("Reconciling", "False", stalled.reason, stalled.message),
            Condition("Stalled", "True", stalled.reason, stalled.message),
        )
    settled = Condition("Stalled", "False", "NotStalled", "no change of the adapter is required")
    causes = (accepted, rolled_out, pool, loaded)
    waiting = next((c for c in causes if c is not None and c.status != "True"), None)
    end = "" if rollout is None else PHASES[rollout.state.phase].user_action
    if waiting is not None and end:
        message = f"{waiting.message}; {end}"
        return Condition("Reconciling", "True", "AwaitingPromotion", message), settled
    if waiting is None:
        message = "no copy that the spec asks for is missing"
        return Condition("Reconciling", "False", "Settled", message), settled
    return Condition("Reconciling", "True", waiting.reason, waiting.message), settled
