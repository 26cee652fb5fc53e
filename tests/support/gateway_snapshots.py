"""Builds single routing snapshots."""

from collections.abc import Iterable

from penstock.clients.kubernetes.client import Object
from penstock.gateway.snapshots.builder import SnapshotBuilder
from penstock.gateway.snapshots.snapshot import Snapshot


def build(
    services: Iterable[Object],
    pods: Iterable[Object],
    routes: Iterable[Object] = (),
    adapters: Iterable[Object] = (),
    externals: Iterable[Object] = (),
) -> Snapshot:
    """Build a snapshot that has no previous one."""
    return SnapshotBuilder().build(services, pods, routes, adapters, externals)
