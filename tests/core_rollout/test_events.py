"""Events that are detected from the observed state, with their reasons."""

from dataclasses import replace

import pytest

from penstock.core.canary.verdict import Abort, Accept, Continue, Shown
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import Observed, ObservedDeployment, ObservedJob, ObservedPod
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.rollout import commands
from penstock.core.rollout.events import (
    RolloutInputs,
    deadline_s,
    detect_events,
    lagging_gateway,
    rollback_until_s,
)
from penstock.core.rollout.wake import earlier_s, wake_s
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.canary import CanarySpec, ShadowSpec
from penstock.core.spec.rollout import EvaluationSpec, RolloutSpec
from penstock.core.spec.service import CONTROL

OLD, NEW, OTHER = "a" * 8, "b" * 8, "c" * 8
SINCE_S = 1_800_000_000.0
JUDGED = RolloutState("Canary", "Judging", SINCE_S, "because", OLD, NEW, 2, command="read")
CALM = replace(JUDGED, phase="Stable", revision=None)
REJECTED = replace(CALM, phase="Rejected", rejected=Rejection(NEW, "too slow", ""))
UNNAMED = replace(REJECTED, rejected=None)
REFUSED = '{"ok": false, "reason": "ModelNotFound", "message": "no model"}'
PASSED = '{"ok": true, "architecture": "Q", "weights_bytes": 1, "kv_capacity_tokens": 9}'
NO_GPU = ("Unschedulable", "no GPU")
OBEYED = {"g": 3, "h": 4}


def state(phase, strategy="Canary", **rest):
    return replace(JUDGED, phase=phase, strategy=strategy, **rest)


def pod(revision=NEW, name="p", *, ready=True, cohort="", **rest):
    made = ObservedPod(name, name, revision, "serve", "", ready, False, "Running", None, "")
    return replace(made, cohort=cohort, **rest)


def looping(name="p", restarts=2, said="boom"):
    return pod(name=name, ready=False, trouble=("CrashLoopBackOff", said), restarts=restarts)


def preflight(said, phase):
    return replace(pod(ready=False), role="preflight", said=said, phase=phase)


def deployment(revision=NEW, cohort="", trouble=None):
    name = f"{revision}-{cohort}"
    return ObservedDeployment(name, name, revision, 2, 0, False, {}, trouble, cohort)


def shares(*sides):
    return tuple(Share(side, 100 // len(sides)) for side in sides)


TO_NEW, TO_OLD = shares(Side(NEW)), shares(Side(OLD))


def seen(*children, wanted=NEW, total=2, after_s=0.0, rollout=None, said=None, **rest):
    """Inputs `after_s` seconds after the phase began; `said`: verdict, command, applied_generations."""
    observed = Observed(
        deployments=tuple(c for c in children if isinstance(c, ObservedDeployment)),
        pods=tuple(c for c in children if isinstance(c, ObservedPod)),
        jobs=tuple(c for c in children if isinstance(c, ObservedJob)),
        traffic_generation=3,
        **rest,
    )
    return RolloutInputs(
        RolloutSpec(**(rollout or {})), observed, wanted, total, SINCE_S + after_s, **(said or {})
    )


def order(action, revision):
    return {"command": commands.Command(action, revision, f"{action} {revision}")}


def test_the_most_urgent_comes_first():
    job = ObservedJob("j", "ju", NEW, "Failed", "late")
    everything = seen(
        looping(), job, deployment(), wanted=OTHER, said=order("abort", NEW) | {"verdict": Abort("slow")}
    )  # fmt: skip
    assert list(detect_events(JUDGED, everything)) == [
        ("AbortedByHand", "abort by hand"),
        ("RevisionChanged", f"the spec asks for revision {OTHER}"),
        ("PodsFailed", "p crashed 2 times: boom"),
        ("Aborted", "the evaluation failed: late"),
        ("Aborted", "slow"),
    ]


@pytest.mark.parametrize(
    ("of", "wanted", "said", "event"),
    [
        (JUDGED, NEW, {}, None),
        (JUDGED, NEW, order("pause", NEW), "PausedByHand"),
        (JUDGED, NEW, order("promote", NEW), "PromotedByHand"),
        (JUDGED, OLD, order("abort", NEW), "AbortedByHand"),
        (JUDGED, NEW, order("abort", OLD), None),
        (JUDGED, NEW, {"command": commands.Command("abort", NEW, "read")}, None),
        (REJECTED, NEW, order("resume", NEW), "ResumedByHand"),
        (REJECTED, NEW, order("resume", OLD), None),
        (REJECTED, OLD, order("resume", NEW), None),
        (UNNAMED, NEW, order("resume", NEW), None),
    ],
)
def test_what_a_person_says_of_the_revision_at_hand(of, wanted, said, event):
    found = [
        each for each in detect_events(of, seen(wanted=wanted, said=said)) if "Hand" in each[0]
    ]
    action = said["command"].action if event else ""
    assert found == ([(event, f"{action} by hand")] if event else [])


CHANGED, RESTORED = "RevisionChanged", "RevisionRestored"


@pytest.mark.parametrize(
    ("of", "wanted", "event"),
    [
        (JUDGED, NEW, None),
        (JUDGED, OTHER, CHANGED),
        (JUDGED, OLD, RESTORED),
        (CALM, OLD, None),
        (CALM, NEW, CHANGED),
        (REJECTED, NEW, None),
        (REJECTED, OTHER, CHANGED),
        (REJECTED, OLD, RESTORED),
        (UNNAMED, NEW, CHANGED),
        (UNNAMED, OLD, RESTORED),
        # a serving revision that was rejected when it was restored
        (replace(REJECTED, rejected=Rejection(OLD, "late", "")), OLD, RESTORED),
        (replace(JUDGED, revision=OLD), OLD, None),
    ],
)
def test_what_the_spec_asks_for(of, wanted, event):
    again = " again" if event == RESTORED else ""
    expected = [(event, f"the spec asks for revision {wanted}{again}")] if event else []
    assert list(detect_events(of, seen(wanted=wanted))) == expected


LONG = "".join(f"{n:04}" for n in range(100))


@pytest.mark.parametrize(
    ("of", "look", "reason"),
    [
        (JUDGED, seen(preflight(REFUSED, "Failed")), "ModelNotFound: no model"),
        (JUDGED, seen(preflight(PASSED, "Succeeded")), None),
        (JUDGED, seen(preflight("", "Running")), None),
        (CALM, seen(preflight(REFUSED, "Failed"), wanted=OLD), None),
        (JUDGED, seen(refusals={NEW: ("PodTemplateRejected", "bad")}), "PodTemplateRejected: bad"),
        (JUDGED, seen(refusals={NEW: ("PodForbidden", "no")}), None),
        (JUDGED, seen(refusals={OLD: ("PodTemplateRejected", "bad")}), None),
        (JUDGED, seen(looping(restarts=1)), None),
        (JUDGED, seen(pod(restarts=9)), None),
        (JUDGED, seen(looping(restarts=1), looping("q", 3, "")),
         "q crashed 3 times: it has no termination message"),
        (JUDGED, seen(looping(said=LONG)), f"p crashed 2 times: {LONG[-300:]}"),
        # no pod became ready before the deadline
        (state("Starting"), seen(after_s=599), None),
        (state("Starting"), seen(after_s=600),
         f"no progress within 600 s: 0 pods of revision {NEW} are ready"),
        (state("Growing"), seen(after_s=7, total=9, rollout={"progress_deadline_s": 7.0}),
         f"no progress within 7 s: 0 pods of revision {NEW} are ready"),
        (state("Replacing"), seen(pod(), after_s=600, total=9),
         f"no progress within 600 s: 1 pods of revision {NEW} are ready"),
        (JUDGED, seen(after_s=600), None),
        (state("Waiting"), seen(after_s=600), None),
        # Or while nobody ready takes over from it.
        (state("Promoting"), seen(pod(OLD), after_s=600, traffic=TO_OLD),
         f"no progress within 600 s: 0 pods of revision {NEW} are ready"),
        (state("Promoting"), seen(pod(), after_s=600, traffic=TO_NEW), None),
        (state("RollingBack"), seen(after_s=600, traffic=(*TO_OLD, *TO_NEW)),
         f"no progress within 600 s: 0 pods of revision {NEW} are ready"),
        (state("RollingBack"), seen(after_s=600, traffic=TO_OLD), None),
    ],
)  # fmt: skip
def test_why_new_pods_have_failed(of, look, reason):
    found = [said for event, said in detect_events(of, look) if event == "PodsFailed"]
    assert found == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("children", "rest", "held_up"),
    [
        ((pod(name="q", ready=False, trouble=NO_GPU), pod(name="p", ready=False, trouble=("E", "m"))),
         {}, "p: E: m"),
        ((pod(trouble=NO_GPU), pod(name="q", ready=False)), {}, f"1 pods of revision {NEW} are ready"),
        ((pod(OLD, "k", ready=False, cohort=CONTROL, trouble=NO_GPU),), {}, "k: Unschedulable: no GPU"),
        ((pod(OLD, "k", ready=False, trouble=NO_GPU),), {}, f"0 pods of revision {NEW} are ready"),
        ((deployment(trouble=("FailedCreate", "a quota")),), {}, "FailedCreate: a quota"),
        ((deployment(), deployment(OLD, trouble=("FailedCreate", "a quota"))), {},
         f"0 pods of revision {NEW} are ready"),
        ((pod(ready=False, trouble=NO_GPU),), {"refusals": {NEW: ("PodForbidden", "no")}},
         "PodForbidden: no"),
        ((pod(ready=False, trouble=NO_GPU),), {"refusals": {OLD: ("PodForbidden", "no")}},
         "p: Unschedulable: no GPU"),
    ],
)  # fmt: skip
def test_what_holds_new_pods_up_is_told(children, rest, held_up):
    look = seen(*children, after_s=600, **rest)
    assert ("PodsFailed", f"no progress within 600 s: {held_up}") in detect_events(
        state("Starting"), look
    )


def test_each_pod_that_becomes_ready_moves_the_deadline():
    def at(*after_s):
        return [pod(name=f"{s}", ready_at=timestamp(SINCE_S + s)) for s in after_s]

    starting = state("Starting")
    assert deadline_s(starting, seen(pod(ready=False))) == SINCE_S + 600
    assert deadline_s(starting, seen(*at(-50))) == SINCE_S + 600
    assert deadline_s(starting, seen(*at(50, 90, 70))) == SINCE_S + 690
    assert deadline_s(starting, seen(pod(OLD, ready_at=timestamp(SINCE_S + 99)))) == SINCE_S + 600


def job(ended, revision=NEW):
    return ObservedJob("j", "ju", revision, ended, "late")


EVALUATED = {"evaluation": EvaluationSpec(image="e")}


@pytest.mark.parametrize(
    ("jobs", "rollout", "verdict", "events"),
    [
        ((), {}, None, []),
        ((), {}, Continue("on", 0.1), []),
        ((), {}, Accept("good"), [("Accepted", "good")]),
        ((), {}, Abort("slow"), [("Aborted", "slow")]),
        ((), {}, Shown("no fault"), [("Shown", "no fault")]),
        ((), EVALUATED, Accept("good"), []),
        ((job("Running"),), EVALUATED, Accept("good"), []),
        ((job("Passed"),), EVALUATED, Accept("good"), [("Accepted", "good")]),
        ((job("Passed"),), EVALUATED, None, []),
        ((job("Passed", OLD),), EVALUATED, Accept("good"), []),
        ((job("Failed"),), EVALUATED, Accept("good"),
         [("Aborted", "the evaluation failed: late")]),
        ((job("Running"),), {}, Accept("good"), [("Accepted", "good")]),
    ],
)  # fmt: skip
def test_verdicts_of_the_judge_and_of_an_evaluation(jobs, rollout, verdict, events):
    look = seen(*jobs, rollout=rollout, said={"verdict": verdict})
    assert list(detect_events(JUDGED, look)) == events


SHADOWED = {"canary": CanarySpec(shadow=ShadowSpec())}
BY_HAND = {"is_switched_automatically": False}
TWO = (deployment(), pod(name="p"), pod(name="q"))
ONE = (deployment(), pod())
CONTROLLED = (*ONE, deployment(OLD, CONTROL))
OF_CONTROL = pod(OLD, "k", cohort=CONTROL)


@pytest.mark.parametrize(
    ("of", "look", "event"),
    [
        (state("Starting"), seen(pod()), None),
        (state("Starting"), seen(*ONE), "PodsReady"),
        (state("Starting"), seen(deployment(), pod(ready=False)), None),
        (state("Starting"), seen(*ONE, total=21), None),
        (state("Starting"), seen(*TWO, total=21), "PodsReady"),
        (state("Starting"), seen(*ONE, rollout=SHADOWED), "ReadyForCopies"),
        (state("Starting"), seen(*ONE, rollout=BY_HAND), "PodsReady"),
        (state("Starting"), seen(*CONTROLLED), None),
        (state("Starting"), seen(*CONTROLLED, pod(OLD, "s")), None),
        (state("Starting"), seen(*CONTROLLED, OF_CONTROL), "PodsReady"),
        (state("Starting"), seen(*CONTROLLED, OF_CONTROL, pod(name="q"), total=21), None),
        (state("Starting", "Recreate"), seen(*ONE, total=9), "PodsReady"),
        (state("Starting", "Recreate"), seen(deployment(), total=9), None),
        (state("Starting", "Recreate"), seen(deployment(), total=0), "PodsReady"),
        (state("Starting", "BlueGreen"), seen(*ONE), None),
        (state("Starting", "BlueGreen"), seen(*TWO), "PodsReady"),
        (state("Starting", "BlueGreen"), seen(*TWO, rollout=SHADOWED), "PodsReady"),
        (state("Starting", "BlueGreen"), seen(*TWO, rollout=BY_HAND), "ReadyToSwitch"),
        (state("Waiting", "BlueGreen"), seen(*TWO, rollout=BY_HAND), None),
        (state("Waiting", "BlueGreen"), seen(*TWO), "PodsReady"),
        (state("Waiting", "BlueGreen"), seen(*ONE), None),
        (state("Growing"), seen(*ONE), None),
        (state("Growing"), seen(*ONE, pod(name="q", cohort=CONTROL)), None),
        (state("Growing"), seen(*TWO), "PodsReady"),
        (state("Growing"), seen(*TWO, rollout=SHADOWED), "PodsReady"),
        (state("Growing"), seen(total=0), None),
        (state("Replacing", "Rolling"), seen(*TWO), "PodsReady"),
        (JUDGED, seen(*TWO), None),
        (state("Paused"), seen(*TWO), None),
    ],
)
def test_pods_that_are_ready(of, look, event):
    expected = [(event, f"the pods of revision {NEW} are ready")] if event else []
    assert list(detect_events(of, look)) == expected


GONE = ("PodsGone", "the pods without traffic are gone")


@pytest.mark.parametrize(
    ("of", "children", "expected"),
    [
        (state("RollingBack", "Rolling"), (deployment(OLD), pod(OLD)), []),
        (state("RollingBack", "Rolling"), (deployment(OLD), pod(OLD), pod(OLD, "q")),
         [("PodsReady", f"the pods of revision {OLD} are ready again")]),
        (state("Stopping"), (), [GONE]),
        (state("Stopping"), (deployment(OLD),), []),
        (state("Stopping"), (pod(OLD),), []),
        (state("Stopping"), (preflight("", "Running"),), [GONE]),
        (state("Draining", stable=NEW, revision=None), (deployment(), pod()), [GONE]),
        (state("Draining", stable=NEW, revision=None), (deployment(), pod(OLD)), []),
        (state("Draining", stable=NEW, revision=None), (deployment(), deployment(OLD)), []),
        (state("Discarding"), (deployment(OLD), pod(OLD)), [GONE]),
        (state("Discarding"), (deployment(OLD), deployment(OLD, CONTROL)), []),
        (state("Discarding"), (pod(OLD), pod()), []),
    ],
)  # fmt: skip
def test_pods_that_are_back_or_gone(of, children, expected):
    look = seen(*children, wanted=of.revision or of.stable)
    assert list(detect_events(of, look)) == expected


MOVED = "2 of 2 gateways apply traffic generation 3"
PROMOTING, BACK = state("Promoting"), state("RollingBack")
KEPT = state("Promoting", "BlueGreen")


@pytest.mark.parametrize(
    ("of", "look", "reason"),
    [
        (PROMOTING, seen(traffic=TO_NEW, said={"applied_generations": OBEYED}), MOVED),
        (PROMOTING, seen(traffic=(), said={"applied_generations": OBEYED}), MOVED),
        (PROMOTING, seen(traffic=shares(Side(NEW), Side(OLD)), said={"applied_generations": OBEYED}), None),
        (PROMOTING, seen(traffic=TO_NEW, said={"applied_generations": {}}),
         "0 of 0 gateways apply traffic generation 3"),
        (PROMOTING, seen(traffic=TO_NEW, after_s=29), None),
        (PROMOTING, seen(traffic=TO_NEW, after_s=30), "the gateways are not known yet, after 30 s"),
        (PROMOTING, seen(traffic=TO_NEW, said={"applied_generations": {"g": 3, "h": 2}}), None),
        (PROMOTING, seen(traffic=TO_NEW, after_s=30, said={"applied_generations": {"g": 3, "h": 2}}),
         "gateway h applies traffic generation 2, not 3 yet, after 30 s"),
        (PROMOTING, seen(traffic=TO_NEW, after_s=31, said={"applied_generations": {"g": None, "h": 2}}),
         "gateway g does not report the traffic generation that it applies, after 30 s"),
        (KEPT, seen(traffic=TO_NEW, after_s=299, said={"applied_generations": OBEYED}), None),
        (KEPT, seen(traffic=TO_NEW, after_s=300, said={"applied_generations": OBEYED}), MOVED),
        (BACK, seen(traffic=TO_OLD, said={"applied_generations": OBEYED}), MOVED),
        (BACK, seen(traffic=(*TO_OLD, *TO_NEW), said={"applied_generations": OBEYED}), None),
        # The new revision is all that serves.
        (BACK, seen(pod(), traffic=TO_OLD, said={"applied_generations": OBEYED}), None),
        (BACK, seen(pod(), pod(OLD), traffic=TO_OLD, said={"applied_generations": OBEYED}), MOVED),
        (PROMOTING, seen(pod(), traffic=TO_NEW, said={"applied_generations": OBEYED}), MOVED),
    ],
)  # fmt: skip
def test_routes_that_have_moved(of, look, reason):
    assert list(detect_events(of, look)) == ([("RoutesMoved", reason)] if reason else [])


@pytest.mark.parametrize(
    ("of", "wanted", "until_s"),
    [
        (KEPT, NEW, 300),
        (KEPT, OTHER, 0),
        (PROMOTING, NEW, 0),
        (state("RollingBack", "BlueGreen"), NEW, 0),
    ],
)
def test_how_long_the_way_back_is_kept(of, wanted, until_s):
    assert rollback_until_s(of, seen(wanted=wanted)) == SINCE_S + until_s


@pytest.mark.parametrize(
    ("of", "applied_generations", "words"),
    [
        (PROMOTING, {"g": 2}, "gateway g applies traffic generation 2, not 3 yet"),
        (BACK, {"g": 2}, "gateway g applies traffic generation 2, not 3 yet"),
        (PROMOTING, OBEYED, ""),
        (PROMOTING, None, ""),
        (JUDGED, {"g": 2}, ""),
        (state("RollingBack", "Rolling"), {"g": 2}, ""),
    ],
)
def test_the_gateway_that_is_waited_for(of, applied_generations, words):
    assert lagging_gateway(of, seen(said={"applied_generations": applied_generations})) == words


@pytest.mark.parametrize(
    ("of", "after_s", "left_s"),
    [
        (PROMOTING, 0, 1),
        (PROMOTING, 70, 1),
        (BACK, 5, 1),
        (KEPT, 10, 290),
        (KEPT, 299.5, 1),
        (state("Starting"), 10, 590),
        (state("Starting"), 599, 1),
        (state("Starting"), 600, None),
        (state("Growing"), 0, 600),
        (state("Replacing"), 0, 600),
        (JUDGED, 0, None),
        (CALM, 0, None),
        (state("Waiting"), 0, None),
    ],
)
def test_when_time_itself_makes_something_happen(of, after_s, left_s):
    assert wake_s(of, seen(after_s=after_s)) == left_s


def test_the_earlier_of_two_times_is_the_one_there_is():
    assert (earlier_s(1, 2), earlier_s(3, 2)) == (1, 2)
    assert (earlier_s(None, 2), earlier_s(1, None), earlier_s(None, None)) == (2, 1, None)
    assert (earlier_s(0, None), earlier_s(0, 1)) == (0, 0)
