"""The scaling loop: scrapes all services, decides on replicas, and reports to the reconciler."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.clients.machine.logs import service_fields
from penstock.controller.process.failures import Failures
from penstock.controller.scaling.gateway_pods import GatewayPod
from penstock.controller.scaling.idle_gate import NO_DEMAND, IdleGate
from penstock.controller.scaling.kv_scaler import KvScaler
from penstock.controller.scaling.objective_scaler import ObjectiveScaler
from penstock.controller.scaling.observer import Observer
from penstock.controller.scaling.scale_targets import ScaleTarget, accelerators_held
from penstock.core.formats.timestamps import timestamp
from penstock.core.scaling import quotas
from penstock.core.scaling.idle import GatewayDemand
from penstock.core.scaling.quotas import Pool
from penstock.core.scaling.report import ScalingReport
from penstock.core.scaling.rule import Decision
from penstock.core.scaling.shortage import VariantShortages
from penstock.core.scaling.signals import Observation
from penstock.core.spec.service import ServiceSpec
from penstock.errors import KubeError

logger = logging.getLogger(__name__)

TICK_S = 2.0
# Shortest time between two ticks, in seconds, of which the second starts early.
MIN_TICK_S = 0.5
# Change of the learned start-up time that is worth a status write, as a fraction of it.
NOTABLE_STARTUP_CHANGE = 0.2
# Ticks without metrics before the status says so: one lost scrape is not worth a status write.
BLIND_TICKS_TO_REPORT = 5


class Scaler:
    """Decides on the replicas of every target every two seconds.

    Services with objectives are sized for them; the others scale by KV cache use and queue length. A
    quota that does not suffice for all services is shared. gate: decides about zero replicas. changed:
    called with a service's key when its report changes. decided: called with each decision, for the
    metrics.
    """

    def __init__(
        self,
        observer: Observer,
        by_objectives: ObjectiveScaler,
        by_kv: KvScaler,
        gate: IdleGate | None = None,
        *,
        targets: Callable[[], list[ScaleTarget]],
        quotas: Callable[[], Iterable[Object]],
        changed: Callable[[Key], None],
        failures: Failures,
        decided: Callable[[ServiceSpec, Observation, Decision], None] = lambda *_: None,
    ) -> None:
        self._observer = observer
        self._decided = decided
        self._by_objectives = by_objectives
        self._by_kv = by_kv
        self._gate = gate or IdleGate(observer)
        self._wake = asyncio.Event()
        self._failures = failures
        self._targets = targets
        self._quotas = quotas
        self._changed = changed
        self._reports: dict[Key, ScalingReport] = {}
        self._blind_ticks: dict[Key, int] = {}
        self._shortages: dict[Key, VariantShortages] = {}
        self._uids: dict[Key, str] = {}
        self._unreadable: tuple[str, ...] = ()
        self._woken: set[Key] = set()  # since the tick that runs has begun

    def report(self, key: Key, uid: str) -> ScalingReport | None:
        """Return the last report on a service; None if it was on a deleted service of the same name."""
        return self._reports.get(key) if self._uids.get(key) == uid else None

    async def run(self) -> None:
        """Run `tick` every two seconds until cancelled, or earlier if a `wake` could not decide."""
        while True:
            started_s = monotonic()
            self._wake.clear()
            with self._failures.isolate_pass("scaler"):
                await self.tick()
            await asyncio.sleep(max(0.1, MIN_TICK_S - (monotonic() - started_s)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, TICK_S - (monotonic() - started_s))):
                    await self._wake.wait()

    async def wake(self, gateway: GatewayPod) -> None:
        """Decide at once on the services at zero that a gateway has requests for.

        Only this gateway is read: engines and gateways that hang, and a tick that waits for them, delay no
        wake-up. If it does not answer, the next tick starts early.
        """
        demand_of = await self._observer.demand_at(gateway)
        if demand_of is None:
            self._wake.set()
            return
        at_zero = (k for k in self._uids if not (last := self._reports.get(k)) or not last.desired)
        demands = {key: demand_of(key) for key in at_zero}
        name, has_new_requests = gateway.name, self._gate.has_new_requests
        called = {key for key, each in demands.items() if has_new_requests(key, name, each)}
        if not called:  # targets cost 0.3 ms for each service
            return
        targets = [self._with_last_decision(each) for each in self._targets() if each.is_scaled]
        for target in targets:
            key = target.service.key
            is_known = self._uids.get(key) == target.service.uid
            if key in called and is_known and not target.provisioned:
                with self._failures.isolate_errors("scaler", *key):
                    await self._wake_one(target, targets, {gateway.name: demands[key]})

    async def _wake_one(
        self,
        target: ScaleTarget,
        targets: Sequence[ScaleTarget],
        newer: Mapping[str, GatewayDemand],
    ) -> None:
        """Decide on one service at zero. targets: all. The others of its namespace keep what they have."""
        key, limits = target.service.key, self._limits(targets)
        seen = self._observer.observe_at_zero(target)
        decision = await self._decide_logged(target, seen, limits, newer)
        if decision is None:
            return
        self._woken.add(key)
        others = (each for each in targets if each.service.namespace == key[0] and each != target)
        held = [(o.service, last.as_decision()) for o in others if (last := self._last(o))]
        granted, *_ = quotas.apply_quotas([(target.service, decision), *held], limits)
        self._set_report(target, granted)
        self._decided(target.service, seen, granted)

    async def tick(self) -> None:
        """Scrape all targets, decide on each that is scaled, and share the quotas.

        A service that was woken meanwhile is left to the next tick: what was observed of it is older.
        """
        self._woken.clear()
        observed = self._targets()
        targets = [target for target in observed if target.is_scaled]
        self._prune(targets)
        observations = await self._observer.scrape([self._with_last_decision(t) for t in observed])
        limits = self._limits(targets)
        targets = [target for target in targets if target.service.key not in self._woken]
        decisions = await asyncio.gather(
            *(self._decide_logged(t, observations[t.service.key], limits) for t in targets)
        )
        by_namespace: dict[str, list[tuple[ScaleTarget, Decision]]] = {}
        for target, decision in zip(targets, decisions, strict=True):
            if decision is not None:
                by_namespace.setdefault(target.service.namespace, []).append((target, decision))
        for namespace, wanted in by_namespace.items():
            with self._failures.isolate_errors("scaler", namespace):
                for service, decision in self._grant(wanted, limits):
                    self._decided(service, observations[service.key], decision)

    def _prune(self, targets: Sequence[ScaleTarget]) -> None:
        """Drop the state of services that are gone, no longer scaled, or were created again."""
        uids = {target.service.key: target.service.uid for target in targets}
        alive = {key for key, uid in uids.items() if self._uids.get(key) == uid}
        self._uids = uids
        self._reports = {k: v for k, v in self._reports.items() if k in alive}
        self._blind_ticks = {k: v for k, v in self._blind_ticks.items() if k in alive}
        self._shortages = {k: v for k, v in self._shortages.items() if k in alive}
        self._gate.prune(alive)
        self._by_kv.prune(
            {t.service.key for t in targets if not t.service.scaling.objectives} & alive
        )
        self._by_objectives.prune({t.service.key for t in targets if t.service.scaling.objectives})

    def _limits(self, targets: Sequence[ScaleTarget]) -> Mapping[Pool, int]:
        """Accelerators that the quotas allow in each pool. Unreadable quotas are logged once."""
        found = quotas.budgets(self._quotas(), accelerators_held(targets))
        if found.unreadable != self._unreadable:
            self._unreadable = found.unreadable
            for message in found.unreadable:
                logger.warning("%s", message)
        return found.limits

    def _grant(
        self, wanted: Sequence[tuple[ScaleTarget, Decision]], limits: Mapping[Pool, int]
    ) -> list[tuple[ServiceSpec, Decision]]:
        """Share the quotas among the services of one namespace, and report the granted decisions.

        Returns them.
        """
        granted = quotas.apply_quotas(
            [(target.service, decision) for target, decision in wanted], limits
        )
        for (target, _), decision in zip(wanted, granted, strict=True):
            with self._failures.isolate_errors("scaler", *target.service.key):
                self._set_report(target, decision)
        return [(target.service, each) for (target, _), each in zip(wanted, granted, strict=True)]

    async def _decide_logged(
        self,
        target: ScaleTarget,
        observation: Observation,
        limits: Mapping[Pool, int],
        newer: Mapping[str, GatewayDemand] = NO_DEMAND,
    ) -> Decision | None:
        with self._failures.isolate_errors("scaler", *target.service.key):
            try:
                return await self._decide(target, observation, limits, newer)
            except KubeError as error:
                logger.warning("not scaled: %s", error, extra=service_fields(target.service.key))
        return None

    async def _decide(
        self,
        target: ScaleTarget,
        observation: Observation,
        limits: Mapping[Pool, int],
        newer: Mapping[str, GatewayDemand],
    ) -> Decision:
        key, spec = target.service.key, target.service.scaling
        idle = self._gate.decide(target, observation, self._last(target), newer)
        if spec.objectives is not None:
            shortages = self._shortages.get(key, VariantShortages())
            shortages = shortages.updated(observation.now_s, target.unschedulable)
            self._shortages[key] = shortages
            max_by_variant = shortages.limit(quotas.quota_limits(target.service, limits))
            return await self._by_objectives.decide(
                target.service, observation, max_by_variant, idle
            )
        return self._by_kv.decide(target.service, observation, idle)

    def _with_last_decision(self, target: ScaleTarget) -> ScaleTarget:
        """Return the target with the last decision as its provisioned replicas.

        In mode DryRun and during a rollout the Deployments differ from the decision.
        """
        last = self._last(target)
        if last is None:
            return target
        if not target.service.variants:
            return replace(target, provisioned=last.desired)
        decided = {name: last.by_variant.get(name, 0) for name in target.service.placed}
        if not any(decided.values()):  # the spec's variants changed since that decision
            return target
        return replace(target, provisioned=sum(decided.values()), by_variant=decided)

    def _last(self, target: ScaleTarget) -> ScalingReport | None:
        return self._reports.get(target.service.key) or target.reported

    def _set_report(self, target: ScaleTarget, decision: Decision) -> None:
        """Replace the last report if something changed: each report is a write of the status."""
        key = target.service.key
        last, startup_s = self._last(target), self._gate.startup_s(key)
        blind = 0 if decision.valid else self._blind_ticks.get(key, 0) + 1
        self._blind_ticks[key] = blind
        # A quota that starts or ends to limit a service is reported even if its replicas stay the same.
        was_limited = last is not None and last.reason_code == quotas.OVER_BUDGET
        is_limited = decision.code == quotas.OVER_BUDGET
        numbers = (decision.desired, decision.by_variant)
        is_news = (
            last is None
            or (last.desired, last.by_variant) != numbers
            or was_limited != is_limited
            or (last.unattainable is None) != (decision.unattainable is None)
            or _is_notable(last.startup_s, startup_s)
        )
        if (
            last
            and not is_news
            and (last.valid == decision.valid or 0 < blind < BLIND_TICKS_TO_REPORT)
        ):
            self._reports[key] = last
            return
        self._reports[key] = ScalingReport(
            desired=decision.desired,
            reason=decision.reason,
            reason_code=decision.code,
            valid=decision.valid,
            at=timestamp(unix_time()),
            trail=tuple((entry.step, entry.replicas, entry.note) for entry in decision.trail),
            by_variant=decision.by_variant,
            startup_s=startup_s,
        )
        logger.info(
            "decided",
            extra=service_fields(
                key, replicas=decision.desired, code=decision.code, reason=decision.reason
            ),
        )
        self._changed(key)


def _is_notable(last_s: int | None, now_s: int | None) -> bool:
    """Whether another start-up time is worth a write of the status."""
    if last_s is None or now_s is None:
        return last_s != now_s
    return abs(now_s - last_s) > NOTABLE_STARTUP_CHANGE * last_s
