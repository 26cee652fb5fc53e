"""Rollouts of versions of adapters: stepped in each pass of the placement loop, judged by the judge."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.api.conversion.past_specs import accepted_spec
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.pods.engine_adapters import Copies
from penstock.controller.adapters.service import AdapterService
from penstock.controller.adapters.store import StoredAdapter
from penstock.controller.canary.cases import CanaryCase
from penstock.controller.canary.judge import Judgement
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.adapters.shown_demand import requests_per_s
from penstock.core.adapters.versions import adapter_key
from penstock.core.canary.evidence import Faults
from penstock.core.manifests.stored_record import adapter_owner
from penstock.core.observed.rollout_phases import JUDGED_PHASES
from penstock.core.observed.rollout_state import is_rolling
from penstock.core.reconcile.adapter_state import Cause
from penstock.core.rollout import commands
from penstock.core.rollout.adapter_events import AdapterInputs, VersionCopies
from penstock.core.rollout.adapter_rollout import AdapterRollout, step_adapter
from penstock.core.rollout.blocks import ComparedArms
from penstock.core.rollout.routes import AppliedGenerations
from penstock.core.spec.canary import CanarySpec

# Requests per second of a version above which its successor is a canary: one in 10 minutes. With fewer a
# comparison would take days.
MIN_COMPARED_PER_S = 1 / 600

# Copies by the adapter's name and the version's revision.
CopiesByAdapter = Mapping[str, Mapping[str, VersionCopies]]


@dataclass(frozen=True, slots=True)
class RolloutSources:
    """Sources of rollouts. judgement: the last of a trial, by key of the adapter and id.

    applied_generations: the traffic generation that each gateway applies, by key of the adapter.
    """

    judgement: Callable[[Key, str], Judgement | None]
    applied_generations: Callable[[Key], AppliedGenerations | None]


@dataclass(frozen=True, slots=True)
class SteppedRollout:
    """A rollout after a step, with the last judgement on it; None if there is none."""

    rollout: AdapterRollout
    judgement: Judgement | None = None

    def as_status(self, stored: Object) -> Object:
        """The fields of the status about versions. stored: the status so far."""
        return self.rollout.as_status(stored, self.judgement.evidence if self.judgement else None)


@dataclass(frozen=True, slots=True)
class RunningRollout:
    """A rollout that has not ended. service: key of the adapter's service. canary: its settings."""

    service: Key
    adapter: str
    stepped: SteppedRollout
    canary: CanarySpec


class AdapterRollouts:
    """Rollouts of all adapters. cases: canaries to judge, as of the last pass."""

    def __init__(self, sources: RolloutSources) -> None:
        self._sources = sources
        self._settled: dict[Key, tuple[StoredAdapter, SteppedRollout]] = {}
        self._canaries: dict[Key, tuple[Object, CanarySpec]] = {}
        self._cases: dict[Key, CanaryCase] = {}
        self._running: dict[Key, RunningRollout] = {}

    def cases(self) -> list[CanaryCase]:
        return list(self._cases.values())

    def running(self) -> list[RunningRollout]:
        """The rollouts that have not ended, as of the last pass."""
        return list(self._running.values())

    def keep_only(self, adapters: Mapping[Key, object], services: Mapping[Key, object]) -> None:
        """Forget all other adapters and services."""
        self._settled = {key: each for key, each in self._settled.items() if key in adapters}
        self._cases = {key: each for key, each in self._cases.items() if key in adapters}
        self._running = {key: each for key, each in self._running.items() if key in adapters}
        self._canaries = {key: each for key, each in self._canaries.items() if key in services}

    def step(
        self,
        adapter: StoredAdapter,
        body: Object,
        copies: CopiesByAdapter,
        service: AdapterService | None,
        refusal: Cause | None,
        now_s: float,
    ) -> SteppedRollout:
        """Advance the rollout of an accepted adapter.

        body: of its service. service: None while no engine of it takes adapters. refusal: why the service
        does not take the version of the spec; None if it does. now_s: Unix time.
        """
        resource = adapter.resource
        known, settled = self._settled.get(resource.key, (None, None))
        if known is adapter and settled is not None:
            return settled
        status = adapter.body.get("status") or {}
        canary = self._canary(resource.service_key, body)
        case = _case(adapter, canary)
        judgement = self._sources.judgement(case.key, case.trial_id) if case else None
        inputs = self._inputs(adapter, canary, copies.get(resource.name, {}), service, now_s)
        inputs = replace(
            inputs,
            verdict=judgement.verdict if judgement else None,
            failure=refusal.message if refusal else inputs.failure,
        )
        stepped = SteppedRollout(step_adapter(resource.version, status, inputs), judgement)
        self._record(adapter, stepped, canary, case)
        return stepped

    def _record(
        self,
        adapter: StoredAdapter,
        stepped: SteppedRollout,
        canary: CanarySpec,
        case: CanaryCase | None,
    ) -> None:
        """Record whether the rollout is judged, runs or has settled."""
        resource, state = adapter.resource, stepped.rollout.state
        self._cases.pop(resource.key, None)
        self._running.pop(resource.key, None)
        if not state.is_settled:
            self._running[resource.key] = RunningRollout(
                resource.service_key, resource.name, stepped, canary
            )
        if case is not None and state.phase in JUDGED_PHASES:
            self._cases[resource.key] = case
        if state.is_settled and not is_rolling(adapter.body.get("status") or {}):
            # The next rollout starts with a change of the object.
            self._settled[resource.key] = adapter, stepped

    def _inputs(
        self,
        adapter: StoredAdapter,
        canary: CanarySpec,
        copies: Mapping[str, VersionCopies],
        service: AdapterService | None,
        now_s: float,
    ) -> AdapterInputs:
        resource, status = adapter.resource, adapter.body.get("status") or {}
        annotations = adapter.body["metadata"].get("annotations") or {}
        candidate = f"{resource.name}@{status.get('candidateRevision')}"
        demands = [] if service is None else _demands(resource.name, status, service)
        # A new leader has not measured the demand yet.
        shown = requests_per_s(status)
        # Requests in flight are known from the first report of the gateways, a rate only from the second.
        rate = max(sum(each.requests_per_s for each in demands), shown)
        is_used = rate >= MIN_COMPARED_PER_S or any(each.in_flight for each in demands)
        errors = {} if service is None else service.errors.get(candidate, {})
        refusals = [error.message for error in errors.values() if error.is_final]
        return AdapterInputs(
            canary=canary,
            wanted=resource.version.revision,
            now_s=now_s,
            copies=copies,
            is_used=is_used and adapter.is_resolved,
            failure=refusals[-1] if refusals else "",
            command=commands.parse_command(annotations.get(commands.ANNOTATION)),
            applied_generations=self._sources.applied_generations(adapter_key(*resource.key)),
        )

    def _canary(self, key: Key, body: Object) -> CanarySpec:
        """The settings of a service's canaries, without those that only make sense for its pods."""
        known = self._canaries.get(key)
        if known is None or known[0] is not body:
            accepted = accepted_spec(body)
            spec = CanarySpec() if accepted is None else accepted.rollout.canary
            known = self._canaries[key] = body, replace(spec, metrics=(), mirror=None)
        return known[1]


def _demands(name: str, status: Object, service: AdapterService) -> list[AdapterDemand]:
    """Demand for each known version: one that has just become stable has had no requests itself."""
    revisions = {each["revision"] for each in status.get("versions") or []}
    revisions.add(status.get("stableRevision"))
    found = (service.demand.get(f"{name}@{each}") for each in revisions)
    return [each for each in found if each is not None]


def copies_by_adapter(listed: Iterable[Copies]) -> CopiesByAdapter:
    """Count the copies of versions. listed: by name in engines, of each pod of a service."""
    found: dict[str, dict[str, VersionCopies]] = {}
    for copies in listed:
        for engine_name, copy in copies.items():
            name, _, revision = engine_name.rpartition("@")
            of_adapter = found.setdefault(name, {})
            before = of_adapter.get(revision, VersionCopies())
            is_resident = copy.state == "Resident"
            of_adapter[revision] = VersionCopies(before.resident + is_resident, before.known + 1)
    return found


def _case(adapter: StoredAdapter, canary: CanarySpec) -> CanaryCase | None:
    """The canary of an adapter in its status; None if it has none."""
    resource, status = adapter.resource, adapter.body.get("status") or {}
    revision, stable = status.get("candidateRevision"), status.get("stableRevision")
    if not revision or not stable:
        return None
    starts = {each["revision"]: each.get("startTime") for each in status.get("versions") or []}
    canary_arm, control_arm = (f"{resource.name}@{each}" for each in (revision, stable))
    return CanaryCase(
        key=adapter_key(*resource.key),
        service=resource.service,
        spec=canary,
        owner=adapter_owner(resource),
        trial_id=f"{resource.uid}/{revision}/{starts.get(revision)}",
        revision=revision,
        stable=stable,
        sides=ComparedArms(frozenset({canary_arm}), frozenset({control_arm})),
        faults=Faults(),
    )
