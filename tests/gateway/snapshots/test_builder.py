"""Building a routing snapshot from Kubernetes objects."""

import pytest
from tests.support.gateway_snapshots import build

from penstock.core.routing.pick import Endpoint, Side
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.snapshot import Service, Snapshot, Unknown

ALL_TO_R1 = {"revision": "r1", "cohort": "Primary", "percent": 100}


def inference_service(name="chat", namespace="default", created=0, served=None, status=None):
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z",
        },
        "spec": {"model": {"uri": "file:///m"} | ({"name": served} if served else {})},
        "status": {"traffic": [ALL_TO_R1]} if status is None else status,
    }


def model_route(name="front"):
    return {
        "metadata": inference_service(name)["metadata"],
        "spec": {"modelName": name, "rules": [{"name": "all", "backendRefs": [{"name": "chat"}]}]},
    }


def pod(
    name="p1", namespace="default", service="chat", ready="True", ip="10.0.0.1", port=8000, **extra
):
    container = {
        "name": "engine",
        "ports": [{"name": "http", "containerPort": port}] if port else [],
    }
    labels = {"serving.penstock.dev/service": service, "serving.penstock.dev/revision": "r1"}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels} | extra,
        "spec": {"containers": [{"name": "sidecar"}, container]},
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]},
    }


def endpoints(*pods):
    return build([inference_service()], pods).services[0].endpoints


def test_ready_pod_is_an_endpoint():
    assert endpoints(pod()) == (Endpoint("default/p1", "10.0.0.1:8000", "r1"),)


def test_port_is_the_one_named_http():
    assert endpoints(pod(port=9000))[0].address == "10.0.0.1:9000"


def test_ipv6_address_is_bracketed():
    assert endpoints(pod(ip="fd00::1"))[0].address == "[fd00::1]:8000"


@pytest.mark.parametrize(
    "other",
    [
        pod(ready="False"), pod(ready="Unknown"), pod(ip=""), pod(port=None),
        pod(deletionTimestamp="2026-01-01T00:00:00Z"), pod(service="other"), pod(namespace="other"),
        pod() | {"status": {}},
    ],
)  # fmt: skip
def test_pod_that_cannot_serve_is_no_endpoint(other):
    assert endpoints(other) == ()


def test_order_of_pods_does_not_matter():
    pods = [pod("a"), pod("b"), pod("c")]
    assert build([inference_service()], pods) == build([inference_service()], pods[::-1])


@pytest.mark.parametrize(
    ("served", "status", "expected"),
    [
        (None, None, "chat"),
        ("Qwen3", None, "Qwen3"),
        ("new", {"modelName": "old"}, "old"),
        ("Qwen3", {}, "Qwen3"),
    ],
)
def test_served_name(served, status, expected):
    snapshot = build([inference_service(served=served, status=status)], [])
    assert snapshot.services[0].served_name == expected


def test_service_without_traffic_has_no_weights():
    service = build([inference_service(status={})], []).services[0]
    assert (service.weights, service.generation) == ({}, 0)


@pytest.mark.parametrize(("truth", "expected"), [("True", "NoModel"), ("False", "")])
def test_stalled_service_has_the_reason_of_its_condition(truth, expected):
    stalled = {"type": "Stalled", "status": truth, "reason": "NoModel", "message": "no model"}
    service = build([inference_service(status={"conditions": [stalled]})], []).services[0]
    assert service.stalled == expected


@pytest.mark.parametrize(
    ("reason", "expected"), [("ScaledToZero", True), ("NoReadyReplicas", False)]
)
def test_service_without_wanted_replicas_is_scaled_to_zero(reason, expected):
    condition = {"type": "TrafficAvailable", "status": "False", "reason": reason}
    service = build([inference_service(status={"conditions": [condition]})], []).services[0]
    assert service.is_scaled_to_zero == expected


@pytest.mark.parametrize(
    ("scaling", "status", "expected"),
    [
        ({"minReplicas": 0}, {}, 120.0),
        ({"minReplicas": 0}, {"scaling": {"startupSeconds": 42}}, 42.0),
        ({"minReplicas": 0, "mode": "DryRun"}, {}, None),
        ({"minReplicas": 1}, {"scaling": {"startupSeconds": 42}}, None),
        ({}, {}, None),
    ],
)
def test_service_that_a_request_wakes_has_the_time_that_its_first_engine_takes(
    scaling, status, expected
):
    body = inference_service(status=status)
    body["spec"]["scaling"] = scaling
    service = build([body], []).services[0]
    assert service.wakes_in_s == expected
    assert service.is_to_wake == (expected is not None)


def test_generation_of_the_traffic():
    traffic = [ALL_TO_R1]
    body = inference_service(status={"traffic": traffic, "trafficGeneration": 7})
    assert build([body], []).services[0].generation == 7


def test_cohort_has_its_own_weight_and_pods():
    control = pod("p2", ready="False")
    control["metadata"]["labels"]["serving.penstock.dev/cohort"] = "control"
    traffic = [
        {"revision": "r1", "cohort": "Primary", "percent": 80},
        {"revision": "r1", "cohort": "Control", "percent": 10},
        {"revision": "r2", "cohort": "Primary", "percent": 10},
    ]
    (service,) = build([inference_service(status={"traffic": traffic})], [pod(), control]).services
    assert service.weights == {("r1", ""): 80, ("r1", "control"): 10, ("r2", ""): 10}
    assert service.sides == {"default/p1": ("r1", ""), "default/p2": ("r1", "control")}
    assert service.is_mixed
    control["status"]["conditions"][0]["status"] = "True"
    assert [e.side for e in endpoints(pod(), control)] == [("r1", ""), ("r1", "control")]


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        (None, "None"),
        ({"strategy": "BlueGreen"}, "None"),
        ({"canary": {"sessionAffinity": {"type": "User"}}}, "User"),
        ({"canary": {"sessionAffinity": {"type": "Conversation"}}}, "Conversation"),
        ({"canary": {"sessionAffinity": {"type": "Planet"}}}, "None"),
    ],
)
def test_affinity(rollout, expected):
    body = inference_service()
    body["spec"] |= {} if rollout is None else {"rollout": rollout}
    assert build([body], []).services[0].affinity == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (
            {"ttft": "1500ms", "tpot": "100ms", "attainment": "0.95"},
            Objectives(1.5, 0.1, 0.95),
        ),
        ({"ttft": "2s"}, Objectives(ttft_s=2.0)),
        ({"tpot": "50ms"}, Objectives(tpot_s=0.05)),
    ],
)
def test_objectives(wanted, expected):
    body = inference_service()
    body["spec"]["objectives"] = wanted
    assert build([body], []).services[0].objectives == expected


def test_model_names_resolve():
    snapshot = build(
        [
            inference_service(namespace="a", created=1),
            inference_service(namespace="b"),
            inference_service(name="only", namespace="b"),
        ],
        [],
    )
    assert isinstance(snapshot.resolve("only"), Service)
    assert isinstance(snapshot.resolve("b/only"), Service)
    assert snapshot.resolve("a/only") == Unknown()
    assert snapshot.resolve("") == Unknown()
    assert snapshot.resolve("chat").key == "b/chat"
    assert snapshot.resolve("a/chat").key == "a/chat"
    assert [name for name, _ in snapshot.models()] == ["chat", "a/chat", "only"]


def test_older_service_wins_a_name_claimed_twice():
    snapshot = build(
        [inference_service("new", created=5, served="m"), inference_service("old", served="m")], []
    )
    assert snapshot.resolve("m").name == "old"
    assert snapshot.resolve("default/m").name == "old"
    assert [service.name for _, service in snapshot.models()] == ["old"]
    assert snapshot.get("default/new") is not None


def test_empty_cluster():
    assert build([], []) == Snapshot()


@pytest.mark.parametrize("bad", ["service", "pod", "route"])
def test_unreadable_object_does_not_affect_the_others(bad, caplog):
    objects = {"service": [inference_service()], "pod": [pod()], "route": [model_route()]}
    broken = {
        "service": inference_service("bad", status={"traffic": [{}]}),
        "pod": pod("bad") | {"spec": {"containers": [{"ports": [{"name": "http"}]}]}},
        "route": {"metadata": inference_service("bad")["metadata"], "spec": {}},
    }
    expected = build(objects["service"], objects["pod"], objects["route"])
    objects[bad].append(broken[bad])
    builder = SnapshotBuilder()
    for _ in range(2):
        assert builder.build(objects["service"], objects["pod"], objects["route"]) == expected
    assert [record.args for record in caplog.records] == [
        (
            {"service": "InferenceService", "pod": "Pod", "route": "ModelRoute"}[bad]
            + " default/bad",
        )
    ]


def test_service_that_becomes_unreadable_keeps_its_last_state():
    """An unreadable service keeps its last valid spec, but its endpoints are still updated."""
    builder, route = SnapshotBuilder(), model_route()
    before = builder.build([inference_service()], [pod()], [route])
    broken = inference_service(status={"traffic": [{}]})
    broken_route = route | {"spec": {}}
    assert builder.build([broken], [pod()], [broken_route]) == before
    (moved,) = builder.build([broken], [pod(ip="10.0.0.2")], []).services
    assert moved.endpoints == endpoints(pod(ip="10.0.0.2"))
    assert moved.weights == before.services[0].weights
    assert builder.build([], [pod()], []) == Snapshot()
    assert builder.build([broken], [pod()], []) == Snapshot()


def test_only_what_changed_is_built_again():
    """A namespace that changes an object all the time must not keep the event loop busy with the others."""
    services, pods = (
        [inference_service(name) for name in "abc"],
        [pod(name, service=name) for name in "abc"],
    )
    routes, builder = [model_route("x"), model_route("y")], SnapshotBuilder()
    first = builder.build(services, pods, routes)

    def kept(snapshot):
        pairs = zip(first.services + first.routes, snapshot.services + snapshot.routes, strict=True)
        return [old.name for old, new in pairs if old is new]

    assert kept(builder.build(services, pods, routes)) == ["a", "b", "c", "x", "y"]
    services[0], routes[1] = inference_service("a", status={"traffic": []}), model_route("y")
    assert kept(builder.build(services, pods, routes)) == ["b", "c", "x"]
    pods[1] = pod("b", service="b", ready="False")
    changed = builder.build(services, pods, routes)
    assert kept(changed) == ["c", "x"]
    assert changed == build(services, pods, routes)
    pods[1] = pod("b", service="b")
    moved = builder.build(services, [pods[0], pods[1]], routes)
    assert kept(moved) == ["x"]
    assert moved == build(services, [pods[0], pods[1]], routes)


@pytest.mark.parametrize("lost", [None, {}, {"observedGeneration": -1}])
def test_service_that_lost_its_status_keeps_its_traffic(lost):
    builder = SnapshotBuilder()
    there = inference_service(
        status={
            "traffic": [ALL_TO_R1],
            "trafficGeneration": 7,
        }
    )
    (before,) = builder.build([there], [pod()]).services
    assert before.weights == {Side("r1", ""): 100}
    without = there | {"status": lost}
    assert builder.build([without], [pod()]).services == (before,)
    nothing = there | {"status": {"traffic": [], "trafficGeneration": 8}}
    assert builder.build([nothing], [pod()]).services[0].weights == {}
    other = {
        **without,
        "metadata": without["metadata"] | {"creationTimestamp": "2026-02-01T00:00:00Z"},
    }
    assert builder.build([other], [pod()]).services[0].weights == {}


DROPPED = [
    {"revision": "r1"},
    {"revision": "r2", "cohort": ""},
    {"revision": "r1", "cohort": "control"},
]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (DROPPED, "r1"),
        (DROPPED[1:2], "r2"),
        ([{"revision": "r2"}, {"revision": "r3"}], "r2"),
        ([], None),
    ],
)
def test_shares_of_an_earlier_version_that_the_new_schema_dropped(targets, expected):
    """A gateway that starts before the operator's first write sends all requests to one revision."""
    status = {"stableRevision": "r1", "traffic": targets, "trafficGeneration": 7}
    (service,) = build([inference_service(status=status)], [pod()]).services
    assert service.weights == ({Side(expected, ""): 100} if expected else {})
    assert service.generation == (7 if not targets else 0)


def test_a_running_gateway_keeps_the_shares_that_the_new_schema_drops(caplog):
    traffic = [
        {"revision": "r1", "cohort": "", "weight": 90},
        {"revision": "r2", "cohort": "", "weight": 10},
    ]
    builder = SnapshotBuilder()
    status = {"stableRevision": "r1", "traffic": traffic, "trafficGeneration": 7}
    before = builder.build([inference_service(status=status)], [pod()])
    assert before.services[0].weights == {Side("r1", ""): 90, Side("r2", ""): 10}
    dropped = [{"revision": "r1", "cohort": ""}, {"revision": "r2", "cohort": ""}]
    assert (
        builder.build([inference_service(status=status | {"traffic": dropped})], [pod()]) == before
    )
    assert not caplog.records


def lora_adapter(name, namespace, model=None, created=0, **status):
    body = inference_service(name, namespace, created, status=status)
    source = {"uri": "pvc://a"} | ({"name": model} if model else {})
    return body | {"spec": {"serviceRef": {"name": "nothing"}, "model": source}}


@pytest.mark.parametrize("created", [0, 9])
def test_an_object_of_another_namespace_takes_no_name_from_one_that_answers(created):
    """Whether the other one is older or younger: it is refused, or has never answered.

    Refused adapters are not listed, and still found by their full name, to be told why.
    """
    refused = {"type": "Accepted", "status": "False", "reason": "ServiceNotFound"}
    mine = (
        inference_service("base", created=5),
        lora_adapter("sql", "default", created=5, stableRevision="r", modelName="sql"),
    )
    others = (
        inference_service("base", "evil", created, status={}),
        lora_adapter("sql", "evil", created=created, conditions=[refused]),
        lora_adapter("any", "evil", "base", created=created, conditions=[refused]),
    )
    snapshot = build([mine[0], others[0]], [], [], [mine[1], *others[1:]])
    assert {name: found.key for name, found in snapshot.models()} == {
        "base": "default/base", "sql": "default/sql", "evil/base": "evil/base",
    }  # fmt: skip
    for name in ("base", "sql"):
        assert snapshot.resolve(name).namespace == "default"
        assert snapshot.resolve(f"evil/{name}").namespace == "evil"
    assert build([others[0]], [], [], []).resolve("base").namespace == "evil"


def test_a_service_keeps_its_short_name_while_its_engines_are_down():
    down = inference_service(created=5, status={"traffic": [], "stableRevision": "r1"})
    other = inference_service(namespace="other", created=9)
    assert build([down, other], []).resolve("chat").key == "default/chat"


def test_a_service_keeps_its_short_name_while_its_status_is_lost():
    builder, other = SnapshotBuilder(), inference_service(namespace="other", created=9)
    builder.build([inference_service(), other], [])
    snapshot = builder.build([inference_service(status={}), other], [])
    assert snapshot.resolve("chat").key == "default/chat"
