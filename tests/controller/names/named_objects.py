"""Objects that claim model names, and the operator's passes over them, without an API server.

A pass decides about names with the operator's own functions. Whether engines answer is given.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tests.support.specs.service_spec import service_spec

from penstock.clients.kubernetes.client import Kube, Object
from penstock.controller.names.model_names import ModelNames
from penstock.controller.services.reader import Budgets, ServiceReader
from penstock.core.adapters.resource import adapter_resource
from penstock.core.observed.accepted_spec import ACCEPTED_SPEC, encoded_spec, with_accepted_spec
from penstock.core.observed.children import ObservedState
from penstock.core.observed.name_claims import (
    CLAIM_KINDS,
    MODEL_NAME_CONFLICT,
    ClaimKind,
    ObjectKey,
    Standing,
)
from penstock.core.reconcile.adapter_acceptance import refusal, settle_name
from penstock.core.reconcile.adapter_conditions import has_been_read
from penstock.core.reconcile.adapter_state import AdapterState, Instance
from penstock.core.reconcile.adapter_status import adapter_status, is_resolved
from penstock.core.reconcile.route_status import RouteInputs, route_status

NOW = "2026-01-01T01:00:00Z"
ANSWERS = {"status": {"conditions": [{"type": "TrafficAvailable", "status": "True"}]}}
TAKES_ADAPTERS: Object = {"metadata": {}, "spec": {"engine": {"lora": {"maxAdapters": 4}}}}


def new_object(key: ObjectKey, uid: str, model_name: str, created_s: int) -> Object:
    """An object as the API server creates it."""
    kind, namespace, name = key
    metadata = {
        "namespace": namespace, "name": name, "uid": uid, "generation": 1,
        "creationTimestamp": f"2026-01-01T00:00:{created_s:02d}Z",
    }  # fmt: skip
    return {"kind": kind, "metadata": metadata, "spec": spec_of(kind, model_name)}


def spec_of(kind: ClaimKind, model_name: str) -> Object:
    model = {"uri": "pvc://models", "name": model_name}
    match kind:
        case "InferenceService":
            return {"model": model}
        case "LoraAdapter":
            return {"model": model, "serviceRef": {"name": "base"}}
        case "ModelRoute":
            rule = {"name": "all", "backendRefs": [{"name": "base"}]}
            return {"modelName": model_name, "rules": [rule]}


@dataclass
class NamedObject:
    """An object with what the operator finds out about it.

    answers: whether engines are ready: of the service, the route's backend, or one that reads the adapter.
    is_refused: whether the operator refuses the spec, or the adapter has no service. stable, recorded_name:
    of a service, the stable revision and the model name that its record has.
    """

    body: Object
    answers: bool = True
    is_refused: bool = False
    stable: str | None = None
    recorded_name: str | None = None

    @property
    def key(self) -> ObjectKey:
        metadata = self.body["metadata"]
        return self.body["kind"], metadata["namespace"], metadata["name"]

    @property
    def model_name(self) -> str:
        """The name that the spec asks for."""
        spec = self.body["spec"]
        return str(spec["modelName"] if "modelName" in spec else spec["model"]["name"])

    @property
    def is_terminating(self) -> bool:
        return "deletionTimestamp" in self.body["metadata"]

    @property
    def status(self) -> Object:
        return cast(Object, self.body.get("status") or {})


@dataclass
class Operator:
    """A leading operator. listed: the kinds that its watches have listed."""

    listed: set[ClaimKind] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names = ModelNames(is_listed=lambda kind: kind in self.listed)
        self._reader = ServiceReader(cast(Kube, None), self.names, cast(Budgets, None))

    @property
    def is_complete(self) -> bool:
        return self.listed == set(CLAIM_KINDS)

    def watch(self, key: ObjectKey, body: Object | None) -> None:
        """Report a change, as the watch of a kind that has been listed does."""
        kind, *rest = key
        if kind in self.listed:
            self.names.update(kind, (rest[0], rest[1]), body)

    def next_status(self, each: NamedObject) -> Object | None:
        """The status that a pass over an object writes; None if the pass has to be repeated later."""
        passes: dict[ClaimKind, Callable[[NamedObject], Object | None]] = {
            "InferenceService": self._service,
            "ModelRoute": self._route,
            "LoraAdapter": self._adapter,
        }
        if each.key[0] != "InferenceService" and not self.is_complete:
            return None
        return passes[each.key[0]](each)

    def _service(self, each: NamedObject) -> Object | None:
        if each.is_terminating:
            return each.status
        body = self._spec_in_use(each)
        observed = ObservedState()
        if body is None:
            standing = Standing.PENDING if ACCEPTED_SPEC in each.status else Standing.REFUSED
            observed = self._reader.with_name_conflict(observed, each.body, standing, None)
            return each.status | conditions("SpecValid", "InvalidSpec", observed.name_conflict)
        _, namespace, name = each.key
        spec = service_spec(
            namespace=namespace, name=name, model_name=body["spec"]["model"]["name"]
        )
        if not self._reader.record_namespace_holder(each.body, spec.model_name):
            return None
        observed = self._reader.with_spec(observed, body, spec)
        is_ready = each.answers and observed.name_taken_by is None
        stable = "r1" if is_ready else each.stable
        standing = Standing.ESTABLISHED if stable else Standing.PENDING
        if not self._reader.record_short_name_holder(each.body, standing, spec.model_name):
            return None
        each.stable, each.recorded_name = stable, spec.model_name if stable else None
        observed = self._reader.with_name_conflict(observed, each.body, standing, spec.model_name)
        reason = "InvalidSpec" if each.is_refused else ""
        reason = "ModelNameInUse" if observed.name_taken_by is not None else reason
        stored = {
            "modelName": spec.model_name,
            "stableRevision": each.stable,
            ACCEPTED_SPEC: encoded_spec(body),
        }
        return stored | conditions("SpecValid", reason, observed.name_conflict)

    def _spec_in_use(self, each: NamedObject) -> Object | None:
        """The service with the spec that it runs by: if its own is refused, an earlier one."""
        if not each.is_refused:
            return each.body
        accepted = with_accepted_spec(each.body)
        if accepted is None and each.recorded_name is not None:
            return each.body | {"spec": spec_of("InferenceService", each.recorded_name)}
        return accepted

    def _route(self, each: NamedObject) -> Object | None:
        names = self.names.index
        claim = names.get(each.key)
        if claim is None or not names.record_holder(claim):
            return None
        services = {"base": {"metadata": {}, **ANSWERS}} if each.answers else {}
        status = route_status(each.body, RouteInputs(names, services, {}, {"gateway": 1}), NOW)
        self.watch(each.key, each.body | {"status": status})
        return status

    def _adapter(self, each: NamedObject) -> Object | None:
        resource, names = adapter_resource(each.body), self.names.index
        cause = refusal(resource, None if each.is_refused else TAKES_ADAPTERS, None, names)
        state = AdapterState(refusal=cause)
        if cause is None and each.answers:
            state = replace(state, instances=(Instance("pod", "Loaded"),))
        was_resolved = is_resolved(each.status, resource.version.revision)
        can_answer = cause is None and has_been_read(state, was_resolved=was_resolved)
        conflict = settle_name(resource.key, cause, names, can_answer=can_answer)
        if conflict is None:
            return None
        stable = "r1" if cause is None else each.status.get("stableRevision")
        state = replace(state, name_conflict=conflict, can_answer=can_answer)
        status = adapter_status(resource, state, None, each.status, NOW)
        return status | {"stableRevision": stable}


def conditions(kind: str, refusal: str, conflict: str) -> Object:
    """The conditions that claims are read from. refusal: its reason; empty: none."""
    found: list[dict[str, Any]] = [
        {"type": kind, "status": "False" if refusal else "True", "reason": refusal or "Valid"}
    ]
    if conflict:
        found.append({"type": MODEL_NAME_CONFLICT, "status": "True", "message": conflict})
    return {"conditions": found}


def renamed(each: NamedObject, model_name: str) -> NamedObject:
    """The object after a change of its spec."""
    metadata = each.body["metadata"]
    body = each.body | {
        "metadata": metadata | {"generation": metadata["generation"] + 1},
        "spec": spec_of(each.key[0], model_name),
    }
    return replace(each, body=body)
