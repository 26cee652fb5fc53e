"""The conditions RolledOut, Stalled and MetricsReadable of a service."""

from dataclasses import replace

import pytest
from tests.core.reconcile.conditions.observed_engines import (
    OLD,
    deployment,
    observed_with,
    pod,
    preflight,
)
from tests.core.reconcile.conditions.service_conditions import (
    JUDGED,
    NEW,
    PASSED,
    SETTLED,
    SPEC,
    WRONG,
    condition_of,
)
from tests.support.specs.preflight_messages import REFUSED

from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import Plan
from penstock.core.spec.metric_gate import MetricGate
from penstock.core.spec.service import Object

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
        (
            observed_with(preflight("Failed", REFUSED)), SETTLED, OLD,
            ("ModelNotFound",
             "no model; or correct the files and run: kubectl penstock rollout restart chat"),
        ),
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
