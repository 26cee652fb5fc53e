"""Which service answers a request, by the name of its model."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.routing.route import RouteRule, Shadow, matching
from penstock.core.routing.traffic_split import Copies
from penstock.gateway.openai import Call, Refused
from penstock.gateway.search import RETRY_AFTER_S
from penstock.gateway.snapshot import Ambiguous, Route, Service, Snapshot, Unknown


@dataclass(frozen=True, slots=True)
class Target:
    """shadows: who gets a copy of the request, by a route. copies: likewise, by the rollout of the
    service."""

    service: Service
    shadows: tuple[Shadow, ...] = ()
    copies: Copies | None = None


def resolve(snapshot: Snapshot, call: Call, headers: Mapping[bytes, bytes]) -> Target:
    """headers: by their names in lower case. Raises Refused."""
    match snapshot.resolve(call.model):
        case Service() as service:
            return Target(service, copies=_drawn(service))
        case Route() as route:
            return _routed(snapshot, route, call, headers)
        case Ambiguous(choices):
            names = ", ".join(choices)
            message = (
                f"the model `{call.model}` is served in more than one namespace: use one of {names}"
            )
            raise Refused(400, message, param="model", code="model_ambiguous")
        case Unknown():
            message = f"the model `{call.model[:200]}` does not exist"
            raise Refused(404, message, param="model", code="model_not_found")


def _routed(snapshot: Snapshot, route: Route, call: Call, headers: Mapping[bytes, bytes]) -> Target:
    texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    rule = matching(route.rules, texts, call.user)
    if rule is None:
        message = (
            f"no rule of the ModelRoute {route.key} matches this request: send the headers or the "
            "`user` that one of them asks for, or give it a last rule without a match"
        )
        raise Refused(404, message, param="model", code="no_route")
    name = rule.service(random.random(), _key(rule, call, texts))  # noqa: S311 - spreads load
    service = snapshot.get(f"{route.namespace}/{name}")
    if service is None:
        message = (
            f"the ModelRoute {route.key} sends this request to the InferenceService {name}, which "
            f"the namespace {route.namespace} does not have: create it, or change the route's backends"
        )
        raise Refused(503, message, code="route_broken", retry_after_s=RETRY_AFTER_S)
    shadows = rule.copied(random.random())  # noqa: S311 - samples
    return Target(service, shadows, _drawn(service))


def _drawn(service: Service) -> Copies | None:
    """What the rollout has copied of one request, at random."""
    copies = service.copies
    is_copied = copies is not None and random.random() < copies.share  # noqa: S311 - samples
    return copies if is_copied else None


def _key(rule: RouteRule, call: Call, headers: Mapping[str, str]) -> bytes | None:
    if rule.sticky_header is None:
        return call.sticky_key(rule.sticky_by)
    value = headers.get(rule.sticky_header)
    return None if value is None else value.encode()
