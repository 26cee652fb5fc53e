"""Conditions of a service: their order, whether it is ready, and what a refusal says."""

import pytest
from tests.core.reconcile.conditions.observed_engines import OLD, deployment, observed_with, pod
from tests.core.reconcile.conditions.service_conditions import (
    NO_REPLICAS,
    SETTLED,
    SPEC,
    STABLE_SHARE,
    condition_of,
)

from penstock.core.observed.children import ObservedState
from penstock.core.reconcile.conditions import conditions, explain_forbidden, explain_rejection
from penstock.core.reconcile.plan import Plan
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.service import ServiceSpec


def test_every_condition_is_told_once_in_the_order_of_cause_and_effect() -> None:
    tree = conditions(SPEC, observed_with(), Plan(OLD, SETTLED, ()), None)
    assert [c.type for c in tree] == [
        "SpecValid", "ModelReady", "WorkloadReady", "TrafficAvailable", "RolledOut",
        "ScalingActive", "Reconciling", "Stalled", "Ready",
    ]  # fmt: skip


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
