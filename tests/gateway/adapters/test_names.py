"""LoraAdapters in the routing snapshot, as model names and in the list of models."""

import json

import pytest
from tests.gateway.adapters.adapter_engine import adapter
from tests.support.gateway_snapshots import build

from penstock.core.observed.lora_engine import LoraEngine
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.snapshot import Snapshot, Unknown


def adapters_of(*bodies):
    return build([], [], [], bodies).adapters


def test_an_adapter_is_named_after_its_object_if_it_has_no_model_name():
    sql, code = adapters_of(adapter("sql", model="chat-sql"), adapter("code", day=2))
    assert (sql.served_name, sql.full_name, sql.key) == (
        "chat-sql",
        "default/chat-sql",
        "default/sql",
    )
    assert (code.served_name, code.service) == ("code", "default/chat")
    assert sql.engine_name == sql.version.engine_name
    assert sql.engine_name.startswith("sql@")
    assert sql.version.engine_path == "/adapters/pvc/a/sql"


def test_a_service_wins_over_an_adapter_and_the_older_adapter_over_the_newer(make_service):
    young, old = adapters_of(adapter("b", model="sql", day=2), adapter("a", model="sql"))[::-1]
    taken = adapters_of(adapter("chat"))
    snapshot = Snapshot((make_service(),), (), (old, young, *taken))
    assert snapshot.resolve("sql") == snapshot.resolve("default/sql") == old
    assert snapshot.resolve("chat") == snapshot.services[0]
    assert snapshot.get_adapter("default/b") == young
    assert [name for name, _ in snapshot.models()] == ["chat", "sql"]


def test_of_adapters_of_two_namespaces_the_older_has_the_short_name():
    snapshot = build([], [], [], [adapter("sql"), adapter("sql", namespace="other", day=2)])
    assert snapshot.resolve("sql").namespace == "default"
    found = snapshot.resolve("other/sql")
    assert isinstance(found, Adapter)
    assert found.namespace == "other"


def test_an_unreadable_adapter_stays_as_it_was(caplog):
    builder = SnapshotBuilder()
    good = adapter("sql")
    before = builder.build([], [], [], [good]).adapters
    broken = good | {"spec": {}}
    for _ in range(2):
        snapshot = builder.build([], [], [], [broken, adapter("code", day=2)])
    assert [each.name for each in snapshot.adapters] == ["sql", "code"]
    assert snapshot.adapters[0] == before[0]
    assert [r.message for r in caplog.records] == ["the LoraAdapter default/sql cannot be read"]
    assert builder.build([], [], [], [adapter("code")]).resolve("sql") == Unknown()


def test_an_adapter_is_read_again_only_if_its_object_changed():
    builder = SnapshotBuilder()
    body = adapter("sql")
    (first,) = builder.build([], [], [], [body]).adapters
    assert builder.build([], [], [], [body]).adapters[0] is first
    (changed,) = builder.build([], [], [], [adapter("sql", uri="pvc://a/sql-2")]).adapters
    assert changed.engine_name != first.engine_name


async def get(front, path):
    async with front.client.get(front.url + path) as got:
        return got.status, await got.json()


async def test_models_list_adapters_with_their_parent(start_gateway, make_service):
    front = await start_gateway()
    services = (
        make_service(served_name="base"),
        make_service(name="other", namespace="other", served_name="base"),
    )
    found = adapters_of(
        adapter("sql", model="chat-sql"), adapter("lost", service="gone", uri="file:///x")
    )
    front.snapshots.publish(Snapshot(services, (), found))
    _, listed = await get(front, "/v1/models")
    assert [(each["id"], each.get("parent"), each.get("root")) for each in listed["data"]] == [
        ("base", None, None),
        ("other/base", None, None),
        ("lost", None, "file:///x"),
        ("chat-sql", "base", "pvc://a/sql"),
    ]
    for name in ("chat-sql", "default/chat-sql", "other/base"):
        status, card = await get(front, f"/v1/models/{name}")
        assert (status, card["id"], card["object"]) == (200, name, "model")
    _, card = await get(front, "/v1/models/default/chat-sql")
    assert (card["parent"], card["root"]) == ("base", "pvc://a/sql")


@pytest.mark.parametrize("kind", ["Accepted", "Resolved"])
async def test_adapters_that_no_engine_can_load_are_not_listed(start_gateway, make_service, kind):
    """A request for one still gets the reason."""
    front = await start_gateway()
    broken = adapter("broken")
    for status, names in (("False", ["chat"]), ("Unknown", ["chat", "broken"])):
        broken["status"] = {"conditions": [{"type": kind, "status": status}]}
        front.snapshots.publish(Snapshot((make_service(),), (), adapters_of(broken)))
        _, listed = await get(front, "/v1/models")
        assert [each["id"] for each in listed["data"]] == names
        assert (await get(front, "/v1/models/broken"))[0] == 200


async def test_a_model_that_is_unknown(start_gateway, make_service):
    front = await start_gateway()
    front.publish(make_service(served_name="base"))
    got, body = await get(front, "/v1/models/none")
    assert (got, body["error"]["code"], body["error"]["param"]) == (404, "model_not_found", "model")


async def test_an_adapter_whose_service_is_missing_is_a_503(start_gateway, make_service):
    front = await start_gateway()
    front.snapshots.publish(Snapshot((), (), adapters_of(adapter("sql", service="gone"))))
    status, body = await front.ask(model="sql")
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (503, "service_missing", "unavailable_error")
    assert error["message"] == (
        "the LoraAdapter default/sql is of the InferenceService default/gone, which does not exist: "
        "create it"
    )


def test_engines_that_take_adapters(make_service):
    """Pods of services without adapters are no engines that take adapters."""

    def pod(service, *args):
        labels = {"serving.penstock.dev/service": service, "serving.penstock.dev/revision": "r1"}
        container = {"name": "engine", "args": list(args)}
        return {
            "metadata": {
                "namespace": "default",
                "name": f"{service}-{len(args)}",
                "labels": labels,
            },
            "spec": {"containers": [container]},
        }

    def service(name):
        metadata = {"namespace": "default", "name": name}
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
        return {"metadata": metadata, "spec": {"model": {}}}

    pods = [
        pod("chat", "--max-loras=2", "--max-cpu-loras=4"),
        pod("chat"),
        pod("other", "--max-loras=2"),
    ]
    snapshot = build([service("chat"), service("other")], pods, [], [adapter("sql")])
    chat, other = snapshot.services
    assert chat.lora_engines == {"default/chat-2": LoraEngine("Penstock", 4)}
    assert other.lora_engines == {}
    assert snapshot.services_with_adapters == [chat]


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ({"status": {"loadedReplicas": 3}}, "Nothing"),
        ({"status": {"demand": {"requestsPerSecond": "2.5"}}}, "Demand"),
        (adapter("sql", uri="pvc://a/sql-2"), "Other"),
        ({"spec": {}}, "Other"),
        (adapter("other"), "Other"),
    ],
)
def test_what_an_object_changes_in_the_snapshot(after, change):
    builder = SnapshotBuilder()
    body = adapter("sql")
    assert builder.adapters.find_change(body) == "Other"
    builder.build([], [], [], [body])
    assert builder.adapters.find_change(body | after) == change


def test_adapters_are_as_new_after_additions_and_deletions():
    builder = SnapshotBuilder()
    a, b = adapter("a", day=2), adapter("b", day=1)
    for bodies, names in (([a], "a"), ([a, b], "ba"), ([a, b], "ba"), ([b], "b"), ([], "")):
        snapshot = builder.build([], [], [], bodies)
        assert "".join(each.name for each in snapshot.adapters) == names


def test_a_fetched_adapter_is_available_once_its_status_records_the_fetch():
    body = adapter("sql")
    body["spec"]["model"]["uri"] = "hf://org/sql"
    (sql,) = adapters_of(body)
    assert not sql.is_available
    record = {"revision": sql.version.revision, "claimName": "cache"}
    (sql,) = adapters_of(body | {"status": {"fetchedVersions": [record]}})
    assert sql.is_available
    assert sql.version.engine_path.startswith("/adapters/cache/adapters/sql/")
    assert adapters_of(adapter("sql"))[0].is_available
