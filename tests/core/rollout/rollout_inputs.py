"""Builds rollout states and what a planner observes of them."""

from dataclasses import replace

from penstock.core.observed.children import ObservedDeployment, ObservedJob, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import Rejection, RolloutState
from penstock.core.rollout import commands
from penstock.core.rollout.inputs import RolloutInputs
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.rollout import RolloutSpec

OLD, NEW, OTHER = "a" * 8, "b" * 8, "c" * 8
SINCE_S = 1_800_000_000.0
JUDGED = RolloutState("Canary", "Judging", SINCE_S, "because", OLD, NEW, 2, command="read")
SETTLED = replace(JUDGED, phase="Stable", revision=None)
REJECTED = replace(SETTLED, phase="Rejected", rejected=Rejection(NEW, "too slow", ""))
UNNAMED = replace(REJECTED, rejected=None)
NO_GPU = ("Unschedulable", "no GPU")
OBEYED = {"g": 3, "h": 4}


def state(phase, strategy="Canary", **rest):
    return replace(JUDGED, phase=phase, strategy=strategy, **rest)


def pod(revision=NEW, name="p", *, ready=True, cohort="", **rest):
    made = ObservedPod(name, name, revision, "serve", "", ready, False, "Running", None, "")
    return replace(made, cohort=cohort, **rest)


def crash_looping_pod(name="p", restarts=2, said="boom"):
    return pod(name=name, ready=False, trouble=("CrashLoopBackOff", said), restarts=restarts)


def preflight(said, phase):
    made = pod(ready=False, role="preflight", service="chat")
    return replace(made, termination_message=said, phase=phase)


def deployment(revision=NEW, cohort="", trouble=None, replicas=2):
    name = f"{revision}-{cohort}"
    return ObservedDeployment(name, name, revision, replicas, 0, False, {}, trouble, cohort)


def shares(*sides):
    return tuple(Share(side, 100 // len(sides)) for side in sides)


PROMOTING, BACK = state("Promoting"), state("RollingBack")
KEPT = state("Promoting", "BlueGreen")
TO_NEW, TO_OLD = shares(Side(NEW)), shares(Side(OLD))


def inputs(*children, wanted=NEW, total=2, after_s=0.0, rollout=None, said=None, **rest):
    """Inputs `after_s` seconds after the phase began; `said`: verdict, command, applied_generations."""
    observed = ObservedState(
        deployments=tuple(c for c in children if isinstance(c, ObservedDeployment)),
        pods=tuple(c for c in children if isinstance(c, ObservedPod)),
        jobs=tuple(c for c in children if isinstance(c, ObservedJob)),
        traffic_generation=3,
        **rest,
    )
    return RolloutInputs(
        RolloutSpec(**(rollout or {})),
        observed,
        wanted,
        total,
        SINCE_S + after_s,
        45.0,
        **(said or {}),
    )


def order(action, revision):
    return {"command": commands.Command(action, revision, f"{action} {revision}")}
