"""Judges canaries: adds a block of evidence every ten seconds and derives the verdict.

Faults that need no statistics are checked in between, as often as engines and gateways are scraped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.api.convert import InvalidService, to_core
from penstock.clients.clock import monotonic
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import CONFIG_MAPS
from penstock.controller.failures import Failures
from penstock.controller.fleet import by_service, children_of
from penstock.controller.meter import Meter
from penstock.controller.pasts import Pasts
from penstock.core.canary.counts import Counts
from penstock.core.canary.evidence import Block, Faults
from penstock.core.canary.gated import gated
from penstock.core.canary.judge import fault, judge
from penstock.core.canary.shadow import fault as shadow_fault
from penstock.core.canary.shadow import look
from penstock.core.canary.verdict import Verdict
from penstock.core.manifests.kept import TRIAL, is_ours
from penstock.core.observed.children import ObservedPod
from penstock.core.observed.gateway_feed import Arms
from penstock.core.observed.rollout_state import Phase
from penstock.core.rollout.blocks import ComparedPods, build_block
from penstock.core.rollout.trial import Trial, evidence, from_record, metric_gates, to_record
from penstock.core.spec.canary import ShadowSpec
from penstock.core.spec.service import CONTROL, SERVE, ServiceSpec
from penstock.errors import KubeError, NotFound

logger = logging.getLogger(__name__)

Key = tuple[str, str]

BLOCK_S = 10.0
LOOK_S = 2.0
MANAGER = "penstock-judge"
JUDGED: tuple[Phase, ...] = ("Judging", "Paused", "Growing")
SHADOWED: Phase = "Shadowing"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The latest verdict on one canary, with evidence and user metrics in the status's format."""

    deployment: str
    verdict: Verdict
    evidence: tuple[Object, ...]
    metrics: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A service whose canary is judged, in its current state. deployment: uid of the canary's
    Deployment. revision: the canary's. stable: the revision that it is compared with. is_shadowed:
    whether the canary gets only copies of requests."""

    service: ServiceSpec
    deployment: str
    revision: str
    stable: str
    sides: ComparedPods
    faults: Faults
    is_shadowed: bool = False

    @property
    def names(self) -> dict[str, str]:
        """Values of the placeholders in metric queries."""
        return {
            "namespace": self.service.namespace,
            "service": self.service.name,
            "revision": self.revision,
            "stable": self.stable,
        }


@dataclass(frozen=True, slots=True)
class _Open:
    """A trial under way. of_copies: whether the canary gets only copies of requests. before: the
    gateways' counts at the last evaluation, at_s. is_kept: False if the name of its ConfigMap belongs
    to somebody else."""

    trial: Trial
    of_copies: bool
    before: Arms
    at_s: float
    is_kept: bool = True


class Sight(Protocol):
    """The Observer's results that the judge reads."""

    def arms(self, key: Key) -> Arms: ...

    def counts(self, key: Key) -> Counts | None: ...

    def corrupted(self, pods: Iterable[str]) -> int: ...


class Judge:
    """Judges every canary until its rollout ends. services: all services. cases: canaries to judge.
    changed: called when a verdict or its evidence changed."""

    def __init__(
        self,
        kube: Kube,
        sight: Sight,
        meter: Meter,
        *,
        services: Callable[[], Mapping[Key, Object]],
        cases: Callable[[], list[Case]],
        changed: Callable[[Key], None],
        failures: Failures,
    ) -> None:
        self._kube = kube
        self._failures = failures
        self._sight = sight
        self._meter = meter
        self._pasts = Pasts(services, sight.counts, failures)
        self._cases = cases
        self._changed = changed
        self._open: dict[Key, _Open] = {}
        self._said: dict[Key, Judgement] = {}

    def judgement(self, key: Key, deployment: str) -> Judgement | None:
        """The last judgement of the canary whose Deployment has this uid."""
        said = self._said.get(key)
        return said if said is not None and said.deployment == deployment else None

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            with self._failures.contained("judge"):
                await self.tick(monotonic())
            await asyncio.sleep(LOOK_S)

    async def tick(self, now_s: float) -> None:
        self._pasts.observe(now_s)
        cases = {case.service.key: case for case in self._cases()}
        self._open = {key: each for key, each in self._open.items() if key in cases}
        self._said = {key: each for key, each in self._said.items() if key in cases}
        await asyncio.gather(*(self._evaluate_logged(*each, now_s) for each in cases.items()))

    async def _evaluate_logged(self, key: Key, case: Case, now_s: float) -> None:
        with self._failures.contained("judge", "/".join(key)):
            try:
                await self._evaluate(key, case, now_s)
            except KubeError as error:
                logger.warning("%s/%s: not judged: %s", *key, error)

    async def _evaluate(self, key: Key, case: Case, now_s: float) -> None:
        arms = self._sight.arms(key)
        begun = self._open.get(key)
        if begun is None or not _is_of(begun, case):
            self._open[key] = await self._begin(case, arms, now_s)
            return
        block = build_block(now_s - begun.at_s, begun.before, arms, case.sides, self._faults(case))
        # Half a tick of tolerance: otherwise a slightly late loop would make blocks of twelve seconds.
        has_ended = block.length_s >= BLOCK_S - LOOK_S / 2
        if not has_ended and _fault(begun, block) is None:
            return
        if case.is_shadowed:
            trial, judgement = _of_copies(case, begun.trial, block)
        else:
            trial, judgement = await self._of_requests(case, begun.trial, block)
        # Stored before the judgement is used, so that a restarted operator has all of its evidence.
        if begun.is_kept:
            record = TRIAL.config_map(case.service, to_record(trial))
            await self._kube.apply(record, manager=MANAGER)
        self._open[key] = replace(begun, trial=trial, before=arms, at_s=now_s)
        self._say(key, judgement)

    def _say(self, key: Key, judgement: Judgement) -> None:
        self._said[key] = judgement
        verdict = judgement.verdict
        logger.info("%s/%s: %s: %s", *key, type(verdict).__name__, verdict.reason)
        self._changed(key)

    async def _of_requests(
        self, case: Case, before: Trial, block: Block
    ) -> tuple[Trial, Judgement]:
        spec = case.service.rollout.canary
        verdict, state = judge(spec, before.state, block)
        metrics = await self._meter.look(spec.metrics, before.metrics, case.names, block.length_s)
        verdict = gated(spec, state, verdict, metrics)
        trial = replace(
            before,
            state=state,
            metrics=metrics,
            canary=before.canary.plus(block.canary).of_most_tenants(),
            control=before.control.plus(block.control).of_most_tenants(),
        )
        said = Judgement(case.deployment, verdict, evidence(spec, state), metric_gates(metrics))
        return trial, said

    def _faults(self, case: Case) -> Faults:
        """The canary's faults. If stable has NaN logits too, a prompt may cause them: none count."""
        is_shared = self._sight.corrupted(case.sides.control) > 0
        corrupted = 0 if is_shared else self._sight.corrupted(case.sides.canary)
        return replace(case.faults, nan_outputs=corrupted)

    async def _begin(self, case: Case, arms: Arms, now_s: float) -> _Open:
        """Continue the trial stored in its ConfigMap, or begin a new one."""
        service = case.service
        history = self._pasts.history(service.key, case.stable)
        fresh = Trial.begin(service.rollout.canary, case.deployment, history)
        try:
            body = await self._kube.get(CONFIG_MAPS, service.namespace, TRIAL.name(service.name))
        except NotFound:
            return _Open(fresh, case.is_shadowed, arms, now_s)
        if not is_ours(body):
            logger.warning("%s/%s: its record is somebody else's, and not kept", *service.key)
            return _Open(fresh, case.is_shadowed, arms, now_s, is_kept=False)
        kept = from_record(TRIAL.record_of(body, service.uid), case.deployment)
        return _Open(kept or fresh, case.is_shadowed, arms, now_s)


def _is_of(begun: _Open, case: Case) -> bool:
    """Whether the open trial is this canary's, with the same kind of traffic: copies or requests."""
    return begun.trial.deployment == case.deployment and begun.of_copies == case.is_shadowed


def _fault(begun: _Open, block: Block) -> str | None:
    """Why the canary must be aborted at once, even within a block; None: it need not."""
    trial = begun.trial
    return shadow_fault(trial.shadow, block) if begun.of_copies else fault(trial.state, block)


def _of_copies(case: Case, before: Trial, block: Block) -> tuple[Trial, Judgement]:
    # If `shadow` was removed from the spec meanwhile, no more copies are needed.
    spec = case.service.rollout.canary.shadow or ShadowSpec(duration_s=0.0)
    verdict, shadow = look(spec, before.shadow, block)
    return replace(before, shadow=shadow), Judgement(case.deployment, verdict, ())


def cases_of(
    services: Mapping[Key, Object],
    deployments: Iterable[Object],
    pods: Iterable[Object],
    failures: Failures,
) -> list[Case]:
    """Canaries to judge, from mirrored Kubernetes objects."""
    pods_of, deployments_of = by_service(pods), by_service(deployments)
    cases = []
    for key, body in services.items():
        with failures.contained("judge", "/".join(key)):
            if _phase(body) in (*JUDGED, SHADOWED):
                cases += _cases(body, deployments_of.get(key, []), pods_of.get(key, []))
    return cases


def _cases(body: Object, deployments: list[Object], pods: list[Object]) -> list[Case]:
    """The service's canary as a list of one; empty if the spec is invalid or it has no Deployment."""
    status = body["status"]
    revision, stable = status.get("candidateRevision", ""), status.get("stableRevision", "")
    try:
        service = to_core(body)
    except InvalidService:
        return []
    own, engines = children_of(body, deployments, pods)
    canary = [each for each in own if each.side == (revision, "")]
    if not canary:
        return []
    first = min(canary, key=lambda each: each.name)  # of several variants
    case = _case(service, revision, stable, first.uid, engines)
    return [replace(case, is_shadowed=_phase(body) == SHADOWED)]


def _case(
    service: ServiceSpec, revision: str, stable: str, deployment: str, pods: Sequence[ObservedPod]
) -> Case:
    serving = [pod for pod in pods if pod.role == SERVE]
    canary = [pod for pod in serving if pod.revision == revision]
    beside = [pod for pod in serving if pod.revision == stable]
    # Without pods of its own age the canary is compared with all of stable.
    control = [pod for pod in beside if pod.cohort == CONTROL] or beside
    return Case(
        service=service,
        deployment=deployment,
        revision=revision,
        stable=stable,
        sides=ComparedPods(_names(service, canary), _names(service, control)),
        faults=Faults(
            crash_loops=sum(pod.is_crash_looping for pod in canary),
            out_of_memory=sum(pod.is_out_of_memory for pod in canary),
        ),
    )


def _names(service: ServiceSpec, pods: list[ObservedPod]) -> frozenset[str]:
    return frozenset(f"{service.namespace}/{pod.name}" for pod in pods)


def _phase(body: Object) -> str:
    phase: str = (body.get("status", {}).get("rollout") or {}).get("phase", "")
    return phase
