"""Who has a model name in the routing snapshot, while a status is lost or was never written."""

import pytest
from tests.support.gateway_snapshots import build

from penstock.gateway.snapshots.builder import SnapshotBuilder


def named(name, namespace, created=0, model=None, **status):
    """A service. status: its fields; none if there is no status yet."""
    metadata = {
        "name": name, "namespace": namespace, "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z",
    }  # fmt: skip
    model = {"uri": "file:///m"} | ({"name": model} if model else {})
    return {"metadata": metadata, "spec": {"model": model}, "status": status}


def serving(name, namespace="default", created=0):
    traffic = [{"revision": "r1", "cohort": "Primary", "percent": 100}]
    return named(name, namespace, created, traffic=traffic, modelName=name)


def test_a_service_without_a_status_keeps_the_name_under_which_it_answered():
    """Its spec may ask for a name that another service has."""
    builder, other = SnapshotBuilder(), serving("other", created=9)
    builder.build([serving("chat"), other], [])
    renamed = named("chat", "default", model="other")
    snapshot = builder.build([renamed, other], [])
    assert snapshot.resolve("chat").key == "default/chat"
    assert snapshot.resolve("other").key == "default/other"


def model_route(namespace, created, model="front", **status):
    body = named("front", namespace, created, **status)
    rules = [{"name": "all", "backendRefs": [{"name": "chat"}]}]
    return body | {"spec": {"modelName": model, "rules": rules}}


def test_a_route_without_backends_takes_no_name_from_a_service_that_answers():
    answers = serving("front", created=5)
    for namespace in ("default", "evil"):
        snapshot = build([answers], [], [model_route(namespace, created=0)])
        assert snapshot.resolve("front").kind == "InferenceService"
    answered = model_route("default", created=9, modelName="front")
    assert build([answers], [], [answered]).resolve("front").kind == "ModelRoute"


def lora_adapter(namespace, created, **status):
    spec = {"serviceRef": {"name": "base"}, "model": {"uri": "pvc://a"}}
    return named("sql", namespace, created, **status) | {"spec": spec}


@pytest.mark.parametrize("kind", ["route", "adapter"])
def test_a_route_or_an_adapter_keeps_its_short_name_while_its_status_is_lost(kind):
    def objects(mine, other):
        if kind == "route":
            return [], [], [model_route("b", 9, **mine), model_route("a", 5, **other)], []
        return [], [], [], [lora_adapter("b", 9, **mine), lora_adapter("a", 5, **other)]

    conflict = {"type": "ModelNameConflict", "status": "True", "message": "b/front has it"}
    name = "front" if kind == "route" else "sql"
    answered = {"modelName": name, "stableRevision": "r", "conditions": [{"type": "Any"}]}
    other = answered | {"conditions": [conflict]}
    builder = SnapshotBuilder()
    assert builder.build(*objects(answered, other)).resolve(name).namespace == "b"
    assert builder.build(*objects({}, other)).resolve(name).namespace == "b"
    assert SnapshotBuilder().build(*objects({}, other)).resolve(name).namespace == "a"
