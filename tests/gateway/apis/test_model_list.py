"""The list of models."""

import json

from penstock.gateway.apis.model_list import ModelList
from penstock.gateway.snapshots.snapshot import Snapshot


def models(snapshot, allows=lambda _: True, listed=None):
    return json.loads((listed or ModelList()).body(snapshot, allows))


def test_list_of_models_follows_the_snapshot(make_service):
    first, listed = Snapshot((make_service(),)), ModelList()
    assert [each["id"] for each in models(first, listed=listed)["data"]] == ["chat"]
    assert models(Snapshot(), listed=listed) == {"object": "list", "data": []}


def test_list_has_only_models_that_the_caller_may_use(make_service):
    listed = ModelList()
    snapshot = Snapshot((make_service(), make_service(namespace="other")))

    def allows(claim):
        return claim.namespace == "other"

    assert [each["id"] for each in models(snapshot, allows, listed)["data"]] == ["other/chat"]
    assert len(models(snapshot, listed=listed)["data"]) == 2
    assert models(snapshot, lambda _: False, listed)["data"] == []


def test_models(make_service):
    services = (
        make_service(created_s=7),
        make_service(namespace="other", created_s=8),
        make_service(name="svc", served_name="Qwen3", created_s=9),
    )
    listed = models(Snapshot(services))
    named = [("chat", 7), ("other/chat", 8), ("Qwen3", 9)]
    assert listed == {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": created_s, "owned_by": "penstock"}
            for name, created_s in named
        ],
    }
