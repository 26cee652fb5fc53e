"""Scrapes all engines and gateways concurrently, once per tick."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from penstock.clients.kube import Object
from penstock.clients.scrape import Scraper
from penstock.clients.scraped import Scraped
from penstock.controller.failures import Failures
from penstock.controller.fleet import GatewayPod, ScaleTarget, gateway_pods
from penstock.core.canary.counts import Counts
from penstock.core.observed.gateway_feed import Arms, Feed, Gateways
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
)

Key = tuple[str, str]


class Observer:
    """Scrapes engines and gateways. gateways: the gateway's pods; None until they have been listed.
    scraped: Prometheus as a fallback for engines that cannot be scraped."""

    def __init__(
        self,
        scraper: Scraper,
        gateways: Callable[[], Iterable[Object] | None],
        failures: Failures,
        scraped: Scraped | None = None,
    ) -> None:
        self._scraper = scraper
        self._failures = failures
        self._scraped = scraped
        self._pods = gateways
        self._gateways = Gateways()
        self._corrupted: dict[str, int] = {}
        self._direct_s: dict[str, float] = {}
        self._answers: dict[str, Feed | Missing] | None = None

    async def scrape(self, targets: Iterable[ScaleTarget]) -> Mapping[Key, Observation]:
        targets = list(targets)
        missing, views, beside = await asyncio.gather(
            self._gateways_or_missing(),
            asyncio.gather(*(self._engines_of(t.service.key, t.pods) for t in targets)),
            asyncio.gather(*(self._engines_of(t.service.key, t.beside) for t in targets)),
        )
        readings = {
            f"{target.service.namespace}/{pod.name}": pod.reading
            for target, *both in zip(targets, views, beside, strict=True)
            for pod in chain(*both)
        }
        self._corrupted = {
            pod: reading.corrupted
            for pod, reading in readings.items()
            if isinstance(reading, EngineReading)
        }
        self._direct_s = {
            pod: _direct_s(reading) or self._direct_s.get(pod, 0.0)
            for pod, reading in readings.items()
        }
        now_s = self._scraper.now()
        return {
            target.service.key: Observation(
                now_s,
                pods,
                target.provisioned,
                missing or self._reading(target.service.key),
                target.by_variant,
            )
            for target, pods in zip(targets, views, strict=True)
        }

    def arms(self, key: Key) -> Arms:
        """The gateways' counts for each engine of a service at the last scrape."""
        return self._gateways.arms.get("/".join(key), {})

    def counts(self, key: Key) -> Counts | None:
        """Requests to a service's engines that ended and that failed since this process started;
        None if no gateway knows the service."""
        reading = self._reading(key)
        return Counts(reading.ended + reading.failed, reading.failed) if reading else None

    def corrupted(self, pods: Iterable[str]) -> int:
        """Requests with NaN logits on engines "namespace/name", as of the last scrape."""
        return sum(self._corrupted.get(pod, 0) for pod in pods)

    def obeyed(self, key: Key) -> AppliedGenerations | None:
        """The traffic split that each gateway applied at the last scrape; None before the first."""
        if self._answers is None:
            return None
        service = "/".join(key)
        return {
            gateway: None if isinstance(answer, Missing) else answer.obeys[service]
            for gateway, answer in self._answers.items()
            if isinstance(answer, Missing) or service in answer.obeys
        }

    def _reading(self, key: Key) -> GatewayReading | None:
        return self._gateways.sums.get("/".join(key))

    async def _engines_of(
        self, key: Key, pods: Sequence[tuple[PodView, str]]
    ) -> tuple[PodView, ...]:
        """Scrape a service's engines. After an unexpected error all readings are Missing."""
        views = tuple(
            replace(view, reading=Missing(view.name, "it could not be read"))
            if view.phase == "Ready"
            else view
            for view, _ in pods
        )
        with self._failures.contained("observer", "/".join(key)):
            views = await self._read_engines(key[0], pods)
        return views

    async def _gateways_or_missing(self) -> Missing | None:
        missing: Missing | None = Missing("gateway", "it could not be read")
        with self._failures.contained("observer", "gateways"):
            missing = await self._read_gateways()
        return missing

    async def _read_engines(
        self, namespace: str, pods: Iterable[tuple[PodView, str]]
    ) -> tuple[PodView, ...]:
        async def read(view: PodView, address: str) -> PodView:
            if view.phase != "Ready":
                return view
            return replace(view, reading=await self._scraper.read(view.name, address))

        views = await asyncio.gather(*(read(*pod) for pod in pods))
        lost = [view.name for view in views if isinstance(view.reading, Missing)]
        if self._scraped is None or not lost:
            return tuple(views)
        told = await self._scraped.read(namespace, lost)
        return tuple(
            self._second(namespace, view, told[view.name]) if view.name in told else view
            for view in views
        )

    def _second(self, namespace: str, view: PodView, told: EngineReading | Missing) -> PodView:
        """The pod with Prometheus's reading, unless that is older than the last direct one: counters
        must not go back."""
        direct = view.reading
        assert isinstance(direct, Missing)
        if isinstance(told, Missing):
            return replace(view, reading=Missing(view.name, f"{direct.reason}; {told.reason}"))
        if told.at_s < self._direct_s.get(f"{namespace}/{view.name}", 0.0):
            return view
        return replace(view, reading=told)

    async def _read_gateways(self) -> Missing | None:
        """Scrape the gateways and add up their counts. Missing if a ready gateway does not answer."""
        bodies = self._pods()
        if bodies is None:
            return Missing("gateway", "its pods are not known yet")
        pods = gateway_pods(bodies)
        feeds = dict(await asyncio.gather(*(self._read_gateway(pod) for pod in pods)))
        # A gateway that is not ready may still have clients: if it answers, its counts are used.
        self._answers = {
            pod.name: feeds[pod.name]
            for pod in pods
            if pod.is_ready or isinstance(feeds[pod.name], Feed)
        }
        if not pods:
            self._gateways = Gateways()
            return None
        if not any(pod.is_ready for pod in pods):
            return Missing("gateway", "no pod of it is ready")
        for pod in pods:
            feed = feeds[pod.name]
            if isinstance(feed, Missing) and pod.is_ready:
                return feed
        read = {name: feed for name, feed in feeds.items() if isinstance(feed, Feed)}
        try:
            self._gateways = self._gateways.after(read, feeds.keys(), self._scraper.now())
        except ValueError as error:
            return Missing("gateway", str(error))
        return None

    async def _read_gateway(self, pod: GatewayPod) -> tuple[str, Feed | Missing]:
        return pod.name, await self._scraper.feed(pod.name, pod.address)


def _direct_s(reading: EngineReading | Missing | None) -> float | None:
    """Of when it is, if the engine gave it itself."""
    if isinstance(reading, EngineReading) and reading.source == "Engine":
        return reading.at_s
    return None
