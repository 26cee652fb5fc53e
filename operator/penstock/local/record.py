"""Stores the record of each local cluster: its name, network and the id of its processes.

A cluster's folder and record are created in one step. The record marks the folder as created by `up`:
no other folder below the clusters' root is ever removed.
"""

import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from penstock.chart.gateway.values import Gateway
from penstock.clients.machine.caches import cache_root

RECORD = "cluster.json"
API_PORT = 6443
GATEWAY_PORT, GATEWAY_MANAGEMENT_PORT = Gateway().port, Gateway().management_port
AGENT_NODE = "penstock-node"  # name of the node agent's node
# Port of the hub mirror at the control plane's address: any that few programs use.
HUB_PORT = 8390
API_SERVICE, DNS_SERVICE, GATEWAY_SERVICE = 1, 10, 80  # addresses of the Service network
# A DNS label, except that it may end with a dash.
NAME_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"


NodeKind = Literal["agent", "kubelet"]  # the program that runs the pods of a cluster's nodes


class ClusterError(Exception):
    """An operation on a cluster failed; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A local cluster."""

    name: str
    # Marks its processes.
    cluster_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    # N of its loopback network 127.N.0.0/16, or of 10.N.0.0/16 with kubelets.
    network: Annotated[int, Field(ge=0, le=255)]
    # Extended resources of each node.
    allocatable: Mapping[str, str]
    node: NodeKind = "agent"
    num_nodes: Annotated[int, Field(ge=1)] = 1
    # Whether pods find models of hf:// at a mirror on this machine, and not at the Hugging Face hub. None:
    # this was not decided, as before Penstock is installed.
    has_hub_mirror: bool | None = None

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def address(self) -> str:
        """Address at which the control plane listens."""
        return f"{10 if self.node == 'kubelet' else 127}.{self.network}.0.1"

    @property
    def service_range(self) -> str:
        """Addresses of Services. Node agents route nothing to them, so all clusters may have the same."""
        return f"10.{self.network}.224.0/20" if self.node == "kubelet" else "10.96.0.0/16"

    @property
    def server(self) -> str:
        return f"https://{self.address}:{API_PORT}"

    @property
    def gateway_url(self) -> str:
        """URL of the gateway for programs of this machine.

        A node agent's gateway listens on the node's address. With kubelets it is that of a Service.
        """
        if self.node == "kubelet":
            return f"http://{self.service_address(GATEWAY_SERVICE)}"
        return f"http://{self.address}:{GATEWAY_PORT}"

    @property
    def hub_url(self) -> str:
        """URL of the hub mirror, for pods and for programs of this machine."""
        return f"http://{self.address}:{HUB_PORT}"

    def service_address(self, index: int) -> str:
        """An address of the Service network: 1 is that of the API server, 10 that of DNS."""
        return str(ip_network(self.service_range)[index])

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


_RECORDS = TypeAdapter(Cluster)


def clusters_root() -> Path:
    return cache_root() / "clusters"


def folder_of(name: str) -> Path:
    """Return the folder of the cluster `name`. Raises ClusterError for an invalid name.

    All paths are built here from checked names, so that no name can lead to another folder.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ClusterError(
            f"{name!r} is not a valid cluster name: use up to 63 lower-case letters, digits and dashes, "
            "starting with a letter or a digit"
        )
    return clusters_root() / name


def find(name: str) -> Cluster | None:
    """Return the cluster of that name; None if it does not exist.

    Raises ClusterError for a folder that is not a cluster's and for a damaged record.
    """
    folder = folder_of(name)
    if not os.path.lexists(folder):
        return None
    if folder.is_symlink() or not (folder / RECORD).is_file():
        raise ClusterError(
            f"{folder} was not created by `penstock local up`: it is not a folder with a {RECORD}. "
            "Use another name, or remove it yourself."
        )
    return _read(folder / RECORD)


def get(name: str) -> Cluster:
    """Return the cluster of that name. Raises ClusterError if it does not exist."""
    cluster = find(name)
    if cluster is None:
        raise ClusterError(
            f"There is no local cluster {name!r}; start it: penstock local up --name {name}"
        )
    return cluster


def list_clusters() -> list[Cluster]:
    """List all clusters, from the start of `up` to the end of `down`, without damaged ones."""
    return _list()[0]


def damaged_records() -> list[ClusterError]:
    """Return the errors of the damaged clusters that `list_clusters` leaves out."""
    return _list()[1]


def create(
    name: str,
    network: int,
    allocatable: Mapping[str, str],
    node: NodeKind = "agent",
    num_nodes: int = 1,
) -> Cluster:
    """Create the folder and the record of a new cluster in one step. Raises ClusterError."""
    cluster = Cluster(name, secrets.token_hex(8), network, dict(allocatable), node, num_nodes)
    if os.path.lexists(cluster.folder):
        raise ClusterError(f"The name {name!r} was taken meanwhile: use another one.")
    making = clusters_root() / f".new-{cluster.cluster_id}"
    making.mkdir(mode=0o700)
    try:
        write_private(making / RECORD, _RECORDS.dump_json(cluster))
        making.rename(cluster.folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return cluster


def update(cluster: Cluster) -> Cluster:
    """Replace the record of an existing cluster, and return the cluster."""
    write_private(cluster.folder / RECORD, _RECORDS.dump_json(cluster))
    return cluster


def remove(cluster: Cluster) -> None:
    """Remove the cluster's folder. Raises ClusterError if it cannot be removed completely.

    The folder is renamed first: a removal that is interrupted must not leave a folder without a
    record under the cluster's name, as `down` would refuse to remove that.
    """
    removing = clusters_root() / f".removed-{cluster.cluster_id}"
    cluster.folder.rename(removing)
    shutil.rmtree(removing, ignore_errors=True)
    if removing.exists():
        raise ClusterError(f"{removing} could not be removed; remove it yourself")


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    making = path.with_name(f".{path.name}.new")
    making.unlink(missing_ok=True)
    making.touch(mode=0o600)
    making.write_bytes(content)
    making.replace(path)


def _list() -> tuple[list[Cluster], list[ClusterError]]:
    clusters, damaged = [], []
    for path in sorted(clusters_root().glob(f"[!.]*/{RECORD}")):
        try:
            clusters.append(get(path.parent.name))
        except ClusterError as error:
            damaged.append(error)
    return clusters, damaged


def _read(path: Path) -> Cluster:
    """Read a record; fields of later versions are ignored. Raises ClusterError."""
    try:
        cluster = _RECORDS.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ClusterError(
            f"The record {path} is damaged: {error}\nEnd the processes with {path.parent} in their "
            f"command line, and remove {path.parent}."
        ) from error
    if cluster.name != path.parent.name:
        raise ClusterError(f"The record {path} belongs to another cluster, {cluster.name!r}.")
    return cluster
