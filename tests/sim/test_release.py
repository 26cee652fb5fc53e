"""Simulated rollouts while a service scales: every strategy completes and loses no request."""

import pytest
from pydantic import ValidationError

from penstock.sim.report import summaries_of
from penstock.sim.run import run

SETTINGS = {
    "Canary": {
        "canary": {
            "latencyTolerancePercent": 50,
            "errorTolerancePercent": 10,
            "violationTolerancePercent": 30,
        }
    },
    "BlueGreen": {"blueGreen": {"scaleDownDelay": "30s"}},
}
FORWARD = {
    "Canary": ["Starting", "Judging", "Growing", "Promoting", "Draining", "Stable"],
    "BlueGreen": ["Starting", "Promoting", "Draining", "Stable"],
    "Rolling": ["Replacing", "Stable"],
    "Recreate": ["Stopping", "Starting", "Stable"],
}


def released(make_scenario, strategy, *, factor=1.0, **service):
    """Run a scaled service with a rollout; a canary needs more load than the others."""
    rollout = {"strategy": strategy, **SETTINGS.get(strategy, {})}
    service = {"min_replicas": 2, "max_replicas": 6, **service}
    rps, duration_s = (8, 400.0) if strategy == "Canary" else (2, 150.0)
    small = make_scenario(rps=rps, duration_s=duration_s, **service)
    release = {"at_s": 30.0, "rollout": rollout, "factor": factor}
    small = small.with_each(release=release)
    done = run(small, "hpa-queue", 0)
    return done.services[0], summaries_of(done)[0]


@pytest.mark.parametrize("strategy", FORWARD)
def test_a_good_revision_takes_over(make_scenario, strategy):
    service, summary = released(make_scenario, strategy)
    assert [phase for _, phase, _ in service.rollout.phases] == FORWARD[strategy]
    assert {pod.side.revision for pod in service.fleet.pods.values()} == {"new"}
    assert list(service.gateway.weights) == [("new", "")]
    assert summary.failed == summary.unfinished == 0
    if strategy != "Recreate":
        assert summary.attainment > 0.98


def test_a_slow_revision_goes_back(make_scenario):
    service, summary = released(make_scenario, "Canary", factor=4.0)
    assert [phase for _, phase, _ in service.rollout.phases] == [
        "Starting", "Judging", "RollingBack", "Discarding", "Rejected",
    ]  # fmt: skip
    assert {pod.side for pod in service.fleet.pods.values()} == {("stable", "")}
    assert summary.failed == summary.unfinished == 0


def test_an_invalid_rollout_spec_is_refused(make_scenario):
    with pytest.raises(ValidationError, match="strategy"):
        make_scenario().with_each(release={"at_s": 1, "rollout": {"strategy": "Sideways"}})


@pytest.mark.parametrize(
    "rollout",
    [
        {"strategy": "Canary", "canary": {"mirror": {}}},
        {"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual"}},
    ],
)
def test_a_rollout_that_needs_a_person_is_refused(make_scenario, rollout):
    with pytest.raises(ValidationError, match="copies no requests"):
        make_scenario().with_each(release={"at_s": 1, "rollout": rollout})
