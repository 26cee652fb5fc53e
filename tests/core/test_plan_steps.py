"""Each step of a plan by itself: what it writes, what it leaves alone, and what it says of it."""

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from preflight_messages import PASSED
from service_spec import service_spec

from penstock.core.formats.timestamps import timestamp
from penstock.core.manifests import engine as manifests
from penstock.core.manifests.disruption import engines_budget
from penstock.core.observed.children import (
    Observed,
    ObservedBudget,
    ObservedDeployment,
    ObservedJob,
    ObservedPod,
)
from penstock.core.observed.rollout_state import Phase, Rejection, RolloutState
from penstock.core.reconcile.plan import Deletion, Plan, PlanInputs, Scale, plan, replicas_for_all
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Copies, Share
from penstock.core.spec.history import PODS_ANNOTATION, STABLE_ANNOTATION, PinnedPods, Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import EvaluationSpec, RolloutSpec, Strategy
from penstock.core.spec.service import CONTROL, TEMPLATE_HASH, ServiceSpec, VariantSpec

STABLE_SPEC = service_spec(external_replicas=3, rollout=RolloutSpec(strategy="Canary"))
SPEC = replace(STABLE_SPEC, seed=1)
OLD, NEW, OTHER = revision_of(STABLE_SPEC), revision_of(SPEC), "c" * 8
VARIANTS = tuple(VariantSpec(name, "1", "1Gi", None, 1.0, 0, 9) for name in ("spot", "plain"))
NOW_S = 1_800_000_000.0
TO_OLD, TO_NEW = (Share(Side(OLD), 100),), (Share(Side(NEW), 100),)


def pod(revision: str = NEW, name: str = "p", *, ready: bool = True, **rest: Any) -> ObservedPod:
    made = ObservedPod(name, f"u-{name}", revision, "serve", "", ready, False, "Running", None, "")
    return replace(made, **rest)


def preflight(revision: str = NEW, **rest: Any) -> ObservedPod:
    made = pod(revision, f"f-{revision}", ready=False, role="preflight", phase="Succeeded")
    return replace(made, **{"said": PASSED, **rest})


def deployment(
    revision: str = NEW,
    replicas: int = 1,
    *,
    image: str = "image",
    cohort: str = "",
    variant: str = "",
    is_hashed: bool = True,
    is_ending: bool = False,
) -> ObservedDeployment:
    spec = STABLE_SPEC if revision == OLD else SPEC
    pods = manifests.own_pods(spec, revision, image)
    body = deepcopy(manifests.deployment(spec, revision, pods, cohort, variant))
    if not is_hashed:
        del body["metadata"]["annotations"][TEMPLATE_HASH]
    name = body["metadata"]["name"]
    return ObservedDeployment(
        name, f"u-{name}", revision, replicas, 0, is_ending, body, cohort=cohort, variant=variant
    )


def recorded(revision: str, number: int, image: str | None = "image") -> Revision:
    spec = STABLE_SPEC if revision == OLD else SPEC
    pods = image and manifests.own_pods(spec, revision, image)
    return Revision(
        f"chat-{revision}", f"u-{revision}", revision, number, spec.shape, pods or None, True
    )


KNOWN = (recorded(OLD, 1), recorded(NEW, 2))


def look(
    *children: Any,
    phase: Phase = "Judging",
    strategy: Strategy = "Canary",
    stable: str | None = OLD,
    revision: str | None = NEW,
    rejected: str = "",
    **rest: Any,
) -> Observed:
    why = Rejection(rejected, "too slow", "") if rejected else None
    state = RolloutState(strategy, phase, NOW_S, "because", stable, revision, 4, 5, rejected=why)
    return Observed(
        deployments=tuple(c for c in children if isinstance(c, ObservedDeployment)),
        pods=tuple(c for c in children if isinstance(c, ObservedPod)),
        jobs=tuple(c for c in children if isinstance(c, ObservedJob)),
        rollout=state,
        **{"stable_spec": STABLE_SPEC, "history": KNOWN, "traffic": TO_OLD, **rest},
    )


def planned(
    observed: Observed, spec: ServiceSpec = SPEC, after_s: float = 1.0, **said: Any
) -> Plan:
    return plan(spec, observed, "image", NOW_S + after_s, PlanInputs(**said))


def names(made: Plan) -> list[str]:
    return [body["metadata"]["name"] for body in made.apply]


SERVES: dict[str, Any] = {
    "phase": "Stable",
    "stable": NEW,
    "revision": None,
    "traffic": TO_NEW,
    "strategy": "Rolling",
}
STARTS: dict[str, Any] = {"phase": "Starting", "strategy": "BlueGreen"}


def test_a_plan_is_empty_when_it_writes_nothing_of_any_kind() -> None:
    base = Plan(NEW, RolloutState("Canary", "Stable", 0.0, "", NEW, None, 1), ())
    assert base.is_empty
    deletion, body = Deletion("Job", "j", "u"), {"kind": "Job"}
    for write in ({"apply": (body,)}, {"create": (body,)}, {"scale": (Scale("d", 1),)},
                  {"delete": (deletion,)}):  # fmt: skip
        assert not replace(base, **write).is_empty


@pytest.mark.parametrize(
    ("rest", "generation"),
    [
        ({}, 5),
        ({"traffic": TO_OLD}, 6),
        ({"traffic": ()}, 6),
        ({"copies": Copies((Side(NEW),), 0.5)}, 6),
    ],
)
def test_the_generation_counts_changes_of_the_traffic(rest: Any, generation: int) -> None:
    observed = look(deployment(), pod(), traffic_generation=5, **{**SERVES, **rest})
    assert planned(observed).generation == generation


def test_a_new_phase_is_looked_at_again_at_once_and_waits_for_nobody() -> None:
    behind: dict[str, Any] = {"applied_generations": {"g": 0}}
    promoted = look(
        deployment(), deployment(OLD), pod(), phase="Promoting", traffic=TO_NEW, traffic_generation=1
    )  # fmt: skip
    made = planned(promoted, **behind)
    assert made.wake_s == 1.0
    assert made.lagging_gateway == "gateway g applies traffic generation 0, not 1 yet"
    growing = look(
        deployment(), pod(), phase="Growing", strategy="Canary", traffic=TO_NEW, traffic_generation=1
    )  # fmt: skip
    made = planned(growing, **behind, desired=1)
    assert (made.rollout.phase, made.wake_s, made.lagging_gateway) == ("Promoting", 0.0, "")
    calm = look(deployment(), pod(), **SERVES)
    assert (planned(calm).wake_s, planned(calm).lagging_gateway) == (None, "")


def lost(name: str, made_s: float, **rest: Any) -> ObservedPod:
    made = preflight(name=name, uid=f"u-{name}", phase="Failed", said="", lost="Evicted")
    return replace(made, created_at=timestamp(NOW_S + made_s), **rest)


@pytest.mark.parametrize(
    ("pods", "wake_s", "deleted"),
    [
        ((), None, []),
        ((lost("a", -4), lost("b", -6), lost("c", -2)), 4.0, []),
        ((lost("a", -10), lost("b", -4), lost("c", -11)), 6.0, ["a", "c"]),
        ((lost("a", -9),), 1.0, []),
        ((lost("a", -10),), None, ["a"]),
        ((lost("a", -10, is_ending=True),), None, []),
        ((lost("a", -4, lost=""), lost("b", -4, role="serve")), None, []),
        ((lost("a", -20, lost=""), lost("b", -20, role="serve")), None, []),
        ((lost("a", -20, said=PASSED),), None, []),
    ],
)
def test_a_lost_preflight_is_replaced_ten_seconds_after_it_was_made(
    pods: tuple[ObservedPod, ...], wake_s: float | None, deleted: list[str]
) -> None:
    made = planned(look(deployment(), pod(), *pods, **SERVES), after_s=0.0)
    assert made.wake_s == wake_s
    assert made.delete == tuple(Deletion("Pod", name, f"u-{name}") for name in deleted)


SHADOW, EXTERNAL = (
    replace(SPEC, scaling=replace(SPEC.scaling, mode=mode, max_replicas=5, min_replicas=2))
    for mode in ("Shadow", "External")
)
ACTIVE = replace(SHADOW, scaling=replace(SHADOW.scaling, mode="Active"))
CALM = look(deployment(OLD, 4), phase="Stable", revision=None)


@pytest.mark.parametrize(
    ("spec", "observed", "desired", "total"),
    [
        (SHADOW, Observed(), None, 1),
        (ACTIVE, Observed(), None, 2),
        (SHADOW, CALM, None, 4),
        (SHADOW, CALM, 3, 4),
        (SHADOW, look(deployment(OLD, 7), phase="Stable", revision=None), None, 7),
        (SHADOW, look(deployment(NEW, 7), phase="Stable", revision=None), None, 1),
        (SHADOW, look(deployment(OLD, 0), phase="Stable", revision=None), None, 0),
        # the number when the rollout started
        (SHADOW, look(deployment(OLD, 7)), None, 4),
        (ACTIVE, look(deployment(OLD, 7)), None, 4),
        (ACTIVE, CALM, None, 4),
        (ACTIVE, CALM, 3, 3),
        (ACTIVE, CALM, 0, 2),
        (ACTIVE, CALM, 6, 5),
        (EXTERNAL, CALM, 1, 3),
    ],
)
def test_how_many_pods_all_of_the_traffic_needs(
    spec: ServiceSpec, observed: Observed, desired: int | None, total: int
) -> None:
    assert replicas_for_all(spec, observed, desired) == total


def test_the_first_steps_are_told_in_words() -> None:
    made = planned(look(history=KNOWN[:1], stable=None, traffic=(), **STARTS))
    assert [body["metadata"]["name"] for body in made.create] == [f"chat-{NEW}-preflight"]
    assert made.details == (
        f"record revision {NEW} as number 2",
        f"check the model for revision {NEW}",
    )
    made = planned(look(preflight(), stable=None, traffic=(), **STARTS))
    assert made.details == (f"create chat-{NEW}",)


def test_a_side_whose_spec_is_unknown_holds_up_no_other() -> None:
    made = planned(look(preflight(), stable_spec=None, **STARTS))
    assert names(made) == [f"chat-{NEW}"]


def test_a_control_needs_no_preflight() -> None:
    made = planned(look(preflight(), phase="Starting"))
    assert [body["metadata"]["name"] for body in made.create] == [f"chat-{OLD}-preflight"]
    assert names(made) == [f"chat-{NEW}", f"chat-{OLD}-control"]


def test_a_side_that_is_left_as_it_is_gets_no_pods_on_another_variant() -> None:
    spec = replace(SPEC, variants=VARIANTS)
    observed = look(
        deployment(OLD, 4, variant="spot"), deployment(NEW, 4, variant="plain"), phase="Growing",
        stable_spec=replace(STABLE_SPEC, variants=VARIANTS),
    )  # fmt: skip
    made = planned(observed, spec, by_variant={"spot": 0, "plain": 4}, desired=4)
    assert f"chat-{OLD}-plain" not in names(made)
    assert made.scale == ()


@pytest.mark.parametrize("external", [0, 2])
def test_a_service_of_no_pods_has_a_deployment(external: int) -> None:
    spec = replace(EXTERNAL, external_replicas=external)
    made = planned(look(preflight(), stable=None, traffic=(), **STARTS), spec)
    assert names(made) == [f"chat-{NEW}"]


@pytest.mark.parametrize("spec", [EXTERNAL, replace(SPEC, external_replicas=0)])
def test_a_variant_without_replicas_has_no_deployment(spec: ServiceSpec) -> None:
    spec = replace(spec, variants=VARIANTS)
    observed = look(preflight(), stable=None, traffic=(), **STARTS)
    made = planned(observed, spec, by_variant={"spot": 0, "plain": 4})
    assert names(made) == [f"chat-{NEW}-plain"]


def test_only_the_stable_revision_is_recorded_as_stable_though_its_pods_go() -> None:
    known = tuple(replace(entry, was_stable=False) for entry in KNOWN)
    judged = look(deployment(), deployment(OLD, 4), history=known)
    stopping = look(
        deployment(OLD), history=known, phase="Stopping", strategy="Recreate", traffic=()
    )
    for observed in (judged, stopping):
        made = planned(observed, desired=1)
        [record] = [body for body in made.apply if body["kind"] == "ControllerRevision"]
        assert record["metadata"]["name"] == f"chat-{OLD}"
        assert record["metadata"]["annotations"][STABLE_ANNOTATION] == "true"
        assert made.details[0] == f"record revision {OLD} as number 1"


def images(made: Plan) -> dict[str, str]:
    """Images of the applied objects by kind."""
    found = {}
    for body in made.apply:
        if body["kind"] == "Deployment":
            [engine] = body["spec"]["template"]["spec"]["containers"]
            found["Deployment"] = engine["image"]
        elif body["kind"] == "ControllerRevision":
            pods = PinnedPods.of(body["metadata"]["annotations"][PODS_ANNOTATION])
            found["ControllerRevision"] = pods.image if pods else ""
    return found


@pytest.mark.parametrize(
    ("children", "history", "expected"),
    [
        ((preflight(),), (recorded(NEW, 2, "rec"),), {"Deployment": "rec"}),
        ((preflight(),), (), {"ControllerRevision": "image", "Deployment": "image"}),
        ((preflight(),), (recorded(NEW, 2, None),),
         {"ControllerRevision": "image", "Deployment": "image"}),
        ((deployment(image="live"),), (recorded(NEW, 2, "rec"),), {"Deployment": "rec"}),
        ((deployment(image="live"),), (recorded(NEW, 2, None),), {"ControllerRevision": "live"}),
        ((deployment(image="live"),), (), {"ControllerRevision": "live"}),
        ((deployment(image="live", is_hashed=False),), (recorded(NEW, 2, "rec"),),
         {"ControllerRevision": "live", "Deployment": "live"}),
        ((deployment(image="live", is_hashed=False),), (recorded(NEW, 2, None),),
         {"ControllerRevision": "live", "Deployment": "live"}),
    ],
)  # fmt: skip
def test_pods_are_as_recorded_or_as_they_are_or_new(
    children: Any, history: tuple[Revision, ...], expected: dict[str, str]
) -> None:
    observed = look(*children, stable=None, traffic=(), history=history, **STARTS)
    assert images(planned(observed)) == expected


def test_a_deployment_is_repaired_unless_it_goes_or_only_has_more() -> None:
    bare = deployment(replicas=4)
    more = replace(bare, body=bare.body | {"status": {"replicas": 4}})
    other = deployment(replicas=4, image="other")
    for each, details in (
        (bare, ()),
        (more, ()),
        (other, (f"repair chat-{NEW}",)),
        (replace(other, is_ending=True), ()),
    ):
        observed = look(each, pod(), budget=ObservedBudget(foreign="mine"), **SERVES)
        made = planned(observed)
        assert (made.details, len(made.apply)) == (details, len(details))


EVALUATION = EvaluationSpec(image="e")
EVALUATED = replace(SPEC, rollout=RolloutSpec(strategy="Canary", evaluation=EVALUATION))
CANARIES = (
    pod(name="a", address="10.0.0.3"), pod(name="b", address="10.0.0.2"),
    pod(name="c", address="10.0.0.1", ready=False), pod(name="d"),
)  # fmt: skip
JOB = ObservedJob("j", "ju", NEW, "Running")


@pytest.mark.parametrize(
    ("children", "phase", "spec", "address"),
    [
        (CANARIES, "Judging", EVALUATED, "10.0.0.2"),
        (CANARIES[:1], "Judging", EVALUATED, "10.0.0.3"),
        (CANARIES[2:], "Judging", EVALUATED, None),
        (CANARIES, "Judging", SPEC, None),
        (CANARIES, "Paused", EVALUATED, None),
        (CANARIES, "Growing", EVALUATED, None),
        ((*CANARIES, JOB), "Judging", EVALUATED, None),
        ((*CANARIES, replace(JOB, is_ending=True)), "Judging", EVALUATED, None),
        ((*CANARIES, replace(JOB, revision=OLD)), "Judging", EVALUATED, "10.0.0.2"),
    ],
)
def test_one_ready_pod_of_a_canary_is_evaluated_once(
    children: Any, phase: Phase, spec: ServiceSpec, address: str | None
) -> None:
    made = planned(look(deployment(), deployment(OLD, 4), *children, phase=phase), spec)
    jobs = [body for body in made.apply if body["kind"] == "Job"]
    assert len(jobs) == (address is not None)
    assert (f"evaluate revision {NEW}" in made.details) is (address is not None)
    text = json.dumps(jobs)
    assert [a for a in ("10.0.0.1", "10.0.0.2", "10.0.0.3") if a in text] == [address] * len(jobs)
    assert not jobs or OLD in text


OURS = engines_budget(SPEC)
OURS["metadata"]["uid"] = "bu"
DEFAULTED = {**OURS, "spec": {**OURS["spec"], "added": 1}}
LEFT = {**OURS, "metadata": {**OURS["metadata"], "deletionTimestamp": "now"}}
OTHERWISE = {**OURS, "spec": {**OURS["spec"], "maxUnavailable": 2}}
ALLOWED, REMOVED = ("allow one disruption at a time: chat-engines",), ("remove chat-engines",)


@pytest.mark.parametrize(
    ("children", "desired", "known", "details"),
    [
        ((deployment(replicas=2),), 2, ObservedBudget(), ALLOWED),
        ((deployment(replicas=1),), 1, ObservedBudget(), ()),
        ((), 2, ObservedBudget(), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(OURS), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(DEFAULTED), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(OTHERWISE), ALLOWED),
        ((deployment(replicas=2),), 2, ObservedBudget(foreign="mine"), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(OURS, "mine"), REMOVED),
        ((deployment(replicas=1),), 1, ObservedBudget(OURS), REMOVED),
        ((deployment(replicas=1),), 1, ObservedBudget(LEFT), ()),
    ],
)
def test_a_budget_is_there_while_there_is_more_than_one_pod(
    children: Any, desired: int, known: ObservedBudget, details: tuple[str, ...]
) -> None:
    state = {
        **SERVES,
        "phase": "Starting",
        "stable": None,
        "revision": NEW,
        "strategy": "BlueGreen",
    }
    observed = look(*children, preflight(phase="Running"), budget=known, **state)
    made = planned(observed, desired=desired)
    assert made.details == details
    assert [body["kind"] for body in made.apply] == ["PodDisruptionBudget"] * (details == ALLOWED)
    gone = (Deletion("PodDisruptionBudget", "chat-engines", "bu"),) if details == REMOVED else ()
    assert made.delete == gone


def test_replicas_are_set_where_they_differ() -> None:
    for each, scale in (
        (deployment(replicas=4), ()),
        (deployment(replicas=5), (Scale(f"chat-{NEW}", 4),)),
        (deployment(replicas=3), (Scale(f"chat-{NEW}", 4),)),
        (deployment(replicas=3, is_ending=True), ()),
    ):
        observed = look(each, pod(), budget=ObservedBudget(foreign="mine"), **SERVES)
        made = planned(observed, desired=4)
        assert made.scale == scale
        assert made.details == tuple(f"set chat-{NEW} to 4 replicas" for _ in scale)


def test_what_is_of_no_side_goes_once_gateways_were_told() -> None:
    mine, other = deployment(replicas=1), deployment(OTHER)
    for each, rest, gone in (
        (other, {}, True),
        (other, {"traffic": (Share(Side(OTHER), 100),)}, False),
        (replace(other, is_ending=True), {}, False),
        (deployment(NEW, cohort=CONTROL), {}, True),
    ):
        made = planned(look(mine, pod(), each, **{**SERVES, **rest}), desired=1)
        assert made.delete == ((Deletion("Deployment", each.name, each.uid),) if gone else ())
        assert made.details == ((f"remove {each.name}",) if gone else ())


@pytest.mark.parametrize(
    ("job", "phase", "gone"),
    [
        (JOB, "Judging", False),
        (JOB, "Paused", False),
        (JOB, "Growing", False),
        (JOB, "Promoting", True),
        (replace(JOB, revision=OLD), "Judging", True),
        (replace(JOB, revision=OLD, is_ending=True), "Judging", False),
    ],
)
def test_an_evaluation_goes_when_it_decides_nothing_any_more(
    job: ObservedJob, phase: Phase, gone: bool
) -> None:
    made = planned(look(deployment(), deployment(OLD, 4), job, phase=phase))
    assert [d for d in made.delete if d.kind == "Job"] == [Deletion("Job", "j", "ju")] * gone


def test_preflights_of_revisions_that_are_not_in_use_go() -> None:
    observed = look(
        preflight(OLD), preflight(), preflight(OTHER), preflight("d" * 8, is_ending=True),
        pod("e" * 8, "e"), phase="Draining",
    )  # fmt: skip
    made = planned(observed)
    assert made.delete == (Deletion("Pod", f"f-{OTHER}", f"u-f-{OTHER}"),)


def test_revisions_in_use_are_remembered_whatever_the_limit() -> None:
    spec = replace(SPEC, rollout=RolloutSpec(history=0))
    entries = [recorded(name, number) for number, name in enumerate((OLD, NEW, OTHER, "d" * 8), 1)]
    observed = look(
        deployment(OLD, 4), phase="Rejected", revision=None, rejected=OTHER, history=tuple(entries)
    )  # fmt: skip
    made = planned(observed, replace(spec, seed=0))
    assert [d for d in made.delete if d.kind == "ControllerRevision"] == []
    observed = replace(
        observed, rollout=RolloutState("Canary", "Discarding", NOW_S, "r", OLD, NEW, 4)
    )
    made = planned(replace(observed, deployments=(deployment(OLD, 4), deployment())), spec)
    gone = [d for d in made.delete if d.kind == "ControllerRevision"]
    assert gone == [
        Deletion("ControllerRevision", f"chat-{name}", f"u-{name}") for name in (OTHER, "d" * 8)
    ]


@pytest.mark.parametrize(
    ("ready", "phase", "gone"), [(4, "Stable", True), (3, "Stable", False), (9, "Promoting", False)]
)
def test_a_variant_that_the_spec_has_no_more_goes_when_the_others_have_enough(
    ready: int, phase: Phase, gone: bool
) -> None:
    spec = replace(SPEC, variants=VARIANTS[:1])
    revision, other = (NEW, OLD) if phase == "Stable" else (OLD, NEW)
    pods = [pod(revision, f"p{n}", variant="spot", ready=n < ready) for n in range(9)]
    state: dict[str, Any] = SERVES if phase == "Stable" else {"phase": phase}
    state = state | {"stable_spec": replace(STABLE_SPEC, variants=VARIANTS[:1])}
    observed = look(
        deployment(revision, 4, variant="spot"), deployment(revision, 4, variant="plain"),
        deployment(other, variant="spot"), *pods,
        *(pod(revision, f"q{n}", variant="plain") for n in range(9)),
        **state,
    )  # fmt: skip
    made = planned(observed, spec, desired=4, by_variant={"spot": 4})
    assert (f"chat-{revision}-plain" in {deletion.name for deletion in made.delete}) is gone
