"""The InferenceService of an adapter's dedicated pool."""

from typing import Any

import pytest

from penstock.api.conversion.convert import parse_service
from penstock.core.adapters.dedicated import adapter_of, is_pool_of
from penstock.core.adapters.resource import adapter_resource
from penstock.core.manifests.dedicated_service import dedicated_service, parent_not_ready
from penstock.core.observed.accepted_spec import ACCEPTED_SPEC, encoded_spec
from penstock.core.spec.service import Object


def adapter(**dedicated: int) -> Object:
    return {
        "metadata": {
            "name": "sql", "namespace": "team", "uid": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "serviceRef": {"name": "chat"}, "model": {"uri": "pvc://a/sql"}, "pool": "Dedicated",
            "dedicated": dedicated,
        },
    }  # fmt: skip


def parent(**spec: Any) -> Object:
    common: Object = {
        "model": {"uri": "pvc://models/llama"},
        "engine": {"lora": {"maxAdapters": 4}},
        "scaling": {"mode": "Active", "minReplicas": 2, "maxReplicas": 8, "scaleDownDelay": "5m"},
    }
    return {"metadata": {"name": "chat", "namespace": "team"}, "spec": common | spec}


def made(service: Object, **dedicated: int) -> Object:
    return dedicated_service(service, adapter_resource(adapter(**dedicated)))


def test_it_has_the_parents_spec_with_its_own_bounds() -> None:
    service = parent(objectives={"ttft": {"p99": "1s"}}, rollout={"strategy": "Canary"})
    pool = made(service, minReplicas=1, maxReplicas=3)
    assert pool["spec"] == service["spec"] | {
        "model": {"uri": "pvc://models/llama", "name": "chat"},
        "scaling": {"mode": "Active", "minReplicas": 1, "maxReplicas": 3, "scaleDownDelay": "5m"},
    }
    assert service == parent(objectives={"ttft": {"p99": "1s"}}, rollout={"strategy": "Canary"})


def test_its_name_labels_and_owner() -> None:
    pool = made(parent())
    assert (pool["metadata"]["namespace"], pool["metadata"]["name"]) == ("team", "chat-sql")
    assert pool["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "penstock",
        "serving.penstock.dev/service": "chat",
        "serving.penstock.dev/adapter": "sql",
    }
    assert (adapter_of(pool), is_pool_of(pool, "1")) == ("sql", True)


def test_engines_have_the_parents_model_name() -> None:
    assert (
        made(parent(model={"uri": "pvc://models", "name": "llama"}))["spec"]["model"]["name"]
        == "llama"
    )


def test_penstock_scales_it_whoever_scales_the_parent() -> None:
    external = {"mode": "External", "minReplicas": 1, "maxReplicas": 1}
    spec = made(parent(scaling=external, replicas=5))["spec"]
    assert spec["scaling"] == {"mode": "Active", "minReplicas": 1, "maxReplicas": 1}
    assert "replicas" not in spec
    assert made(parent(scaling={"mode": "DryRun"}))["spec"]["scaling"]["mode"] == "Active"
    assert made(parent(scaling={}))["spec"]["scaling"]["mode"] == "Active"


def test_nobody_has_to_promote_a_spec_that_the_parent_serves_with() -> None:
    blue_green = {"scaleDownDelay": "5m"}
    manual = {"strategy": "BlueGreen", "blueGreen": blue_green | {"promotion": "Manual"}}
    found = made(parent(rollout=manual))["spec"]["rollout"]
    assert found == {"strategy": "BlueGreen", "blueGreen": blue_green}


def test_minimums_of_variants_are_the_parents_own() -> None:
    variants = [
        {"name": "spot", "pricePerHour": "1", "minReplicas": 2, "maxReplicas": 4},
        {"name": "reserved", "pricePerHour": "2", "minReplicas": 0},
    ]
    found = made(parent(variants=variants, objectives={"ttft": {"p99": "1s"}}))["spec"]["variants"]
    assert [each["minReplicas"] for each in found] == [0, 0]
    assert found[0]["maxReplicas"] == 4


def test_while_the_parents_spec_is_refused_it_has_the_accepted_one() -> None:
    accepted, refused = parent(), parent(model={"uri": "pvc://models/other"})
    conditions = [{"type": "SpecValid", "status": "False"}]
    refused["status"] = {ACCEPTED_SPEC: encoded_spec(accepted), "conditions": conditions}
    assert made(refused)["spec"] == made(accepted)["spec"]


@pytest.mark.parametrize(
    ("phase", "observed", "why"),
    [
        ("Stable", 3, ""),
        ("Judging", 3, "the present spec of chat is being rolled out"),
        ("Rejected", 3, "the present spec of chat was rejected by its rollout; change or undo it"),
        ("Stable", 2, "the operator has not read the present spec of chat yet"),
    ],
)
def test_a_pool_keeps_its_spec_until_the_parents_is_rolled_out(
    phase: str, observed: int, why: str
) -> None:
    before, service = parent(), parent(model={"uri": "pvc://models/2"})
    service["metadata"]["generation"] = 3
    service["status"] = {
        "stableRevision": "a", "observedGeneration": observed, "rollout": {"phase": phase},
    }  # fmt: skip
    assert parent_not_ready(service) == why
    resource = adapter_resource(adapter(minReplicas=2))
    spec = dedicated_service(service, resource, made(before))["spec"]
    source = before if why else parent(model=service["spec"]["model"])
    assert spec == made(source, minReplicas=2)["spec"]
    service["status"]["conditions"] = [{"type": "RolledOut", "reason": "RevisionPending"}]
    assert parent_not_ready(service)
    del service["status"]["stableRevision"]
    assert parent_not_ready(service) == ""


@pytest.mark.parametrize("more", [{}, {"replicas": 3, "scaling": {"mode": "External"}}])
def test_the_operator_accepts_it(more: Object) -> None:
    pool = made(parent(**more), minReplicas=2, maxReplicas=2)
    pool["metadata"] |= {"uid": "2", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = parse_service(pool)
    assert (spec.scaling.min_replicas, spec.scaling.max_replicas) == (2, 2)
    assert spec.model_name == "chat"


def test_a_pool_is_never_at_zero_though_its_parent_may_be() -> None:
    wakes = {"minReplicas": 0, "maxReplicas": 2, "idleAfter": "10m"}
    pool = made(parent(scaling=wakes, rollout={"strategy": "Rolling", "atZero": "Accept"}))["spec"]
    assert pool["scaling"] == {"mode": "Active", "minReplicas": 1, "maxReplicas": 1}
    assert pool["rollout"] == {"strategy": "Rolling"}
