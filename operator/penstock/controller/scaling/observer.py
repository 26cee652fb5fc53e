"""Scrapes all engines and gateways concurrently, once per tick."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.pods.scrape import Scraper
from penstock.clients.prometheus.scraper import PrometheusScraper
from penstock.controller.process.failures import Failures
from penstock.controller.scaling.gateway_pods import GatewayPod, gateway_pods
from penstock.controller.scaling.scale_targets import ScaleTarget
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.canary.counts import Counts
from penstock.core.observed.gateway_report import (
    Arms,
    GatewayReport,
    GatewayTotals,
    demand_of,
)
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.scaling.idle import GatewayDemand, GatewayState, SilentGateway
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
)


class Observer:
    """Scrapes engines and gateways, and holds the results of the last scrape.

    gateways: the gateway's pods; None until they have been listed. scraped: Prometheus as a fallback
    for engines that cannot be scraped.
    """

    def __init__(
        self,
        scraper: Scraper,
        gateways: Callable[[], Iterable[Object] | None],
        failures: Failures,
        scraped: PrometheusScraper | None = None,
    ) -> None:
        self._scraper = scraper
        self._failures = failures
        self._fallback = scraped
        self._gateway_pods = gateways
        self._gateways = GatewayTotals()
        self._readings: dict[str, EngineReading] = {}
        self._last_direct_s: dict[str, float] = {}
        self._reports: dict[str, GatewayReport | Missing] | None = None
        self._silent: dict[str, SilentGateway] = {}

    async def scrape(self, targets: Iterable[ScaleTarget]) -> Mapping[Key, Observation]:
        """Scrape all gateways and the engines of these targets. Returns an observation per service."""
        targets = list(targets)
        missing, views, fault_views = await asyncio.gather(
            self._gateways_or_missing(),
            asyncio.gather(*(self._engines_of(t.service.key, t.pods) for t in targets)),
            asyncio.gather(*(self._engines_of(t.service.key, t.fault_pods) for t in targets)),
        )
        readings = {
            f"{target.service.namespace}/{pod.name}": pod.reading
            for target, *both in zip(targets, views, fault_views, strict=True)
            for pod in chain(*both)
        }
        self._readings = {
            pod: reading for pod, reading in readings.items() if isinstance(reading, EngineReading)
        }
        self._last_direct_s = {
            pod: _direct_time_s(reading) or self._last_direct_s.get(pod, 0.0)
            for pod, reading in readings.items()
        }
        now_s = self._scraper.now()
        return {
            target.service.key: Observation(
                now_s,
                pods,
                target.provisioned,
                missing or self.reading(target.service.key),
                target.by_variant,
            )
            for target, pods in zip(targets, views, strict=True)
        }

    def arms(self, key: Key) -> Arms:
        """Return the gateways' counts for each engine of a service, as of the last scrape."""
        return self._gateways.arms.get("/".join(key), {})

    def reading(self, key: Key) -> GatewayReading | None:
        """Return the gateways' counts of a service, as of the last scrape; None if none knows it."""
        return self._gateways.sums.get("/".join(key))

    def demand(self, key: Key) -> Mapping[str, GatewayState]:
        """Return the requests of a service at each gateway, as of the last scrape.

        A gateway that does not know the service has none.
        """
        service = "/".join(key)
        reports = {
            name: demand_of(answer, service)
            for name, answer in (self._reports or {}).items()
            if not isinstance(answer, Missing)
        }
        return {**self._silent, **reports}

    async def demand_at(self, gateway: GatewayPod) -> Callable[[Key], GatewayDemand] | None:
        """Read one gateway alone. Returns its requests by service; None if it does not answer."""
        answer = await self._scraper.stats_report(gateway.name, gateway.address)
        if isinstance(answer, Missing):
            return None
        return lambda key: demand_of(answer, "/".join(key))

    def observe_at_zero(self, target: ScaleTarget) -> Observation:
        """Observe a service without engines, with the gateways' counts as of the last scrape."""
        reading = self.reading(target.service.key)
        return Observation(self._scraper.now(), (), 0, reading, target.by_variant)

    def adapter_counts(self, key: Key) -> Mapping[str, AdapterCounts] | None:
        """Return the gateways' counts of a service's adapters, by their names in engines.

        None until the gateways have been scraped.
        """
        adapters = self._gateways.adapters
        return None if adapters is None else adapters.get("/".join(key), {})

    def counts(self, key: Key) -> Counts | None:
        """Count a service's requests, and how many failed, since this process started.

        None if no gateway knows the service.
        """
        reading = self.reading(key)
        return Counts(reading.ended + reading.failed, reading.failed) if reading else None

    def corrupted(self, pods: Iterable[str]) -> int:
        """Count requests with NaN logits on these engines ("namespace/name"), as of the last scrape."""
        return sum(reading.corrupted for reading in self.engine_readings(pods))

    def engine_readings(self, pods: Iterable[str]) -> list[EngineReading]:
        """Return the readings of those engines ("namespace/name") that answered the last scrape."""
        return [self._readings[pod] for pod in pods if pod in self._readings]

    def applied_generations(self, key: Key) -> AppliedGenerations | None:
        """Return the generation of the traffic split that each gateway had applied at the last scrape.

        None before the first scrape; None for a ready gateway that did not answer.
        """
        if self._reports is None:
            return None
        service = "/".join(key)
        return {
            gateway: None if isinstance(answer, Missing) else answer.obeys[service]
            for gateway, answer in self._reports.items()
            if isinstance(answer, Missing) or service in answer.obeys
        }

    def applied_route_generations(self, key: Key) -> AppliedGenerations | None:
        """Return the generation of a ModelRoute that each gateway applied at the last scrape.

        None before the first scrape; None for a gateway that does not know the route or did not answer.
        """
        route = "/".join(key)
        return self._applied(lambda report: report.routes.get(route))

    def applied_tenant_generations(self, name: str) -> AppliedGenerations | None:
        """Return the generation of a Tenant that each gateway applied at the last scrape.

        None before the first scrape; None for a gateway that does not know the tenant or did not answer.
        """
        return self._applied(lambda report: report.tenants.get(name))

    def _applied(
        self, generation: Callable[[GatewayReport], int | None]
    ) -> AppliedGenerations | None:
        if self._reports is None:
            return None
        return {
            gateway: None if isinstance(answer, Missing) else generation(answer)
            for gateway, answer in self._reports.items()
        }

    async def _engines_of(
        self, key: Key, pods: Sequence[tuple[PodView, str]]
    ) -> tuple[PodView, ...]:
        """Scrape a service's engines. If that fails unexpectedly, all readings are Missing."""
        views = tuple(
            replace(view, reading=Missing(view.name, "scraping it failed unexpectedly"))
            if view.phase == "Ready"
            else view
            for view, _ in pods
        )
        with self._failures.isolate_errors("observer", *key):
            views = await self._read_engines(key[0], pods)
        return views

    async def _gateways_or_missing(self) -> Missing | None:
        missing: Missing | None = Missing("gateway", "scraping it failed unexpectedly")
        with self._failures.isolate_errors("observer", "gateways"):
            missing = await self._read_gateways()
        return missing

    async def _read_engines(
        self, namespace: str, pods: Iterable[tuple[PodView, str]]
    ) -> tuple[PodView, ...]:
        """Scrape ready engines; ask Prometheus about those that do not answer."""

        async def read(view: PodView, address: str) -> PodView:
            if view.phase != "Ready":
                return view
            return replace(view, reading=await self._scraper.read(namespace, view.name, address))

        views = await asyncio.gather(*(read(*pod) for pod in pods))
        failed = [view.name for view in views if isinstance(view.reading, Missing)]
        if self._fallback is None or not failed:
            return tuple(views)
        stored = await self._fallback.read(namespace, failed)
        return tuple(
            self._with_fallback(namespace, view, stored[view.name]) if view.name in stored else view
            for view in views
        )

    def _with_fallback(
        self, namespace: str, view: PodView, stored: EngineReading | Missing
    ) -> PodView:
        """Return the pod with Prometheus's reading, unless the last direct one is newer.

        Counters would go backwards with an older reading.
        """
        direct = view.reading
        assert isinstance(direct, Missing)
        if isinstance(stored, Missing):
            return replace(view, reading=Missing(view.name, f"{direct.reason}; {stored.reason}"))
        if stored.at_s < self._last_direct_s.get(f"{namespace}/{view.name}", 0.0):
            return view
        return replace(view, reading=stored)

    async def _read_gateways(self) -> Missing | None:
        """Scrape the gateways and add up their counts. Missing if a ready gateway does not answer."""
        bodies = self._gateway_pods()
        if bodies is None:
            return Missing("gateway", "its pods are not listed yet")
        pods = gateway_pods(bodies)
        reports = dict(await asyncio.gather(*(self._read_gateway(pod) for pod in pods)))
        now_s = self._scraper.now()
        self._silent = {
            pod.name: pod.silent(now_s) for pod in pods if isinstance(reports[pod.name], Missing)
        }
        # A gateway that is not ready may still have clients: if it answers, its counts are used.
        self._reports = {
            pod.name: reports[pod.name]
            for pod in pods
            if pod.is_ready or isinstance(reports[pod.name], GatewayReport)
        }
        if not pods:
            self._gateways = GatewayTotals()
            return None
        if not any(pod.is_ready for pod in pods):
            return Missing("gateway", "none of its pods is ready")
        for pod in pods:
            report = reports[pod.name]
            if isinstance(report, Missing) and pod.is_ready:
                return report
        read = {
            name: report for name, report in reports.items() if isinstance(report, GatewayReport)
        }
        try:
            self._gateways = self._gateways.updated(read, reports.keys(), self._scraper.now())
        except ValueError as error:
            return Missing("gateway", str(error))
        return None

    async def _read_gateway(self, pod: GatewayPod) -> tuple[str, GatewayReport | Missing]:
        return pod.name, await self._scraper.stats_report(pod.name, pod.address)


def _direct_time_s(reading: EngineReading | Missing | None) -> float | None:
    """Return the time of a reading that came from the engine itself; None for any other."""
    if isinstance(reading, EngineReading) and reading.source == "Engine":
        return reading.at_s
    return None
