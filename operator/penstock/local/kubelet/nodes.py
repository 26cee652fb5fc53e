"""Prepares and removes the nodes of a cluster, and finds their processes."""

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from penstock.local import processes
from penstock.local.kubelet import access, addons, cgroups, images, network
from penstock.local.kubelet.commands import run
from penstock.local.kubelet.configuration import files, node_folder, node_name, nodes_folder
from penstock.local.kubelet.images import ENGINE_IMAGE, IMAGE, export_image, import_image
from penstock.local.kubelet.pause_image import write_pause_image
from penstock.local.kubelet.tools import read_paths, write_paths
from penstock.local.record import Cluster, ClusterError, write_private

SUPERVISOR = ["-m", "penstock.local.kubelet"]  # arguments of Python for a node's first process


def require_root() -> None:
    """Raise ClusterError unless this process may make namespaces and control groups."""
    if os.geteuid() != 0:
        raise ClusterError(
            "A node with a kubelet needs root: run this as root, or leave out --node."
        )


def prepare(cluster: Cluster, tools: Mapping[str, Path]) -> None:
    """Write the files of all nodes, and create their networks and control groups, unless they exist."""
    nodes_folder(cluster).mkdir(mode=0o700, exist_ok=True)
    write_paths(cluster, tools)
    write_pause_image(_pause_archive(cluster), tools["pause"])
    for name, text in addons.files(cluster).items():
        write_private(cluster.folder / name, text.encode())
    network.create_bridge(cluster)
    network.create_nodes(cluster)
    for index in range(cluster.num_nodes):
        cgroups.create(cluster, node_name(index))
        for path, text in files(cluster, index, tools).items():
            target = node_folder(cluster, index) / path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(target, text.encode())


def apply_objects(cluster: Cluster, kubectl: Path) -> None:
    """Apply the rights of nodes' programs, and the Services of addons. Raises ClusterError."""
    authority = base64.b64encode((cluster.folder / "pki" / "ca.crt").read_bytes()).decode()
    items = [*access.objects(), *addons.objects(cluster, authority)]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    command = [kubectl, f"--kubeconfig={cluster.kubeconfig}", "apply", "--server-side", "-f", "-"]
    run([str(word) for word in command], stdin=json.dumps(listed))


def complete(cluster: Cluster, tools: Mapping[str, Path]) -> None:
    """Give running nodes the pause image and extended resources. Raises ClusterError."""
    for pid in _first_processes(cluster):
        import_image(pid, tools["ctr"], _pause_archive(cluster))
    kubectl = [str(tools["kubectl"]), f"--kubeconfig={cluster.kubeconfig}"]
    if cluster.allocatable:
        patch = json.dumps({"status": {"capacity": dict(cluster.allocatable)}})
        for name in names(cluster):
            run([*kubectl, "patch", "node", name, "--subresource=status", f"--patch={patch}"])


def _pause_archive(cluster: Cluster) -> Path:
    return nodes_folder(cluster) / "pause.tar"


def remove(cluster: Cluster) -> None:
    """Remove the networks and the control groups. The processes must have ended."""
    network.remove(cluster)
    cgroups.remove(cluster)


def command(cluster: Cluster, index: int) -> list[str]:
    """Build the command of a node: its first process, in namespaces of its own."""
    return [
        "/usr/bin/nsenter", f"--net=/run/netns/{network.namespace(cluster, index)}", "--",
        "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
        "--propagation=slave", "--",
        sys.executable, *SUPERVISOR, cluster.name, str(index),
    ]  # fmt: skip


def names(cluster: Cluster) -> list[str]:
    return [node_name(index) for index in range(cluster.num_nodes)]


def load_images(cluster: Cluster, archives: Iterable[Path]) -> None:
    """Import archives of images into each node, into all nodes at the same time. Raises ClusterError."""
    ctr = read_paths(cluster)["ctr"]
    pids = list(_first_processes(cluster))
    with ThreadPoolExecutor(len(pids)) as pool:
        for archive in archives:
            list(pool.map(partial(import_image, ctr=ctr, archive=archive), pids))


def name_image(cluster: Cluster, source: str, name: str) -> None:
    """Give an image of each node a second name. Raises ClusterError."""
    ctr = read_paths(cluster)["ctr"]
    for pid in _first_processes(cluster):
        images.name_image(pid, ctr, source, name)


def load_built_images(cluster: Cluster, *, say: Callable[[str], None]) -> None:
    """Import the images that `make images` builds into each node. Raises ClusterError."""
    ctr = read_paths(cluster)["ctr"]
    archive = nodes_folder(cluster) / "image.tar"
    for image in (IMAGE, ENGINE_IMAGE):
        say(f"loading {image}")
        try:
            export_image(image, archive)
            load_images(cluster, [archive])
        finally:
            archive.unlink(missing_ok=True)
        for pid in _first_processes(cluster):
            images.pin_image(pid, ctr, image)


def _first_processes(cluster: Cluster) -> Iterator[int]:
    """Process ids of the nodes' supervisors, of whichever Python started them."""
    for name in names(cluster):
        found = [
            process.pid
            for process in processes.find(cluster.cluster_id, name)
            if process.cmdline()[1:3] == SUPERVISOR
        ]
        if not found:
            raise ClusterError(
                f"{name} does not run; start it: penstock local up --name {cluster.name}"
            )
        yield found[0]
