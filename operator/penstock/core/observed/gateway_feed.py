"""What gateways tell the operator: a feed from each, and what they come to together.

Counters of one gateway begin anew with its process. What came since the last look is added up, so
that the sum never falls when a gateway goes, and a new one adds only what it has seen itself.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.core.canary.evidence import NO_REQUESTS, Arm
from penstock.core.scaling.signals import GatewayReading, Histogram

VERSION: Literal[8] = 8
COUNTERS = (
    "arrivals", "prompt_tokens", "ended", "output_tokens", "attended_tokens", "late", "shed",
    "failed",
)  # fmt: skip
GAUGES = ("queued", "queued_prompt_tokens", "in_flight", "in_flight_prefill_tokens")


Arms = Mapping[str, Arm]


@dataclass(frozen=True, slots=True)
class Feed:
    """One gateway's. started_s: when its counting began. services: by "namespace/name", all that it
    serves. arms: of services whose engines are of more than one revision or cohort, by engine pod,
    "namespace/name": of those that are there still. obeys: the generation of the traffic of each
    service that the gateway obeys."""

    version: Literal[8]
    started_s: float
    services: Mapping[str, GatewayReading]
    arms: Mapping[str, Arms] = field(default_factory=dict)
    obeys: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gateways:
    """last: the last feed of each pod. sums: of each service, over all gateways there ever were.
    arms: of each service, then of each engine pod that a gateway still tells of, likewise."""

    last: Mapping[str, Feed] = field(default_factory=dict)
    sums: Mapping[str, GatewayReading] = field(default_factory=dict)
    arms: Mapping[str, Arms] = field(default_factory=dict)

    def after(self, feeds: Mapping[str, Feed], pods: Collection[str], now_s: float) -> "Gateways":
        """feeds: of the pods that were read now. pods: all that are there.

        Raises ValueError when gateways count in different buckets.
        """
        sums = {}
        for service in sorted({name for feed in feeds.values() for name in feed.services}):
            now = [f.services[service] for f in feeds.values() if service in f.services]
            gained = [self._gained(pod, feed, service) for pod, feed in feeds.items()]
            before = self.sums.get(service)
            parts = [*([before] if before else []), *(g for g in gained if g is not None)]
            sums[service] = _sum(parts, now, now_s)
        known = {pod: feeds.get(pod, self.last.get(pod)) for pod in pods}
        last = {pod: feed for pod, feed in known.items() if feed is not None}
        return Gateways(last, sums, self._arms(feeds, last.values()))

    def _arms(self, feeds: Mapping[str, Feed], last: Iterable[Feed]) -> Mapping[str, Arms]:
        """What was there, of the engines that are in the last feeds, and what came to it."""
        arms: dict[str, dict[str, Arm]] = {}
        for feed in last:
            for service, engines in feed.arms.items():
                before = self.arms.get(service, {})
                kept = {engine: before.get(engine, NO_REQUESTS) for engine in engines}
                arms[service] = kept | arms.get(service, {})
        for pod, feed in feeds.items():
            old = self.last.get(pod)
            if old is None or old.started_s != feed.started_s:
                old = Feed(feed.version, feed.started_s, {})
            for service, engines in feed.arms.items():
                earlier = old.arms.get(service, {})
                for engine, arm in engines.items():
                    gained = arm.increase_over(earlier.get(engine))
                    arms[service][engine] = arms[service][engine].plus(gained)
        return arms

    def _gained(self, pod: str, feed: Feed, service: str) -> GatewayReading | None:
        new, last = feed.services.get(service), self.last.get(pod)
        if new is None or last is None or last.started_s != feed.started_s:
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


def _sum(
    parts: Iterable[GatewayReading], now: Iterable[GatewayReading], now_s: float
) -> GatewayReading:
    """Counters of all the parts, gauges of those that are there now."""
    parts, now = list(parts), list(now)
    counters = {name: sum(getattr(part, name) for part in parts) for name in COUNTERS}
    gauges = {name: sum(getattr(one, name) for one in now) for name in GAUGES}
    return GatewayReading(
        at_s=now_s,
        oldest_wait_s=max(one.oldest_wait_s for one in now),
        **counters,
        **gauges,
        ttft_s=_merged([part.ttft_s for part in parts]),
        tpot_s=_merged([part.tpot_s for part in parts]),
    )


def _merged(histograms: list[Histogram]) -> Histogram:
    first, *others = histograms
    for other in others:
        if other.bounds != first.bounds:
            raise ValueError("gateways count in different buckets")
        first = first.plus(other)
    return first
