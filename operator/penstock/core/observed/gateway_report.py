"""Gateway statistics reports, and their aggregation over all gateways of a cluster.

Counters of a gateway restart at zero with its process. The aggregation adds up increases between two
reports, so the totals never fall when a gateway disappears or restarts.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.core.canary.arm import NO_REQUESTS, Arm
from penstock.core.observed.adapter_totals import CountsByService, add_counts
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.idle import GatewayDemand
from penstock.core.scaling.signals import GatewayReading

VERSION: Literal[10] = 10
COUNTERS = (
    "arrivals", "prompt_tokens", "ended", "output_tokens", "attended_tokens", "late", "shed",
    "failed",
)  # fmt: skip
GAUGES = ("queued", "queued_prompt_tokens", "in_flight", "in_flight_prefill_tokens")


Arms = Mapping[str, Arm]


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """Statistics report of one gateway. Field names are the wire format."""

    version: Literal[10]
    started_s: float  # when its counters started
    services: Mapping[str, GatewayReading]  # statistics by service, "namespace/name"
    # Canary statistics by service and engine pod, for services with more than one revision or cohort; only
    # engines that still exist
    arms: Mapping[str, Arms] = field(default_factory=dict)
    # Traffic generation that the gateway applies, by service
    obeys: Mapping[str, int] = field(default_factory=dict)
    # Generation of the spec that the gateway applies, by ModelRoute
    routes: Mapping[str, int] = field(default_factory=dict)
    # Counts of each version of an adapter, by service and by name in engines
    adapters: CountsByService = field(default_factory=dict)
    # Generation of the spec that the gateway applies, by Tenant
    tenants: Mapping[str, int] = field(default_factory=dict)


def demand_of(report: GatewayReport, service: str) -> GatewayDemand:
    """Requests of a service "namespace/name" at one gateway."""
    reading = report.services.get(service)
    if reading is None:
        return GatewayDemand(report.started_s, 0, 0)
    num_open = reading.queued + reading.in_flight
    return GatewayDemand(report.started_s, reading.arrivals, num_open)


@dataclass(frozen=True, slots=True)
class GatewayTotals:
    """Totals over all gateways, including terminated ones.

    last: last report by gateway pod. sums: statistics by service. arms: canary statistics by service and
    engine pod, for engines that some gateway still reports. adapters: counts by service and by the adapter's
    name in engines, for adapters that some gateway still reports; None before the first report.
    """

    last: Mapping[str, GatewayReport] = field(default_factory=dict)
    sums: Mapping[str, GatewayReading] = field(default_factory=dict)
    arms: Mapping[str, Arms] = field(default_factory=dict)
    adapters: CountsByService | None = None

    def updated(
        self, reports: Mapping[str, GatewayReport], pods: Collection[str], now_s: float
    ) -> "GatewayTotals":
        """The totals with new reports added.

        reports: those read now, by gateway pod. pods: all existing gateway pods. Raises ValueError if
        gateways use different histogram buckets.
        """
        sums = {}
        for service in sorted({name for report in reports.values() for name in report.services}):
            now = [r.services[service] for r in reports.values() if service in r.services]
            gained = [self._increase(pod, report, service) for pod, report in reports.items()]
            before = self.sums.get(service)
            parts = [*([before] if before else []), *(g for g in gained if g is not None)]
            sums[service] = _aggregate(parts, now, now_s)
        known = {pod: reports.get(pod, self.last.get(pod)) for pod in pods}
        last = {pod: report for pod, report in known.items() if report is not None}
        adapters = add_counts(
            self.adapters or {},
            (
                (self._last_of_process(pod, report).adapters, report.adapters)
                for pod, report in reports.items()
            ),
        )
        return GatewayTotals(last, sums, self._arms(reports, last.values()), adapters)

    def _arms(
        self, reports: Mapping[str, GatewayReport], last: Iterable[GatewayReport]
    ) -> Mapping[str, Arms]:
        """Canary statistics with the increases added, for the engines in the last reports."""
        arms: dict[str, dict[str, Arm]] = {}
        for report in last:
            for service, engines in report.arms.items():
                before = self.arms.get(service, {})
                kept = {engine: before.get(engine, NO_REQUESTS) for engine in engines}
                arms[service] = kept | arms.get(service, {})
        for pod, report in reports.items():
            old = self._last_of_process(pod, report)
            for service, engines in report.arms.items():
                earlier = old.arms.get(service, {})
                for engine, arm in engines.items():
                    gained = arm.increase_over(earlier.get(engine))
                    arms[service][engine] = arms[service][engine].plus(gained)
        return arms

    def _last_of_process(self, pod: str, report: GatewayReport) -> GatewayReport:
        """The last report of the process that made this one; an empty one if there was none."""
        old = self.last.get(pod)
        if old is None or old.started_s != report.started_s:
            return GatewayReport(report.version, report.started_s, {})
        return old

    def _increase(self, pod: str, report: GatewayReport, service: str) -> GatewayReading | None:
        new, last = report.services.get(service), self.last.get(pod)
        if new is None or last is None or last.started_s != report.started_s:
            return new
        old = last.services.get(service)
        if old is None or any(getattr(old, name) > getattr(new, name) for name in COUNTERS):
            return new
        changes = {name: getattr(new, name) - getattr(old, name) for name in COUNTERS}
        return replace(
            new,
            ttft_s=new.ttft_s.increase_over(old.ttft_s),
            tpot_s=new.tpot_s.increase_over(old.tpot_s),
            **changes,
        )


def _aggregate(
    parts: Iterable[GatewayReading], now: Iterable[GatewayReading], now_s: float
) -> GatewayReading:
    """Sum of the counters of `parts` and of the gauges of `now`."""
    parts, now = list(parts), list(now)
    counters = {name: sum(getattr(part, name) for part in parts) for name in COUNTERS}
    gauges = {name: sum(getattr(one, name) for one in now) for name in GAUGES}
    return GatewayReading(
        at_s=now_s,
        oldest_wait_s=max(one.oldest_wait_s for one in now),
        **counters,
        **gauges,
        ttft_s=_merge_histograms([part.ttft_s for part in parts]),
        tpot_s=_merge_histograms([part.tpot_s for part in parts]),
    )


def _merge_histograms(histograms: list[Histogram]) -> Histogram:
    first, *others = histograms
    for other in others:
        if other.bounds != first.bounds:
            raise ValueError("gateways use different histogram buckets")
        first = first.plus(other)
    return first
