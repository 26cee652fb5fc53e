"""The HTTP server's configuration, and the lag of its event loop."""

import asyncio

import pytest

from penstock.gateway.app import Gateway
from penstock.gateway.http.servers import LAST_EVENTS_S
from penstock.gateway.server import _measure_loop_lag
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.upstream.upstream import Upstream


async def test_server_configuration(start_gateway):
    front = await start_gateway(drain_timeout_s=7.9)
    config = front.gateway.http_servers().clients.config
    assert (config.host, config.port) == ("127.0.0.1", 0)
    assert config.timeout_graceful_shutdown == 7 + LAST_EVENTS_S
    # Longer than the idle time of most clients and load balancers.
    assert config.timeout_keep_alive == 75
    assert (config.access_log, config.server_header, config.proxy_headers) == (False,) * 3
    assert (config.ws, config.lifespan, config.backlog) == ("none", "off", 4096)
    async with front.client.get(front.management_url + "/healthz") as got:
        assert "server" not in got.headers
    assert front.server.port == front.port > 0


def test_event_loop_lag_is_measured(run_virtually):
    """A callback that blocks for 3 s delays the timers that are due meanwhile."""

    async def main():
        loop, settings = asyncio.get_running_loop(), GatewaySettings()
        async with Upstream(settings) as upstream:
            gateway = Gateway(SnapshotStore(), upstream, settings)
            measuring = asyncio.create_task(_measure_loop_lag(gateway))
            assert gateway.state.loop_lag_s == 0.0
            gateway.state.loop_lag_s = -1.0
            await asyncio.sleep(0.7)
            assert gateway.state.loop_lag_s == pytest.approx(0.0, abs=1e-6)
            loop.now_s += 3.0
            await asyncio.sleep(0.1)
            assert gateway.state.loop_lag_s == pytest.approx(2.7, abs=1e-6)
            await asyncio.sleep(0.6)
            assert gateway.state.loop_lag_s == pytest.approx(0.0, abs=1e-6)
            measuring.cancel()

    run_virtually(main)
