"""Operator and gateway assign a model name that two services claim to the same service."""

import itertools

import pytest
from tests.support.gateway_snapshots import build

from penstock.controller.names.model_names import ModelNames
from penstock.controller.services.reader import ServiceReader, name_taken_by
from penstock.core.observed.accepted_spec import encoded_spec
from penstock.core.observed.children import ObservedState
from penstock.core.observed.name_claims import (
    CLAIM_KINDS,
    ESTABLISHED,
    Standing,
    service_claim,
    with_next_status,
)
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.name_conflict import NAMES_NOT_LISTED
from penstock.gateway.snapshots.snapshot import Service


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


TAKEN = {"type": "SpecValid", "status": "False", "reason": "ModelNameInUse"}
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
    assert (
        name_taken_by(names, with_next_status(service_claim(older), "chat", Standing.ESTABLISHED))
        == "b"
    )
    older["status"] |= {"modelName": "chat", "conditions": [TAKEN]}
    names.put(service_claim(older))
    assert name_taken_by(names, service_claim(older)) == "b"
    assert name_taken_by(names, service_claim(younger)) is None
    assert build([older, younger], []).resolve("n/chat").name == "b"
    names.remove(("InferenceService", "n", "b"))
    assert name_taken_by(names, service_claim(older)) is None


CONFLICT = {"type": "ModelNameConflict", "status": "True", "message": "elsewhere/chat has it"}


def reader_of(*bodies, listed=CLAIM_KINDS):
    """A reader beside other services that the operator knows."""
    names = ModelNames(is_listed=listed.__contains__)
    for body in bodies:
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        names.update("InferenceService", key, body)
    return ServiceReader(None, names, None), names


def conflict_of(reader, body, standing, model_name="chat"):
    return reader.with_name_conflict(ObservedState(), body, standing, model_name).name_conflict


def elsewhere(body, **status):
    """The service in another namespace."""
    return body | {"metadata": body["metadata"] | {"namespace": "o"}, "status": status}


def test_until_all_names_are_known_a_service_gets_no_name_that_is_new_to_it():
    reader, _ = reader_of(listed=())
    body = service("a", "u1", EARLY)
    assert not reader.record_namespace_holder(body, "chat")
    assert not reader.record_short_name_holder(body, Standing.ESTABLISHED, "chat")
    body["status"] = {"modelName": "chat", "stableRevision": "r", "conditions": [CONFLICT]}
    for name, is_known in (("chat", True), ("other", False)):
        assert reader.record_namespace_holder(body, name) == is_known
        assert reader.record_short_name_holder(body, Standing.ESTABLISHED, name) == is_known
    assert conflict_of(reader, body, Standing.ESTABLISHED) == CONFLICT["message"]
    body["status"]["conditions"] = [TAKEN]
    assert not reader.record_namespace_holder(body, "chat")


def test_a_service_is_planned_before_routes_and_adapters_are_known():
    """It waits to answer for the first time. After the longest wait it takes its short name from nobody."""
    reader, _ = reader_of(listed=("InferenceService",))
    body = service("a", "u1", EARLY)
    assert reader.record_namespace_holder(body, "chat")
    assert reader.record_short_name_holder(body, Standing.PENDING, "chat")
    assert conflict_of(reader, body, Standing.PENDING) == ""
    assert not reader.record_short_name_holder(body, Standing.ESTABLISHED, "chat")
    assert conflict_of(reader, body, Standing.ESTABLISHED) == NAMES_NOT_LISTED


def test_the_short_name_is_decided_by_the_status_that_is_about_to_be_written():
    """A service that has just come up has the name before an older one that has not."""
    older, younger = elsewhere(service("a", "u1", EARLY)), service("b", "u2", LATE)
    reader, names = reader_of(older, younger)
    assert conflict_of(reader, younger, Standing.PENDING).endswith("o/a, which had it first")
    assert conflict_of(reader, younger, Standing.ESTABLISHED) == ""
    assert conflict_of(reader, older, Standing.ESTABLISHED).endswith("n/b, which had it first")
    assert names.index.get(("InferenceService", "n", "b")).precedence == ESTABLISHED


def test_an_older_service_waits_until_the_holder_of_its_name_knows_that_it_holds_it():
    """Both would say that they yield, and the older one would come first."""
    answers = {"modelName": "chat", "stableRevision": "r", "conditions": [CONFLICT]}
    holder, older = elsewhere(service("b", "u2", LATE), **answers), service("a", "u1", EARLY)
    older["status"] = answers | {"modelName": "other", "conditions": []}
    reader, names = reader_of(holder, older)
    assert reader.record_namespace_holder(older, "chat")
    assert not reader.record_short_name_holder(older, Standing.ESTABLISHED, "chat")
    assert names.index.get(("InferenceService", "o", "b")).precedence == ESTABLISHED
    assert reader.record_short_name_holder(older, Standing.ESTABLISHED, "chat")
    assert conflict_of(reader, older, Standing.ESTABLISHED).endswith("o/b, which had it first")


def test_a_service_keeps_its_name_while_its_status_is_lost():
    body, other = service("a", "u1", LATE), elsewhere(service("b", "u2", EARLY))
    body["status"] = {"modelName": "chat", "stableRevision": "r", "conditions": []}
    reader, names = reader_of(body, other)
    names.update("InferenceService", ("n", "a"), body | {"status": {}})
    assert conflict_of(reader, other, Standing.ESTABLISHED).endswith("n/a, which had it first")
    assert conflict_of(reader, body | {"status": {}}, Standing.ESTABLISHED) == ""
