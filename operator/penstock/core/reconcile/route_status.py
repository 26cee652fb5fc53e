"""Computes the status of a ModelRoute from the other routes, the services and the gateways."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.adapters.dedicated import adapter_of
from penstock.core.formats.conditions import find_condition
from penstock.core.observed.name_claims import (
    MODEL_NAME_IN_USE,
    NameClaim,
    Standing,
    alias_claims,
    route_claim,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.condition_types import Condition, Truth
from penstock.core.reconcile.name_conflict import name_conflict
from penstock.core.reconcile.status import as_objects
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.routing.header_pattern import check_expressions
from penstock.core.routing.route import ADAPTER, EXTERNAL, SERVICE
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class RouteInputs:
    """Inputs of a route's status besides the route.

    names: model names that all objects claim. services, adapters, externals: of its namespace, by name.
    revisions: those with pods, by service. applied: generation of the route that each gateway applies, None
    for a gateway that does not answer; None while the gateways are unknown.
    """

    names: NameIndex
    services: Mapping[str, Object]
    revisions: Mapping[str, frozenset[str]]
    applied: AppliedGenerations | None
    adapters: Mapping[str, Object] = field(default_factory=dict)
    externals: Mapping[str, Object] = field(default_factory=dict)

    def backend(self, ref: Object) -> Object | None:
        """The object that a reference names; None if it does not exist, or is the pool of an adapter."""
        if ref.get("kind") == ADAPTER:
            return self.adapters.get(ref["name"])
        if ref.get("kind") == EXTERNAL:
            return self.externals.get(ref["name"])
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
    aliases = _decide_aliases(route, inputs.names, can_answer=can_answer)
    conflict = inputs.names.settle(claim, yields=accepted.reason == MODEL_NAME_IN_USE)
    conflicts = (*name_conflict(conflict), *_alias_conflict(aliases))
    shown = (accepted, resolved, programmed, ready, *progress, *conflicts)
    conditions = as_objects(shown, route.get("status", {}), generation, now)
    return status | {"aliases": aliases, "conditions": conditions}


def _decide_name(
    route: Object, names: NameIndex, *, can_answer: bool
) -> tuple[NameClaim, Condition]:
    """The claim of the route by its next status, and whether it gets its name in the namespace."""
    own = route_claim(route)
    known = names.get(own.key) or own
    refused = _refused(route)
    following = _following(known, own, can_answer=can_answer and refused is None)
    accepted = refused or _accepted(following, names)
    return (following if accepted.status == "True" else known), accepted


def _following(known: NameClaim, own: NameClaim, *, can_answer: bool) -> NameClaim:
    """The claim by the next status. known: the last one. own: by the present spec."""
    standing = Standing.ESTABLISHED if can_answer else known.precedence.standing
    return with_next_status(known, own.model_name, standing)


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


def _decide_aliases(route: Object, names: NameIndex, *, can_answer: bool) -> list[Object]:
    """The status of the route's aliases. Their claims count as stored from now on."""
    can_answer = can_answer and _refused(route) is None
    return [_decide_alias(own, names, can_answer=can_answer) for own in alias_claims(route)]


def _decide_alias(own: NameClaim, names: NameIndex, *, can_answer: bool) -> Object:
    known = names.get(own.key) or own
    following = _following(known, own, can_answer=can_answer)
    holder = names.holder(following, kinds=(own.kind,))
    is_taken = holder.key != own.key
    claim = known if is_taken else following
    short = names.short_name_holder(claim)
    names.settle(claim, yields=is_taken)
    entry = {
        "name": own.model_name,
        "answers": "False" if _answered_name(claim) is None else "True",
    }
    if is_taken:
        entry["holder"] = holder.name
    if short.namespace != own.namespace:
        entry["shortNameHolder"] = f"{short.kind} {short.namespace}/{short.name}"
    return entry


def _alias_conflict(aliases: list[Object]) -> tuple[Condition, ...]:
    """The condition, if there is a conflict. aliases: as the status of a ModelRoute has them."""
    in_use = [
        f"{each['name']} is that of the ModelRoute {each['holder']} of this namespace"
        for each in aliases
        if "holder" in each
    ]
    elsewhere = [
        f"{each['name']} without a namespace is that of the {each['shortNameHolder']}"
        for each in aliases
        if "shortNameHolder" in each and "holder" not in each
    ]
    if not in_use and not elsewhere:
        return ()
    reason = "AliasInUse" if in_use else "HeldByOtherNamespace"
    message = "; ".join((*in_use, *elsewhere)) + ": use other names in spec.aliases"
    return (Condition("AliasConflict", "True", reason, message),)


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
    """Whether a service has an engine that answers, or an adapter is ready; Unknown if it does not exist.

    Nobody knows of an external model whether it would answer.
    """
    if kind == EXTERNAL:
        return "Unknown" if backend is None else "True"
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
