"""Specs from before the current one: the last accepted spec, as the status has it."""

import pytest

from penstock.api.conversion.past_specs import accepted_spec
from penstock.core.observed.accepted_spec import encoded_spec, spec_in_use, with_accepted_spec

METADATA = {
    "namespace": "a", "name": "chat", "uid": "u", "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
}  # fmt: skip
MODEL = {"model": {"uri": "pvc://models"}}
REFUSED = MODEL | {"engine": {"extraArgs": ["--port=1"]}}
EXTERNAL = MODEL | {"scaling": {"mode": "External"}}


def service(spec, accepted=None, **status):
    if accepted is not None:
        status["acceptedSpec"] = encoded_spec({"spec": accepted})
    return {"metadata": METADATA, "spec": spec, "status": status}


def valid(generation):
    return [{"type": "SpecValid", "status": "True", "observedGeneration": generation}]


def test_the_copy_in_the_status_counts_also_before_a_valid_spec_is_read():
    accepted = MODEL | {"scaling": {"maxReplicas": 2}}
    for spec in (MODEL | {"scaling": {"maxReplicas": 9}}, REFUSED):
        body = service(spec, accepted)
        assert with_accepted_spec(body) == {**body, "spec": accepted}
        assert accepted_spec(body).scaling.max_replicas == 2


def test_a_spec_that_this_version_refuses_was_accepted_by_an_earlier_one():
    assert accepted_spec(service(REFUSED, REFUSED)).settings["engine.extraArgs"] == ("--port=1",)


def test_an_earlier_version_without_the_copy_accepted_the_spec():
    body = service(REFUSED, conditions=valid(2))
    assert with_accepted_spec(body) is body
    assert accepted_spec(body) is not None


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"conditions": valid(1)},
        {"acceptedSpec": "{"},
        {"acceptedSpec": "7"},
        {"acceptedSpec": '{"model":' * 100_000},
    ],
)
def test_without_the_copy_the_accepted_spec_is_not_known(status):
    assert with_accepted_spec(service(MODEL, **status)) is None
    assert accepted_spec(service(MODEL, **status)) == accepted_spec(service(MODEL, MODEL))


def test_a_copy_that_cannot_be_read_is_no_spec():
    assert accepted_spec(service(MODEL, MODEL | {"scaling": {"maxReplicas": "x"}})) is None


def test_replicas_of_an_autoscaler_are_current():
    accepted = EXTERNAL | {"replicas": 1}
    assert accepted_spec(service(REFUSED | {"replicas": 5}, accepted)).external_replicas == 5
    assert accepted_spec(service(REFUSED, accepted)).external_replicas == 1
    # In another mode Penstock decides.
    assert with_accepted_spec(service(REFUSED | {"replicas": 5}, MODEL))["spec"] == MODEL


def test_a_refused_spec_is_not_in_use():
    accepted = MODEL | {"objectives": {"ttft": "1s"}}
    refused = [{"type": "SpecValid", "status": "False", "observedGeneration": 2}]
    assert spec_in_use(service(REFUSED, accepted, conditions=refused)) == accepted
    assert spec_in_use(service(REFUSED, conditions=refused)) == REFUSED
    assert spec_in_use(service(REFUSED, accepted, conditions=valid(2))) == REFUSED
    assert spec_in_use({"metadata": METADATA, "spec": MODEL}) == MODEL
