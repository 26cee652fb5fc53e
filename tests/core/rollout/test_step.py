"""Steps of a rollout: the next state, with every field."""

from dataclasses import replace

import pytest

from penstock.core.canary.verdict import Abort, Accept, Continue
from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.rollout.commands import Command
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.rollout.step import begin, step
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.rollout import RolloutSpec

OLD, NEW, OTHER = "a" * 8, "b" * 8, "c" * 8
SINCE_S, NOW_S = 1_800_000_000.0, 1_800_000_100.0
REJECTION = Rejection(NEW, "too slow", "then")
SETTLED = RolloutState("Rolling", "Stable", SINCE_S, "because", OLD, None, 4)
REJECTED = replace(SETTLED, phase="Rejected", rejected=REJECTION)
JUDGED = RolloutState("Canary", "Judging", SINCE_S, "because", OLD, NEW, 4, weight_percent=20)
OBEYED = {"g": 0}


def pods(revision, count):
    return tuple(
        ObservedPod(f"{revision}{n}", "", revision, "serve", "", True, False, "Running", None, "")
        for n in range(count)
    )


def inputs(wanted=NEW, *, there=((OLD, 2),), strategy="Canary", rollout=None, **said):
    made = tuple(ObservedDeployment(name, name, name, count, 0, False, {}) for name, count in there)
    ready = tuple(pod for name, count in there for pod in pods(name, count))
    spec = RolloutSpec(strategy=strategy, **(rollout or {}))
    return RolloutInputs(
        spec, ObservedState(made, ready), wanted, 6, NOW_S, 45.0, applied_generations=OBEYED, **said
    )


def moved(state, phase, reason, **rest):
    return replace(state, phase=phase, reason=reason, since_s=NOW_S, **rest)


def test_a_service_that_never_served_is_just_started():
    assert begin(inputs()) == RolloutState(
        "Recreate", "Starting", NOW_S, f"revision {NEW} is the first", None, NEW, 6
    )


ASKED, AGAIN = f"the spec asks for revision {NEW}", f"the spec asks for revision {OLD} again"
RESUME = Command("resume", NEW, "resume it")


@pytest.mark.parametrize(
    ("state", "rollout_inputs", "expected"),
    [
        (SETTLED, inputs(OLD), SETTLED),
        (SETTLED, inputs(), moved(SETTLED, "Starting", ASKED, strategy="Canary", revision=NEW, replicas=6)),
        (SETTLED, inputs(there=()),
         moved(SETTLED, "Starting", ASKED, strategy="BlueGreen", revision=NEW, replicas=6)),
        (SETTLED, inputs(strategy="Recreate"),
         moved(SETTLED, "Stopping", ASKED, strategy="Recreate", revision=NEW, replicas=6)),
        (SETTLED, inputs(strategy="Rolling", there=()),
         moved(SETTLED, "Replacing", ASKED, strategy="Rolling", revision=NEW, replicas=6)),
        # A rejection is cleared when another revision is rolled out, or the same is tried again.
        (REJECTED, inputs(), REJECTED),
        (REJECTED, inputs(OTHER),
         moved(REJECTED, "Starting", f"the spec asks for revision {OTHER}", strategy="Canary",
               revision=OTHER, replicas=6, rejected=None)),
        (REJECTED, inputs(command=RESUME),
         moved(REJECTED, "Starting", "resume by hand", strategy="Canary", revision=NEW, replicas=6,
               rejected=None, command="resume it")),
        (REJECTED, inputs(OLD), moved(REJECTED, "Stable", AGAIN, rejected=None)),
        # Under way it keeps its own strategy and number.
        (replace(SETTLED, phase="Replacing", revision=NEW, weight_percent=3),
         inputs(OTHER, strategy="Canary"),
         moved(SETTLED, "Replacing", f"the spec asks for revision {OTHER}", revision=OTHER)),
    ],
)  # fmt: skip
def test_beginnings(state, rollout_inputs, expected):
    assert step(state, rollout_inputs) == expected


READY = f"the pods of revision {NEW} are ready"
STARTING = replace(JUDGED, phase="Starting", weight_percent=0)
BOTH = ((OLD, 6), (NEW, 6))
OF_TEN = {"canary": CanarySpec(min_weight=0.1)}
MOVED = "1 of 1 gateways apply traffic generation 0"
GONE = "the pods without traffic are gone"


@pytest.mark.parametrize(
    ("state", "rollout_inputs", "expected"),
    [
        (STARTING, inputs(there=BOTH, rollout=OF_TEN), moved(STARTING, "Judging", READY, weight_percent=10)),
        (STARTING, inputs(there=BOTH, rollout={"canary": CanarySpec(min_weight=0.9)}),
         moved(STARTING, "Judging", READY, weight_percent=49)),
        (replace(JUDGED, phase="Paused"), inputs(command=RESUME),
         moved(JUDGED, "Judging", "resume by hand", command="resume it")),
        (JUDGED, inputs(verdict=Accept("good")), moved(JUDGED, "Growing", "good")),
        (replace(JUDGED, phase="Growing"), inputs(there=BOTH), moved(JUDGED, "Promoting", READY)),
        (replace(JUDGED, phase="Promoting"), inputs(), 
         moved(JUDGED, "Draining", MOVED, stable=NEW, revision=None, weight_percent=0)),
        (replace(JUDGED, phase="Draining", stable=NEW, revision=None), inputs(there=((NEW, 6),)),
         moved(JUDGED, "Stable", GONE, stable=NEW, revision=None, weight_percent=0)),
        (replace(JUDGED, phase="RollingBack", rejected=REJECTION), inputs(),
         moved(JUDGED, "Discarding", MOVED, rejected=REJECTION)),
        (replace(JUDGED, phase="Discarding", rejected=REJECTION), inputs(),
         moved(JUDGED, "Rejected", GONE, revision=None, weight_percent=0, rejected=REJECTION)),
        (replace(SETTLED, phase="Replacing", revision=NEW, rejected=REJECTION), inputs(there=BOTH),
         moved(SETTLED, "Stable", READY, stable=NEW)),
        # Recreate: the old pods are gone, and nothing is stable until the new ones are.
        (replace(SETTLED, strategy="Recreate", phase="Stopping", revision=NEW), inputs(there=()),
         moved(SETTLED, "Starting", GONE, strategy="Recreate", stable=None, revision=NEW)),
    ],
)  # fmt: skip
def test_what_comes_with_a_phase(state, rollout_inputs, expected):
    assert step(state, rollout_inputs) == expected


AT = timestamp(NOW_S)


@pytest.mark.parametrize(
    ("state", "rollout_inputs", "phase", "rejected"),
    [
        (JUDGED, inputs(verdict=Abort("slow")), "RollingBack", Rejection(NEW, "slow", AT)),
        (STARTING, inputs(command=Command("abort", NEW, "x")), "Discarding",
         Rejection(NEW, "abort by hand", AT)),
        # a revision that the spec no longer has is not a rejected one
        (JUDGED, inputs(OTHER), "RollingBack", None),
        (JUDGED, inputs(OLD), "RollingBack", None),
        (STARTING, inputs(OTHER), "Discarding", None),
        # The first reason stays; a rollback has none of its own.
        (replace(JUDGED, rejected=REJECTION), inputs(verdict=Abort("slow")), "RollingBack", REJECTION),
        (replace(JUDGED, phase="RollingBack"), inputs(), "Discarding", None),
    ],
)  # fmt: skip
def test_a_revision_that_is_found_wrong_is_rejected_once(state, rollout_inputs, phase, rejected):
    after = step(state, rollout_inputs)
    assert (after.phase, after.rejected) == (phase, rejected)


@pytest.mark.parametrize(
    ("state", "weight", "with_control", "expected"),
    [
        (JUDGED, 0.3, True, 30),
        (JUDGED, 0.1, True, 20),
        (JUDGED, 0.9, True, 49),
        (JUDGED, 0.9, False, 50),
        (replace(JUDGED, phase="Paused"), 0.3, True, 20),
    ],
)
def test_a_weight_that_was_earned_is_kept(state, weight, with_control, expected):
    comparison = "FreshControl" if with_control else "Stable"
    rollout_inputs = inputs(verdict=Continue("on", weight), rollout={"comparison": comparison})
    assert step(state, rollout_inputs) == replace(state, weight_percent=expected)


def test_a_command_that_means_nothing_is_read_all_the_same():
    command = Command("resume", NEW, "resume it")
    assert step(JUDGED, inputs(command=command)) == replace(JUDGED, command="resume it")
    read = replace(JUDGED, command="resume it")
    assert step(read, inputs(command=command)) is read
    assert step(JUDGED, inputs()) is JUDGED
