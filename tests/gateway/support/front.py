"""A gateway under test with a client of it, and a wait for a condition."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from penstock.gateway.app import Gateway
from penstock.gateway.http.protocol import GatewayProtocol
from penstock.gateway.http.servers import Server
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.snapshots.store import SnapshotStore


@dataclass
class Front:
    """A gateway under test, and a client of it."""

    url: str
    management_url: str
    port: int
    gateway: Gateway
    snapshots: SnapshotStore
    client: aiohttp.ClientSession
    stop: asyncio.Event
    task: asyncio.Task[None]
    server: Server
    management: Server

    @property
    def num_connections(self) -> int:
        """Number of client connections that the gateway has open."""
        return len(self.server.server_state.connections)

    def gateway_connections(self) -> list[GatewayProtocol]:
        """Connections of clients, without those in a TLS handshake."""
        found = self.server.server_state.connections
        return [each for each in found if isinstance(each, GatewayProtocol)]

    def publish(self, *services: Service) -> None:
        self.snapshots.publish(Snapshot(services))

    def post(
        self,
        path: str = "/v1/chat/completions",
        *,
        stream: bool = True,
        model: str = "chat",
        **more: Any,
    ) -> Any:
        return self.client.post(self.url + path, json={"model": model, "stream": stream} | more)

    async def ask(self, path: str = "/v1/chat/completions", **fields: Any) -> tuple[int, bytes]:
        async with self.post(path, **fields) as got:
            return got.status, await got.read()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        async with self.client.get(self.management_url + "/metrics") as got:
            text = await got.text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def idle(self) -> None:
        """Wait until nothing is in flight by any counter."""
        state = self.gateway.state
        await until(
            lambda: (
                not (
                    state.cancel_scopes
                    or state.engines.tokens
                    or state.waiting
                    or state.retry_budget.in_flight
                )
            )
        )

    async def idle_with_copies(self) -> None:
        """Wait until nothing is in flight, nor any copy for a mirror."""
        await self.idle()
        await until(lambda: not self.gateway.state.mirror.num_open)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is looked at has no events
            await asyncio.sleep(0.002)
