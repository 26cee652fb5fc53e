"""The scaling loop: observes all services, decides, and keeps a report for the reconciler."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.clients.clock import monotonic, wall
from penstock.clients.kube import Object
from penstock.controller.failures import Failures
from penstock.controller.fleet import Key, ScaleTarget, accelerators_held
from penstock.controller.observer import Observer
from penstock.controller.sizer import Sizer
from penstock.core.formats.timestamps import timestamp
from penstock.core.scaling import by_kv, quotas
from penstock.core.scaling.quotas import Pool
from penstock.core.scaling.report import ScalingReport
from penstock.core.scaling.rule import Decision
from penstock.core.scaling.shortage import Shortages
from penstock.core.scaling.signals import Observation
from penstock.errors import KubeError

logger = logging.getLogger(__name__)

TICK_S = 2.0
# Ticks without metrics before the status says so: a single lost scrape is not worth a status write.
NEWS_AFTER_TICKS = 5


class Scaler:
    """Decides on every target every two seconds. changed: called when a report changes.

    Services with objectives are sized for them; the others scale by KV cache use and queue length.
    Services share a quota that does not suffice for all.
    """

    def __init__(
        self,
        observer: Observer,
        sizer: Sizer,
        *,
        targets: Callable[[], list[ScaleTarget]],
        quotas: Callable[[], Iterable[Object]],
        changed: Callable[[Key], None],
        failures: Failures,
    ) -> None:
        self._observer = observer
        self._sizer = sizer
        self._failures = failures
        self._targets = targets
        self._quotas = quotas
        self._changed = changed
        self._states: dict[Key, by_kv.ScalingState] = {}
        self._reports: dict[Key, ScalingReport] = {}
        self._blind_ticks: dict[Key, int] = {}
        self._shortages: dict[Key, Shortages] = {}
        self._uids: dict[Key, str] = {}
        self._unreadable: tuple[str, ...] = ()

    def report(self, key: Key, uid: str) -> ScalingReport | None:
        """The last report on a service. uid: of the service, so that one of the same name that was
        deleted does not count."""
        return self._reports.get(key) if self._uids.get(key) == uid else None

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            started_s = monotonic()
            with self._failures.contained("scaler"):
                await self.tick()
            await asyncio.sleep(max(0.1, TICK_S - (monotonic() - started_s)))

    async def tick(self) -> None:
        """Observe all targets and decide on each."""
        looked_at = self._targets()
        targets = [target for target in looked_at if target.is_scaled]
        uids = {target.service.key: target.service.uid for target in targets}
        alive = {key for key, uid in uids.items() if self._uids.get(key) == uid}
        self._uids = uids
        self._states = {k: v for k, v in self._states.items() if k in alive}
        self._reports = {k: v for k, v in self._reports.items() if k in alive}
        self._blind_ticks = {k: v for k, v in self._blind_ticks.items() if k in alive}
        self._shortages = {k: v for k, v in self._shortages.items() if k in alive}
        self._sizer.only({t.service.key for t in targets if t.service.scaling.objectives})
        seen = await self._observer.scrape([self._as_seen(target) for target in looked_at])
        limits = self._limits(targets)
        decisions = await asyncio.gather(
            *(self._decide_logged(t, seen[t.service.key], limits) for t in targets)
        )
        by_namespace: dict[str, list[tuple[ScaleTarget, Decision]]] = {}
        for target, decision in zip(targets, decisions, strict=True):
            if decision is not None:
                by_namespace.setdefault(target.service.namespace, []).append((target, decision))
        for namespace, made in by_namespace.items():
            with self._failures.contained("scaler", namespace):
                self._grant(made, limits)

    def _limits(self, targets: Sequence[ScaleTarget]) -> Mapping[Pool, int]:
        found = quotas.budgets(self._quotas(), accelerators_held(targets))
        if found.unreadable != self._unreadable:
            self._unreadable = found.unreadable
            for sentence in found.unreadable:
                logger.warning("%s", sentence)
        return found.limits

    def _grant(
        self, made: Sequence[tuple[ScaleTarget, Decision]], limits: Mapping[Pool, int]
    ) -> None:
        """Share the quotas among the services of one namespace, and remember the granted decisions."""
        granted = quotas.within([(target.service, decision) for target, decision in made], limits)
        for (target, _), decision in zip(made, granted, strict=True):
            with self._failures.contained("scaler", "/".join(target.service.key)):
                self._remember(target, decision)

    async def _decide_logged(
        self, target: ScaleTarget, seen: Observation, limits: Mapping[Pool, int]
    ) -> Decision | None:
        with self._failures.contained("scaler", "/".join(target.service.key)):
            try:
                return await self._decide(target, seen, limits)
            except KubeError as error:
                logger.warning("%s/%s: not scaled: %s", *target.service.key, error)
        return None

    async def _decide(
        self, target: ScaleTarget, seen: Observation, limits: Mapping[Pool, int]
    ) -> Decision:
        key, spec = target.service.key, target.service.scaling
        if spec.objectives is not None:
            short = self._shortages.get(key, Shortages()).after(seen.now_s, target.waiting)
            self._shortages[key] = short
            most = short.within(quotas.most_by_variant(target.service, limits))
            return await self._sizer.decide(target.service, seen, most)
        state = self._states.get(key, by_kv.ScalingState())
        decision, self._states[key] = by_kv.decide(
            spec, by_kv.Observation.of(seen), state, seen.now_s
        )
        return decision

    def _as_seen(self, target: ScaleTarget) -> ScaleTarget:
        """The target with the last decision as its provisioned replicas. The Deployments differ from
        it in mode Shadow and during a rollout."""
        last = self._reports.get(target.service.key) or target.reported
        if last is None:
            return target
        if not target.service.variants:
            return replace(target, provisioned=last.desired)
        asked = {name: last.by_variant.get(name, 0) for name in target.service.placed}
        if not any(asked.values()):  # of variants that the spec had before
            return target
        return replace(target, provisioned=sum(asked.values()), by_variant=asked)

    def _remember(self, target: ScaleTarget, decision: Decision) -> None:
        """Replace the last report only if something changed, so that the status is rarely written."""
        key = target.service.key
        last = self._reports.get(key) or target.reported
        blind = 0 if decision.valid else self._blind_ticks.get(key, 0) + 1
        self._blind_ticks[key] = blind
        # Being held back by a quota is reported even if the number of replicas stays the same.
        was_held = last is not None and last.reason_code == quotas.OVER_BUDGET
        is_held = decision.code == quotas.OVER_BUDGET
        numbers = (decision.desired, decision.by_variant)
        is_news = last is None or (last.desired, last.by_variant) != numbers or was_held != is_held
        if last and not is_news and (last.valid == decision.valid or 0 < blind < NEWS_AFTER_TICKS):
            self._reports[key] = last
            return
        self._reports[key] = ScalingReport(
            desired=decision.desired,
            reason=decision.reason,
            reason_code=decision.code,
            valid=decision.valid,
            at=timestamp(wall()),
            trail=tuple((entry.step, entry.replicas, entry.note) for entry in decision.trail),
            by_variant=decision.by_variant,
        )
        logger.info("%s/%s: %d replicas: %s", *key, decision.desired, decision.reason)
        self._changed(key)
