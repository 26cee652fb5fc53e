"""The scaling loop: scrape, decide, set the scale, remember the last word."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.adapters.clock import monotonic, timestamp, wall
from penstock.adapters.kube import DEPLOYMENTS, Kube
from penstock.adapters.scrape import Scraper
from penstock.controller.reconciler import SCALER_MANAGER
from penstock.core.scaling import Decision, EngineSample, Missing, Observation, ScalingState, decide
from penstock.core.service import ScalingSpec
from penstock.core.status import ScalingReport
from penstock.errors import KubeError

logger = logging.getLogger(__name__)

Key = tuple[str, str]

TICK_S = 2.0
# Ticks without metrics before the status says so: a scrape lost now and then is no news.
NEWS_AFTER_TICKS = 5


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """The serving revision of one service. engines: (pod, host:port) of those that are ready."""

    key: Key
    spec: ScalingSpec
    deployment: str
    provisioned: int
    engines: tuple[tuple[str, str], ...]
    reported: ScalingReport | None  # what the status says already


class Scaler:
    """Decides for every target every two seconds; `changed` is called when the report changes."""

    def __init__(
        self,
        kube: Kube,
        scraper: Scraper,
        *,
        targets: Callable[[], list[ScaleTarget]],
        changed: Callable[[Key], None],
    ) -> None:
        self._kube = kube
        self._scraper = scraper
        self._targets = targets
        self._changed = changed
        self._states: dict[Key, ScalingState] = {}
        self._reports: dict[Key, ScalingReport] = {}
        self._blind_ticks: dict[Key, int] = {}

    def report(self, key: Key) -> ScalingReport | None:
        return self._reports.get(key)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            started_s = monotonic()
            targets = self._targets()
            alive = {target.key for target in targets}
            self._states = {k: v for k, v in self._states.items() if k in alive}
            self._reports = {k: v for k, v in self._reports.items() if k in alive}
            self._blind_ticks = {k: v for k, v in self._blind_ticks.items() if k in alive}
            await asyncio.gather(*(self._tick(target) for target in targets))
            await asyncio.sleep(max(0.1, TICK_S - (monotonic() - started_s)))

    async def _tick(self, target: ScaleTarget) -> None:
        readings = await asyncio.gather(*(self._scraper.sample(*e) for e in target.engines))
        observation = Observation(
            samples=tuple(r for r in readings if isinstance(r, EngineSample)),
            missing=tuple(r for r in readings if isinstance(r, Missing)),
            provisioned=self._provisioned(target),
        )
        state = self._states.get(target.key, ScalingState())
        decision, self._states[target.key] = decide(target.spec, observation, state, monotonic())
        if target.spec.mode == "Active" and decision.desired != target.provisioned:
            try:
                await self._kube.scale(
                    DEPLOYMENTS, target.key[0], target.deployment, decision.desired,
                    manager=SCALER_MANAGER,
                )  # fmt: skip
            except KubeError as error:
                logger.warning("%s: not scaled: %s", target.deployment, error)
                return
            logger.info("%s: %d replicas: %s", target.deployment, decision.desired, decision.reason)
        self._remember(target, decision)

    def _provisioned(self, target: ScaleTarget) -> int:
        """What the last decision asked for; in Shadow that is not what is there."""
        last = self._reports.get(target.key)
        if target.spec.mode == "Shadow" and last is not None:
            return last.desired
        return target.provisioned

    def _remember(self, target: ScaleTarget, decision: Decision) -> None:
        """Keep the last report while it says the same, so that a calm service is not written to."""
        last = self._reports.get(target.key) or target.reported
        blind = 0 if decision.valid else self._blind_ticks.get(target.key, 0) + 1
        self._blind_ticks[target.key] = blind
        is_news = last is None or last.desired != decision.desired
        if last and not is_news and (last.valid == decision.valid or 0 < blind < NEWS_AFTER_TICKS):
            self._reports[target.key] = last
            return
        self._reports[target.key] = ScalingReport(
            desired=decision.desired,
            reason=decision.reason,
            reason_code=decision.reason_code,
            valid=decision.valid,
            at=timestamp(wall()),
            trail=tuple((entry.step, entry.replicas, entry.note) for entry in decision.trail),
        )
        self._changed(target.key)
