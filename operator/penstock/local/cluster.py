"""Starts and ends local clusters.

Each cluster has its own network, so that components and pods of two clusters can listen at their usual ports:
127.N.0.0/16 of the loopback interface with a node agent, 10.N.0.0/16 with kubelets.
"""

import fcntl
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.local import processes, record, startup
from penstock.local.binaries import ensure_binaries
from penstock.local.gobuild import shared_cache
from penstock.local.hub.reachability import pods_reach_hub
from penstock.local.kubelet import nodes
from penstock.local.kubelet.tools import ensure_tools, require_packages
from penstock.local.locks import file_lock
from penstock.local.networks import free_network
from penstock.local.record import (
    Cluster,
    ClusterError,
    NodeKind,
    clusters_root,
    damaged_records,
    find,
    get,
    list_clusters,
)
from penstock.local.startup import Say
from penstock.local.versions import BINARIES_OF

__all__ = [
    "Cluster", "ClusterError", "Say", "clusters_root", "damaged_records",
    "dead_components", "down", "faults", "find", "get", "list_clusters", "temporary", "up",
]  # fmt: skip

POD_GRACE_S = 15.0
COMPONENT_GRACE_S = 0.5


def up(
    name: str,
    *,
    say: Say,
    allocatable: Mapping[str, str] = {},
    node: NodeKind | None = None,
    num_nodes: int | None = None,
    may_install: bool = False,
    serves_hub: bool = False,
) -> Cluster:
    """Start a cluster without Penstock, or the missing components of an existing one.

    say: called with a line of text before each slow step. allocatable: extended resources that each
    node reports, such as nvidia.com/gpu. node, num_nodes: None: those of an existing cluster, else one node
    agent. may_install: install packages that kubelets need. serves_hub: start a mirror of the Hugging Face
    hub if pods cannot reach that. A new cluster that does not start (a failed component, Ctrl-C) is removed;
    an existing one keeps its objects. Raises ClusterError.
    """
    if not sys.platform.startswith("linux"):
        raise ClusterError("Local clusters need Linux.")
    existing = find(name)
    if existing:
        _check_same(existing, allocatable, node, num_nodes)
        node = existing.node
    node = node or "agent"
    if node == "agent" and (num_nodes or 1) > 1:
        raise ClusterError("Several nodes need kubelets: add --node kubelet.")
    if node == "kubelet":
        nodes.require_root()
        require_packages(may_install=may_install, say=say)
    with shared_cache():
        binaries = ensure_binaries(say, BINARIES_OF[node])
        tools = ensure_tools(say) if node == "kubelet" else {}
    cluster = existing or _create(name, allocatable, node, num_nodes or 1, say)
    with _locked(cluster):
        try:
            if serves_hub:
                cluster = _with_hub(cluster, say)
            _start_missing(cluster, {**binaries, **tools}, say, is_new=not existing)
        except BaseException:
            if not existing:
                _end(cluster)
            raise
    return cluster


def _with_hub(cluster: Cluster, say: Say) -> Cluster:
    """Decide where pods find models of hf://, and record it: later calls find the same decision."""
    if cluster.has_hub_mirror is not None:
        return cluster
    if cluster.node == "agent":
        say("looking for the Hugging Face hub")
    return record.update(replace(cluster, has_hub_mirror=not pods_reach_hub(cluster.node)))


def _start_missing(
    cluster: Cluster, programs: Mapping[str, Path], say: Say, *, is_new: bool
) -> None:
    """Start the components that do not run. programs: paths by name. Raises ClusterError."""
    dead = dead_components(cluster)
    if not dead and not startup.wait_for_api_server(cluster, say):
        dead = dead_components(cluster)
    if not dead:
        say(f"cluster {cluster.name!r} is already up")
        return
    if not is_new:
        say(f"cluster {cluster.name!r} runs without {', '.join(dead)}: starting what is missing")
    startup.write_files(cluster)
    if cluster.node == "kubelet":
        nodes.prepare(cluster, programs)
    startup.start(cluster, dead, programs, say)
    if cluster.node == "kubelet":
        nodes.complete(cluster, programs)


def _check_same(
    existing: Cluster, allocatable: Mapping[str, str], node: NodeKind | None, num_nodes: int | None
) -> None:
    """Check that an existing cluster has the nodes that `up` asks for. Raises ClusterError."""
    asked = {
        "set of resources": dict(allocatable) or None,
        "kind of node": node,
        "number of nodes": num_nodes,
    }
    has = {
        "set of resources": dict(existing.allocatable),
        "kind of node": existing.node,
        "number of nodes": existing.num_nodes,
    }
    for what, wanted in asked.items():
        if wanted is not None and wanted != has[what]:
            raise ClusterError(
                f"Cluster {existing.name!r} exists with another {what}, {has[what]}: "
                f"remove it first (penstock local down --name {existing.name}), or use another name."
            )


@contextmanager
def temporary(
    prefix: str,
    *,
    say: Say,
    allocatable: Mapping[str, str] = {},
    node: NodeKind = "agent",
    num_nodes: int = 1,
    serves_hub: bool = False,
) -> Iterator[Cluster]:
    """Run a cluster with a unique name that starts with `prefix`; remove it when the block ends.

    Arguments and errors are those of `up`.
    """
    name = f"{prefix}-{secrets.token_hex(3)}"
    cluster = up(
        name,
        say=say,
        allocatable=allocatable,
        node=node,
        num_nodes=num_nodes,
        serves_hub=serves_hub,
    )
    try:
        yield cluster
    finally:
        down(cluster.name)


def down(name: str) -> bool:
    """End all processes of a cluster and remove its folder. Returns False if there is no such cluster.

    Raises ClusterError for a folder that `up` did not create.
    """
    cluster = find(name)
    if cluster is None:
        return False
    with _locked(cluster):
        _end(cluster)
    return True


def dead_components(cluster: Cluster) -> list[str]:
    """Return the names of the cluster's components that are not running."""
    wanted = startup.components_of(cluster)
    return [each for each in wanted if not processes.find(cluster.cluster_id, each)]


def faults(cluster: Cluster) -> str:
    """Text that names components that do not run or do not answer; empty if the cluster is up."""
    if dead := dead_components(cluster):
        return f"not running: {', '.join(dead)}"
    return "" if startup.api_server_answers(cluster) else "not answering: apiserver"


@contextmanager
def _locked(cluster: Cluster) -> Iterator[None]:
    """Hold the file lock for starting or ending the cluster. Raises ClusterError.

    The folder itself is locked, so no lock file is left behind. The kernel releases the lock when the
    process ends.
    """
    try:
        folder = os.open(cluster.folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError as error:
        raise ClusterError(f"Another process has removed cluster {cluster.name!r}.") from error
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterError(
                f"Another process is starting or ending cluster {cluster.name!r}: wait for it, "
                "or use another name."
            ) from error
        if find(cluster.name) != cluster:
            raise ClusterError(f"Another process has removed cluster {cluster.name!r}.")
        yield
    finally:
        os.close(folder)


def _end(cluster: Cluster) -> None:
    # The node agent gets time to end its pods. The others do not need it: their state is deleted.
    processes.end(processes.find(cluster.cluster_id, startup.NODE_AGENT), grace_s=POD_GRACE_S)
    processes.end_all(lambda: processes.find(cluster.cluster_id), grace_s=COMPONENT_GRACE_S)
    if cluster.node == "kubelet":
        nodes.remove(cluster)
    record.remove(cluster)


def _create(
    name: str, allocatable: Mapping[str, str], node: NodeKind, num_nodes: int, say: Say
) -> Cluster:
    """Choose a free network and write the cluster's record. Starts nothing. Raises ClusterError."""
    root = clusters_root()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with file_lock(root / ".lock", say, "chooses the network of a cluster"):
        network = free_network(node, taken={cluster.network for cluster in list_clusters()})
        return record.create(name, network, allocatable, node, num_nodes)
