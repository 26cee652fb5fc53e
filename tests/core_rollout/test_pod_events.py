"""Events of pods that become ready, are back or are gone."""

import pytest
from core_rollout.rollout_inputs import JUDGED, NEW, OLD, deployment, pod, preflight, seen, state

from penstock.core.rollout.events import detect_events
from penstock.core.spec.canary import CanarySpec, ShadowSpec
from penstock.core.spec.service import CONTROL

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
