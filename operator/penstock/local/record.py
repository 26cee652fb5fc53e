"""A cluster's record: what it is called, where its files are, and how its processes are found.

A cluster's folder appears under its name together with its record. The record marks the folder as
one that `up` made: nothing else under the root of the clusters is ever removed.
"""

import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from penstock.adapters.caches import cache_root

RECORD = "cluster.json"
GATEWAY_PORT = 8080
# As a DNS label, but ASCII alone and at least one character.
NAME_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"


class ClusterError(Exception):
    """The cluster cannot do what was asked; the text says why and what helps."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster is and how it is told apart."""

    name: str
    cluster_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    network: Annotated[int, Field(ge=0, le=255)]
    allocatable: Mapping[str, str]

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def address(self) -> str:
        return f"127.{self.network}.0.1"

    @property
    def server(self) -> str:
        return f"https://{self.address}:6443"

    @property
    def gateway_url(self) -> str:
        return f"http://{self.address}:{GATEWAY_PORT}"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"


_RECORDS = TypeAdapter(Cluster)


def clusters_root() -> Path:
    return cache_root() / "clusters"


def folder_of(name: str) -> Path:
    """The folder of the cluster `name`. Raises ClusterError for what is no name.

    This is the only way from a name to a path.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ClusterError(
            f"{name!r} is no cluster name: use up to 63 lower-case letters, digits and dashes, "
            "with a letter or a digit first"
        )
    return clusters_root() / name


def find(name: str) -> Cluster | None:
    """The cluster of that name, or None where nothing has its name.

    Raises ClusterError where something else than a cluster has it, and for a damaged record.
    """
    folder = folder_of(name)
    if not os.path.lexists(folder):
        return None
    if folder.is_symlink() or not (folder / RECORD).is_file():
        raise ClusterError(
            f"{folder} was not made by `penstock local up`: it is no folder with a {RECORD}. "
            "Take another name, or remove it yourself."
        )
    return _read(folder / RECORD)


def get(name: str) -> Cluster:
    """Raises ClusterError when there is no such cluster."""
    cluster = find(name)
    if cluster is None:
        raise ClusterError(f"There is no local cluster {name!r}; start one: penstock local up")
    return cluster


def list_clusters() -> list[Cluster]:
    """Every cluster that `up` has begun and `down` has not removed, but for damaged ones."""
    return _list()[0]


def damaged_records() -> list[ClusterError]:
    """Why clusters are missing from `list_clusters`."""
    return _list()[1]


def create(name: str, network: int, allocatable: Mapping[str, str]) -> Cluster:
    """Make the folder of a new cluster and its record, both at once. Raises ClusterError."""
    cluster = Cluster(name, secrets.token_hex(8), network, dict(allocatable))
    if os.path.lexists(cluster.folder):
        raise ClusterError(f"The name {name!r} was taken meanwhile: take another.")
    making = clusters_root() / f".new-{cluster.cluster_id}"
    making.mkdir(mode=0o700)
    try:
        write_private(making / RECORD, _RECORDS.dump_json(cluster))
        making.rename(cluster.folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return cluster


def remove(cluster: Cluster) -> None:
    """Remove the cluster's folder. Raises ClusterError when something of it stays.

    The name is given back first, in one step: a removal that is cut off leaves no folder without
    a record, which nothing would remove.
    """
    removing = clusters_root() / f".removed-{cluster.cluster_id}"
    cluster.folder.rename(removing)
    shutil.rmtree(removing, ignore_errors=True)
    if removing.exists():
        raise ClusterError(f"{removing} could not be removed; remove it yourself")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read: whole, or not at all."""
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
    """Fields of a later version are ignored."""
    try:
        cluster = _RECORDS.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ClusterError(
            f"The record {path} is damaged: {error}\nEnd its processes, those with "
            f"{path.parent} in their command line, and remove {path.parent}."
        ) from error
    if cluster.name != path.parent.name:
        raise ClusterError(f"The record {path} is that of another cluster, {cluster.name!r}.")
    return cluster
