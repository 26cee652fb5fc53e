"""What a namespace's ResourceQuotas leave for its services, and how they share it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.core.budget import Claim, share
from penstock.core.quantity import parse_quantity
from penstock.core.rule import Decision, TrailEntry
from penstock.core.service import Object, ServiceSpec

# (namespace, extended resource)
Pool = tuple[str, str]

# The code of a decision that was granted in part.
OVER_BUDGET = "OverBudget"


def pool_of(service: ServiceSpec) -> Pool | None:
    """Where its accelerators come from; None of a service without any."""
    return None if service.accelerator is None else (service.namespace, service.accelerator[0])


def budgets(quotas: Iterable[Object], held: Mapping[Pool, int]) -> dict[Pool, int]:
    """Accelerators that all services of a pool may have together; a pool without a quota is not in it.

    held: what their pods have now: the rest of what is used belongs to others. A quota with scopes
    counts other pods than ours, or not all of them, and is left alone.
    """
    found: dict[Pool, int] = {}
    for quota in quotas:
        if quota["spec"].get("scopes") or quota["spec"].get("scopeSelector"):
            continue
        status = quota.get("status", {})
        used = status.get("used", {})
        for name, hard in status.get("hard", {}).items():
            kind, _, resource = name.partition(".")
            if kind != "requests" or "/" not in resource:
                continue
            pool = quota["metadata"]["namespace"], resource
            others = max(0, int(parse_quantity(used.get(name, "0"))) - held.get(pool, 0))
            left = max(0, int(parse_quantity(hard)) - others)
            found[pool] = min(left, found.get(pool, left))
    return found


def within(
    decisions: Sequence[tuple[ServiceSpec, Decision]], limits: Mapping[Pool, int]
) -> list[Decision]:
    """The same decisions, as far as the accelerators go."""
    claims: dict[Pool, list[Claim]] = {}
    for service, decision in decisions:
        pool = pool_of(service)
        if pool is not None and pool in limits and service.scaling.mode == "Active":
            claims.setdefault(pool, []).append(_claim(service, decision))
    grants = {pool: share(those, limits[pool]) for pool, those in claims.items()}
    granted = []
    for service, decision in decisions:
        grant = grants.get(pool_of(service) or ("", ""), {}).get(service.name)
        if grant is None or not grant.reason:
            granted.append(decision)
            continue
        trail = (*decision.trail, TrailEntry("budget", grant.replicas, grant.reason))
        granted.append(
            replace(
                decision, desired=grant.replicas, reason=grant.reason, code=OVER_BUDGET,
                trail=trail,
            )
        )  # fmt: skip
    return granted


def _claim(service: ServiceSpec, decision: Decision) -> Claim:
    assert service.accelerator is not None
    scaling = service.scaling
    return Claim(
        service=service.name,
        wanted=decision.desired,
        least=scaling.min_replicas,
        priority=scaling.priority,
        accelerators=service.accelerator[1],
    )
