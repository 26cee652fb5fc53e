"""Random objects of another namespace change nothing for the clients and conditions of the first."""

from random import Random

import pytest
from tests.support.cluster.foreign_objects import ADAPTER, NAMES, ROUTE, SERVICE, draw_object

from penstock.controller.adapters.lora_pods import lora_pods
from penstock.controller.adapters.refusals import AdapterRefusals
from penstock.controller.adapters.store import AdapterStore
from penstock.controller.names.model_names import ModelNames
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.services.reader import name_taken_by
from penstock.core.observed.name_claims import service_claim
from penstock.core.reconcile.route_status import RouteInputs, route_status
from penstock.gateway.snapshots.builder import SnapshotBuilder

FIRST, SECOND = "first", "second"
NOW = "2026-01-01T00:00:00Z"
# Statuses that an object of the second namespace may have. The operator says of one that it lets in later
# than the first namespace that another namespace has its name.
CONFLICT = {"type": "ModelNameConflict", "status": "True", "reason": "HeldByOtherNamespace"}
REFUSED = {"status": "False", "reason": "ServiceNotFound", "message": "no"}


def placed(body, namespace, number, status=None):
    """An object as the API server returns it. Those of the second namespace may be older."""
    own = {
        "namespace": namespace, "uid": f"{namespace}-{number}", "generation": 1,
        "creationTimestamp": f"2026-01-01T00:{number % 60:02d}:00Z", "resourceVersion": str(number),
    }  # fmt: skip
    return body | {"metadata": body["metadata"] | own} | ({"status": status} if status else {})


def first_namespace():
    """A service, an adapter and a route that answer."""
    lora = {"lora": {"maxAdapters": 4, "sources": ["pvc://adapters"]}}
    metadata = {name: {"name": name} for name in NAMES}
    traffic = [{"revision": "r1", "cohort": "Primary", "percent": 100}]
    service = {"metadata": metadata[SERVICE], "spec": {"model": {"uri": "pvc://m"}, "engine": lora}}
    served = {"modelName": SERVICE, "stableRevision": "r1", "traffic": traffic}
    spec = {"serviceRef": {"name": SERVICE}, "model": {"uri": "pvc://adapters/sql"}}
    accepted = {"modelName": ADAPTER, "stableRevision": "r1"}
    rules = [{"name": "all", "backendRefs": [{"name": SERVICE}]}]
    route = {"metadata": metadata[ROUTE], "spec": {"modelName": ROUTE, "rules": rules}}
    return {
        "InferenceService": placed(service, FIRST, 30, served),
        "LoraAdapter": placed({"metadata": metadata[ADAPTER], "spec": spec}, FIRST, 30, accepted),
        "ModelRoute": placed(route, FIRST, 30, {"modelName": ROUTE}),
    }


def drawn_status(random, body):
    """A status that the operator may have written."""
    kind = {"InferenceService": "SpecValid"}.get(body["kind"], "Accepted")
    name = body["spec"].get("modelName") or body["spec"].get("model", {}).get("name")
    established = {"stableRevision": "r1", "modelName": name or body["metadata"]["name"]}
    return random.choice(
        (
            {},
            {"conditions": [{"type": kind} | REFUSED]},
            established | {"conditions": [CONFLICT]},
            established | {"conditions": [{"type": kind} | REFUSED, CONFLICT]},
        )
    )


def outcomes(mine, others):
    """Routes and conditions of the objects of the first namespace."""
    bodies = {"InferenceService": [], "LoraAdapter": [], "ModelRoute": [], "Pod": []}
    for kind, body in [*mine.items(), *((each["kind"], each) for each in others)]:
        bodies[kind].append(body)
    services, adapters, routes = (
        bodies["InferenceService"],
        bodies["LoraAdapter"],
        bodies["ModelRoute"],
    )
    snapshot = SnapshotBuilder().build(services, bodies["Pod"], routes, adapters)
    models = {claim.key: name for name, claim in snapshot.models() if claim.namespace == FIRST}
    names, failures = ModelNames(), Failures(OperatorMetrics())
    for kind in ("InferenceService", "LoraAdapter", "ModelRoute"):
        for body in bodies[kind]:
            names.update(kind, (body["metadata"]["namespace"], body["metadata"]["name"]), body)
    by_key = {(b["metadata"]["namespace"], b["metadata"]["name"]): b for b in services}
    pods = lora_pods(by_key, [], bodies["Pod"], failures)
    refusals = AdapterRefusals().find(
        AdapterStore(failures).update(adapters), by_key, pods, routes, names.index
    )
    own = service_claim(mine["InferenceService"])
    inputs = RouteInputs(names.index, {SERVICE: mine["InferenceService"]}, {}, {"g": 1})
    return {
        "models": models,
        "resolved": [snapshot.resolve(name).key for name in (SERVICE, ADAPTER, ROUTE)],
        "taken": name_taken_by(names.index, own),
        "conflict": names.index.describe_conflict(own),
        "refusal": refusals.of_adapters[FIRST, ADAPTER],
        "route": route_status(mine["ModelRoute"], inputs, NOW),
    }


@pytest.mark.parametrize("seed", range(40))
def test_foreign_objects_change_nothing(seed):
    random, mine = Random(seed), first_namespace()
    alone = outcomes(mine, [])
    assert alone["resolved"] == [f"{FIRST}/{name}" for name in (SERVICE, ADAPTER, ROUTE)]
    assert (alone["taken"], alone["conflict"], alone["refusal"]) == (None, "", None)
    others = {}
    for number in range(40):
        body = draw_object(random, f"object-{number}")
        body = placed(body, SECOND, number)
        if body["kind"] != "Pod" and (status := drawn_status(random, body)):
            body |= {"status": status}
        others[body["kind"], body["metadata"]["name"]] = body
    assert outcomes(mine, others.values()) == alone
