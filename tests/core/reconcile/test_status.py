"""The whole status of a service, and what is read back from it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedJob, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_phases import Phase
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.observed.stored_status import mirror_of, traffic_of
from penstock.core.reconcile.plan import Plan
from penstock.core.reconcile.status import as_traffic, render
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.service import CONTROL, Object, ServiceSpec, VariantSpec

GATEWAY_URL = "http://gateway.example/v1"
OLD, NEW, NOW = "a" * 8, "b" * 8, "2026-01-01T00:00:00Z"
SPEC = service_spec(generation=7, model_name="mine")
VARIANTS = tuple(
    VariantSpec(name, pod_resources("1", "1Gi"), 1.0, 0, 9) for name in ("spot", "plain")
)
SETTLED = RolloutState("Canary", "Stable", 1_800_000_000.0, "because", OLD, None, 2)
JUDGED = replace(SETTLED, phase="Judging", revision=NEW, weight_percent=5)
SHARES = (Share(Side(OLD), 90), Share(Side(OLD, CONTROL), 5), Share(Side(NEW), 5))
EMPTY = ObservedState()
MIRROR = RolloutMirror((Side(NEW), Side(OLD, CONTROL)), 50)
REPORT = ScalingReport(
    3, "load", "Active", True, NOW, (("want", 4, "n"), ("bound", 3, "m")), {"spot": 2, "plain": 1}
)


def pod(revision: str, variant: str = "", cohort: str = "", *, ready: bool = True) -> ObservedPod:
    made = ObservedPod("p", "p", revision, "serve", "", ready, False, "Running", None, "")
    return replace(made, variant=variant, cohort=cohort)


def status(
    observed: ObservedState = EMPTY,
    state: RolloutState = SETTLED,
    shares: tuple[Share, ...] = SHARES[:1],
    *,
    spec: ServiceSpec = SPEC,
    mirror: RolloutMirror | None = None,
    scaling: ScalingReport | None = None,
    previous: Object | None = None,
    **said: Any,
) -> Object:
    planned = Plan(OLD, state, shares, mirror, generation=4, total=3)
    return render(
        spec, observed, planned, scaling, previous or {}, NOW, **said, gateway_url=GATEWAY_URL
    )


def test_every_field_of_a_rollout_under_way() -> None:
    made = status(state=JUDGED, shares=SHARES, mirror=MIRROR)
    assert [each["type"] for each in made.pop("conditions")][-1] == "Ready"
    assert made == {
        "observedGeneration": 7,
        "url": GATEWAY_URL,
        "addresses": [{"url": GATEWAY_URL}],
        "modelName": "mine",
        "stableRevision": OLD,
        "candidateRevision": NEW,
        "traffic": [
            {"revision": OLD, "cohort": "Primary", "percent": 90},
            {"revision": OLD, "cohort": "Control", "percent": 5},
            {"revision": NEW, "cohort": "Primary", "percent": 5},
        ],
        "mirror": {
            "percent": 50,
            "targets": [
                {"revision": NEW, "cohort": "Primary"}, {"revision": OLD, "cohort": "Control"},
            ],
        },
        "trafficGeneration": 4,
        "rollout": {
            "strategy": "Canary", "phase": "Judging", "phaseTransitionTime": timestamp(SETTLED.since_s),
            "message": "because", "revision": NEW, "replicas": 2, "weightPercent": 5, "command": "",
            "rejected": None, "evidence": [], "gates": [],
        },
        "model": None,
        "engine": {
            "device": "cpu", "maxModelLen": None, "maxNumSeqs": 32, "maxNumBatchedTokens": None,
            "dtype": "auto", "memoryUtilizationPercent": 90, "quantization": None,
            "kvCache": {
                "memory": None, "dtype": "auto", "blockSize": 16, "prefixCaching": {"mode": "Enabled"},
                "offload": None,
            },
            "parallelism": {"tensor": 1, "pipeline": 1, "expert": {"mode": "Disabled"}},
            "speculative": None,
        },
        "desiredReplicas": 3,
        "replicas": 0,
        "readyReplicas": 0,
        "variants": [],
        "selector": "serving.penstock.dev/service=chat,serving.penstock.dev/role=serve",
    }  # fmt: skip


def test_a_service_that_never_served_has_nothing_to_select_and_copies_nothing() -> None:
    made = status(state=replace(JUDGED, stable=None), shares=())
    assert (made["stableRevision"], made["mirror"]) == (None, None)


def test_replicas_are_those_that_the_selector_of_the_scale_subresource_matches() -> None:
    going, check = replace(pod(OLD), is_ending=True), replace(pod(OLD), role="preflight")
    pods = (pod(OLD), pod(OLD, ready=False), pod(OLD, cohort=CONTROL), pod(NEW), going, check)
    counts = [
        (made["replicas"], made["readyReplicas"])
        for shares in (SHARES, SHARES[:1], SHARES[2:], ())
        for made in [status(ObservedState(pods=pods), JUDGED, shares)]
    ]
    assert counts == [(4, 3)] * 4


def test_replicas_are_told_for_each_variant_and_for_those_that_go() -> None:
    pods = (
        pod(OLD, "gone"), pod(OLD, "early", ready=False), pod(OLD, "spot"), pod(OLD, "spot"),
        pod(OLD, "spot", ready=False), pod(OLD),
    )  # fmt: skip
    made = status(ObservedState(pods=pods), spec=replace(SPEC, variants=VARIANTS))
    assert made["variants"] == [
        {"name": "spot", "replicas": 3, "readyReplicas": 2},
        {"name": "plain", "replicas": 0, "readyReplicas": 0},
        {"name": "early", "replicas": 1, "readyReplicas": 0},
        {"name": "gone", "replicas": 1, "readyReplicas": 1},
    ]


def test_a_decision_is_told_in_full_and_forgotten_where_it_does_not_count() -> None:
    assert "scaling" not in status()
    assert status(scaling=REPORT)["scaling"] == {
        "desiredReplicas": 3, "message": "load", "startupSeconds": None, "lastScaleTime": NOW,
        "trail": [
            {"step": "want", "replicas": 4, "note": "n"},
            {"step": "bound", "replicas": 3, "note": "m"},
        ],
        "variants": [{"name": "spot", "replicas": 2}, {"name": "plain", "replicas": 1}],
    }  # fmt: skip
    external = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"))
    made = status(spec=external, scaling=REPORT)
    assert ("scaling" in made, made["scaling"]) == (True, None)


def test_traffic_comes_back_from_a_status_without_those_that_have_none() -> None:
    assert traffic_of({"traffic": as_traffic(SHARES)}) == SHARES
    told = [
        {"revision": name, "cohort": "Primary", "percent": n} for name, n in ((OLD, 1), (NEW, 0))
    ]
    assert traffic_of({"traffic": told}) == (Share(Side(OLD), 1),)
    assert traffic_of({}) == ()


@pytest.mark.parametrize("mirror", [MIRROR, RolloutMirror((Side(NEW),), 100), None])
def test_mirroring_comes_back_from_a_status(mirror: RolloutMirror | None) -> None:
    assert mirror_of(status(state=JUDGED, mirror=mirror)) == mirror
    assert mirror_of({}) is None
    assert mirror_of({"mirror": {}}) is None


def gate(name: str, kind: str) -> Object:
    return {"name": name, "kind": kind, "state": "Passing", "message": "m"}


HELD: Object = {
    "rollout": {
        "evidence": [{"metric": "TTFT"}],
        "gates": [gate("e", "Evaluation"), gate("m", "Metric")],
    }
}
HELD_GATES = [gate("m", "Metric"), gate("e", "Evaluation")]


@pytest.mark.parametrize(
    ("phase", "is_kept"),
    [
        ("Stopping", False), ("Starting", False), ("Replacing", False), ("Mirroring", True),
        ("Judging", True), ("Draining", True), ("Stable", True), ("Rejected", True),
    ],
)  # fmt: skip
def test_evidence_and_gates_are_kept_until_another_rollout_begins(
    phase: Phase, is_kept: bool
) -> None:
    made = status(state=replace(JUDGED, phase=phase), previous=HELD)["rollout"]
    assert made["evidence"] == ([{"metric": "TTFT"}] if is_kept else [])
    assert made["gates"] == (HELD_GATES if is_kept else [])


@pytest.mark.parametrize("previous", [{}, {"rollout": None}, {"rollout": {}}])
def test_of_nothing_nothing_is_kept(previous: Object) -> None:
    made = status(state=JUDGED, previous=previous)["rollout"]
    assert (made["evidence"], made["gates"]) == ([], [])


def test_what_is_said_now_is_told_instead_of_what_was_kept() -> None:
    made = status(
        state=JUDGED, previous=HELD, evidence=[{"metric": "TPOT"}], metrics=[gate("n", "Metric")]
    )["rollout"]
    assert made["evidence"] == [{"metric": "TPOT"}]
    assert made["gates"] == [gate("n", "Metric"), gate("e", "Evaluation")]
    made = status(state=JUDGED, previous=HELD, evidence=[], metrics=[])["rollout"]
    assert (made["evidence"], made["gates"]) == ([], [gate("e", "Evaluation")])


@pytest.mark.parametrize(
    ("state", "gate_state", "message"),
    [
        ("Running", "Waiting", "it is running"),
        ("Passed", "Passing", "it has no termination message"),
        ("Failed", "Failed", "12 of 40"),
    ],
)
def test_an_evaluation_takes_the_place_of_the_one_before(
    state: Any, gate_state: str, message: str
) -> None:
    said = (
        (replace(pod(NEW), owner="ju", termination_message="12 of 40"),)
        if state == "Failed"
        else ()
    )
    observed = ObservedState(pods=said, jobs=(ObservedJob("j", "ju", NEW, state),))
    made = status(observed, JUDGED, previous=HELD)["rollout"]
    evaluation = {"name": "j", "kind": "Evaluation", "state": gate_state, "message": message}
    assert made["gates"] == [gate("m", "Metric"), evaluation]


@pytest.mark.parametrize(
    "state",
    [
        JUDGED,
        replace(SETTLED, command="abort@0 1"),
        replace(SETTLED, phase="Rejected", rejected=Rejection(NEW, "too slow", NOW)),
    ],
)
def test_where_a_rollout_stands_comes_back_from_a_status(state: RolloutState) -> None:
    assert RolloutState.of(status(state=state), 0.0) == state


def test_a_reason_is_told_up_to_a_thousand_characters() -> None:
    made = status(state=replace(JUDGED, reason="x" * 1001))
    assert made["rollout"]["message"] == "x" * 1000


def test_a_status_of_an_earlier_version_has_neither_weight_nor_command() -> None:
    said = {
        "strategy": "Canary",
        "phase": "Stable",
        "phaseTransitionTime": NOW,
        "message": "r",
        "replicas": 2,
    }
    read = RolloutState.of({"stableRevision": OLD, "rollout": said}, 0.0)
    assert read is not None
    assert (read.weight_percent, read.command, read.revision, read.rejected) == (0, "", None, None)


def test_an_evicted_engine_is_no_replica() -> None:
    evicted = replace(pod(OLD, ready=False), phase="Failed", lost="Evicted: m")
    shown = status(replace(EMPTY, pods=(pod(OLD), evicted)))
    assert (shown["replicas"], shown["readyReplicas"]) == (1, 1)
