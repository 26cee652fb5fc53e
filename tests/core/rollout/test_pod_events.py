"""Events of pods that become ready, are back or are gone."""

import pytest
from tests.core.rollout.rollout_inputs import (
    JUDGED,
    NEW,
    OLD,
    deployment,
    inputs,
    pod,
    preflight,
    state,
)

from penstock.core.rollout.events import detect_events
from penstock.core.rollout.phases import TRANSITIONS
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.service import CONTROL

MIRRORED = {"canary": CanarySpec(mirror=MirrorSpec())}
BY_HAND = {"promotion": "Manual"}
TWO = (deployment(), pod(name="p"), pod(name="q"))
ONE = (deployment(), pod())
CONTROLLED = (*ONE, deployment(OLD, CONTROL))
OF_CONTROL = pod(OLD, "k", cohort=CONTROL)
READY = ("PodsReady",)
TO_MIRROR, TO_SWITCH = ("ReadyToMirror", *READY), ("ReadyToSwitch", *READY)


@pytest.mark.parametrize(
    ("of", "rollout_inputs", "candidates", "event"),
    [
        (state("Starting"), inputs(pod()), (), None),
        (state("Starting"), inputs(*ONE), READY, "PodsReady"),
        (state("Starting"), inputs(deployment(), pod(ready=False)), (), None),
        (state("Starting"), inputs(*ONE, total=21), (), None),
        (state("Starting"), inputs(*TWO, total=21), READY, "PodsReady"),
        (state("Starting"), inputs(*ONE, rollout=MIRRORED), TO_MIRROR, "ReadyToMirror"),
        (state("Starting"), inputs(*ONE, rollout=BY_HAND), TO_SWITCH, "PodsReady"),
        (state("Starting"), inputs(*CONTROLLED), (), None),
        (state("Starting"), inputs(*CONTROLLED, pod(OLD, "s")), (), None),
        (state("Starting"), inputs(*CONTROLLED, OF_CONTROL), READY, "PodsReady"),
        (state("Starting"), inputs(*CONTROLLED, OF_CONTROL, pod(name="q"), total=21), (), None),
        (state("Starting", "Recreate"), inputs(*ONE, total=9), READY, "PodsReady"),
        (state("Starting", "Recreate"), inputs(deployment(), total=9), (), None),
        (state("Starting", "Recreate"), inputs(deployment(), total=0), READY, "PodsReady"),
        (state("Starting", "BlueGreen"), inputs(*ONE), (), None),
        (state("Starting", "BlueGreen"), inputs(*TWO), READY, "PodsReady"),
        (state("Starting", "BlueGreen"), inputs(*TWO, rollout=MIRRORED), TO_MIRROR, "PodsReady"),
        (state("Starting", "BlueGreen"), inputs(*TWO, rollout=BY_HAND), TO_SWITCH, "ReadyToSwitch"),
        (state("Waiting", "BlueGreen"), inputs(*TWO, rollout=BY_HAND), (), None),
        (state("Waiting", "BlueGreen"), inputs(*TWO), READY, "PodsReady"),
        (state("Waiting", "BlueGreen"), inputs(*ONE), (), None),
        (state("Growing"), inputs(*ONE), (), None),
        (state("Growing"), inputs(*ONE, pod(name="q", cohort=CONTROL)), (), None),
        (state("Growing"), inputs(*TWO), READY, "PodsReady"),
        (state("Growing"), inputs(*TWO, rollout=MIRRORED), TO_MIRROR, "PodsReady"),
        (state("Growing"), inputs(total=0), (), None),
        (state("Replacing", "Rolling"), inputs(*TWO), READY, "PodsReady"),
        (JUDGED, inputs(*TWO), (), None),
        (state("Paused"), inputs(*TWO), (), None),
    ],
)
def test_pods_that_are_ready(of, rollout_inputs, candidates, event):
    """All candidates are detected, and the first that the transition table lists applies."""
    found = list(detect_events(of, rollout_inputs))
    reason = f"the pods of revision {NEW} are ready"
    if not rollout_inputs.total:
        reason = f"the service is at zero, and the preflight of revision {NEW} passed"
    assert found == [(each, reason) for each in candidates]
    listed = [name for name, _ in found if (of.phase, name) in TRANSITIONS[of.strategy]]
    assert listed[:1] == ([event] if event else [])


GONE = ("PodsGone", "the pods without traffic are gone")


@pytest.mark.parametrize(
    ("of", "children", "expected"),
    [
        (state("RollingBack", "Rolling"), (deployment(OLD), pod(OLD)), []),
        (state("RollingBack", "Rolling"), (deployment(OLD), pod(OLD), pod(OLD, "q")),
         [("PodsReady", f"the pods of revision {OLD} are ready again")]),
        (state("Stopping"), (), [GONE]),
        (state("Stopping"), (deployment(OLD),), []),
        (state("Stopping"), (deployment(OLD, replicas=0),), [GONE]),
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
    rollout_inputs = inputs(*children, wanted=of.revision or of.stable)
    assert list(detect_events(of, rollout_inputs)) == expected
