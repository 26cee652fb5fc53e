"""Computes the status of a Tenant from the other tenants and the gateways."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.reconcile.condition_types import Condition
from penstock.core.reconcile.route_status import programmed_condition
from penstock.core.reconcile.status import as_objects
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.spec.service import Object
from penstock.core.tenants.identity_claims import Claim, lost_identities
from penstock.core.tenants.tenant import Tenant


@dataclass(frozen=True, slots=True)
class TenantInputs:
    """Inputs of a tenant's status besides the object.

    tenant: as it was read, or why it cannot be. holders: names of the tenants that have the identities.
    applied: generation of the tenant that each gateway applies, None for a gateway that does not answer;
    None while the gateways are unknown.
    """

    tenant: Tenant | ValueError
    holders: Mapping[Claim, str]
    applied: AppliedGenerations | None


def tenant_status(body: Object, inputs: TenantInputs, now: str) -> Object:
    """The whole status of a tenant. now: RFC 3339, for changed conditions."""
    generation = body["metadata"]["generation"]
    accepted = _accepted(inputs)
    programmed = programmed_condition(generation, inputs.applied)
    causes = (accepted, programmed)
    shown = (*causes, _ready(causes), *_progress(accepted, programmed))
    applied = inputs.applied or {}
    return {
        "observedGeneration": generation,
        "gateways": {
            "total": len(applied),
            "programmed": sum(each == generation for each in applied.values()),
        },
        "conditions": as_objects(shown, body.get("status", {}), generation, now),
    }


def _accepted(inputs: TenantInputs) -> Condition:
    if isinstance(inputs.tenant, ValueError):
        return Condition("Accepted", "False", "InvalidSpec", str(inputs.tenant))
    lost = lost_identities(inputs.tenant, inputs.holders)
    if lost:
        identity, holder = next(iter(lost.items()))
        message = (
            f"the identity {identity!r} is one of the older Tenant {holder}, and counts for that one only; "
            "remove it from one of them"
        )
        return Condition("Accepted", "False", "IdentityInUse", message)
    return Condition("Accepted", "True", "Accepted", "no older tenant has one of its identities")


def _ready(causes: tuple[Condition, ...]) -> Condition:
    failing = next((each for each in causes if each.status != "True"), None)
    if failing is None:
        return Condition("Ready", "True", "Ready", "the gateways apply the tenant")
    return Condition("Ready", "False", failing.reason, failing.message)


def _progress(accepted: Condition, programmed: Condition) -> tuple[Condition, Condition]:
    """Reconciling and Stalled: only a tenant that is not accepted needs a change by a person."""
    if accepted.status == "False":
        return (
            Condition("Reconciling", "False", accepted.reason, accepted.message),
            Condition("Stalled", "True", accepted.reason, accepted.message),
        )
    settled = Condition("Stalled", "False", "NotStalled", "no change of the tenant is required")
    if programmed.status == "True":
        return Condition(
            "Reconciling", "False", "Settled", "the gateways apply the tenant"
        ), settled
    return Condition("Reconciling", "True", programmed.reason, programmed.message), settled
