"""The node, as its pods' workers see it."""

from dataclasses import dataclass

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.events import EventRecorder
from penstock.local.record import Cluster

MANAGER = "penstock-node"  # field manager of the node's writes, and source of its Events


@dataclass(frozen=True, slots=True)
class Node:
    """Name and clients of the node that a pod's worker uses."""

    name: str
    cluster: Cluster
    kube: Kube
    events: EventRecorder
