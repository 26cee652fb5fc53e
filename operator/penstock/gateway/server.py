"""The gateway process: sockets, the watch of the API server, signals, and the drain."""

import asyncio
import logging
import signal
import socket
import uuid
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING

from penstock.clients.kubernetes.client import Kube, connect
from penstock.clients.kubernetes.kubeconfig import current_namespace
from penstock.clients.kubernetes.resources import TOKEN_REVIEWS
from penstock.clients.machine.token_file import follow_token, read_token
from penstock.errors import CertificateError
from penstock.gateway.app import Gateway
from penstock.gateway.http.certificate import ServedCertificate
from penstock.gateway.http.open_files import fit_connections
from penstock.gateway.http.servers import HttpServers, Server
from penstock.gateway.quotas.store import Store
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.upstream.upstream import Upstream
from penstock_engine.telemetry import traces

if TYPE_CHECKING:
    from penstock.gateway.telemetry.tracing import RequestTracer

logger = logging.getLogger(__name__)

# Interval at which the lag of the event loop is measured.
LAG_INTERVAL_S = 0.5
# Longest interval between two checks for slow clients.
MAX_CHECK_INTERVAL_S = 1.0
# Interval between two checks for a new certificate. The kubelet takes up to a minute or two to renew a
# Secret's volume, so this adds little.
CERTIFICATE_CHECK_INTERVAL_S = 5.0


async def serve(settings: GatewaySettings) -> None:
    """Run a gateway until SIGTERM or SIGINT and the drain that follows.

    Raises KubeError if there are no credentials for a cluster, CertificateError and TokenFileError.
    """
    certificate = None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        certificate = ServedCertificate(settings.tls_certificate, settings.tls_key)
    batch_token = None
    if settings.batch_token_file is not None:
        batch_token = read_token(settings.batch_token_file)
    settings = fit_connections(settings)
    stop = _stop_at_signals()
    snapshots = SnapshotStore()
    async with (
        await connect(user_agent="penstock-gateway") as kube,
        Upstream(settings) as upstream,
        asyncio.TaskGroup() as group,
    ):
        tracer = _tracer()
        review = partial(kube.create, TOKEN_REVIEWS, None)
        gateway = Gateway(
            snapshots, upstream, settings, tracer=tracer, review=review,
            quota_store=_quota_store(settings),
        )  # fmt: skip
        if batch_token is not None:
            gateway.serve_batches(batch_token)
        gateway.state.metrics.observe_credentials(kube.configuration)
        followers = [group.create_task(each) for each in _follow(gateway, kube, settings)]
        if batch_token is not None and settings.batch_token_file is not None:
            followed = follow_token(batch_token, settings.batch_token_file)
            followers.append(group.create_task(followed))
        try:
            await run(gateway, stop, gateway.http_servers(certificate))
        finally:
            for follower in followers:
                follower.cancel()
            if tracer is not None:
                await asyncio.to_thread(tracer.close)


def _follow(
    gateway: Gateway, kube: Kube, settings: GatewaySettings
) -> list[Coroutine[None, None, None]]:
    """Coroutines that follow objects of the API server until they are cancelled."""
    state, restarted = gateway.state, gateway.state.metrics.count_watch_restart
    return [
        state.snapshots.follow(kube, settings.namespace, restarted),
        state.authenticator.follow(kube, settings.keys_namespace, restarted),
        state.peers.follow(kube, current_namespace(), restarted),
        state.providers.keys.follow(kube, state.snapshots),
    ]


def _stop_at_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _tracer() -> "RequestTracer | None":
    if not traces.is_enabled():
        return None
    from penstock.gateway.telemetry.tracing import RequestTracer  # takes a second and megabytes

    return RequestTracer()


def _quota_store(settings: GatewaySettings) -> Store | None:
    if settings.quota_store is None:
        return None
    from penstock.gateway.quotas.redis_store import RedisStore  # takes megabytes

    name = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    return RedisStore(settings.quota_store, name, settings.quota_store_password_file)


async def run(gateway: Gateway, stop: asyncio.Event, servers: HttpServers | None = None) -> None:
    """Answer requests until `stop` is set, then drain."""
    servers = servers or gateway.http_servers()
    connections = servers.clients.server_state.connections
    gateway.state.metrics.connections.set_function(lambda: len(connections))
    try:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(_measure_loop_lag(gateway)),
                group.create_task(gateway.state.quotas.run()),
                group.create_task(_end_slow_clients(servers, gateway.state.settings)),
                group.create_task(_drain(gateway, servers.clients, stop)),
            ]
            if servers.certificate is not None:
                renewal = _renew(servers.certificate, gateway.state.metrics)
                background.append(group.create_task(renewal))
            group.create_task(servers.management.serve())
            await servers.clients.serve()
            servers.management.should_exit = True  # probes are answered until here
            for task in background:
                task.cancel()
    finally:
        gateway.state.authenticator.tokens.close()
        await gateway.state.mirror.close()
        await gateway.state.providers.close()
        if gateway.state.batch_server is not None:
            await gateway.state.batch_server.close()
        await gateway.state.adapters.close()
        await gateway.state.quotas.close()


async def _drain(gateway: Gateway, server: Server, stop: asyncio.Event) -> None:
    settings = gateway.state.settings
    await stop.wait()
    logger.info("draining: %d requests are in flight", len(gateway.state.cancel_scopes))
    gateway.drain()
    await asyncio.sleep(settings.drain_delay_s)
    server.should_exit = True  # stops accepting; open connections end with their response
    await asyncio.sleep(settings.drain_timeout_s)
    if gateway.state.cancel_scopes:
        logger.warning("cutting off %d requests", len(gateway.state.cancel_scopes))
        gateway.cancel_requests()
    await asyncio.Event().wait()


async def _measure_loop_lag(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + LAG_INTERVAL_S
        await asyncio.sleep(LAG_INTERVAL_S)
        gateway.note_loop_lag(max(0.0, loop.time() - due_s))


async def _renew(certificate: ServedCertificate, metrics: Metrics) -> None:
    """Load the certificate again whenever its files change."""
    metrics.tls_expiry.set(certificate.expires_s)
    while True:
        await asyncio.sleep(CERTIFICATE_CHECK_INTERVAL_S)
        try:
            if not await asyncio.to_thread(certificate.reload_if_changed):
                continue
        except CertificateError as error:
            metrics.tls_reload_failures.inc()
            logger.error("the old TLS certificate is kept: %s", error)
            continue
        metrics.tls_expiry.set(certificate.expires_s)
        logger.info("new TLS certificate loaded")


async def _end_slow_clients(servers: HttpServers, settings: GatewaySettings) -> None:
    loop = asyncio.get_running_loop()
    shortest_s = min(settings.head_timeout_s, settings.client_stall_timeout_s)
    while True:
        await asyncio.sleep(min(MAX_CHECK_INTERVAL_S, shortest_s / 4))
        now_s = loop.time()
        for connection in servers.connections():
            connection.check(now_s)
