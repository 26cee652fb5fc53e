"""Accelerators that ResourceQuotas leave for services, and how the services share them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.formats.quantity import whole_quantity
from penstock.core.scaling.budget import Claim, Grant, share_accelerators
from penstock.core.scaling.rule import Decision, DecisionCode, TrailEntry
from penstock.core.spec.service import Object, ServiceSpec

# (namespace, extended resource)
Pool = tuple[str, str]

# The code of a decision that was granted in part.
OVER_BUDGET: DecisionCode = "OverBudget"


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits by quota. limits: accelerators that all services of a pool may have together; a pool
    without a quota is absent. unreadable: messages about quotas that were skipped."""

    limits: Mapping[Pool, int]
    unreadable: tuple[str, ...] = ()


def pools_of(service: ServiceSpec) -> dict[str, Pool]:
    """The quota pool of each variant's accelerators; variants without accelerators are absent."""
    return {
        variant: (service.namespace, accelerator[0])
        for variant, placed in service.placed.items()
        if (accelerator := placed.resources.accelerator) is not None
    }


def quota_limits(service: ServiceSpec, limits: Mapping[Pool, int]) -> dict[str, int]:
    """Replicas that quotas leave room for, if nobody else wanted any; without what none limits."""
    most = {}
    for variant, pool in pools_of(service).items():
        if pool in limits:
            most[variant] = limits[pool] // service.placed[variant].resources.num_accelerators
    return most


def budgets(quotas: Iterable[Object], held: Mapping[Pool, int]) -> Budgets:
    """The accelerators that ResourceQuotas leave for services.

    held: accelerators of the services' pods; the rest of `used` belongs to others. A quota with scopes
    is skipped, as it may not count the services' pods.
    """
    limits: dict[Pool, int] = {}
    unreadable: list[str] = []
    for quota in quotas:
        metadata, spec, status = quota["metadata"], quota.get("spec", {}), quota.get("status", {})
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        used = status.get("used", {})
        for name, hard in status.get("hard", {}).items():
            kind, _, resource = name.partition(".")
            if kind != "requests" or "/" not in resource:
                continue
            pool = metadata["namespace"], resource
            try:
                others = max(0, whole_quantity(used.get(name, "0")) - held.get(pool, 0))
                left = max(0, whole_quantity(hard) - others)
            except ValueError as error:
                where = f"{metadata['namespace']}/{metadata['name']}"
                unreadable.append(f"the ResourceQuota {where} is not counted: {name}: {error}")
                continue
            limits[pool] = min(left, limits.get(pool, left))
    return Budgets(limits, tuple(unreadable))


def apply_quotas(
    decisions: Sequence[tuple[ServiceSpec, Decision]], limits: Mapping[Pool, int]
) -> list[Decision]:
    """The same decisions, as far as the accelerators go."""
    claims: dict[Pool, list[Claim]] = {}
    for service, decision in decisions:
        if service.scaling.mode != "Active":
            continue
        for variant, pool in pools_of(service).items():
            if pool in limits:
                claims.setdefault(pool, []).append(_claim(service, variant, decision))
    grants = {pool: share_accelerators(those, limits[pool]) for pool, those in claims.items()}
    return [_apply_grants(service, decision, grants) for service, decision in decisions]


def _apply_grants(
    service: ServiceSpec, decision: Decision, grants: Mapping[Pool, Mapping[str, Grant]]
) -> Decision:
    found = {
        variant: grant
        for variant, pool in pools_of(service).items()
        if (grant := grants.get(pool, {}).get(_claimant(service, variant))) and grant.reason
    }
    if not found:
        return decision
    wanted = decision.by_variant or {"": decision.desired}
    parts = {v: found[v].replicas if v in found else n for v, n in wanted.items()}
    desired, reason = sum(parts.values()), "; ".join(grant.reason for grant in found.values())
    return replace(
        decision,
        desired=desired,
        reason=reason,
        code=OVER_BUDGET,
        trail=(*decision.trail, TrailEntry("budget", desired, reason)),
        by_variant=parts if decision.by_variant else {},
    )


def _claim(service: ServiceSpec, variant: str, decision: Decision) -> Claim:
    placed, scaling = service.placed[variant], service.scaling
    least = {each.name: each.min_replicas for each in service.variants}
    return Claim(
        service=_claimant(service, variant),
        wanted=decision.by_variant.get(variant, 0) if variant else decision.desired,
        least=least.get(variant, scaling.min_replicas),
        priority=scaling.quota_priority,
        accelerators=placed.resources.num_accelerators,
    )


def _claimant(service: ServiceSpec, variant: str) -> str:
    return f"{service.name} on {variant}" if variant else service.name
