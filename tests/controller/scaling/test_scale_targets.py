"""Scale targets: which engines are scraped for scaling, and which only for a rollout's faults."""

import pytest

from penstock.api.inferenceservice.kind import KIND
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.scaling.gateway_pods import gateway_pods
from penstock.controller.scaling.scale_targets import scale_targets
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.scaling.shortage import UnscheduledPods
from penstock.core.spec.service import (
    API_VERSION,
    COHORT_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVICE_LABEL,
    VARIANT_LABEL,
)

KEY = ("default", "chat")
FAILURES = Failures(OperatorMetrics())
OLD, NEW = "a" * 8, "b" * 8


def body(mode, candidate=None):
    spec = {"model": {"uri": "pvc://models"}, "scaling": {"mode": mode}}
    if mode == "External":
        spec["replicas"] = 1
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": "chat", "namespace": "default", "uid": "u1", "generation": 1,
            "creationTimestamp": "2025-12-31T00:00:00Z",
        },
        "spec": spec,
        "status": {
            "traffic": [{"revision": OLD, "cohort": "Primary", "percent": 100}], "stableRevision": OLD,
            "candidateRevision": candidate,
        },
    }  # fmt: skip


def child(name, revision, cohort=""):
    labels = {
        SERVICE_LABEL: "chat", REVISION_LABEL: revision, ROLE_LABEL: "serve", COHORT_LABEL: cohort,
    }  # fmt: skip
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": "u1", "controller": True}],
        },
        "spec": {"replicas": 1, "containers": []},
        "status": {"podIP": "127.0.0.9"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "candidate", "pods", "fault_pods"),
    [
        ("Active", None, ["old"], []),
        ("Active", NEW, ["old"], ["new", "control"]),  # mirroring: gets only copies of requests
        ("DryRun", NEW, ["old"], ["new", "control"]),
        ("External", NEW, [], ["old", "new", "control"]),
    ],
)
def test_pods_without_traffic_are_scraped_for_faults_only(mode, candidate, pods, fault_pods):
    engines = [child("old", OLD), child("new", NEW), child("control", OLD, "control")]
    deployments = [child("chat-a", OLD), child("chat-b", NEW)]
    (target,) = scale_targets({KEY: body(mode, candidate)}, deployments, engines, FAILURES)
    assert [view.name for view, _ in target.pods] == pods
    assert [view.name for view, _ in target.fault_pods] == fault_pods
    assert target.is_scaled == (mode != "External")


def test_an_externally_scaled_service_is_no_target_without_a_rollout():
    engines, deployments = [child("old", OLD)], [child("chat-a", OLD)]
    assert scale_targets({KEY: body("External")}, deployments, engines, FAILURES) == []


def test_replicas_and_unschedulable_pods_are_counted_by_variant():
    service = body("Active")
    service["spec"] |= {
        "objectives": {"ttft": "1s", "tpot": "50ms"},
        "variants": [{"name": "a", "pricePerHour": "1"}, {"name": "b", "pricePerHour": "2"}],
    }

    def child_of(variant, name, **status):
        made = child(name, OLD)
        made["metadata"]["labels"][VARIANT_LABEL] = variant
        return made | {"status": {"podIP": "127.0.0.9", **status}}

    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no",
    }
    deployments = [child_of("a", "chat-a"), child_of("b", "chat-b"), child_of("gone", "chat-gone")]
    pods = [
        child_of("a", "a1"),
        child_of("b", "b1"),
        child_of("b", "b2", conditions=[unschedulable]),
    ]
    (target,) = scale_targets({KEY: service}, deployments, pods, FAILURES)
    assert (target.provisioned, target.by_variant) == (2, {"a": 1, "b": 1})
    assert [(view.name, view.variant) for view, _ in target.pods] == [
        ("a1", "a"), ("b1", "b"), ("b2", "b"),
    ]  # fmt: skip
    assert target.unschedulable == {
        "b": UnscheduledPods(parse_timestamp("2026-01-01T00:00:00Z"), 1)
    }


def test_an_evicted_pod_is_no_engine():
    evicted = child("evicted", OLD) | {"status": {"phase": "Failed", "reason": "Evicted"}}
    (target,) = scale_targets(
        {KEY: body("Active")}, [child("chat-a", OLD)], [child("a", OLD), evicted], FAILURES
    )
    assert [view.name for view, _ in target.pods] == ["a"]


def test_children_of_a_deleted_service_of_the_same_name_do_not_count():
    deployments = [child("chat-a", OLD)]
    deployments[0]["metadata"]["creationTimestamp"] = "2026-01-01T00:05:00Z"
    before, after = child("before", OLD), child("after", OLD)
    after["metadata"]["creationTimestamp"] = "2026-01-01T00:05:01Z"
    before["metadata"]["creationTimestamp"] = "2025-12-30T00:00:00Z"  # older than the service
    foreign = child("chat-b", OLD)
    foreign["metadata"]["ownerReferences"][0]["uid"] = "u0"
    (target,) = scale_targets(
        {KEY: body("Active")}, [*deployments, foreign], [before, after], FAILURES
    )
    assert (target.provisioned, [view.name for view, _ in target.pods]) == (1, ["after"])


def test_ipv6_addresses_are_bracketed():
    pod = child("old", OLD)
    pod["status"] = {"podIP": "fd00::1", "phase": "Running"}
    (target,) = scale_targets({KEY: body("Active")}, [child("d", OLD)], [pod], FAILURES)
    assert [address for _, address in target.pods] == ["[fd00::1]:8000"]
    pod["spec"]["containers"] = [{"ports": [{"name": "management", "containerPort": 8082}]}]
    assert [each.address for each in gateway_pods([pod])] == ["[fd00::1]:8082"]


def test_report_is_read_at_the_management_port():
    pod = child("old", OLD)
    pod["status"] = {"podIP": "10.0.0.1", "phase": "Running"}
    http = {"name": "http", "containerPort": 8080}
    pod["spec"]["containers"] = [{"ports": [http]}]
    assert gateway_pods([pod]) == []
    management = {"name": "management", "containerPort": 8082}
    pod["spec"]["containers"] = [{"ports": [http, management]}]
    assert [each.address for each in gateway_pods([pod])] == ["10.0.0.1:8082"]


@pytest.mark.parametrize(
    ("least", "traffic", "expected"),
    [(0, True, True), (1, True, False), (0, False, False)],
)
def test_a_service_at_zero_is_a_target_once_it_has_served(least, traffic, expected):
    service, made = body("Active"), child("chat-a", OLD)
    service["spec"]["scaling"]["minReplicas"] = least
    made["spec"]["replicas"] = 0
    if not traffic:
        service["status"]["traffic"] = []
    found = scale_targets({KEY: service}, [made], [], FAILURES)
    assert [(each.is_scaled, each.provisioned) for each in found] == [(True, 0)] * expected
