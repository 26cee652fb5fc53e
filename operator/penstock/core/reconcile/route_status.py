"""Computes the status of a ModelRoute from the other routes, the services and the gateways."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.adapters.dedicated import adapter_of
from penstock.core.formats.conditions import find_condition
from penstock.core.observed.name_claims import (
    MODEL_NAME_IN_USE,
    NameClaim,
    Standing,
    route_claim,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.condition_types import Condition, Truth
from penstock.core.reconcile.name_conflict import name_conflict
from penstock.core.reconcile.status import as_objects
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.routing.header_pattern import check_expressions
from penstock.core.routing.route import ADAPTER, SERVICE
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class RouteInputs:
    """Inputs of a route's status besides the route.

    names: model names that all objects claim. services, adapters: of its namespace, by name. revisions: those
    with pods, by service. applied: generation of the route that each gateway applies, None for a gateway that
    does not answer; None while the gateways are unknown.
    """

    names: NameIndex
    services: Mapping[str, Object]
    revisions: Mapping[str, frozenset[str]]
    applied: AppliedGenerations | None
    adapters: Mapping[str, Object] = field(default_factory=dict)

    def backend(self, ref: Object) -> Object | None:
        """The object that a reference names; None if it does not exist, or is the pool of an adapter."""
        if ref.get("kind") == ADAPTER:
            return self.adapters.get(ref["name"])
        service = self.services.get(ref["name"])
        return None if service is None or adapter_of(service) else service


def route_status(route: Object, inputs: RouteInputs, now: str) -> Object:
    """The whole status of a route. now: RFC 3339, for changed conditions.

    It decides the short name of the route, whose claim counts as stored from now on.
    """
    generation = route["metadata"]["generation"]
    backends = _backends(route, inputs)
    resolved = _resolved(route, inputs)
    answering = _answering_rules(route, backends)
    can_answer = resolved.status == "True" and bool(answering)
    claim, accepted = _decide_name(route, inputs.names, can_answer=can_answer)
    programmed = programmed_condition(generation, inputs.applied)
    causes = (accepted, resolved, programmed, _backends_ready(route, answering))
    ready = _ready(causes)
    progress = _progress(causes)
    applied = inputs.applied or {}
    status: Object = {
        "observedGeneration": generation,
        "modelName": _answered_name(claim),
        "gateways": {
            "total": len(applied),
            "programmed": sum(each == generation for each in applied.values()),
        },
        "backends": backends,
    }
    conflict = inputs.names.settle(claim, yields=accepted.reason == MODEL_NAME_IN_USE)
    shown = (accepted, resolved, programmed, ready, *progress, *name_conflict(conflict))
    conditions = as_objects(shown, route.get("status", {}), generation, now)
    return status | {"conditions": conditions}


def _decide_name(
    route: Object, names: NameIndex, *, can_answer: bool
) -> tuple[NameClaim, Condition]:
    """The claim of the route by its next status, and whether it gets its name in the namespace."""
    own = route_claim(route)
    known = names.get(own.key) or own
    refused = _refused(route)
    can_answer = can_answer and refused is None
    standing = Standing.ESTABLISHED if can_answer else known.precedence.standing
    following = with_next_status(known, own.model_name, standing)
    accepted = refused or _accepted(following, names)
    return (following if accepted.status == "True" else known), accepted


def _refused(route: Object) -> Condition | None:
    """Why gateways cannot read the rules; None if they can. They keep the last rules that they could read."""
    try:
        check_expressions(route["spec"]["rules"])
    except ValueError as error:
        return Condition("Accepted", "False", "InvalidMatches", str(error))
    return None


def _answered_name(claim: NameClaim) -> str | None:
    """The model name if the route has answered under it, or is about to; None before."""
    return claim.model_name if claim.precedence.standing <= Standing.READY else None


def _accepted(claim: NameClaim, names: NameIndex) -> Condition:
    name = claim.model_name
    holder = names.holder(claim, kinds=(claim.kind,))
    if holder.key != claim.key:
        message = (
            f"the ModelRoute {holder.name} has the model name {name!r} in this namespace already; set "
            "spec.modelName to another name"
        )
        return Condition("Accepted", "False", "ModelNameInUse", message)
    message = f"requests for {name!r} follow this route"
    answering = names.holder(claim)
    if _answered_name(claim) is None and answering.key != claim.key:
        message += (
            " once its backends exist and one of them is ready; until then they go to the "
            f"{answering.kind} {answering.name}"
        )
    return Condition("Accepted", "True", "Accepted", message)


def _resolved(route: Object, inputs: RouteInputs) -> Condition:
    def condition(status: Truth, reason: str, message: str) -> Condition:
        return Condition("ResolvedRefs", status, reason, message)

    for rule in route["spec"]["rules"]:
        mirrors, fallbacks = rule.get("mirrors", []), rule.get("fallbacks", [])
        of_mirrors = (mirror["backendRef"] for mirror in mirrors)
        for ref in (*rule["backendRefs"], *of_mirrors, *fallbacks):
            if inputs.backend(ref) is None:
                message = (
                    f"rule {rule['name']}: the namespace has no {ref.get('kind', SERVICE)} {ref['name']}; "
                    "create it, or change the rule"
                )
                return condition("False", "BackendNotFound", message)
        for mirror in mirrors:
            name, revision = mirror["backendRef"]["name"], mirror.get("revision")
            if revision is not None and revision not in inputs.revisions.get(name, ()):
                message = f"rule {rule['name']}: no pods of {name} have the revision {revision}"
                return condition("False", "RevisionNotFound", message)
    return condition("True", "ResolvedRefs", "all backends of the rules exist")


def programmed_condition(generation: int, applied: AppliedGenerations | None) -> Condition:
    """Whether every gateway applies a generation of a route, or of another object that gateways read."""
    if not applied:
        return Condition("Programmed", "Unknown", "NoGateways", "no gateway is known to be ready")
    behind = [name for name, current in sorted(applied.items()) if current != generation]
    if behind:
        message = (
            f"{len(behind)} of {len(applied)} gateways do not apply generation {generation} yet, "
            f"such as {behind[0]}"
        )
        return Condition("Programmed", "False", "GatewaysBehind", message)
    return Condition("Programmed", "True", "Programmed", f"all {len(applied)} gateways apply it")


def _backends(route: Object, inputs: RouteInputs) -> list[Object]:
    return [
        {
            "rule": rule["name"],
            "kind": ref.get("kind", SERVICE),
            "name": ref["name"],
            "ready": _readiness(inputs.backend(ref), ref.get("kind", SERVICE)),
        }
        for rule in route["spec"]["rules"]
        for ref in rule["backendRefs"]
    ]


def _readiness(backend: Object | None, kind: str) -> Truth:
    """Whether a service has an engine that answers, or an adapter is ready; Unknown if it does not exist."""
    wanted = "Ready" if kind == ADAPTER else "TrafficAvailable"
    found: Truth = find_condition((backend or {}).get("status"), wanted).get("status", "Unknown")
    return found


def _answering_rules(route: Object, backends: list[Object]) -> set[str]:
    """The rules that have a ready backend with weight."""
    weights = {
        (rule["name"], ref.get("kind", SERVICE), ref["name"]): ref.get("weight", 1)
        for rule in route["spec"]["rules"]
        for ref in rule["backendRefs"]
    }
    return {
        each["rule"]
        for each in backends
        if each["ready"] == "True" and weights[each["rule"], each["kind"], each["name"]] > 0
    }


def _backends_ready(route: Object, answering: set[str]) -> Condition:
    """Whether each rule has a backend with weight that answers. Not shown: it is part of Ready."""
    for rule in route["spec"]["rules"]:
        if rule["name"] not in answering:
            message = f"rule {rule['name']}: none of its backends is ready"
            return Condition("BackendsReady", "False", "BackendsNotReady", message)
    return Condition("BackendsReady", "True", "BackendsReady", "each rule has a ready backend")


def _ready(causes: tuple[Condition, ...]) -> Condition:
    failing = next((each for each in causes if each.status != "True"), None)
    if failing is None:
        return Condition("Ready", "True", "Ready", "the route answers requests")
    return Condition("Ready", "False", failing.reason, failing.message)


def _progress(causes: tuple[Condition, ...]) -> tuple[Condition, Condition]:
    """Reconciling and Stalled: only what is not accepted needs a change of this route."""
    accepted, *rest = causes
    if accepted.status == "False":
        return (
            Condition("Reconciling", "False", accepted.reason, accepted.message),
            Condition("Stalled", "True", accepted.reason, accepted.message),
        )
    waiting = next((each for each in rest[:2] if each.status != "True"), None)
    settled = Condition("Stalled", "False", "NotStalled", "no change of the route is required")
    if waiting is None:
        return Condition("Reconciling", "False", "Settled", "the gateways apply the route"), settled
    return Condition("Reconciling", "True", waiting.reason, waiting.message), settled
