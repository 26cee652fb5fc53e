"""Whom a request counts for in admission queues, and in the limits that requests share."""

from penstock.core.admission.requester import Requester
from penstock.core.tenants.tenant import BATCH_PRIORITY
from penstock.gateway.tenants.caller import Caller


def requester_of(caller: Caller, *, is_flex: bool) -> Requester:
    """The tenant with its place in queues. is_flex: the request asks for the class of batches.

    While the gateway is open, all requests count for one tenant without a name.
    """
    tenant, priority = caller.tenant, BATCH_PRIORITY if is_flex else caller.priority
    if tenant is None:
        return Requester(priority=priority)
    return Requester(
        tenant.name, priority, tenant.fair_share_weight, tenant.max_queued, tenant.queue_timeout_s
    )


def owner_of(caller: Caller, service: str) -> str:
    """The owner of what a request for the service "namespace/name" holds of shared limits.

    A tenant has a share in place of the service's namespace. The name of a namespace has no `@`.
    """
    return f"@{caller.name}/{service}" if caller.name else service
