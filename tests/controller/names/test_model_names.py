"""The operator's index of model names: what a change of one object means to the services."""

import pytest

from penstock.controller.names.model_names import ModelNames


def service(namespace, name, model="chat"):
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"model": {"name": model}}}


def route(model, namespace="b"):
    body = service(namespace, "front")
    return body | {"spec": {"modelName": model, "rules": []}}


@pytest.fixture
def names():
    queued = []
    found = ModelNames(affected=queued.append)
    for key in (("a", "one"), ("b", "two"), ("b", "three")):
        body = service(*key, model="other" if key[1] == "three" else "chat")
        found.update("InferenceService", key, body)
    queued.clear()
    found.queued = queued
    return found


def test_services_that_lose_or_get_a_name_are_queued(names):
    for body in (route("chat", namespace="a"), None):
        names.update("ModelRoute", ("a", "front"), body)
        assert names.queued == [("b", "two")]
        names.queued.clear()
    names.update("InferenceService", ("a", "one"), None)
    assert names.queued == [("b", "two")]


def test_a_renamed_object_queues_the_services_of_both_names(names):
    names.update("ModelRoute", ("a", "front"), route("chat", namespace="a"))
    names.queued.clear()
    names.update("ModelRoute", ("a", "front"), route("other", namespace="a"))
    assert set(names.queued) == {("b", "two"), ("b", "three")}


def test_an_object_that_has_no_name_queues_nothing(names):
    for model in ("chat", "other", "chat"):
        names.update("ModelRoute", ("b", "front"), route(model))
    names.update("ModelRoute", ("b", "front"), None)
    assert names.queued == []


def test_a_change_that_leaves_the_claim_alone_queues_nothing(names):
    body = service("a", "one") | {"status": {"readyReplicas": 1}}
    names.update("InferenceService", ("a", "one"), body)
    assert names.queued == []


def test_the_aliases_of_a_route_are_claims(names):
    aliased = route("front", namespace="a")
    aliased["spec"]["aliases"] = ["chat", "other"]
    names.update("ModelRoute", ("a", "front"), aliased)
    assert names.queued == [("b", "two"), ("b", "three")]
    names.queued.clear()
    aliased["spec"]["aliases"] = ["chat"]
    names.update("ModelRoute", ("a", "front"), aliased)
    assert names.queued == [("b", "three")]
    names.queued.clear()
    names.update("ModelRoute", ("a", "front"), None)
    assert names.queued == [("b", "two")]


def test_an_unreadable_object_keeps_its_claim(names):
    names.update("InferenceService", ("a", "one"), {"metadata": {}, "spec": None})
    assert names.queued == []
    assert names.index.get(("InferenceService", "a", "one")).model_name == "chat"
