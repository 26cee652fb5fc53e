"""A gateway without sockets, whose endpoint selection runs in virtual time."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from penstock.core.routing.apis import CHAT
from penstock.core.routing.pick import Side
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import parse
from penstock.gateway.app import Gateway
from penstock.gateway.request_lifecycle.cancellation import CancellationScope
from penstock.gateway.selection.endpoint_selection import EndpointSelector
from penstock.gateway.selection.model_routing import error_of_deletion
from penstock.gateway.selection.request_hold import RequestHold
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.tenants.authorization import ModelAccess
from penstock.gateway.upstream.upstream import Upstream


class Bench:
    """A gateway without sockets, whose clock is that of the event loop."""

    def __init__(self, upstream, settings):
        self.loop = asyncio.get_running_loop()
        self.snapshots = SnapshotStore()
        self.state = Gateway(self.snapshots, upstream, settings, self.loop.time).state
        self.started_s = self.loop.time()

    def service(self, *endpoints, weight=100, objectives=None):
        return Service(
            namespace="default",
            name="chat",
            served_name="chat",
            created_s=0,
            weights={Side("r1"): weight},
            endpoints=endpoints,
            objectives=objectives,
        )

    def publish(self, *services):
        self.snapshots.publish(Snapshot(services))

    def selector(self, cancellation, key=None, tokens=100):
        arrived_s = self.loop.time()
        (current,) = self.snapshots.current.services
        request = replace(parse(b'{"model": "chat", "stream": true}', CHAT), prompt_bytes=400)
        record = self.state.stats.record(current, request, arrived_s)
        return EndpointSelector(
            self.state, current.key, record, cancellation, key=key,
            attributes=request.attributes, tokens=tokens,
            error_of_deletion=partial(error_of_deletion, request=request, headers={}, access=ModelAccess()),
            hold=RequestHold(self.state),
        )  # fmt: skip

    async def error_of(self, selecting):
        """Status, message and retry time of the error that ends a selection."""
        with pytest.raises(RequestError) as caught:
            await selecting
        return caught.value.status, caught.value.message, caught.value.retry_after_s

    @property
    def elapsed_s(self):
        return pytest.approx(self.loop.time() - self.started_s)


@pytest.fixture
def bench(run_virtually):
    """`bench(main, setting=…)` runs `main(bench, cancellation)` in virtual time."""

    def run(main, **settings):
        chosen = GatewaySettings(**{"wait_for_endpoint_s": 10.0} | settings)

        async def on_loop():
            async with Upstream(chosen) as upstream:
                made = Bench(upstream, chosen)
                scopes = made.state.cancel_scopes
                with CancellationScope(asyncio.Event().wait, 1800.0, scopes) as cancellation:
                    await main(made, cancellation)
            await made.state.mirror.close()

        run_virtually(on_loop)

    return run
