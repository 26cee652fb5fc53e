"""Control groups below which a node's kubelet makes those of its pods."""

from collections.abc import Iterator
from pathlib import Path

from penstock.local.record import Cluster

ROOT = Path("/sys/fs/cgroup")


def group(cluster: Cluster, node: str = "") -> str:
    """Path of the group of a cluster, or of a node, below each hierarchy's root."""
    return f"/penstock-{cluster.cluster_id}" + (f"/{node}" if node else "")


def create(cluster: Cluster, node: str) -> None:
    """Create a node's group in each hierarchy."""
    for hierarchy in _hierarchies():
        made = hierarchy / group(cluster, node).lstrip("/")
        made.mkdir(parents=True, exist_ok=True)
        if hierarchy.name == "cpuset":
            _inherit_cpuset(made)


def remove(cluster: Cluster) -> None:
    """Remove the groups of a cluster, whose processes have ended."""
    for hierarchy in _hierarchies():
        top = hierarchy / group(cluster).lstrip("/")
        for folder in sorted(top.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
            folder.rmdir()
        if top.is_dir():
            top.rmdir()


def _hierarchies() -> Iterator[Path]:
    """The hierarchies of version 1, or the one of version 2."""
    if (ROOT / "cgroup.controllers").is_file():
        yield ROOT
        return
    for folder in sorted(ROOT.iterdir()):
        if (folder / "cgroup.procs").is_file() and not folder.is_symlink():
            yield folder


def _inherit_cpuset(made: Path) -> None:
    """Give a group of version 1 the processors and memory nodes of its parents; a new one has none."""
    for folder in (made.parent, made):
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())
