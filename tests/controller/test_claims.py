"""Operator and gateway assign a model name that two services claim to the same service."""

import itertools

import pytest

from penstock.controller.service_reader import name_taken_by
from penstock.core.observed.accepted_spec import encoded_spec
from penstock.core.observed.name_claims import NameIndex, service_claim, with_model_name
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
    names = NameIndex(map(service_claim, bodies))
    holders = {
        body["metadata"]["name"]: name_taken_by(names, service_claim(body)) for body in bodies
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
    names = NameIndex(map(service_claim, (older, younger)))
    assert name_taken_by(names, service_claim(younger)) is None
    assert build([older, younger], []).resolve("n/chat").name == "b"


def test_a_service_takes_no_name_by_a_change_of_its_spec():
    """The service that had the name keeps it, even when the status of the other one has it too."""
    older, younger = service("a", "u1", EARLY), service("b", "u2", LATE)
    for body, name in ((older, "other"), (younger, "chat")):
        body["status"] = {"modelName": name, "stableRevision": "r", "conditions": []}
    names = NameIndex(map(service_claim, (older, younger)))
    assert name_taken_by(names, with_model_name(service_claim(older), "chat")) == "b"
    taken = {"type": "SpecValid", "status": "False", "reason": "ModelNameInUse"}
    older["status"] |= {"modelName": "chat", "conditions": [taken]}
    names.put(service_claim(older))
    assert name_taken_by(names, service_claim(older)) == "b"
    assert name_taken_by(names, service_claim(younger)) is None
    assert build([older, younger], []).resolve("n/chat").name == "b"
    names.remove(("InferenceService", "n", "b"))
    assert name_taken_by(names, service_claim(older)) is None
