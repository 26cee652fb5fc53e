"""Events by hand, of the spec, of failed pods and of verdicts, with their reasons."""

from dataclasses import replace

import pytest
from tests.core.rollout.rollout_inputs import (
    JUDGED,
    NEW,
    NO_GPU,
    OLD,
    OTHER,
    REJECTED,
    SETTLED,
    TO_NEW,
    TO_OLD,
    UNNAMED,
    crash_looping_pod,
    deployment,
    inputs,
    order,
    pod,
    preflight,
    state,
)
from tests.support.specs.preflight_messages import PASSED, REFUSED

from penstock.core.canary.verdict import Abort, Accept, Continue, MirrorPassed
from penstock.core.observed.children import ObservedJob
from penstock.core.observed.fetches import PodFetches
from penstock.core.observed.rollout_state import Rejection
from penstock.core.rollout import commands
from penstock.core.rollout.events import detect_events
from penstock.core.spec.rollout import EvaluationSpec
from penstock.core.spec.service import CONTROL


def test_the_most_urgent_comes_first():
    job = ObservedJob("j", "ju", NEW, "Failed", "late")
    everything = inputs(
        crash_looping_pod(),
        job,
        deployment(),
        wanted=OTHER,
        said=order("abort", NEW) | {"verdict": Abort("slow")},
    )
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
        each for each in detect_events(of, inputs(wanted=wanted, said=said)) if "Hand" in each[0]
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
        (SETTLED, OLD, None),
        (SETTLED, NEW, CHANGED),
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
    assert list(detect_events(of, inputs(wanted=wanted))) == expected


CORRECT_FILES = "or correct the files and run: kubectl penstock rollout restart chat"
REFUSED_FETCH = PodFetches(failure=("NoSpace", "full"), is_final=True, restarts=2)
LATE_FETCH = PodFetches(failure=("ServerError", "503"), restarts=9)
LONG = "".join(f"{n:04}" for n in range(100))


@pytest.mark.parametrize(
    ("of", "rollout_inputs", "reason"),
    [
        (JUDGED, inputs(preflight(REFUSED, "Failed")), f"ModelNotFound: no model; {CORRECT_FILES}"),
        (JUDGED, inputs(preflight(PASSED, "Succeeded")), None),
        (JUDGED, inputs(preflight("", "Running")), None),
        (SETTLED, inputs(preflight(REFUSED, "Failed"), wanted=OLD), None),
        (JUDGED, inputs(refusals={NEW: ("PodTemplateRejected", "bad")}), "PodTemplateRejected: bad"),
        (JUDGED, inputs(refusals={NEW: ("PodForbidden", "no")}), None),
        (JUDGED, inputs(refusals={OLD: ("PodTemplateRejected", "bad")}), None),
        (JUDGED, inputs(crash_looping_pod(restarts=1)), None),
        (JUDGED, inputs(pod(restarts=9)), None),
        (JUDGED, inputs(crash_looping_pod(restarts=1), crash_looping_pod("q", 3, "")),
         "q crashed 3 times: it has no termination message"),
        (JUDGED, inputs(crash_looping_pod(said=LONG)), f"p crashed 2 times: {LONG[-300:]}"),
        (JUDGED,
         inputs(pod(trouble=("NoSpace", "full"), restarts=2, ready=False, fetches=REFUSED_FETCH,
                    service="chat")),
         "p failed to fetch its model 2 times: full; change the URI, or correct the source or the Secret of "
         "spec.model.secretRef and run: kubectl penstock rollout restart chat"),
        (JUDGED, inputs(pod(trouble=("ServerError", ""), restarts=9, ready=False, fetches=LATE_FETCH)), None),
        # no pod became ready before the deadline
        (state("Starting"), inputs(after_s=599), None),
        (state("Starting"), inputs(after_s=600),
         f"no progress within 600 s: 0 pods of revision {NEW} are ready"),
        (state("Growing"), inputs(after_s=7, total=9, rollout={"progress_deadline_s": 7.0}),
         f"no progress within 7 s: 0 pods of revision {NEW} are ready"),
        (state("Replacing"), inputs(pod(), after_s=600, total=9),
         f"no progress within 600 s: 1 pods of revision {NEW} are ready"),
        (JUDGED, inputs(after_s=600), None),
        (state("Waiting"), inputs(after_s=600), None),
        # Or while nobody ready takes over from it.
        (state("Promoting"), inputs(pod(OLD), after_s=600, traffic=TO_OLD),
         f"no progress within 600 s: 0 pods of revision {NEW} are ready"),
        (state("Promoting"), inputs(pod(), after_s=600, traffic=TO_NEW), None),
        (state("RollingBack"), inputs(after_s=600, traffic=(*TO_OLD, *TO_NEW)),
         f"no progress within 600 s: 0 pods of revision {NEW} are ready"),
        (state("RollingBack"), inputs(after_s=600, traffic=TO_OLD), None),
    ],
)  # fmt: skip
def test_why_new_pods_have_failed(of, rollout_inputs, reason):
    found = [said for event, said in detect_events(of, rollout_inputs) if event == "PodsFailed"]
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
    rollout_inputs = inputs(*children, after_s=600, **rest)
    assert ("PodsFailed", f"no progress within 600 s: {held_up}") in detect_events(
        state("Starting"), rollout_inputs
    )


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
        ((), {}, MirrorPassed("no fault"), [("MirrorPassed", "no fault")]),
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
    rollout_inputs = inputs(*jobs, rollout=rollout, said={"verdict": verdict})
    assert list(detect_events(JUDGED, rollout_inputs)) == events
