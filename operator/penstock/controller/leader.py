"""The work of the leading replica: watches, reconciliation, scaling and canary judging."""

import asyncio
import logging
from dataclasses import replace
from functools import partial

import kopf
from kubernetes.aio import client

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.machine.clock import steady
from penstock.clients.pods.engine_adapters import EngineAdapters
from penstock.clients.pods.scrape import Scraper
from penstock.clients.prometheus.metric_gates import Prometheus
from penstock.clients.prometheus.scraper import PrometheusScraper
from penstock.controller.adapters.metrics import AdapterMetrics
from penstock.controller.adapters.placer import AdapterPlacer
from penstock.controller.adapters.rollouts import RolloutSources
from penstock.controller.adapters.sources import Sources
from penstock.controller.adapters.work import adapter_work
from penstock.controller.canary.cases import CanaryCase, canary_cases
from penstock.controller.canary.judge import Judge
from penstock.controller.canary.metric_queries import MetricQueries
from penstock.controller.election.election import LeadershipLost
from penstock.controller.http.recorder import Recorder
from penstock.controller.http.server import OperatorEndpoints
from penstock.controller.names.model_names import ModelNames
from penstock.controller.process.settings import Settings
from penstock.controller.process.stop_signals import stop_on_signals
from penstock.controller.routes.statuses import RouteStatuses
from penstock.controller.scaling.idle_gate import IdleGate
from penstock.controller.scaling.kv_scaler import KvScaler
from penstock.controller.scaling.learned_state import LearnedStateStore
from penstock.controller.scaling.objective_scaler import ObjectiveScaler
from penstock.controller.scaling.observer import Observer
from penstock.controller.scaling.scale_targets import ScaleTarget, scale_targets
from penstock.controller.scaling.scaler import Scaler
from penstock.controller.scaling.wake_watch import WakeWatch
from penstock.controller.services.engine_policies import EnginePolicies
from penstock.controller.services.fetch_progress import FetchProgressReader
from penstock.controller.services.metrics import ServiceMetrics
from penstock.controller.services.queue import WorkQueue, is_settled
from penstock.controller.services.reconciler import Reconciler
from penstock.controller.tenants.statuses import TenantStatuses
from penstock.controller.watching import kopf_watch
from penstock.controller.watching.watches import Watches
from penstock.core.adapters.placement_record import PlacementRecord
from penstock.core.observed.children import ObservedState
from penstock.core.observed.name_claims import ClaimKind

logger = logging.getLogger(__name__)


class Leader:
    """Runs the work that only the leading replica does. stop: event that SIGTERM and SIGINT set."""

    def __init__(
        self,
        kube: Kube,
        configuration: client.Configuration,
        settings: Settings,
        endpoints: OperatorEndpoints,
        recorder: Recorder,
        stop: asyncio.Event,
    ) -> None:
        self._kube = kube
        self._configuration = configuration
        self._settings = settings
        self._failures, self._operator_metrics = endpoints.failures, endpoints.metrics
        self._stop = stop
        self._services: dict[Key, Object] = {}
        self._queue = WorkQueue(
            lambda key: self._reconciler.reconcile(key), endpoints.failures, endpoints.metrics
        )
        self._names = ModelNames(is_listed=self._is_listed, affected=self._queue.add)
        self._watches = Watches(
            kube,
            settings,
            self._child_changed,
            partial(self._names.update, "InferenceService"),
            endpoints.metrics.count_watch_restart,
        )
        self._scraper = Scraper(steady)
        self._progress = FetchProgressReader(self._scraper, self._queue.add_routine, self._failures)
        self._engine_adapters = EngineAdapters(lambda: kube.may_write)
        self._observer = self._make_observer()
        self._metrics = self._make_metrics()
        self._scaler = self._make_scaler(recorder)
        self._wake_watch = WakeWatch(self._watches.gateways, self._scaler.wake, self._failures)
        self._judge = self._make_judge()
        self._reconciler = self._make_reconciler()
        self._route_statuses = self._make_route_statuses()
        self._tenant_statuses = self._make_tenant_statuses()
        self._engine_policies = self._make_engine_policies()
        self._adapter_placer = self._make_adapter_placer()
        endpoints.metrics.add_collector(AdapterMetrics(self._adapter_placer))

    def placement(self, key: Key) -> PlacementRecord | None:
        """Return the last placement of a service's adapters; None if there is none."""
        return self._adapter_placer.record(key)

    async def lead(self) -> None:
        """Run the watches, the scaler, the judge and the periodic resync until one of them ends.

        Nothing is written after this returns or raises.
        """
        logger.info("leading")
        self._operator_metrics.leading.set(1)
        self._metrics.is_leading = True
        try:
            async with asyncio.TaskGroup() as group:
                self._watches.start(group)
                for loop in (
                    self._scaler.run(), self._wake_watch.run(), self._judge.run(),
                    self._route_statuses.run(), self._engine_policies.run(), self._adapter_placer.run(),
                    self._progress.run(lambda: self._services), self._metrics.run(),
                    self._queue.resync(lambda: self._services),
                    self._tenant_statuses.run(),
                ):  # fmt: skip
                    group.create_task(loop)
                ours = asyncio.all_tasks()
                watch = await kopf_watch.start(
                    self._configuration, self._settings.watch_namespace, self._service_changed
                )
                stop_on_signals(self._stop)  # in place of Kopf's handlers
                await kopf.run_tasks(watch, ignored=ours)
                raise LeadershipLost("the watches have ended")
        finally:
            self._metrics.is_leading = False
            await self._scraper.close()
            await self._engine_adapters.close()

    def _targets(self) -> list[ScaleTarget]:
        return scale_targets(self._services, *self._watches.children.snapshot(), self._failures)

    def _cases(self) -> list[CanaryCase]:
        children = self._watches.children.snapshot()
        of_services = canary_cases(self._services, *children, self._failures)
        return of_services + self._adapter_placer.rollouts.cases()

    def _judged(self, key: Key) -> None:
        if key in self._services:  # the placement loop asks for the verdicts on adapters
            self._queue.add(key)

    def _child_changed(self, service: Key) -> None:
        self._operator_metrics.watch_events.inc()
        if self._watches.children.is_synced:
            self._queue.add(service)
        else:  # all children are listed, of all services
            self._queue.add_routine(service)

    def _service_changed(self, key: Key, body: Object, is_gone: bool) -> None:
        self._operator_metrics.watch_events.inc()
        known = self._services.pop(key, None)
        if not is_gone:
            self._metrics.observe_change(key, known, body)
            self._services[key] = body
            if is_settled(body, known):
                self._queue.add_routine(key)
            else:
                self._queue.add(key)

    def _service_gone(self, key: Key) -> None:
        """Forget a service whose deletion no watch has reported."""
        self._service_changed(key, {}, is_gone=True)
        self._names.update("InferenceService", key, None)

    def _is_listed(self, kind: ClaimKind) -> bool:
        match kind:
            case "InferenceService":
                return self._watches.are_services_listed
            case "ModelRoute":
                return self._route_statuses.routes is not None
            case "LoraAdapter":
                return self._adapter_placer.adapters is not None

    def _make_observer(self) -> Observer:
        server = self._settings.prometheus
        fallback = None if server is None else PrometheusScraper(server, steady)
        return Observer(self._scraper, self._watches.gateways, self._failures, fallback)

    def _make_metrics(self) -> ServiceMetrics:
        metrics = ServiceMetrics(
            services=lambda: self._services,
            children=self._watches.children.snapshot,
            reading=self._observer.reading,
            failures=self._failures,
        )
        self._operator_metrics.add_collector(metrics)
        return metrics

    def _make_scaler(self, recorder: Recorder) -> Scaler:
        failures = self._failures
        return Scaler(
            self._observer,
            ObjectiveScaler(LearnedStateStore(self._kube), recorder, failures),
            KvScaler(recorder, failures),
            IdleGate(self._observer, lambda key: adapter_work(self._adapter_placer, key)),
            targets=self._targets,
            quotas=lambda: self._watches.quotas,
            changed=self._queue.add,
            failures=failures,
            decided=self._metrics.observe_decision,
        )

    def _make_judge(self) -> Judge:
        return Judge(
            self._kube,
            self._observer,
            MetricQueries(Prometheus(self._settings.metrics_hosts)),
            services=lambda: self._services,
            cases=self._cases,
            changed=self._judged,
            failures=self._failures,
        )

    def _with_known_state(self, key: Key, observed: ObservedState) -> ObservedState:
        observed = self._progress.with_progress(key, observed)
        return replace(observed, access=self._tenant_statuses.counts)

    def _make_reconciler(self) -> Reconciler:
        return Reconciler(
            self._kube,
            self._settings.engine_image,
            services=lambda: self._services,
            names=self._names,
            budgets=self._watches.budgets,
            scaling=self._scaler.report,
            judgement=self._judge.judgement,
            applied_generations=self._observer.applied_generations,
            engine_readings=self._observer.engine_readings,
            with_known_state=self._with_known_state,
            gateway_url=self._settings.gateway_url,
            gone=self._service_gone,
            limits=self._settings.limits,
            source_variables=self._settings.source_variables,
            reads_nodes=self._settings.watch_namespace is None,
        )

    def _make_route_statuses(self) -> RouteStatuses:
        return RouteStatuses(
            self._kube,
            namespace=self._settings.watch_namespace,
            services=self._watches.services,
            deployments=self._watches.deployments,
            adapters=lambda: self._adapter_placer.adapters,
            names=lambda: self._names.index,
            applied=self._observer.applied_route_generations,
            failures=self._failures,
            changed=partial(self._names.update, "ModelRoute"),
            restarted=self._operator_metrics.count_watch_restart,
        )

    def _make_tenant_statuses(self) -> TenantStatuses:
        return TenantStatuses(
            self._kube,
            applied=self._observer.applied_tenant_generations,
            services=lambda: self._services,
            affected=self._queue.add_routine,
            failures=self._failures,
            restarted=self._operator_metrics.count_watch_restart,
        )

    def _make_engine_policies(self) -> EnginePolicies:
        return EnginePolicies(
            self._kube,
            self._settings,
            services=self._watches.services,
            failures=self._failures,
            restarted=self._operator_metrics.count_watch_restart,
        )

    def _make_adapter_placer(self) -> AdapterPlacer:
        children = self._watches.children
        return AdapterPlacer(
            self._kube,
            self._engine_adapters,
            Sources(
                services=self._watches.services,
                routes=lambda: self._route_statuses.routes,
                names=lambda: self._names.index,
                children=lambda: children.snapshot() if children.is_synced else None,
                counts=self._observer.adapter_counts,
                rollouts=RolloutSources(self._judge.judgement, self._observer.applied_generations),
            ),
            self._failures,
            self._settings,
            changed=partial(self._names.update, "LoraAdapter"),
            restarted=self._operator_metrics.count_watch_restart,
        )
