"""Runs a gateway on real sockets, without a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from penstock.gateway.app import Gateway
from penstock.gateway.http.servers import HttpServers
from penstock.gateway.server import run
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.upstream.upstream import Upstream


@contextlib.asynccontextmanager
async def running_gateway(
    snapshot: Snapshot, settings: GatewaySettings
) -> AsyncIterator[tuple[Gateway, HttpServers]]:
    """Run the gateway with a snapshot, until the block ends."""
    snapshots, stop = SnapshotStore(), asyncio.Event()
    async with Upstream(settings) as upstream:
        gateway = Gateway(snapshots, upstream, settings)
        gateway.state.authenticator.tenants.publish((), is_open=True)
        servers = gateway.http_servers()
        running = asyncio.create_task(run(gateway, stop, servers))
        both = (servers.clients, servers.management)
        while not all(each.started for each in both):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        snapshots.publish(snapshot)
        yield gateway, servers
        stop.set()
        await running
