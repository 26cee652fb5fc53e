"""Simulated scrapes of engines and gateway, which may be late, lost or stale.

A scrape happens every scrape_s and is available delay_s later. After a lost scrape the previous values hold
for stale_after_s; then they are Missing.
"""

from random import Random
from typing import Literal, TypeVar

from pydantic import Field

from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
)
from penstock.sim.clock import Clock
from penstock.sim.fleet import Fleet
from penstock.sim.gateway import Gateway
from penstock.sim.profile import Record

Whose = Literal["engines", "gateway", "all"]
ReadingT = TypeVar("ReadingT", EngineReading, GatewayReading)


class MetricsSpec(Record):
    """Timing of scrapes. loss: share of scrapes that fail, independently."""

    scrape_s: float = Field(default=2.0, gt=0)
    delay_s: float = Field(default=0.5, ge=0)
    loss: float = Field(default=0.0, ge=0, le=1)
    stale_after_s: float = Field(default=10.0, ge=0)


class Metrics:
    """Scraper of one service. blackouts: targets whose scrapes fail. frozen: targets with stale values."""

    def __init__(
        self, spec: MetricsSpec, clock: Clock, fleet: Fleet, gateway: Gateway, random: Random
    ) -> None:
        self.blackouts: list[Whose] = []
        self.frozen: list[Whose] = []
        self._spec = spec
        self._clock = clock
        self._fleet = fleet
        self._gateway = gateway
        self._random = random
        self._engines: dict[str, EngineReading] = {}
        self._service: GatewayReading | None = None

    def schedule_scrape(self, decision_s: float) -> None:
        """Schedule the last scrape whose result is available at decision_s."""
        spec = self._spec
        scrapes = int((decision_s - spec.delay_s) / spec.scrape_s + 1e-9)
        self._clock.schedule_at(max(0.0, scrapes * spec.scrape_s), self._scrape)

    def schedule_scrape_at(self, at_s: float) -> None:
        """Schedule a scrape whose result is available at once."""
        self._clock.schedule_at(at_s, self._scrape)

    def observation(self) -> Observation:
        """Observation for a decision now. Pods and their phases come from the API server, without delay."""
        views = []
        for pod in self._fleet.pods.values():
            if pod.side not in self._gateway.weights:
                continue
            reading = None
            if pod.phase == "Ready":
                reading = self._fresh(pod.name, self._engines.get(pod.name))
            views.append(
                PodView(
                    pod.name, pod.phase, pod.created_s, pod.ready_s, reading, variant=pod.variant
                )
            )
        return Observation(
            self._clock.now,
            tuple(views),
            self._fleet.desired,
            self._fresh("gateway", self._service),
            self._fleet.by_variant,
        )

    def _scrape(self) -> None:
        ready = {pod.name: pod for pod in self._fleet.of_phase("Ready")}
        self._engines = {name: old for name, old in self._engines.items() if name in ready}
        for name, pod in ready.items():
            if self._succeeds("engines", name in self._engines):
                self._engines[name] = pod.engine.reading()
        if self._succeeds("gateway", self._service is not None):
            self._service = self._gateway.reading()

    def _succeeds(self, whose: Whose, has_old: bool) -> bool:
        of = (whose, "all")
        if any(b in of for b in self.blackouts):
            return False
        if has_old and any(f in of for f in self.frozen):
            return False
        return not self._spec.loss or self._random.random() >= self._spec.loss

    def _fresh(self, who: str, reading: ReadingT | None) -> ReadingT | Missing:
        if reading is None:
            return Missing(who, "no numbers yet")
        age_s = self._clock.now - reading.at_s
        is_frozen = any(
            f in ("all", "gateway" if who == "gateway" else "engines") for f in self.frozen
        )
        if age_s > self._spec.stale_after_s + self._spec.delay_s and not is_frozen:
            return Missing(who, f"its numbers are {age_s:.0f} s old")
        return reading
