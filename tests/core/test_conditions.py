"""Each condition of a service: its status, its reason and its words."""

from dataclasses import replace
from typing import Any

import pytest
from core.observed_engines import OLD, deployment, observed_with, pod, preflight
from preflight_messages import REFUSED
from service_spec import SMALL, pod_resources, service_spec

from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.reconcile.conditions import conditions, explain_forbidden, explain_rejection
from penstock.core.reconcile.plan import Plan
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.metric_gate import MetricGate
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.service import CONTROL, Object, ServiceSpec, VariantSpec

NEW = "b" * 8
SPEC = service_spec(scaling=replace(SMALL.scaling, min_replicas=2))
EXTERNAL = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"))
NO_REPLICAS = replace(EXTERNAL, external_replicas=0)
SETTLED = RolloutState("Canary", "Stable", 0.0, "because", OLD, None, 1)
JUDGED = replace(SETTLED, phase="Judging", revision=NEW)
EMPTY = ObservedState()
STABLE_SHARE = Share(Side(OLD), 100)
PASSED = '{"ok": true, "architecture": "Q", "weights_bytes": 3145727, "kv_capacity_tokens": 9}'
REPORT = ScalingReport(2, "because", "Active", True, "2026-01-01T00:00:00Z", ())


def condition_of(
    kind: str,
    observed: ObservedState = EMPTY,
    *,
    spec: ServiceSpec = SPEC,
    rollout: RolloutState = SETTLED,
    shares: tuple[Share, ...] = (STABLE_SHARE,),
    wanted: str = OLD,
    waiting_for: str = "",
    scaling: ScalingReport | None = None,
    gates: tuple[Object, ...] = (),
) -> tuple[str, str, str]:
    planned = Plan(wanted, rollout, shares, waiting_for=waiting_for)
    [found] = [c for c in conditions(spec, observed, planned, scaling, gates) if c.type == kind]
    return found.status, found.reason, found.message


def test_every_condition_is_told_once_in_the_order_of_cause_and_effect() -> None:
    tree = conditions(SPEC, observed_with(), Plan(OLD, SETTLED, ()), None)
    assert [c.type for c in tree] == [
        "SpecValid", "ModelReady", "WorkloadReady", "TrafficAvailable", "RolledOut",
        "ScalingActive", "Reconciling", "Stalled", "Ready",
    ]  # fmt: skip


def test_a_served_name_that_another_service_has_is_named_with_its_holder() -> None:
    assert condition_of("SpecValid") == ("True", "Valid", "the spec can be served")
    assert condition_of("SpecValid", observed_with(name_taken_by="other")) == (
        "False",
        "ModelNameInUse",
        "'chat' is served by other in this namespace already; set spec.model.name to another name",
    )


def test_a_short_name_that_another_namespace_has_changes_no_other_condition() -> None:
    free, taken = (
        conditions(SPEC, observed_with(name_conflict=text), Plan(OLD, SETTLED, ()), None)
        for text in ("", "b/chat has it")
    )
    *others, conflict = taken
    assert tuple(others) == free
    assert (conflict.type, conflict.status, conflict.reason, conflict.message) == (
        "ModelNameConflict",
        "True",
        "HeldByOtherNamespace",
        "b/chat has it",
    )


def test_ranks_on_the_cpu_are_told_of() -> None:
    """Ranks on the CPU work, so the spec is valid, but the user may have forgotten the accelerators."""

    def message(settings: Object, **changes: Any) -> str:
        spec = replace(SPEC, settings=settings, **changes)
        status, reason, message = condition_of("SpecValid", spec=spec)
        assert (status, reason) == ("True", "Valid")
        return message

    plain = "the spec can be served"
    ranks = "ranks of spec.engine.parallelism are processes on the CPU, as"
    assert message({"engine.parallelism.tensor": 1}) == plain
    tensor = {"engine.parallelism.tensor": 2}
    assert message(tensor) == f"{plain}; the 2 {ranks} spec.resources.limits has no accelerators"
    assert f"the 6 {ranks}" in message(tensor | {"engine.parallelism.pipeline": 3})
    gpus = pod_resources(accelerator=("nvidia.com/gpu", 2))
    assert message(tensor, resources=gpus) == plain
    claimed = ResourceSpec(claims=("gpus",))
    assert message(tensor, resources=claimed) == plain
    variants = (
        VariantSpec("gpu", gpus, 1.0, 0, 9),
        VariantSpec("slow", pod_resources(), 1.0, 0, 9),
    )
    assert f"the 2 {ranks} spec.variants[slow].resources.limits" in message(
        tensor, variants=variants
    )


NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "nosuchclaim" not found. not found'
FITS = "Q, 2 MiB of weights, 9 tokens of KV cache"


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (observed_with(), ("Unknown", "PreflightPending", "the model has not been checked yet")),
        (observed_with(deployment()), ("True", "Serving", "the revision has engines")),
        (observed_with(refusals={OLD: ("PodForbidden", "no")}), ("False", "PodForbidden", "no")),
        (
            observed_with(deployment(), refusals={OLD: ("PodForbidden", "no")}),
            ("True", "Serving", "the revision has engines"),
        ),
        (
            observed_with(refusals={NEW: ("PodForbidden", "no")}),
            ("Unknown", "PreflightPending", "the model has not been checked yet"),
        ),
        (observed_with(preflight()), ("Unknown", "PreflightRunning", "the model is being checked")),
        (
            observed_with(preflight("Pending")),
            ("Unknown", "PreflightRunning", "the pod p that checks the model has not started yet"),
        ),
        (observed_with(preflight(trouble=("ErrImagePull", "why"))), ("False", "ErrImagePull", "why")),
        (
            observed_with(preflight(trouble=("Unschedulable", NO_CLAIM))),
            (
                "False",
                "Unschedulable",
                f"{NO_CLAIM}; create the claim, or name another one in spec.model.uri, "
                f"spec.engine.speculative.model.uri or spec.engine.lora.sources",
            ),
        ),
        (observed_with(preflight("Succeeded", PASSED)), ("True", "Fits", FITS)),
        (observed_with(preflight("Failed", REFUSED)), ("False", "ModelNotFound", "no model")),
        (
            observed_with(preflight("Failed", lost="Evicted: m")),
            ("Unknown", "PreflightLost",
             "the preflight was lost with its node and is replaced: Evicted: m"),
        ),
    ],
)  # fmt: skip
def test_model_ready(observed: ObservedState, expected: tuple[str, str, str]) -> None:
    assert condition_of("ModelReady", observed) == expected


READY = ("True", "EnginesReady", f"revision {OLD} has the engines it needs")
TROUBLED = {name: pod(name, ready=False, trouble=(name, f"of {name}")) for name in "abc"}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (observed_with(), ("False", "NoEngines", f"revision {OLD} has no engines yet")),
        (
            observed_with(deployment(), pod(), refusals={OLD: ("PodForbidden", "no")}),
            ("False", "PodForbidden", "no"),
        ),
        # Two of three engines are enough, or fewer if fewer are requested.
        (
            observed_with(deployment(3), pod("a")),
            ("False", "Progressing", "1 of 3 engines are ready"),
        ),
        (observed_with(deployment(3), pod("a"), pod("b")), READY),
        (observed_with(deployment(1), pod("a")), READY),
        (observed_with(deployment(0)), ("False", "Progressing", "0 of 0 engines are ready")),
        # The first by name of those that cannot go on, unless one is ready.
        (
            observed_with(deployment(3), TROUBLED["c"], pod("a", ready=False), TROUBLED["b"]),
            ("False", "b", "of b"),
        ),
        (
            observed_with(deployment(3), TROUBLED["a"], pod("b")),
            ("False", "Progressing", "1 of 3 engines are ready"),
        ),
        # A Deployment that cannot make pods, of whichever variant.
        (
            observed_with(
                deployment(3, variant="a"), deployment(3, ("FailedCreate", "a quota"), "b")
            ),
            ("False", "FailedCreate", "a quota"),
        ),
    ],
)
def test_workload_ready(observed: ObservedState, expected: tuple[str, str, str]) -> None:
    assert condition_of("WorkloadReady", observed) == expected


@pytest.mark.parametrize("spec", [replace(SPEC, external_replicas=0), EXTERNAL])
def test_only_an_external_scale_of_nothing_wants_no_engines(spec: ServiceSpec) -> None:
    assert (
        condition_of("WorkloadReady", observed_with(deployment(0)), spec=spec)[1] == "Progressing"
    )
    assert condition_of("TrafficAvailable", spec=spec)[1] == "NoEngineReady"
    assert condition_of("WorkloadReady", observed_with(deployment(0)), spec=NO_REPLICAS) == (
        "True",
        "ScaledToZero",
        "spec.replicas is 0: no engine is wanted",
    )


def test_conditions_are_of_the_revision_that_comes_or_serves_or_is_wanted() -> None:
    words = [
        condition_of("WorkloadReady", rollout=rollout, wanted="c" * 8)[2]
        for rollout in (JUDGED, SETTLED, replace(SETTLED, stable=None))
    ]
    assert words == [f"revision {name} has no engines yet" for name in (NEW, OLD, "c" * 8)]


BOTH = (Share(Side(NEW), 10), Share(Side(OLD), 90))


@pytest.mark.parametrize(
    ("shares", "observed", "expected"),
    [
        ((), observed_with(pod()), ("False", "NoRevision", "no revision can serve yet")),
        (
            (STABLE_SHARE,),
            observed_with(pod()),
            ("True", "Serving", f"revision {OLD} receives traffic"),
        ),
        (
            (Share(Side(OLD), 90), Share(Side(OLD, CONTROL), 10)),
            observed_with(pod()),
            ("True", "Serving", f"revision {OLD} receives traffic"),
        ),
        (
            BOTH,
            observed_with(pod()),
            ("True", "Serving", f"revision {OLD} and {NEW} receive traffic"),
        ),
        (
            BOTH,
            observed_with(pod(ready=False)),
            ("False", "NoEngineReady", f"no engine of revision {OLD} and {NEW} is ready"),
        ),
    ],
)
def test_traffic_available(
    shares: tuple[Share, ...], observed: ObservedState, expected: tuple[str, str, str]
) -> None:
    assert condition_of("TrafficAvailable", observed, shares=shares) == expected


def test_no_replicas_by_the_spec_answer_nobody() -> None:
    said = ("False", "ScaledToZero", "spec.replicas is 0: no engine answers requests")
    assert condition_of("TrafficAvailable", spec=NO_REPLICAS) == said


WRONG = replace(SETTLED, phase="Rejected", rejected=Rejection(NEW, "too slow", ""))
STABLE = ("True", "Stable", f"revision {OLD} receives all traffic")


@pytest.mark.parametrize(
    ("rollout", "wanted", "waiting_for", "expected"),
    [
        (SETTLED, OLD, "", STABLE),
        (WRONG, OLD, "", STABLE),
        (WRONG, NEW, "", ("False", "Rejected", f"revision {NEW} was rejected: too slow")),
        (
            SETTLED, NEW, "",
            ("False", "RevisionPending",
             f"the spec asks for revision {NEW}; revision {OLD} serves"),
        ),
        # Under way, and back to what is stable.
        (JUDGED, NEW, "", ("False", "Judging", "because")),
        (JUDGED, OLD, "", ("False", "Judging", "because")),
        (JUDGED, NEW, "gateway b is late", ("False", "Judging", "because; gateway b is late")),
        # A rejected revision whose pods still exist.
        (replace(WRONG, phase="Discarding"), NEW, "", ("False", "Discarding", "because")),
    ],
)  # fmt: skip
def test_rolled_out(
    rollout: RolloutState, wanted: str, waiting_for: str, expected: tuple[str, str, str]
) -> None:
    assert (
        condition_of("RolledOut", rollout=rollout, wanted=wanted, waiting_for=waiting_for)
        == expected
    )


@pytest.mark.parametrize(
    ("observed", "rollout", "wanted", "expected"),
    [
        (observed_with(), SETTLED, OLD, None),
        (observed_with(preflight("Succeeded", PASSED)), SETTLED, OLD, None),
        (observed_with(preflight()), SETTLED, OLD, None),
        (observed_with(preflight("Failed", REFUSED)), SETTLED, OLD, ("ModelNotFound", "no model")),
        (observed_with(preflight("Failed", REFUSED)), SETTLED, NEW, None),
        (observed_with(refusals={OLD: ("PodForbidden", "no")}), SETTLED, OLD, ("PodForbidden", "no")),
        (observed_with(refusals={OLD: ("PodForbidden", "no")}), SETTLED, NEW, None),
        (observed_with(refusals={OLD: ("QuotaExceeded", "full")}), SETTLED, OLD, None),
        (observed_with(refusals={NEW: ("PodForbidden", "no")}), SETTLED, OLD, None),
        (
            observed_with(deployment(1), pod()), WRONG, NEW,
            ("Rejected", f"revision {NEW} was rejected: too slow"),
        ),
        (observed_with(deployment(1), pod()), WRONG, OLD, None),
    ],
)  # fmt: skip
def test_stalled(
    observed: ObservedState, rollout: RolloutState, wanted: str, expected: tuple[str, str] | None
) -> None:
    said = condition_of("Stalled", observed, rollout=rollout, wanted=wanted)
    well = ("False", "NotStalled", "no change of the spec is required")
    assert said == (("True", *expected) if expected else well)


@pytest.mark.parametrize(
    ("mode", "report", "expected"),
    [
        ("Active", None, ("Unknown", "NoDecision", "no decision has been made yet")),
        ("DryRun", None, ("Unknown", "NoDecision", "no decision has been made yet")),
        ("Active", REPORT, ("True", "Active", "decisions are based on the engines' metrics")),
        ("DryRun", REPORT, ("True", "DryRun", "decisions are recorded, not applied")),
        (
            "DryRun", replace(REPORT, valid=False, reason_code="MetricsMissing", reason="none"),
            ("False", "MetricsMissing", "none"),
        ),
    ],
)  # fmt: skip
def test_scaling_active(
    mode: Any, report: ScalingReport | None, expected: tuple[str, str, str]
) -> None:
    spec = replace(SPEC, scaling=replace(SPEC.scaling, mode=mode))
    assert condition_of("ScalingActive", spec=spec, scaling=report) == expected


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (None, ("Unknown", "NoDecision", "no decision has been made yet")),
        (
            REPORT,
            ("True", "Attainable", "no engine is known to miss the objectives while it is idle"),
        ),
        (
            replace(REPORT, trail=(("unattainable", 1, "not attainable: a TTFT of 2 s"),)),
            ("False", "ObjectivesUnattainable", "not attainable: a TTFT of 2 s"),
        ),
    ],
)
def test_objectives_that_no_number_of_replicas_keeps(
    report: ScalingReport | None, expected: tuple[str, str, str]
) -> None:
    scaling = replace(SPEC.scaling, objectives=Objectives(0.5))
    spec = replace(SPEC, scaling=scaling)
    assert condition_of("ObjectivesAttainable", spec=spec, scaling=report) == expected


@pytest.mark.parametrize(("mode", "objectives"), [("Active", None), ("External", Objectives(0.5))])
def test_nothing_is_said_on_objectives_without_them_and_from_outside(
    mode: Any, objectives: Objectives | None
) -> None:
    spec = replace(SPEC, scaling=replace(SPEC.scaling, mode=mode, objectives=objectives))
    tree = conditions(spec, observed_with(), Plan(OLD, SETTLED, ()), REPORT)
    assert "ObjectivesAttainable" not in {c.type for c in tree}


def test_nothing_is_said_on_scaling_from_outside() -> None:
    tree = conditions(EXTERNAL, observed_with(), Plan(OLD, SETTLED, ()), REPORT)
    assert "ScalingActive" not in {c.type for c in tree}


METRIC = MetricGate(name="m", server="http://p", query="up")
WITH_METRICS = replace(
    SPEC, rollout=replace(SPEC.rollout, canary=replace(SPEC.rollout.canary, metrics=(METRIC,)))
)


def gate(name: str, state: str, kind: str = "Metric") -> Object:
    return {"name": name, "kind": kind, "state": state, "message": f"of {name}"}


def test_every_metric_that_cannot_be_read_is_named() -> None:
    gates = (gate("m", "Unreadable"), gate("n", "Passing"), gate("o", "Unreadable"))
    assert condition_of("MetricsReadable", spec=WITH_METRICS, gates=gates) == (
        "False",
        "MetricUnreadable",
        "m: of m; o: of o",
    )
    assert condition_of("MetricsReadable", spec=WITH_METRICS, gates=(gate("n", "Failed"),)) == (
        "True",
        "Readable",
        "the metrics of the canary can be read",
    )
    assert condition_of(
        "MetricsReadable", spec=WITH_METRICS, gates=(gate("e", "Failed", "Evaluation"),)
    ) == (
        "Unknown",
        "NoCanary",
        "metrics are read while a canary is judged",
    )
    tree = conditions(SPEC, observed_with(), Plan(OLD, SETTLED, ()), None, gates)
    assert "MetricsReadable" not in {c.type for c in tree}


@pytest.mark.parametrize(
    ("observed", "spec", "shares", "expected"),
    [
        (
            observed_with(deployment(1), pod()), SPEC, (STABLE_SHARE,),
            ("True", "Ready", "the service answers requests"),
        ),
        (
            observed_with(deployment(0)), NO_REPLICAS, (STABLE_SHARE,),
            ("True", "ScaledToZero", "spec.replicas is 0: no engine answers requests"),
        ),
        (observed_with(deployment(0)), NO_REPLICAS, (), ("False", "NoRevision", "no revision can serve yet")),
        (
            observed_with(deployment(1)), SPEC, (STABLE_SHARE,),
            ("False", "Progressing", "0 of 1 engines are ready"),
        ),
    ],
)  # fmt: skip
def test_ready(
    observed: ObservedState,
    spec: ServiceSpec,
    shares: tuple[Share, ...],
    expected: tuple[str, str, str],
) -> None:
    assert condition_of("Ready", observed, spec=spec, shares=shares) == expected


def test_a_refusal_names_the_field_to_change() -> None:
    text = "the API server refused the pod template: bad; see "
    assert explain_rejection("Job", "bad") == (
        "PodTemplateRejected",
        f"{text}spec.rollout.canary.evaluation",
    )
    assert explain_rejection("Deployment", "bad") == ("PodTemplateRejected", f"{text}spec.template")
    assert explain_forbidden(SPEC, "no") == (
        "PodForbidden",
        "the API server does not allow the pod: no",
    )
    full = 'pods "p" is forbidden: exceeded quota: q, requested: limits.cpu=1'
    assert explain_forbidden(SPEC, full) == (
        "QuotaExceeded",
        f"the API server does not allow the pod: {full}",
    )
    unlimited = 'pods "p" is forbidden: failed quota: q: must specify limits.cpu for: engine'
    assert explain_forbidden(SPEC, unlimited)[0] == "PodForbidden"
