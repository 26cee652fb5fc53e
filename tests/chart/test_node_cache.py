"""Objects of the cache of models on each node."""

from typing import Any

import pytest
from tests.chart.value_sets import IMAGE, VALUE_SETS
from tests.support.network_policies import Peer, allows

from penstock.chart.names import NODE_CACHE, OPERATOR, selector
from penstock.chart.rendering.install import install_manifests
from penstock.chart.rendering.resolve import RefusedValue
from penstock.chart.values.values import merged
from penstock.core.runtimes.paths import MODEL_CACHE_MOUNT
from penstock_engine.contract.node_cache import SOCKET_NAME

ENABLED, WHOLE = VALUE_SETS["node_cache"], VALUE_SETS["node_cache_whole"]


def objects(values: dict[str, Any]) -> dict[tuple[str, str], Any]:
    made = install_manifests(merged(IMAGE, values), "here")
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def pod(values: dict[str, Any]) -> Any:
    return objects(values)["DaemonSet", NODE_CACHE]["spec"]["template"]["spec"]


def test_it_is_off_by_default() -> None:
    made = objects({})
    assert not any(NODE_CACHE in name for _, name in made)
    args = made["Deployment", OPERATOR]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not any(arg.startswith("--node-cache") for arg in args)


def test_the_operator_and_the_cache_have_the_same_folder() -> None:
    operator = objects(WHOLE)["Deployment", OPERATOR]["spec"]["template"]["spec"]
    assert "--node-cache-path=/mnt/ssd_1/models" in operator["containers"][0]["args"]
    made = pod(WHOLE)
    assert made["volumes"] == [
        {"name": "tmp", "emptyDir": {}},
        {"name": "model-cache", "hostPath": {"path": "/mnt/ssd_1/models", "type": "DirectoryOrCreate"}},
        {"name": "model-secret", "secret": {"secretName": "hub", "defaultMode": 0o400}},
    ]  # fmt: skip
    (container,) = made["containers"]
    assert (container["image"], container["command"]) == ("engines:v2", ["penstock-engine"])
    assert container["args"] == [
        "node-cache", "--cache=/model-cache", f"--cache-limit-bytes={500 << 30}",
        "--allow=hf://", "--allow=oci://registry.example:5000/models",
        "--credentials=/model-secret", "--deadline-seconds=7200",
    ]  # fmt: skip
    assert container["env"] == [
        {"name": "HF_ENDPOINT", "value": "https://hub.example.com/$$(X)?a=b"},
        {"name": "NO_PROXY", "value": ".svc"},
    ]
    assert container["volumeMounts"] == [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "model-cache", "mountPath": "/model-cache"},
        {"name": "model-secret", "mountPath": "/model-secret", "readOnly": True},
    ]


def test_it_has_no_rights_but_those_of_the_folders_owner() -> None:
    made = pod(ENABLED)
    assert made["automountServiceAccountToken"] is False
    assert made["securityContext"] == {
        "runAsUser": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert made["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(
        "penstock-node-cache" in name and "Role" in kind for kind, name in objects(ENABLED)
    )


def test_a_node_has_one_writer_at_a_time() -> None:
    strategy = objects(ENABLED)["DaemonSet", NODE_CACHE]["spec"]["updateStrategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }


def test_it_is_ready_once_its_socket_is_there() -> None:
    probe = pod(ENABLED)["containers"][0]["readinessProbe"]
    assert probe["exec"]["command"] == ["test", "-S", f"{MODEL_CACHE_MOUNT}/{SOCKET_NAME}"]


def test_what_it_may_fetch_has_to_be_named() -> None:
    with pytest.raises(
        RefusedValue, match=r"nodeCache\.allowedSources must name what nodes may fetch"
    ):
        objects({"nodeCache": {"enabled": True}})
    assert objects({"nodeCache": {"allowedSources": []}})


@pytest.mark.parametrize(
    ("port", "protocol", "is_allowed"),
    [(443, "TCP", True), (3128, "TCP", True), (53, "UDP", True), (80, "TCP", False), (8000, "TCP", False)],
)  # fmt: skip
def test_it_connects_to_sources_and_dns_servers_alone(
    port: int, protocol: str, is_allowed: bool
) -> None:
    policies = [each for (kind, _), each in objects(WHOLE).items() if kind == "NetworkPolicy"]
    cache = Peer("here", selector(NODE_CACHE), "10.244.0.7")
    for other in (Peer("team", {}, "10.244.0.8"), Peer(None, {}, "192.0.2.1")):
        assert allows(policies, cache, other, port, protocol) == is_allowed
        assert not allows(policies, other, cache, port, protocol)
