"""The list of models."""

import json

from penstock.gateway.apis.model_list import ModelList, models
from penstock.gateway.snapshots.snapshot import Snapshot


def test_the_list_of_models_is_encoded_once_for_each_snapshot(make_service):
    found, first, second = ModelList(), Snapshot((make_service(),)), Snapshot()
    body = found.body(first)
    assert json.loads(body) == models(first)
    assert found.body(first) is body
    assert json.loads(found.body(second)) == {"object": "list", "data": []}


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
