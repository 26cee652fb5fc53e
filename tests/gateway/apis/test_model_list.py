"""The list of models."""

import json

from tests.gateway.adapters.adapter_engine import adapter
from tests.support.gateway_snapshots import build

from penstock.gateway.apis.model_list import ModelList, model
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


def test_an_adapter_names_its_parent_only_to_callers_who_may_use_it(make_service):
    sql = build([], [], [], [adapter("sql", model="chat-sql")]).adapters
    snapshot, listed = Snapshot((make_service(),), (), sql), ModelList()

    def allows_adapter(claim):
        return claim is sql[0]

    shown = {"root": "pvc://a/sql", "parent": "chat"}
    for allows, extra in (
        (lambda _: True, shown),
        (allows_adapter, {"root": "pvc://a/sql"}),
        (lambda _: True, shown),
    ):
        card = models(snapshot, allows, listed)["data"][-1]
        assert card == model(snapshot, "chat-sql", sql[0], allows)
        assert card == card | {"id": "chat-sql"} | extra
        assert ("parent" in card) == ("parent" in extra)


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
