"""Claims of routes, services and adapters on model names, and which of them gets a name.

Clients address an object by NAMESPACE/NAME, or by the model name alone, its short name. Operator and gateway
ask the same functions who has a name. What has answered under a name keeps it: an object that is refused, has
never answered, or came later takes nothing from it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from penstock.core.adapters.dedicated import adapter_of
from penstock.core.adapters.resource import adapter_resource
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
    PENDING = 1  # it has not answered yet
    REFUSED = 2  # it cannot answer before a user changes something


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
    """The claim of an object on a model name. created_s: since the epoch."""

    kind: ClaimKind
    namespace: str
    name: str
    model_name: str
    created_s: int
    precedence: Precedence = ESTABLISHED

    @property
    def key(self) -> ObjectKey:
        return self.kind, self.namespace, self.name


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
    """The claim of a ModelRoute. A new one is established: it needs no engines of its own."""
    status, model_name = body.get("status") or {}, body["spec"]["modelName"]
    is_renamed = status.get("modelName", model_name) != model_name
    standing = Standing.PENDING if is_renamed else Standing.ESTABLISHED
    yields = _reason(status, "Accepted", "False") == MODEL_NAME_IN_USE
    return _claim("ModelRoute", body, model_name, standing, yields)


def adapter_claim(body: Object) -> NameClaim:
    """The claim of a LoraAdapter."""
    status, model_name = body.get("status") or {}, adapter_resource(body).model_name
    refusal = _reason(status, "Accepted", "False")
    if status.get("stableRevision") and status.get("modelName") == model_name:
        standing = Standing.ESTABLISHED
    elif refusal not in ("", MODEL_NAME_IN_USE):
        standing = Standing.REFUSED
    else:
        standing = Standing.PENDING
    return _claim("LoraAdapter", body, model_name, standing, refusal == MODEL_NAME_IN_USE)


def with_model_name(claim: NameClaim, model_name: str) -> NameClaim:
    """The claim under a name that its object is to have. It has not answered under another one yet."""
    if claim.model_name == model_name:
        return claim
    standing = max(claim.precedence.standing, Standing.PENDING)
    return replace(claim, model_name=model_name, precedence=Precedence(standing))


def holders(claims: Iterable[NameClaim]) -> dict[str, NameClaim]:
    """The claim that gets NAMESPACE/NAME in each namespace. claims: all on one model name."""
    found: dict[str, NameClaim] = {}
    for claim in sorted(claims, key=_order_in_namespace):
        found.setdefault(claim.namespace, claim)
    return found


def short_name_holder(claims: Collection[NameClaim]) -> NameClaim:
    """The claim that gets the short name. claims: all on one model name; at least one.

    The name belongs to the namespace of the first claim, and leads to what has the name there.
    """
    namespace = min(claims, key=_order_of_namespaces).namespace
    return holders(claim for claim in claims if claim.namespace == namespace)[namespace]


def describe_conflict(claims: Collection[NameClaim], own: NameClaim) -> str:
    """Why the short name does not lead to the namespace of a claim; empty if it does.

    claims: all on its model name, with `own`.
    """
    holder = short_name_holder(claims)
    if holder.namespace == own.namespace:
        return ""
    return (
        f"clients reach {own.model_name!r} of this namespace as {own.namespace}/{own.model_name} only: the "
        f"name alone is that of the {holder.kind} {holder.namespace}/{holder.name}, which had it first"
    )


class NameIndex:
    """The claims of all objects, by model name."""

    def __init__(self, claims: Iterable[NameClaim] = ()) -> None:
        self._by_name: dict[str, dict[ObjectKey, NameClaim]] = {}
        self._by_object: dict[ObjectKey, NameClaim] = {}
        for claim in claims:
            self.put(claim)

    def get(self, key: ObjectKey) -> NameClaim | None:
        """Return the claim of an object; None if it has none."""
        return self._by_object.get(key)

    def put(self, claim: NameClaim) -> None:
        """Add a claim, in place of an earlier one of the same object."""
        self.remove(claim.key)
        self._by_object[claim.key] = claim
        self._by_name.setdefault(claim.model_name, {})[claim.key] = claim

    def remove(self, key: ObjectKey) -> None:
        """Remove the claim of an object, if it has one."""
        claim = self._by_object.pop(key, None)
        if claim is not None:
            claims = self._by_name[claim.model_name]
            del claims[key]
            if not claims:
                del self._by_name[claim.model_name]

    def rivals(self, own: NameClaim) -> tuple[NameClaim, ...]:
        """Return all claims on the model name of a claim: that one, and those of other objects."""
        claims = self._by_name.get(own.model_name, {}).values()
        return own, *(each for each in claims if each.key != own.key)


def stored_conflict(body: Object) -> str:
    """Why the short name leads to another namespace, as an object's status says; empty if not."""
    return _condition(body.get("status") or {}, MODEL_NAME_CONFLICT, "True").get("message", "")


def _claim(
    kind: ClaimKind, body: Object, model_name: str, standing: Standing, yields: bool
) -> NameClaim:
    metadata = body["metadata"]
    yields_short = bool(_condition(body.get("status") or {}, MODEL_NAME_CONFLICT, "True"))
    return NameClaim(
        kind,
        metadata["namespace"],
        metadata["name"],
        model_name,
        int(parse_timestamp(metadata["creationTimestamp"])),
        Precedence(standing, yields, yields_short),
    )


def _condition(status: Object, kind: str, truth: str) -> dict[str, str]:
    """The condition of a type; empty if it is missing or has another status."""
    found = (each for each in status.get("conditions", []) if each.get("type") == kind)
    return next((each for each in found if each.get("status") == truth), {})


def _reason(status: Object, kind: str, truth: str) -> str:
    """The reason of a condition with this status; empty if it has another one."""
    return _condition(status, kind, truth).get("reason", "")


def _order_in_namespace(claim: NameClaim) -> tuple[Standing, int, bool, int, str]:
    by, kind = claim.precedence, CLAIM_KINDS.index(claim.kind)
    return by.standing, kind, by.yields, claim.created_s, claim.name


def _order_of_namespaces(claim: NameClaim) -> tuple[Standing, bool, int, str, str]:
    by = claim.precedence
    return by.standing, by.yields_short, claim.created_s, claim.namespace, claim.name
