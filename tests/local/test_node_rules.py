"""Rules of the node agent without any process: probes, back-off, environment, status."""

from typing import Any

import pytest

from penstock.local.node.backoff import Backoff
from penstock.local.node.environment import (
    ConfigError,
    environment,
    expand,
    quantity,
    resource,
    rewrite_paths,
)
from penstock.local.node.podstatus import ContainerRecord, PodRecord, Terminated, should_restart
from penstock.local.node.probe import ProbeSpec, ProbeState
from penstock.local.node.unsupported import unsupported

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}},
    "spec": {"nodeName": "node", "containers": []},
    "status": {"podIP": "127.1.2.3"},
}


def test_back_off_follows_kubernetes() -> None:
    pauses, backoff = [], Backoff()
    for _ in range(8):
        pause_s, backoff = backoff.next_pause(1.0)
        pauses.append(pause_s)
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.next_pause(700.0)[0] == 0


@pytest.mark.parametrize(
    ("answers", "verdicts"),
    [
        ("+", ["passing"]),
        ("--+", ["unknown", "failing", "passing"]),
        ("+-+-", ["passing", "passing", "passing", "passing"]),
        ("+--", ["passing", "passing", "failing"]),
    ],
)
def test_a_probe_needs_its_threshold(answers: str, verdicts: list[str]) -> None:
    spec = ProbeSpec.of({"httpGet": {}, "failureThreshold": 2})
    assert spec is not None
    state, seen = ProbeState(), []
    for answer in answers:
        state = state.observe(spec, answer == "+")
        seen.append(state.verdict)
    assert seen == verdicts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)/x", "1/x"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("cost: $5", "cost: $5"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/models/tiny", "/host/tmp/m/tiny"),
        ("--dir=/models", "--dir=/host/tmp/m"),
        ("--headers=/models=s3://b/models", "--headers=/host/tmp/m=s3://b/models"),
        ("/modelsX", "/modelsX"),
        ("/other/models", "/other/models"),
        ("/models:/tmp", "/host/tmp/m:/host/t"),
        ("http://x/models", "http://x/models"),
    ],
)
def test_mount_paths_become_folders_in_one_pass(text: str, expected: str) -> None:
    assert rewrite_paths(text, {"/models": "/host/tmp/m", "/tmp": "/host/t"}) == expected


def test_an_environment_from_every_source() -> None:
    container = {
        "resources": {"limits": {"memory": "1Gi", "cpu": "1500m"}},
        "envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "P_"}],
        "env": [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
            {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "URL", "value": "http://$(IP)"},
        ],
    }
    env = environment(container, POD, {"BASE": "x"}, {"cm": {"one": "1"}}, {"s": {"k": "v"}})
    assert env == {
        "BASE": "x", "P_one": "1", "IP": "127.1.2.3", "L": "b", "MEM": str(2**30), "CPU": "2",
        "KEY": "v", "URL": "http://127.1.2.3",
    }  # fmt: skip


def test_only_stated_values_are_expanded_as_the_kubelet_does() -> None:
    """Values from Secrets are not expanded, and the machine's variables are not available."""
    odd = "pa$$word-$(HOME)-$(A)"
    container = {
        "envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "cm"}}],
        "env": [
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "m"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['odd']"}}},
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A) $(m) $(HOST) $(HOME) $(PATH) $(LATER) $$(A) $(A"},
            {"name": "LATER", "value": "2"},
        ],
    }
    pod = POD | {"metadata": POD["metadata"] | {"labels": {"odd": odd}}}
    env = environment(container, pod, {"HOST": "h"}, {"cm": {"m": odd}}, {"s": {"k": odd}})
    assert {env[name] for name in ("k", "m", "KEY", "MAP", "LABEL")} == {odd}
    assert env["B"] == f"1 {odd} h $(HOME) $(PATH) $(LATER) $(A) $(A"


def test_a_nul_byte_is_refused_by_name() -> None:
    container = {"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
    with pytest.raises(ConfigError, match="K contains a NUL byte"):
        environment(container, POD, {}, {}, {"s": {"k": "a\0b"}})


@pytest.mark.parametrize(
    ("spec", "lost"),
    [
        ({}, []),
        ({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": 1}}}]}, []),
        (
            {"containers": [{"name": "c", "readinessProbe": {"grpc": {"port": 1}}}]},
            ["spec.containers[c].readinessProbe.grpc"],
        ),
        (
            {"initContainers": [{"name": "i", "restartPolicy": "Always"}]},
            ["spec.initContainers[i].restartPolicy"],
        ),
        (
            {"containers": [{"name": "c", "stdin": True, "tty": True, "volumeDevices": [{}]}]},
            ["spec.containers[c].stdin", "spec.containers[c].tty",
             "spec.containers[c].volumeDevices"],
        ),
        ({"readinessGates": [{}]}, ["spec.readinessGates"]),
        ({"hostAliases": [{}], "resourceClaims": [{}]}, ["spec.hostAliases", "spec.resourceClaims"]),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {}}]}, []),
        ({"volumes": [{"name": "v", "nfs": {}}]}, ["spec.volumes[v].nfs"]),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [
                {"secret": {}}, {"clusterTrustBundle": {}}]}}]},
            ["spec.volumes[v].projected.clusterTrustBundle"],
        ),
    ],
)  # fmt: skip
def test_unsupported_fields_are_named(spec: dict[str, Any], lost: list[str]) -> None:
    assert unsupported({"spec": {"containers": []} | spec}) == lost


def test_missing_references_are_named() -> None:
    container = {"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
    with pytest.raises(ConfigError, match="secretKeyRef 's' not found"):
        environment(container, POD, {}, {}, {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("500m", 0.5),
        ("1Ki", 1024),
        ("2G", 2e9),
        ("1e3", 1000),
        ("2Pi", 2**51),
        ("1E", 1e18),
    ],
)
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == value


def test_a_resource_in_units_of_its_divisor_is_exact() -> None:
    """9m / 1m is exactly 9, although neither is a binary fraction."""
    for thousandths in range(1, 2000):
        container = {"resources": {"limits": {"cpu": f"{thousandths}m"}}}
        amounts = [
            resource(container, {"resource": "limits.cpu", "divisor": divisor})
            for divisor in ("1m", "1")
        ]
        assert amounts == [str(thousandths), str(-(-thousandths // 1000))]


ENDED = Terminated(1, "Error", "why", "t1", "t2")
RECORD = ContainerRecord("c", "i")


@pytest.mark.parametrize(
    ("policy", "records", "phase"),
    [
        ("Always", (RECORD,), "Pending"),
        ("Always", (RECORD.running("t"),), "Running"),
        ("Always", (RECORD.terminated(ENDED),), "Running"),
        ("Never", (RECORD.terminated(ENDED),), "Failed"),
        ("OnFailure", (RECORD.terminated(ENDED),), "Running"),
        ("Never", (RECORD.terminated(Terminated(0, "Completed", "", "a", "b")),), "Succeeded"),
        (
            "Never",
            (RECORD.terminated(Terminated(0, "Completed", "", "a", "b")), RECORD.running("t")),
            "Running",
        ),
    ],
)
def test_the_phase_follows_from_the_containers(
    policy: str, records: tuple[ContainerRecord, ...], phase: str
) -> None:
    assert PodRecord(policy, "1", "2", "t", containers=records).phase == phase


def test_a_restart_is_counted_and_the_last_end_kept() -> None:
    record = RECORD.running("t0").terminated(ENDED).waiting("CrashLoopBackOff").running("t3")
    status = record.as_status()
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["message"] == "why"


def test_conditions_keep_their_times_until_they_change() -> None:
    record = PodRecord("Always", "1", "2", "t", containers=(RECORD.running("t"),))
    first = record.as_status({}, "T1")
    assert record.as_status(first, "T2") == first


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_restart_policies(policy: str, code: int, again: bool) -> None:
    assert should_restart(policy, code) is again
