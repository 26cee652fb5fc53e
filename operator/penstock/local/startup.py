"""Writes the files of a cluster, starts its components and waits until they are ready."""

import json
import secrets
import socket
import ssl
import sys
import urllib.request
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import psutil

from penstock.clients.machine.clock import monotonic, sleep
from penstock.local import components, processes
from penstock.local.kubelet import addons, certificates, nodes
from penstock.local.kubelet.tools import read_paths
from penstock.local.pki import Authority, write_signing_key
from penstock.local.record import (
    AGENT_NODE,
    API_SERVICE,
    HUB_PORT,
    Cluster,
    ClusterError,
    write_private,
)

Say = Callable[[str], None]  # called with a line of text before each slow step

NODE_AGENT, HUB_MIRROR = "node-agent", "hub-mirror"
CONTROL_PLANE = ("etcd", "apiserver", "controller-manager", "scheduler")
READY_TIMEOUT_S = 60.0
# An API server that ends answers nobody, and lets running requests finish for up to a minute.
SETTLE_TIMEOUT_S = 90.0


def write_files(cluster: Cluster) -> None:
    """Write keys, certificates and configuration, unless an earlier call has written them.

    The kubeconfig is written last: its presence shows that the other files are complete.
    """
    if cluster.kubeconfig.is_file():
        return
    folder, pki = cluster.folder, cluster.folder / "pki"
    for path in (folder / "logs", folder / "pods", pki, pki / "etcd"):
        path.mkdir(mode=0o700, exist_ok=True)
    authority = Authority(pki)
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    authority.issue(
        "apiserver",
        "kube-apiserver",
        addresses=(cluster.address, cluster.service_address(API_SERVICE), *names),
    )
    if cluster.node == "kubelet":
        certificates.issue(authority, cluster)
    else:
        authority.issue("node", AGENT_NODE, addresses=(cluster.address,))
    # etcd has its own authority, so that no other certificate of the cluster gives access to it.
    storage = Authority(pki / "etcd")
    storage.issue("server", "etcd", addresses=(cluster.address,))
    storage.issue("client", "kube-apiserver")
    write_signing_key(pki / "sa.key")
    token = secrets.token_urlsafe(32)
    write_private(folder / "tokens.csv", components.tokens_csv(token).encode())
    write_private(folder / "audit-policy.json", components.audit_policy().encode())
    config = components.kubeconfig(cluster.server, pki / "ca.crt", {"token": token})
    write_private(cluster.kubeconfig, config.encode())


def start(
    cluster: Cluster, wanted: Collection[str], binaries: Mapping[str, Path], say: Say
) -> None:
    """Start the components in `wanted`, and wait until pods can be created. Raises ClusterError."""
    ready = _readiness(cluster)
    started: dict[str, psutil.Process] = {}
    for component, command in _commands(cluster, binaries).items():
        if component not in wanted:
            continue
        say(f"starting {component}")
        started[component] = processes.spawn(
            command,
            cluster_id=cluster.cluster_id,
            component=component,
            log=cluster.logs / f"{component}.log",
        )
        # etcd must be ready before the API server starts, which may exit otherwise.
        if component in ("etcd", "apiserver"):
            _wait(cluster, started[component], component, ready[component])
        if component == "apiserver" and cluster.node == "kubelet":
            nodes.apply_objects(cluster, binaries["kubectl"])
    say("waiting for the node")
    for component in ready:
        if component in started:
            _wait(cluster, started[component], component, ready[component])


def _commands(cluster: Cluster, binaries: Mapping[str, Path]) -> dict[str, list[str]]:
    """Build the command of each component, in the order in which they start."""
    folder = cluster.folder
    control_plane = {
        "etcd": components.etcd(binaries["etcd"], folder, cluster.address),
        "apiserver": components.apiserver(binaries["kube-apiserver"], cluster),
        "controller-manager": components.controller_manager(
            binaries["kube-controller-manager"], folder
        ),
        "scheduler": components.scheduler(binaries["kube-scheduler"], folder),
    }
    mirror = [sys.executable, "-m", "penstock.local.hub", cluster.name]
    return control_plane | _node_commands(cluster) | {HUB_MIRROR: mirror}


def _readiness(cluster: Cluster) -> dict[str, Callable[[], bool]]:
    """Return the check of each component that tells when it is ready."""
    address = cluster.address
    ports = addons.PORTS if cluster.node == "kubelet" else {}
    return {
        "etcd": lambda: _listens(address, components.ETCD_PORT),
        "apiserver": lambda: api_server_answers(cluster),
        "controller-manager": lambda: _has_default_account(cluster),
        **{
            name: partial(_node_is_ready, cluster, node)
            for name, node in node_components(cluster).items()
        },
        **{name: partial(_listens, address, port) for name, port in ports.items()},
        HUB_MIRROR: lambda: _hub_listens(cluster),
    }


def _hub_listens(cluster: Cluster) -> bool:
    """Whether the hub mirror listens. Pods would fetch models of another program at its port."""
    mirrors = processes.find(cluster.cluster_id, HUB_MIRROR)
    return any(processes.listens(each, HUB_PORT) for each in mirrors)


def _wait(
    cluster: Cluster, process: psutil.Process, component: str, done: Callable[[], bool]
) -> None:
    """Wait until `done` returns true. Raises ClusterError with the end of the component's log."""
    deadline = monotonic() + READY_TIMEOUT_S
    while not done():
        if not processes.is_alive(process) or monotonic() > deadline:
            log = cluster.logs / f"{component}.log"
            text = log.read_text(errors="replace") if log.is_file() else ""
            tail = "\n".join(text.splitlines()[-6:])
            raise ClusterError(f"{component} did not become ready. Its log ends with:\n{tail}")
        sleep(0.1)


def api_server_answers(cluster: Cluster) -> bool:
    """Whether the API server is ready for requests."""
    return read(cluster, "/readyz") is not None


def wait_for_api_server(cluster: Cluster, say: Say) -> bool:
    """Wait while the API server runs and does not answer: it starts, or ends after a signal.

    Returns False if it has ended. Raises ClusterError if it neither answers nor ends.
    """
    if api_server_answers(cluster):
        return True
    say("the API server does not answer: waiting until it does, or has ended")
    deadline = monotonic() + SETTLE_TIMEOUT_S
    while processes.find(cluster.cluster_id, "apiserver"):
        if api_server_answers(cluster):
            return True
        if monotonic() > deadline:
            raise ClusterError(
                f"the API server of cluster {cluster.name!r} does not answer; see: penstock local logs "
                f"apiserver --name {cluster.name}"
            )
        sleep(0.2)
    return False


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def _has_default_account(cluster: Cluster) -> bool:
    """Whether the default ServiceAccount exists; without it the API server refuses pods."""
    return read(cluster, "/api/v1/namespaces/default/serviceaccounts/default") is not None


def components_of(cluster: Cluster) -> tuple[str, ...]:
    """Names of all components of a cluster."""
    further = addons.PORTS if cluster.node == "kubelet" else ()
    mirror = (HUB_MIRROR,) if cluster.has_hub_mirror else ()
    return (*CONTROL_PLANE, *node_components(cluster), *further, *mirror)


def node_components(cluster: Cluster) -> Mapping[str, str]:
    """Names of the components that run pods, with the name of the node of each."""
    if cluster.node == "kubelet":
        return {name: name for name in nodes.names(cluster)}
    return {NODE_AGENT: AGENT_NODE}


def _node_commands(cluster: Cluster) -> dict[str, list[str]]:
    if cluster.node == "kubelet":
        each = enumerate(nodes.names(cluster))
        return {name: nodes.command(cluster, index) for index, name in each} | addons.commands(
            cluster, read_paths(cluster)
        )
    return {NODE_AGENT: [sys.executable, "-m", "penstock.local.node", cluster.name]}


def _node_is_ready(cluster: Cluster, name: str) -> bool:
    node = read(cluster, f"/api/v1/nodes/{name}")
    conditions = json.loads(node)["status"].get("conditions", []) if node else []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def read(cluster: Cluster, path: str) -> bytes | None:
    """Send a GET as the administrator. Returns the body of a 200 answer, else None."""
    try:
        token = (cluster.folder / "tokens.csv").read_text().split(",")[0]
        request = urllib.request.Request(  # noqa: S310 - always https to the cluster's own address
            cluster.server + path, headers={"Authorization": f"Bearer {token}"}
        )
        context = ssl.create_default_context(cafile=str(cluster.folder / "pki" / "ca.crt"))
        with urllib.request.urlopen(request, timeout=2, context=context) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body
    except OSError:
        return None
