"""Runs a gateway on real sockets, without a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from penstock.gateway.app import Gateway
from penstock.gateway.http.servers import HttpServers
from penstock.gateway.quotas.store import Store
from penstock.gateway.server import run
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.upstream.upstream import Upstream


def open_to_all(gateway: Gateway) -> None:
    """Let anybody use a gateway, as without any Tenant."""
    gateway.state.authenticator.tenants.publish((), is_open=True)


@contextlib.asynccontextmanager
async def running_gateway(
    snapshot: Snapshot,
    settings: GatewaySettings,
    publish_tenants: Callable[[Gateway], None] = open_to_all,
    quota_store: Store | None = None,
) -> AsyncIterator[tuple[Gateway, HttpServers]]:
    """Run the gateway with a snapshot, until the block ends. Without tenants it is open."""
    snapshots, stop = SnapshotStore(), asyncio.Event()
    async with Upstream(settings) as upstream:
        gateway = Gateway(snapshots, upstream, settings, quota_store=quota_store)
        publish_tenants(gateway)
        servers = gateway.http_servers()
        running = asyncio.create_task(run(gateway, stop, servers))
        both = (servers.clients, servers.management)
        while not all(each.started for each in both):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        snapshots.publish(snapshot)
        yield gateway, servers
        stop.set()
        await running
