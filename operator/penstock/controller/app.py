"""The operator process: leader election, Kopf watches, reconciliation, scaling and canary judging."""

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import Any

import kopf
from kubernetes.aio import client
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection

from penstock.api.v1alpha1 import PLURAL, VERSION
from penstock.chart.names import GATEWAY, LEASE_NAME, gateway_url
from penstock.clients.clock import steady
from penstock.clients.informer import Informer, key_of
from penstock.clients.kube import Kube, Object, api_client, load_configuration
from penstock.clients.prometheus import Prometheus
from penstock.clients.prometheus_scraper import PrometheusScraper
from penstock.clients.promql import Server
from penstock.clients.resources import INFERENCE_SERVICES, PODS, RESOURCE_QUOTAS
from penstock.clients.scrape import Scraper
from penstock.controller.child_mirror import ChildMirror
from penstock.controller.health import Health
from penstock.controller.judge import CanaryCase, Judge, canary_cases
from penstock.controller.kv_scaler import KvScaler
from penstock.controller.learned_state import LearnedStateStore
from penstock.controller.lease import LEASE_S, RENEW_DEADLINE_S, RETRY_S, Lease
from penstock.controller.metric_queries import MetricQueries
from penstock.controller.objective_scaler import ObjectiveScaler
from penstock.controller.observer import Observer
from penstock.controller.queue import Key, WorkQueue
from penstock.controller.reconciler import Reconciler
from penstock.controller.recorder import Recorder
from penstock.controller.route_statuses import RouteStatuses
from penstock.controller.scale_targets import ScaleTarget, scale_targets
from penstock.controller.scaler import Scaler
from penstock.controller.service_metrics import ServiceMetrics
from penstock.core.spec.service import GROUP

logger = logging.getLogger(__name__)

RESYNC_S = 300.0  # all services are reconciled this often, even without an event


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator process.

    identity: this replica's name in the Lease. engine_image: image of engine pods. namespace: where
    the Lease and the gateways are. host, port: where health and metrics are served. metrics_hosts:
    servers that canaries' metrics may be queried from. prometheus: fallback for engines that cannot
    be scraped. watch_namespace: the only one whose services are operated; None: all.
    """

    identity: str
    engine_image: str
    namespace: str
    host: str
    port: int
    metrics_hosts: tuple[str, ...] = ()
    prometheus: Server | None = None
    watch_namespace: str | None = None


class LeadershipLost(Exception):
    """Another replica may lead now. The process ends, and is restarted as a standby."""


async def run(settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT. Raises LeadershipLost, or the error that ended a watch."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    configuration = await load_configuration()
    health, recorder = Health(), Recorder()
    health.metrics.observe_credentials(configuration)
    observe = health.metrics.observe_api_request
    async with api_client(configuration, "penstock-operator", observe) as api:
        runner = await health.serve(settings.host, settings.port, recorder)
        lease = Lease(LEASE_NAME, settings.namespace, settings.identity, api, health.failures)
        kube = Kube(api, write_time_s=lease.remaining_s)
        leader = Leader(kube, configuration, settings, health, recorder, stop)
        election = LeaderElection(
            Config(
                lease,
                lease_duration=LEASE_S,
                renew_deadline=RENEW_DEADLINE_S,
                retry_period=RETRY_S,
                onstarted_leading=leader.lead,
                onstopped_leading=_stop_leading,
            )
        )
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(health.beat()),
                    group.create_task(_campaign(election)),
                    group.create_task(leader.raise_errors()),
                ]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await leader.end()
            await lease.release()
            await runner.cleanup()


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` on SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _campaign(election: LeaderElection) -> None:
    """Wait for the Lease and renew it. Raises LeadershipLost if a renewal fails."""
    await election.run()
    raise LeadershipLost("the Lease could not be renewed")


async def _stop_leading() -> None:
    """Do nothing: `_campaign` raises LeadershipLost, which ends the process."""


class Leader:
    """The work that only the leading replica does."""

    def __init__(
        self,
        kube: Kube,
        configuration: client.Configuration,
        settings: Settings,
        health: Health,
        recorder: Recorder,
        stop: asyncio.Event,
    ) -> None:
        self._configuration = configuration
        self._health = health
        self._stop = stop
        self._leading: asyncio.Task[None] | None = None
        self._scraper = Scraper(steady)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._services: dict[Key, Object] = {}
        restarted = health.metrics.count_watch_restart
        watched = settings.watch_namespace
        self._watch_namespace = watched
        self._children = ChildMirror(kube, self._child_changed, restarted, namespace=watched)
        self._gateways = Informer(
            kube,
            PODS,
            namespace=settings.namespace,
            selector=f"app.kubernetes.io/name={GATEWAY}",
            changed=lambda _: None,
            restarted=restarted,
        )
        self._quotas = Informer(
            kube,
            RESOURCE_QUOTAS,
            namespace=watched,
            changed=lambda _: None,
            restarted=restarted,
        )
        # Kopf does not tell when it has listed all services.
        self._backends = Informer(
            kube,
            INFERENCE_SERVICES,
            namespace=watched,
            changed=lambda _: None,
            restarted=restarted,
        )
        observer = Observer(
            self._scraper,
            lambda: self._gateways if self._gateways.synced.is_set() else None,
            health.failures,
            None if settings.prometheus is None else PrometheusScraper(settings.prometheus, steady),
        )
        self._metrics = ServiceMetrics(
            services=lambda: self._services,
            children=lambda: self._children.snapshot(),
            reading=observer.reading,
            failures=health.failures,
        )
        health.metrics.add_collector(self._metrics)
        self._scaler = Scaler(
            observer,
            ObjectiveScaler(LearnedStateStore(kube), recorder, health.failures),
            KvScaler(recorder, health.failures),
            targets=self._targets,
            quotas=lambda: self._quotas,
            changed=lambda key: self._queue.add(key),
            failures=health.failures,
            decided=self._metrics.observe_decision,
        )
        self._judge = Judge(
            kube,
            observer,
            MetricQueries(Prometheus(settings.metrics_hosts)),
            services=lambda: self._services,
            cases=self._cases,
            changed=lambda key: self._queue.add(key),
            failures=health.failures,
        )
        self._reconciler = Reconciler(
            kube,
            settings.engine_image,
            services=lambda: self._services,
            scaling=self._scaler.report,
            judgement=self._judge.judgement,
            applied_generations=observer.applied_generations,
            gateway_url=gateway_url(settings.namespace),
            gone=lambda key: self._service_changed(key, {}, is_gone=True),
        )
        self._route_statuses = RouteStatuses(
            kube,
            namespace=watched,
            services=self._listed_services,
            deployments=lambda: self._children.snapshot()[0] if self._children.is_synced else None,
            applied=observer.applied_route_generations,
            failures=health.failures,
            restarted=restarted,
        )
        self._queue = WorkQueue(self._reconcile, health.failures, health.metrics)

    async def raise_errors(self) -> None:
        """Wait for an error in `lead` and raise it: the election does not check its own task."""
        await self._ended

    async def lead(self) -> None:
        """Run the watches, the scaler, the judge and the resync until one of them ends."""
        logger.info("leading")
        self._leading = asyncio.current_task()
        self._health.metrics.leading.set(1)
        self._metrics.is_leading = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._gateways.run())
                group.create_task(self._quotas.run())
                group.create_task(self._backends.run())
                group.create_task(self._children.run())
                group.create_task(self._scaler.run())
                group.create_task(self._judge.run())
                group.create_task(self._route_statuses.run())
                group.create_task(self._resync())
                group.create_task(self._metrics.run())
                ours = asyncio.all_tasks()
                watches = await kopf.spawn_tasks(
                    registry=self._registry(), settings=_kopf_settings(self._watch_namespace),
                    clusterwide=self._watch_namespace is None,
                    namespaces=[self._watch_namespace] if self._watch_namespace else [],
                    standalone=True,
                )  # fmt: skip
                stop_on_signals(self._stop)  # Kopf installs its own handlers: replace them
                await kopf.run_tasks(watches, ignored=ours)
                raise LeadershipLost("the watches have ended")
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - handed to `raise_errors`, which ends the process
            if not self._ended.done():
                self._ended.set_exception(error)
        finally:
            await self._scraper.close()

    async def end(self) -> None:
        """Stop leading. Nothing is written after this returns."""
        self._metrics.is_leading = False
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.wait({self._leading})

    async def _reconcile(self, key: Key) -> float | None:
        return await self._reconciler.reconcile(key)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_S)
            for key in list(self._services):
                self._queue.add(key)

    def _targets(self) -> list[ScaleTarget]:
        return scale_targets(self._services, *self._children.snapshot(), self._health.failures)

    def _cases(self) -> list[CanaryCase]:
        return canary_cases(self._services, *self._children.snapshot(), self._health.failures)

    def _listed_services(self) -> dict[Key, Object] | None:
        """All services; None until they have been listed."""
        if not self._backends.synced.is_set():
            return None
        return {key_of(each): each for each in self._backends}

    def _child_changed(self, service: Key) -> None:
        self._health.metrics.watch_events.inc()
        self._queue.add(service)

    def _registry(self) -> kopf.OperatorRegistry:
        """Kopf handlers that only record changed services and queue their keys."""
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await connection(self._configuration)

        @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
        async def service(
            event: kopf.RawEvent, namespace: str | None, name: str, body: kopf.Body, **_: Any
        ) -> None:
            self._service_changed((namespace or "", name), dict(body), event["type"] == "DELETED")

        return registry

    def _service_changed(self, key: Key, body: Object, is_gone: bool) -> None:
        self._health.metrics.watch_events.inc()
        known = self._services.pop(key, None)
        if not is_gone:
            self._metrics.observe_change(key, known, body)
            self._services[key] = body
            self._queue.add(key)
        if known is None or is_gone:  # its served name may now be taken, or free
            for other in self._services:
                if other[0] == key[0] and other != key:
                    self._queue.add(other)


async def connection(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """Return the operator's credentials for Kopf, which asks again when the API server refuses them."""
    await configuration.auth_settings()  # reads a rotated token
    scheme, _, token = configuration.api_key.get("BearerToken", "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


def _kopf_settings(watch_namespace: str | None) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # Rights in one namespace do not include watching CRDs: they must exist when the operator starts.
    settings.scanning.disabled = watch_namespace is not None
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.process.ultimate_exiting_timeout = 10
    return settings
