"""Claims of routes, services and adapters on model names, and the order in which they get a name.

Clients address an object by NAMESPACE/NAME, or by the model name alone, its short name. Operator and gateway
ask a `NameIndex` who has a name. What has answered under a name keeps it: an object that is refused, has
never answered, or came later takes nothing from it.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from penstock.core.adapters.dedicated import adapter_of
from penstock.core.adapters.resource import adapter_resource
from penstock.core.formats.conditions import find_condition
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.accepted_spec import spec_in_use, with_accepted_spec
from penstock.core.observed.stored_status import stored_status
from penstock.core.spec.service import Object

ClaimKind = Literal["ModelRoute", "InferenceService", "LoraAdapter"]
# Kinds in the order in which they get a name within a namespace.
CLAIM_KINDS: tuple[ClaimKind, ...] = ("ModelRoute", "InferenceService", "LoraAdapter")
# Condition of an object whose short name leads to another namespace, and the reason of one that has no name.
MODEL_NAME_CONFLICT, MODEL_NAME_IN_USE = "ModelNameConflict", "ModelNameInUse"

ObjectKey = tuple[ClaimKind, str, str]


class Standing(IntEnum):
    """Standing of an object under its model name. It takes no name from one with a lower number."""

    ESTABLISHED = 0  # it answers, or has answered and may be down for a while
    READY = 1  # it can answer; only until its status is written
    PENDING = 2  # it has not answered yet
    REFUSED = 3  # it cannot answer before a user changes something
    TERMINATING = 4  # it is being deleted, which a finalizer may delay for any time


@dataclass(frozen=True, slots=True)
class Precedence:
    """Facts about an object's claim on a name, from its status.

    yields, yields_short: whether another object of the namespace has the name, or another namespace the short
    name. Such a claim waits until the name is free.
    """

    standing: Standing = Standing.ESTABLISHED
    yields: bool = False
    yields_short: bool = False


ESTABLISHED = Precedence()


@dataclass(frozen=True, slots=True)
class NameClaim:
    """The claim of an object on a model name."""

    kind: ClaimKind
    namespace: str
    name: str
    model_name: str
    created_s: int  # since the epoch
    precedence: Precedence = ESTABLISHED
    is_alias: bool = False  # whether the name is one of the further names of a route

    @property
    def key(self) -> ObjectKey:
        """Identifies the claim: its object, and an alias after a slash, which names of objects have not."""
        name = f"{self.name}/{self.model_name}" if self.is_alias else self.name
        return self.kind, self.namespace, name


def service_claim(body: Object) -> NameClaim | None:
    """The claim of an InferenceService; None for a dedicated pool, which has no name for clients."""
    if adapter_of(body):
        return None
    status, name = stored_status(body), body["metadata"]["name"]
    model_name = status.get("modelName") or spec_in_use(body)["model"].get("name") or name
    yields = _reason(status, "SpecValid", "False") == MODEL_NAME_IN_USE
    if status.get("stableRevision") or status.get("traffic"):
        standing = Standing.ESTABLISHED
    elif _reason(status, "SpecValid", "False") and not yields and not with_accepted_spec(body):
        standing = Standing.REFUSED
    else:
        standing = Standing.PENDING
    return _claim("InferenceService", body, model_name, standing, yields)


def route_claim(body: Object) -> NameClaim:
    """The claim of a ModelRoute. Its status has the model name under which its backends have answered."""
    status, model_name = body.get("status") or {}, body["spec"]["modelName"]
    refusal = _reason(status, "Accepted", "False")
    if status.get("modelName") == model_name:
        standing = Standing.ESTABLISHED
    else:
        standing = _standing_before_answer(refusal)
    return _claim("ModelRoute", body, model_name, standing, refusal == MODEL_NAME_IN_USE)


def alias_claims(body: Object) -> list[NameClaim]:
    """The claims of a ModelRoute on its aliases. Its status says under which of them it has answered."""
    spec, status = body["spec"], body.get("status") or {}
    stated = {each["name"]: each for each in status.get("aliases", [])}
    refusal = _reason(status, "Accepted", "False")
    claims = []
    for alias in dict.fromkeys(spec.get("aliases", [])):
        if alias == spec["modelName"]:
            continue
        last = stated.get(alias, {})
        has_answered = last.get("answers") == "True"
        standing = Standing.ESTABLISHED if has_answered else _standing_before_answer(refusal)
        claim = _claim("ModelRoute", body, alias, standing, "holder" in last)
        by = replace(claim.precedence, yields_short="shortNameHolder" in last)
        claims.append(replace(claim, precedence=by, is_alias=True))
    return claims


def adapter_claim(body: Object) -> NameClaim:
    """The claim of a LoraAdapter. Its status has the model name under which it could answer."""
    status, model_name = body.get("status") or {}, adapter_resource(body).model_name
    refusal = _reason(status, "Accepted", "False")
    if status.get("stableRevision") and status.get("modelName") == model_name:
        standing = Standing.ESTABLISHED
    else:
        standing = _standing_before_answer(refusal)
    return _claim("LoraAdapter", body, model_name, standing, refusal == MODEL_NAME_IN_USE)


def with_next_status(claim: NameClaim, model_name: str, standing: Standing) -> NameClaim:
    """The claim by which the next status of its object is decided. model_name, standing: by that status.

    What has not answered under this name before is only ready: it takes the name from what is pending, and
    from nothing that has answered.
    """
    by, is_renamed = claim.precedence, claim.model_name != model_name
    if by.standing is Standing.TERMINATING:
        return replace(claim, model_name=model_name)
    if by.standing is Standing.ESTABLISHED and not is_renamed:
        return claim
    if standing is Standing.ESTABLISHED:
        standing = Standing.READY
    marks = ESTABLISHED if is_renamed else by
    return replace(claim, model_name=model_name, precedence=replace(marks, standing=standing))


def restored_claim(body: Object, claim: NameClaim, last: NameClaim | None) -> NameClaim:
    """The claim of an object, or the last known one while the status of an established object is lost.

    A restore from a backup loses a status, and the operator writes it again. Until then the object keeps its
    name. The name of a service is in its status, that of other objects in their spec.
    """
    if last is None or last.precedence.standing is not Standing.ESTABLISHED:
        return claim
    if claim.precedence.standing is Standing.TERMINATING:
        return claim
    status, is_service = stored_status(body), claim.kind == "InferenceService"
    is_lost = not status.get("modelName" if is_service else "conditions")
    is_same = is_service or claim.model_name == last.model_name
    return last if is_lost and is_same and claim.created_s == last.created_s else claim


def order_of_objects(body: Object) -> tuple[str, str, str]:
    """Sort key of objects of one kind: oldest first. Kubernetes times (RFC 3339 in UTC) sort as text."""
    metadata = body["metadata"]
    return str(metadata["creationTimestamp"]), str(metadata["namespace"]), str(metadata["name"])


def order_in_namespace(claim: NameClaim) -> tuple[Standing, int, bool, int, str]:
    """Sort key: of the claims of a namespace on a model name, the first gets it. No two have the same."""
    by, kind = claim.precedence, CLAIM_KINDS.index(claim.kind)
    return by.standing, kind, by.yields, claim.created_s, claim.name


def order_of_namespaces(claim: NameClaim) -> tuple[Standing, bool, int, str, str, int]:
    """Sort key: of all claims on a model name, the first gives it to its namespace. No two have the same."""
    by, kind = claim.precedence, CLAIM_KINDS.index(claim.kind)
    return by.standing, by.yields_short, claim.created_s, claim.namespace, claim.name, kind


def stored_conflict(body: Object) -> str:
    """Why the short name leads to another namespace, as an object's status says; empty if not."""
    return str(find_condition(body.get("status"), MODEL_NAME_CONFLICT, "True").get("message", ""))


def _standing_before_answer(refusal: str) -> Standing:
    """Standing of what has not answered. refusal: reason why it is not accepted; empty if it is."""
    return Standing.PENDING if refusal in ("", MODEL_NAME_IN_USE) else Standing.REFUSED


def _claim(
    kind: ClaimKind, body: Object, model_name: str, standing: Standing, yields: bool
) -> NameClaim:
    metadata = body["metadata"]
    if "deletionTimestamp" in metadata:
        standing = Standing.TERMINATING
    yields_short = bool(find_condition(body.get("status"), MODEL_NAME_CONFLICT, "True"))
    return NameClaim(
        kind,
        metadata["namespace"],
        metadata["name"],
        model_name,
        int(parse_timestamp(metadata["creationTimestamp"])),
        Precedence(standing, yields, yields_short),
    )


def _reason(object_status: Object, type_: str, status: str) -> str:
    """The reason of a condition with this status; empty if it has another one."""
    return str(find_condition(object_status, type_, status).get("reason", ""))
