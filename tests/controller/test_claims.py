"""Operator and gateway assign a model name that two services claim to the same service."""

import itertools

import pytest

from penstock.api.convert import to_core
from penstock.controller.service_reader import name_taken_by
from penstock.core.observed.accepted_spec import encoded_spec
from penstock.gateway.snapshot import Service
from penstock.gateway.snapshot_builder import build


def service(name, uid, created_at):
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {
            "name": name, "namespace": "n", "uid": uid, "generation": 1,
            "creationTimestamp": created_at,
        },
        "spec": {"model": {"uri": "pvc://models", "name": "chat"}},
    }  # fmt: skip


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
CASES = [
    (uids, times)
    for uids in itertools.permutations(["u1", "u2", "u3"])
    for times in itertools.product([EARLY, LATE], repeat=3)
]


@pytest.mark.parametrize(("uids", "times"), CASES)
def test_operator_and_gateway_agree(uids, times):
    bodies = [service(*each) for each in zip("abc", uids, times, strict=True)]
    services = {("n", body["metadata"]["name"]): body for body in bodies}
    holders = {
        body["metadata"]["name"]: name_taken_by(services, body, to_core(body)) for body in bodies
    }
    free = [name for name, holder in holders.items() if holder is None]
    served = build(reversed(bodies), []).resolve("n/chat")
    assert isinstance(served, Service)
    assert free == [served.name]
    assert set(holders.values()) == {None, served.name}
    assert (times["abc".index(served.name)], served.name) == min(zip(times, "abc", strict=True))


def test_a_refused_spec_claims_no_name():
    older, younger = service("a", "u1", EARLY), service("b", "u2", LATE)
    other = {"model": {"uri": "pvc://models", "name": "other"}}
    refused = {"type": "SpecValid", "status": "False", "observedGeneration": 1}
    older["status"] = {
        "acceptedSpec": encoded_spec({"spec": other}), "modelName": "other", "conditions": [refused],
    }  # fmt: skip
    services = {("n", body["metadata"]["name"]): body for body in (older, younger)}
    assert name_taken_by(services, younger, to_core(younger)) is None
    assert build([older, younger], []).resolve("n/chat").name == "b"
