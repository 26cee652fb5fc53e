"""Pods from which and to which connections are made, in namespaces of their own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.real_node.lab import Lab
from tests.support.cluster.manifests import RESTRICTED

from penstock.chart.connections.matrix import DESTINATIONS, SOURCES, Place
from penstock.chart.names import NAMESPACE
from penstock.core.manifests import restricted
from penstock.core.spec.service import Object
from penstock.local.kubelet.images import IMAGE

PROBE = Path(__file__).with_name("connection_probe.py").read_text()
PREFIX = "connections"
LABEL, NODE = "benchmark", "node"
HOSTNAME = "kubernetes.io/hostname"
READY_WITHIN_S = 180
# Places whose namespaces are made here. Pods in that of the nodes use the network of their node.
OWN_PLACES: Sequence[Place] = ("tenant", "monitoring", "nodes")
# Sources that are pods of this program's; the others are pods of the chart, and hosts.
CLIENTS = (
    "installation-pod", "evaluation", "services-pod", "tenant-pod", "false-gateway", "false-operator",
    "prometheus",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProbePod:
    """A pod in which the probe runs. source: its name in the table. node: of a pod on its node's network."""

    source: str
    namespace: str
    name: str
    node: str = ""


def namespaces(services: str) -> Mapping[Place, str]:
    """Names of the places. services: the namespace of services."""
    return {
        "installation": NAMESPACE,
        "services": services,
        "tenant": f"{PREFIX}-tenant",
        "monitoring": f"{PREFIX}-monitoring",
        "nodes": f"{PREFIX}-nodes",
    }


def start(lab: Lab, places: Mapping[Place, str]) -> list[ProbePod]:
    """Start all pods, and wait until they are ready. Returns those that are sources."""
    made = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": places[place], "labels": RESTRICTED if place != "nodes" else {}},
        }
        for place in OWN_PLACES
    ]
    lab.stage.apply(*made)
    pods = _pods(places, sorted(_nodes(lab)))
    lab.stage.apply(*pods)
    for namespace in set(places.values()):
        lab.kubectl(
            "wait", "pod", f"--selector={LABEL}", "-n", namespace, "--for=condition=Ready",
            f"--timeout={READY_WITHIN_S}s", timeout_s=READY_WITHIN_S + 10,
        )  # fmt: skip
    return [
        _probe_pod(each) for each in pods if each["metadata"]["labels"][LABEL] in (*CLIENTS, NODE)
    ]


def _probe_pod(pod: Object) -> ProbePod:
    metadata = pod["metadata"]
    source = metadata["labels"][LABEL]
    node = pod["spec"]["nodeSelector"][HOSTNAME] if source == NODE else ""
    return ProbePod(source, metadata["namespace"], metadata["name"], node)


def remove(lab: Lab, places: Mapping[Place, str]) -> None:
    """Remove the pods, and their namespaces but for those of the installation and of services."""
    for namespace in (places["installation"], places["services"]):
        lab.kubectl("delete", "pod", "-n", namespace, f"--selector={LABEL}", "--ignore-not-found")
    created = [places[place] for place in OWN_PLACES]
    lab.kubectl("delete", "namespace", *created, "--ignore-not-found", timeout_s=180)


def _pods(places: Mapping[Place, str], nodes: list[str]) -> list[Object]:
    engine, host = DESTINATIONS["engine"], DESTINATIONS["https"]
    engine_ports = [each.port for each in DESTINATIONS.values() if each.labels == engine.labels]
    host_ports = [DESTINATIONS[name].port for name in ("https", "engine-port", "other-port")]
    made = []
    for index, node in enumerate(nodes):
        labels = {**engine.labels, LABEL: "engine"}
        made += [
            _pod(places[engine.place], f"engine-{index}", labels, engine_ports, node),
            _pod(places[host.place], f"host-{index}", {LABEL: "host"}, host_ports, node),
        ]
        on_node = _pod(places["nodes"], f"node-{index}", {LABEL: NODE}, [], node)
        on_node["spec"]["hostNetwork"] = True
        made.append(on_node)
    for name in CLIENTS:
        source = SOURCES[name]
        made.append(
            _pod(places[source.place], f"client-{name}", {**source.labels, LABEL: name}, [])
        )
    return made


def _pod(
    namespace: str, name: str, labels: Mapping[str, str], ports: list[int], node: str | None = None
) -> Object:
    """Build a restricted pod that listens at ports, or waits for `kubectl exec`."""
    listen = ["python", "-c", PROBE, "listen", *map(str, ports)]
    container = {
        "name": "probe",
        "image": IMAGE,
        "command": listen if ports else ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": restricted.CONTAINER,
    }
    if ports:
        container["readinessProbe"] = {"tcpSocket": {"port": ports[0]}, "periodSeconds": 1}
    spec: Object = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "securityContext": dict(restricted.POD),
    }
    if ports:
        # Ports below 1024 without a capability.
        sysctl = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}
        spec["securityContext"]["sysctls"] = [sysctl]
    if node:
        spec["nodeSelector"] = {HOSTNAME: node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": spec,
    }


def _nodes(lab: Lab) -> list[str]:
    listed = json.loads(lab.kubectl("get", "nodes", "-o", "json"))
    return [each["metadata"]["labels"][HOSTNAME] for each in listed["items"]]
