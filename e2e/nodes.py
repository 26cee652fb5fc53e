"""Clusters of the scenarios, with nodes of the kind that `pytest --node` names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.local import cluster as clusters
from penstock.local.cluster import Cluster
from penstock.local.kubelet.images import ENGINE_IMAGE, IMAGE
from penstock.local.kubelet.nodes import load_built_images, name_image
from penstock.local.record import NodeKind

GPU = "nvidia.com/gpu"


@contextmanager
def temporary_cluster(
    prefix: str,
    node: NodeKind,
    *,
    gpus: int = 0,
    registry: str | None = None,
    serves_hub: bool = False,
) -> Iterator[Cluster]:
    """Run a cluster of one node, without Penstock. A kubelet has the images that `make images` has built.

    gpus: number that the node pretends to have. registry: a name that a kubelet's images have in front too,
    as if they had been pulled from there. serves_hub: start a mirror of the hub if pods cannot reach that.
    """
    offered = {GPU: str(gpus)} if gpus else {}
    with clusters.temporary(
        prefix, say=_be_silent, allocatable=offered, node=node, serves_hub=serves_hub
    ) as made:
        if node == "kubelet":
            load_built_images(made, say=_be_silent)
            if registry is not None:
                _name_images(made, registry)
        yield made


def values(cluster: Cluster) -> dict[str, Any]:
    """Values of the chart that scenarios need besides those of `penstock local up`."""
    if cluster.node == "agent":
        return {}
    return {"operator": {"allowedHostPaths": ["/"]}}  # e2e/refusals has models at file:// URIs


def _name_images(cluster: Cluster, registry: str) -> None:
    for image in (IMAGE, ENGINE_IMAGE):
        name_image(cluster, image, image.replace("localhost", registry, 1))


def _be_silent(text: str) -> None:
    """Take a line of progress, which no scenario shows."""
