"""Admits a request by the limits of its tenant, and tells what it has used of them at its end."""

from penstock.core.routing.apis import BACKGROUND
from penstock.core.routing.charge import Ending
from penstock.core.tenants.limits import Usage
from penstock.core.tenants.tenant import Tenant
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.proxy.target_attempts import TargetAttempts
from penstock.gateway.quotas.request_bounds import bound_request
from penstock.gateway.quotas.request_quota import RequestQuota
from penstock.gateway.selection.routing_target import RoutingTarget
from penstock.gateway.stats.registry import StatsRegistry
from penstock.gateway.stats.request_record import RequestRecord

# Endings of a request whose engine had begun to compute. Without a response its output is not known.
COMPUTED_ENDINGS = frozenset(
    {
        Ending.CLIENT_LEFT,
        Ending.NO_FIRST_BYTE,
        Ending.ROUTE_TIMEOUT,
        Ending.SHUTDOWN,
        Ending.TOTAL_TIMEOUT,
    }
)


async def admit(
    request: InferenceRequest,
    target: RoutingTarget,
    tenant: Tenant,
    quota: RequestQuota,
    stats: StatsRegistry,
) -> InferenceRequest:
    """Reserve what a request of a tenant will use. Returns it with the tenant's bound on its output.

    Raises RequestError.
    """
    service, adapter = target.service, target.adapter
    quota.service = service.key
    quota.adapter = "" if adapter is None else adapter.name
    quota.model_name = service.served_name if adapter is None else adapter.served_name
    prompt_tokens = 0
    if request.api.prompts:
        estimate = stats.get(service.key).token_estimates.get(tenant.name)
        prompt_tokens = estimate.of(request.prompt_bytes)
    request = bound_request(request, tenant.request, prompt_tokens)
    await quota.admit(request, prompt_tokens)
    return request


def settle(
    request_quota: RequestQuota, record: RequestRecord | None, attempts: TargetAttempts
) -> None:
    """Count what a request that has ended has used, by the engine's counts if there are any."""
    reserved = request_quota.reserved
    if reserved is None or record is None or attempts.endpoint is None:
        request_quota.settle(None)
        return
    relay, ending = attempts.relay, record.end.ending
    # Otherwise a client that leaves before each answer would use an engine without paying for it.
    unseen = request_quota.unseen_output_tokens if ending is Ending.CLIENT_LEFT else 0
    if relay is None:
        has_computed = ending in COMPUTED_ENDINGS
        used = Usage(1, record.prompt_tokens, unseen) if has_computed else None
        request_quota.settle(used, is_counted=False)
    elif relay.is_error:
        request_quota.settle(Usage(1), is_counted=False)
    elif record.api is BACKGROUND:  # its response comes before it is computed, and has no usage
        request_quota.settle(reserved, is_counted=False)
    elif record.usage.prompt_tokens is None and unseen > record.usage.output_tokens:
        request_quota.settle(Usage(1, record.prompt_tokens, unseen), is_counted=False)
    else:
        request_quota.settle(_count(record))


def _count(record: RequestRecord) -> Usage:
    usage = record.usage
    prompt_tokens = record.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    return Usage(1, prompt_tokens, usage.output_tokens, usage.cached_tokens or 0)
