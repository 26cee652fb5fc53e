"""Judges canaries: adds a block of evidence every ten seconds and derives the verdict.

Faults that need no statistics, such as crash loops, are checked every two seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.kubernetes.resources import CONFIG_MAPS
from penstock.clients.machine.clock import monotonic
from penstock.clients.machine.logs import service_fields
from penstock.controller.canary.cases import CanaryCase
from penstock.controller.canary.error_baselines import ErrorBaselines
from penstock.controller.canary.metric_queries import MetricQueries
from penstock.controller.process.failures import Failures
from penstock.controller.process.field_managers import JUDGE_MANAGER
from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import Block, Faults
from penstock.core.canary.judge import fault, judge
from penstock.core.canary.metric_verdict import apply_metric_gates
from penstock.core.canary.mirror import fault as mirror_fault
from penstock.core.canary.mirror import judge_mirror
from penstock.core.canary.verdict import Verdict
from penstock.core.manifests.stored_record import TRIAL, is_ours
from penstock.core.observed.gateway_report import Arms
from penstock.core.rollout.blocks import build_block
from penstock.core.rollout.trial import Trial, evidence, from_record, metric_gates, to_record
from penstock.core.spec.canary import MirrorSpec
from penstock.errors import KubeError, NotFound

logger = logging.getLogger(__name__)

# Least length of a block of evidence; gates are checked at each tick in between.
BLOCK_S = 10.0
TICK_S = 2.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The latest verdict on one canary, with evidence and user metrics in the status's format."""

    trial_id: str
    verdict: Verdict
    evidence: tuple[Object, ...]
    metrics: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class _OpenTrial:
    """A canary trial in progress.

    is_mirrored: whether the canary gets only copies of requests. last_arms: the gateways' counts at
    the last evaluation, at last_s on the monotonic clock. is_stored: False if a ConfigMap of its name
    has another owner.
    """

    trial: Trial
    is_mirrored: bool
    last_arms: Arms
    last_s: float
    is_stored: bool = True


class CanaryMetrics(Protocol):
    """The part of the Observer that the judge reads."""

    def arms(self, key: Key) -> Arms: ...

    def counts(self, key: Key) -> Counts | None: ...

    def corrupted(self, pods: Iterable[str]) -> int: ...


class Judge:
    """Judges every canary until its rollout ends.

    services: all services. cases: canaries to judge now. changed: called with a service's key when
    the verdict on its canary, or the evidence, changed.
    """

    def __init__(
        self,
        kube: Kube,
        observed: CanaryMetrics,
        metric_queries: MetricQueries,
        *,
        services: Callable[[], Mapping[Key, Object]],
        cases: Callable[[], list[CanaryCase]],
        changed: Callable[[Key], None],
        failures: Failures,
    ) -> None:
        self._kube = kube
        self._failures = failures
        self._observed = observed
        self._metric_queries = metric_queries
        self._baselines = ErrorBaselines(services, observed.counts, failures)
        self._cases = cases
        self._changed = changed
        self._trials: dict[Key, _OpenTrial] = {}
        self._judgements: dict[Key, Judgement] = {}

    def judgement(self, key: Key, trial_id: str) -> Judgement | None:
        """The last judgement of this trial."""
        last = self._judgements.get(key)
        return last if last is not None and last.trial_id == trial_id else None

    async def run(self) -> None:
        """Run `tick` every two seconds until cancelled."""
        while True:
            with self._failures.isolate_pass("judge"):
                await self.tick(monotonic())
            await asyncio.sleep(TICK_S)

    async def tick(self, now_s: float) -> None:
        """Update the baselines and evaluate all canaries concurrently. now_s: monotonic clock."""
        self._baselines.observe(now_s)
        cases = {case.key: case for case in self._cases()}
        self._trials = {key: each for key, each in self._trials.items() if key in cases}
        self._judgements = {key: each for key, each in self._judgements.items() if key in cases}
        await asyncio.gather(*(self._evaluate_logged(*each, now_s) for each in cases.items()))

    async def _evaluate_logged(self, key: Key, case: CanaryCase, now_s: float) -> None:
        with self._failures.isolate_errors("judge", *key):
            try:
                await self._evaluate(key, case, now_s)
            except KubeError as error:
                logger.warning("not judged: %s", error, extra=service_fields(key))

    async def _evaluate(self, key: Key, case: CanaryCase, now_s: float) -> None:
        arms = self._observed.arms(key)
        open_trial = self._trials.get(key)
        if open_trial is None or not _matches(open_trial, case):
            self._trials[key] = await self._start_trial(case, arms, now_s)
            return
        length_s = now_s - open_trial.last_s
        faults = self._faults(case)
        block = build_block(length_s, open_trial.last_arms, arms, case.sides, faults)
        # Half a tick of tolerance: otherwise jitter of the loop would make some blocks 12 s long.
        has_ended = block.length_s >= BLOCK_S - TICK_S / 2
        if not has_ended and _fault(open_trial, block) is None:
            return
        if case.is_mirrored:
            trial, judgement = _judge_copies(case, open_trial.trial, block)
        else:
            trial, judgement = await self._judge_requests(case, open_trial.trial, block)
        # Stored before the judgement is used, so that a restarted operator has all of its evidence.
        if open_trial.is_stored:
            record = TRIAL.config_map(case.owner, to_record(trial))
            await self._kube.apply(record, manager=JUDGE_MANAGER)
        self._trials[key] = replace(open_trial, trial=trial, last_arms=arms, last_s=now_s)
        self._publish(key, judgement)

    def _publish(self, key: Key, judgement: Judgement) -> None:
        self._judgements[key] = judgement
        verdict = judgement.verdict
        logger.info(
            "judged",
            extra=service_fields(key, verdict=type(verdict).__name__, reason=verdict.reason),
        )
        self._changed(key)

    async def _judge_requests(
        self, case: CanaryCase, before: Trial, block: Block
    ) -> tuple[Trial, Judgement]:
        """Add a block of real requests to the trial, evaluate metric gates, and derive the verdict."""
        spec = case.spec
        verdict, state = judge(spec, before.state, block)
        metrics = await self._metric_queries.evaluate(
            spec.metrics, before.metrics, case.placeholders, block.length_s
        )
        verdict = apply_metric_gates(spec, state, verdict, metrics)
        trial = replace(
            before,
            state=state,
            metrics=metrics,
            canary=before.canary.plus(block.canary).with_bounded_tenants(),
            control=before.control.plus(block.control).with_bounded_tenants(),
        )
        judgement = Judgement(case.trial_id, verdict, evidence(spec, state), metric_gates(metrics))
        return trial, judgement

    def _faults(self, case: CanaryCase) -> Faults:
        """Count the canary's faults. NaN logits count only if stable has none: a prompt may cause them."""
        is_shared = self._observed.corrupted(case.sides.control) > 0
        corrupted = 0 if is_shared else self._observed.corrupted(case.sides.canary)
        return replace(case.faults, nan_outputs=corrupted)

    async def _start_trial(self, case: CanaryCase, arms: Arms, now_s: float) -> _OpenTrial:
        """Resume the trial stored in the ConfigMap, or start a new one."""
        owner = case.owner
        history = self._baselines.history(case.key, case.stable)
        fresh = Trial.begin(case.spec, case.trial_id, history)
        try:
            body = await self._kube.get(CONFIG_MAPS, owner.namespace, TRIAL.name(owner.prefix))
        except NotFound:
            return _OpenTrial(fresh, case.is_mirrored, arms, now_s)
        if not is_ours(body):
            logger.warning(
                "the ConfigMap of the trial has another owner: the trial is not stored",
                extra=service_fields(case.key),
            )
            return _OpenTrial(fresh, case.is_mirrored, arms, now_s, is_stored=False)
        stored = from_record(TRIAL.record_of(body, owner.uid), case.trial_id)
        return _OpenTrial(stored or fresh, case.is_mirrored, arms, now_s)


def _matches(open_trial: _OpenTrial, case: CanaryCase) -> bool:
    """Whether the trial is this canary's, with the same kind of traffic: copies or requests."""
    is_same = open_trial.trial.deployment == case.trial_id
    return is_same and open_trial.is_mirrored == case.is_mirrored


def _fault(open_trial: _OpenTrial, block: Block) -> str | None:
    """The reason to abort the canary at once, before the block ends; None without one."""
    trial = open_trial.trial
    if open_trial.is_mirrored:
        return mirror_fault(trial.mirror, block)
    return fault(trial.state, block)


def _judge_copies(case: CanaryCase, before: Trial, block: Block) -> tuple[Trial, Judgement]:
    """Add a block of copied requests to the trial and derive the verdict."""
    # If `mirror` was removed from the spec meanwhile, no more copies are needed.
    spec = case.spec.mirror or MirrorSpec(duration_s=0.0)
    verdict, mirror = judge_mirror(spec, before.mirror, block)
    return replace(before, mirror=mirror), Judgement(case.trial_id, verdict, ())
