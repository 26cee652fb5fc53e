"""Resolves the model name of a request to the service that answers it, by name or by a ModelRoute."""

import random
from collections.abc import Mapping
from dataclasses import replace
from heapq import nsmallest

from penstock.core.routing.charge import Ending
from penstock.core.routing.route import ADAPTER, Backend, RouteRule, first_match
from penstock.core.routing.route_match import RoutedRequest
from penstock.core.tenants.tenant import Tenant
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.http.headers import header_text
from penstock.gateway.selection.routing_target import (
    BackendMissing,
    FollowedRule,
    RoutingTarget,
    adapter_target,
    backend_target,
    service_target,
)
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import (
    MAX_LISTED_NAMES,
    Claim,
    Route,
    Service,
    Snapshot,
    Unknown,
)
from penstock.gateway.tenants.authorization import ModelAccess

# Most model names of objects with the requested name that an error proposes.
MAX_NAMES = 5
# `Retry-After` where a new request would find its service at once. SDKs ignore a 0.
MOVED_RETRY_AFTER_S = 1


def resolve(
    snapshot: Snapshot,
    request: InferenceRequest,
    headers: Mapping[bytes, bytes],
    access: ModelAccess,
    owner: str = "",
    *,
    region: str = "",
) -> RoutingTarget:
    """Find the service for a request. Raises RequestError.

    headers: by name in lower case. access: what the caller may use: of a ModelRoute, only the name of the
    route counts, and its backends need no further right. owner: the only service, "namespace/name", that can
    answer, as it has the response that the request continues; empty: any can. region: of this gateway.
    """
    match claim_of(snapshot, request.model, access):
        case Service() as service:
            target = service_target(service)
        case Adapter() as adapter:
            target = adapter_target(snapshot, adapter, request)
        case Route() as route:
            texts = {name.decode("latin-1"): header_text(value) for name, value in headers.items()}
            routed = _routed_request(request, texts, route, access.tenant, region)
            target = _apply_route(snapshot, route, request, routed, owner)
    if owner and target.service.key != owner:
        message = (
            f"the response `{request.previous_response}` is not of the model `{request.model[:200]}`: send "
            "the model that it was created with"
        )
        raise RequestError(404, message, param="previous_response_id", code="response_not_found")
    return target


def error_of_deletion(
    snapshot: Snapshot,
    request: InferenceRequest,
    headers: Mapping[bytes, bytes],
    access: ModelAccess,
    *,
    region: str = "",
) -> RequestError:
    """Return the error for a request whose service or adapter was deleted before an engine answered.

    It is the one that a new request would get. If the model name leads to another service or adapter now,
    the client has to send the request again: what it holds and counts for is the deleted one's.
    """
    try:
        resolve(snapshot, request, headers, access, region=region)
    except RequestError as error:
        error.ending = Ending.REFUSED  # a deletion is no lack of engines
        return error
    message = (
        f"another service or adapter answers for the model `{request.model[:200]}` now: send the "
        "request again"
    )
    return RequestError(
        503,
        message,
        retry_after_s=MOVED_RETRY_AFTER_S,
        reason="model_moved",
        ending=Ending.REFUSED,
    )


def claim_of(snapshot: Snapshot, model: str, access: ModelAccess) -> Claim:
    """Find what answers to a model name. Raises RequestError, the same for a name that access denies."""
    claim = snapshot.resolve(model)
    if isinstance(claim, Unknown) or not access.allows(claim):
        hint = _other_names(snapshot, model, access)
        message = f"the model `{model[:200]}` does not exist{hint}"
        raise RequestError(404, message, param="model", code="model_not_found")
    return claim


def check_available(service: Service) -> None:
    """Raise RequestError if it is of no use to wait for an engine of the service.

    The error has only the reason of `Stalled`. Its message may name the place of the model, which is not for
    clients.
    """
    if service.stalled and not service.weights:
        message = (
            f"the InferenceService {service.key} cannot answer ({service.stalled}): its condition Stalled "
            "says what to change"
        )
        raise RequestError(503, message, code="stalled")
    if service.is_scaled_to_zero and not service.endpoints and not service.is_to_wake:
        message = (
            f"the InferenceService {service.key} has 0 replicas (spec.replicas), and no request starts an "
            "engine"
        )
        raise RequestError(503, message, code="scaled_to_zero", retry_after_s=RETRY_AFTER_S)


def _other_names(snapshot: Snapshot, name: str, access: ModelAccess) -> str:
    """Hint with the model names of the objects that have this name, else of all; empty if there are none.

    It has no name that access denies.
    """
    named = (each for each in snapshot.find_by_object_name(name) if access.allows(each))
    names = sorted({each.served_name for each in named})[:MAX_NAMES]
    if names:
        return f": the model name of the object `{name}` is {' or '.join(names)}"
    listed, num_models = snapshot.first_names, len(snapshot.models())
    if access.tenant is not None:
        allowed = [other for other, claim in snapshot.models() if access.allows(claim)]
        listed, num_models = tuple(nsmallest(MAX_LISTED_NAMES, allowed)), len(allowed)
    num_more = num_models - len(listed)
    more = f" and {num_more} more" if num_more else ""
    return f": there are {', '.join(listed)}{more}" if listed else ""


def _apply_route(
    snapshot: Snapshot,
    route: Route,
    request: InferenceRequest,
    routed: RoutedRequest,
    owner: str,
) -> RoutingTarget:
    """Find the service by the first rule of the route that matches. Raises RequestError.

    routed: what its rules match. owner: see `resolve`.
    """
    rule = first_match(route.rules, routed)
    if rule is None:
        message = (
            f"no rule of the ModelRoute {route.key} matches this request: send what one of them "
            "requires, such as a header or a `user`, or add a last rule without matches"
        )
        raise RequestError(404, message, param="model", code="no_route")
    key = _affinity_key(rule, request, routed.headers)
    backend = _backend_of(snapshot, route, rule, owner)
    if backend is None:
        backend = rule.backend(random.random(), key)  # noqa: S311 - spreads load
    mirrors = tuple(each for each in rule.mirrors if each.is_sampled(random.random()))  # noqa: S311 - samples
    followed = FollowedRule(route, rule, backend)
    try:
        target = backend_target(snapshot, followed, request)
    except BackendMissing as error:
        error.followed = followed
        raise
    return replace(target, mirrors=mirrors)


def _routed_request(
    request: InferenceRequest,
    headers: Mapping[str, str],
    route: Route,
    tenant: Tenant | None,
    region: str,
) -> RoutedRequest:
    """Attributes of a request for the rules of a route.

    headers: by name in lower case. route: under the name that the request has. tenant: None: the gateway is
    open.
    """
    return RoutedRequest(
        headers=headers,
        user=request.user,
        model_name=route.served_name,
        tenant="" if tenant is None else tenant.name,
        cost_tier="" if tenant is None else tenant.cost_tier,
        region=region,
        task=request.api.task,
        service_tier=request.service_tier,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.stated_output_tokens,
    )


def _backend_of(snapshot: Snapshot, route: Route, rule: RouteRule, owner: str) -> Backend | None:
    """The backend of a rule that the service answers for, whatever its weight; None if there is none."""
    if not owner:
        return None
    for backend in rule.all_backends:
        name = f"{route.namespace}/{backend.name}"
        adapter = snapshot.get_adapter(name) if backend.kind == ADAPTER else None
        if owner == (name if adapter is None else adapter.service):
            return backend
    return None


def _affinity_key(
    rule: RouteRule, request: InferenceRequest, headers: Mapping[str, str]
) -> bytes | None:
    """The key that requests share to stay with one backend; None: each is routed by its own draw."""
    if rule.affinity_header is None:
        return request.affinity_key(rule.affinity)
    value = headers.get(rule.affinity_header)
    return None if value is None else value.encode()
