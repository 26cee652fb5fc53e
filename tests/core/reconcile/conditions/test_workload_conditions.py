"""The conditions WorkloadReady and TrafficAvailable of a service."""

from dataclasses import replace

import pytest
from tests.core.reconcile.conditions.observed_engines import OLD, deployment, observed_with, pod
from tests.core.reconcile.conditions.service_conditions import (
    EXTERNAL,
    JUDGED,
    NEW,
    NO_REPLICAS,
    SETTLED,
    SPEC,
    STABLE_SHARE,
    condition_of,
)

from penstock.core.observed.children import ObservedState
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.service import CONTROL, ServiceSpec

READY = ("True", "EnginesReady", f"revision {OLD} has the engines it needs")
LOST = pod("lost", ready=False, phase="Failed", lost="Evicted: too much")
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
        # The first by name of those that cannot go on.
        (
            observed_with(deployment(3), TROUBLED["c"], pod("a", ready=False), TROUBLED["b"]),
            ("False", "b", "of b"),
        ),
        (
            observed_with(deployment(3), TROUBLED["a"], pod("b")),
            ("False", "a", "1 of 3 engines are ready; of a"),
        ),
        (observed_with(deployment(3), TROUBLED["a"], pod("b"), pod("c")), READY),
        # An engine that was lost, unless more is known of the others.
        (
            observed_with(deployment(3), pod("a"), LOST, pod("b", ready=False)),
            (
                "False",
                "EngineLost",
                "1 of 3 engines are ready; lost was lost and is replaced: Evicted: too much",
            ),
        ),
        (observed_with(deployment(3), LOST, TROUBLED["b"]), ("False", "b", "of b")),
        (
            observed_with(deployment(3, ("FailedCreate", "a quota")), LOST),
            ("False", "FailedCreate", "a quota"),
        ),
        (
            observed_with(deployment(), replace(LOST, lost="")),
            ("False", "Progressing", "0 of 1 engines are ready"),
        ),
        (
            observed_with(deployment(), replace(LOST, revision=NEW)),
            ("False", "Progressing", "0 of 1 engines are ready"),
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
            ("True", "Serving", f"revisions {OLD} and {NEW} receive traffic"),
        ),
        (
            BOTH,
            observed_with(pod(ready=False)),
            ("False", "NoEngineReady", f"no engine of revisions {OLD} and {NEW} is ready"),
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
