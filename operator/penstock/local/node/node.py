"""The node that pods run on."""

from dataclasses import dataclass

from penstock.clients.events import EventRecorder
from penstock.clients.kube import Kube
from penstock.local.record import Cluster

# The field manager and the source of events of what the node writes.
MANAGER = "penstock-node"


@dataclass(frozen=True, slots=True)
class Node:
    """What the worker of a pod needs to know of its node."""

    name: str
    cluster: Cluster
    kube: Kube
    events: EventRecorder
