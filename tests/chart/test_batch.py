"""Objects of the batch server."""

from itertools import product
from typing import Any

import pytest
from tests.chart.value_sets import IMAGE, VALUE_SETS
from tests.support.network_policies import Peer, allows

from penstock.chart.names import BATCH, GATEWAY, OPERATOR, selector
from penstock.chart.rendering.install import install_manifests
from penstock.chart.rendering.resolve import RefusedValue
from penstock.chart.values.values import InvalidValues, merged
from penstock.core.batches.shared_token import MIN_TOKEN_BYTES
from penstock.core.manifests.restricted import broken_rules

ENABLED, WHOLE, BUCKET = (VALUE_SETS[name] for name in ("batch", "batch_whole", "batch_bucket"))
TOKEN_FILE = "/etc/penstock/batch-token/token"


def objects(values: dict[str, Any]) -> dict[tuple[str, str], Any]:
    made = install_manifests(merged(IMAGE, values), "here")
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def pod(values: dict[str, Any], name: str = BATCH) -> Any:
    return objects(values)["Deployment", name]["spec"]["template"]["spec"]


def container(values: dict[str, Any], name: str = BATCH) -> Any:
    (found,) = pod(values, name)["containers"]
    return found


def test_it_is_off_by_default() -> None:
    assert not any(BATCH in name for _, name in objects({}))
    gateway = pod({}, GATEWAY)
    assert not any("batch" in arg for arg in gateway["containers"][0]["args"])
    assert [each["name"] for each in gateway["volumes"]] == ["tmp"]


def test_gateways_and_the_batch_server_find_each_other() -> None:
    volume = {
        "name": "batch-token",
        "secret": {"secretName": "batch-token", "items": [{"key": "token", "path": "token"}]},
    }
    mount = {"name": "batch-token", "mountPath": "/etc/penstock/batch-token", "readOnly": True}
    for name in (BATCH, GATEWAY):
        made = pod(ENABLED, name)
        assert volume in made["volumes"]
        assert mount in made["containers"][0]["volumeMounts"]
    found = {"--batch-url=http://penstock-batch.here.svc:8084", f"--batch-token-file={TOKEN_FILE}"}
    assert found <= {*container(ENABLED, GATEWAY)["args"]}
    assert container(ENABLED)["args"] == [
        "batch", "run", "--host=$(POD_IP)", "--port=8084", "--management-port=8085",
        "--gateway-url=http://penstock-gateway.here.svc", f"--token-file={TOKEN_FILE}",
        "--store=/var/lib/penstock", "--log-level=info",
    ]  # fmt: skip
    (port,) = objects(ENABLED)["Service", BATCH]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8084, "http")


def test_a_token_has_to_be_named() -> None:
    with pytest.raises(RefusedValue, match=r"batch\.tokenSecretName must name a Secret") as raised:
        objects({"batch": {"enabled": True}})
    assert f"{MIN_TOKEN_BYTES} bytes" in str(raised.value)


def test_the_gateways_certificate_is_checked_by_its_authority() -> None:
    """The pod has the authority, not the key. Without one in the Secret the system's are used."""
    args = container(WHOLE)["args"]
    assert "--gateway-url=https://penstock-gateway.here.svc" in args
    assert "--gateway-ca-file=/etc/penstock/gateway-ca/ca.crt" in args
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    secret = {"secretName": "certificate", "items": items, "optional": True}
    assert {"name": "gateway-ca", "secret": secret} in pod(WHOLE)["volumes"]


@pytest.mark.parametrize(
    ("name", "claim"), [("batch", BATCH), ("batch_existing_claim", "files"), ("batch_bucket", None)]
)
def test_the_store_is_a_claim_or_a_bucket(name: str, claim: str | None) -> None:
    values = VALUE_SETS[name]
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in pod(values)["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert claims == ([claim] if claim else [])
    assert (("PersistentVolumeClaim", BATCH) in objects(values)) == (claim == BATCH)
    store = "/var/lib/penstock" if claim else "s3://files.example/penstock/a_b"
    assert f"--store={store}" in container(values)["args"]


def test_credentials_of_a_bucket_are_variables() -> None:
    assert container(BUCKET)["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert "envFrom" not in container(ENABLED)


def test_a_claim_has_the_chosen_size_and_class_and_stays() -> None:
    claim = objects(WHOLE)["PersistentVolumeClaim", BATCH]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Ti"}},
        "storageClassName": "fast",
    }
    default = objects(ENABLED)["PersistentVolumeClaim", BATCH]
    assert "storageClassName" not in default["spec"]


def test_its_pod_is_restricted_and_alone() -> None:
    made = objects(ENABLED)["Deployment", BATCH]
    assert (made["spec"]["replicas"], made["spec"]["strategy"]) == (1, {"type": "Recreate"})
    spec = made["spec"]["template"]["spec"]
    assert [*broken_rules(spec, (), (BATCH,))] == []
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsUser"]
    (its,) = spec["containers"]
    assert its["securityContext"]["readOnlyRootFilesystem"] is True
    # It is ready when it leads, and must not be restarted while it waits for that.
    paths = [
        its[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    ]
    assert paths == ["/healthz", "/healthz", "/readyz"]
    assert not any(BATCH in name and "Role" in kind for kind, name in objects(ENABLED))


@pytest.mark.parametrize(
    "value",
    [
        {"replicas": 2},
        {"terminationGracePeriodSeconds": 29},
        {"storage": {"s3": {"url": "https://bucket.example"}}},
        {"storage": {"claim": {"size": "20"}}},
        {"extraVolumes": [{"name": "batch-store", "emptyDir": {}}]},
    ],
)
def test_values_that_do_not_fit_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidValues, match="batch"):
        objects({"batch": value})


@pytest.mark.parametrize("name", ["batch", "batch_whole", "batch_bucket"])
def test_connections(name: str) -> None:
    """gatewayFrom does not name the batch server in the second one."""
    values = VALUE_SETS[name]
    policies = [each for (kind, _), each in objects(values).items() if kind == "NetworkPolicy"]
    client_port = 18080 if name == "batch_whole" else 8080
    peers = {
        BATCH: Peer("here", selector(BATCH), "10.244.0.7"),
        GATEWAY: Peer("here", selector(GATEWAY), "10.244.0.8"),
        OPERATOR: Peer("here", selector(OPERATOR), "10.244.0.9"),
        "neighbor": Peer("here", {}, "10.244.0.10"),
        "tenant": Peer("team", selector(GATEWAY), "10.244.0.11"),
        "host": Peer(None, {}, "192.0.2.1"),
    }
    ports = (53, 443, 8084, 8085, 9000, client_port)
    found = {
        (source, destination, port)
        for source, destination, port in product(peers, peers, ports)
        if BATCH in (source, destination)
        and source != destination
        and allows(policies, peers[source], peers[destination], port)
    }
    bucket = {443, 9000} if name == "batch_bucket" else set()
    open_ends = ("neighbor", "tenant", "host")
    assert found == {
        (GATEWAY, BATCH, 8084),
        (BATCH, GATEWAY, client_port),
        ("neighbor", BATCH, 8085),
        *((BATCH, end, port) for end in open_ends for port in (53, *bucket)),
    }


def test_prometheus_finds_it() -> None:
    spec = objects(ENABLED)["PodMonitor", BATCH]["spec"]
    assert spec["selector"] == {"matchLabels": selector(BATCH)}
    assert spec["podMetricsEndpoints"][0]["port"] == "management"
