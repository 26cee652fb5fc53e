"""Creates and deletes pods that fetch versions of adapters from their sources, one pod for each version."""

import asyncio
import logging
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from penstock.api.conversion.past_specs import accepted_spec
from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.kubernetes.resources import PODS
from penstock.clients.machine.clock import monotonic, unix_time
from penstock.clients.machine.logs import service_fields
from penstock.controller.adapters.fetch_mounts import FetchMounts
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.adapters.store import StoredAdapter
from penstock.controller.process.failures import Failures
from penstock.controller.process.field_managers import ADAPTERS_MANAGER
from penstock.controller.process.settings import Settings
from penstock.core.adapters.fetched import FetchedVersion, bounded
from penstock.core.observed.accepted_spec import with_accepted_spec
from penstock.core.observed.adapter_fetches import AdapterFetchPod
from penstock.core.observed.fetch_totals import FetchTotals, PodReport
from penstock.core.reconcile.adapter_fetches import FetchInputs, FetchPlan, plan_fetches
from penstock.core.reconcile.adapter_state import FetchStep
from penstock.core.reconcile.condition_types import FETCHING
from penstock.core.spec.service import ADAPTER_FETCH, ROLE_LABEL, ServiceSpec
from penstock.errors import AlreadyExists, Forbidden, NotFound, Rejected, Transient

logger = logging.getLogger(__name__)

# Pods that fetch at the same time for the adapters of one service: they share the bandwidth of its cache.
MAX_FETCHES = 8
# Pause after the API server refused a pod, in seconds: a quota or a policy may change.
REFUSED_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """The fetches of an adapter. step: of the version that the spec asks for; None if the cache has it."""

    step: FetchStep | None
    fetched: tuple[FetchedVersion, ...]


@dataclass(frozen=True, slots=True)
class Fetches:
    """The fetches of a pass. outcomes: of the adapters that have fetches."""

    outcomes: Mapping[Key, FetchOutcome] = field(default_factory=dict)

    def servable(self, adapter: StoredAdapter) -> StoredAdapter | None:
        """The adapter with a version whose files are there: until the spec's is fetched, the previous one.

        None: there is no previous one.
        """
        fetch = self.outcomes.get(adapter.resource.key)
        if fetch is None or fetch.step is None:
            return adapter
        return adapter.without_new_version()


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A pod that the API server refused. until_s: monotonic time of the next try."""

    message: str
    until_s: float


class AdapterFetches:
    """Plans fetches in each pass of the placement loop, and writes their pods concurrently.

    settings: of the operator, with the image of the program that fetches. For adapters in volumes, and those
    whose versions are in the cache, a pass only reads the record in their status.
    """

    def __init__(self, kube: Kube, failures: Failures, settings: Settings) -> None:
        self._kube = kube
        self._failures = failures
        self._settings = settings
        self._mounts = FetchMounts(kube)
        self.totals: Mapping[Key, FetchTotals] = {}  # by service
        self._plans: list[tuple[StoredAdapter, FetchPlan]] = []
        self._refusals: dict[Key, _Refusal] = {}  # by adapter
        self._writing: asyncio.Task[None] | None = None

    def step(
        self,
        adapters: Sequence[StoredAdapter],
        services: Mapping[Key, Object],
        claims: Mapping[Key, str | None],
        engines: Mapping[Key, Sequence[LoraPod]],
        pods: Iterable[Object],
    ) -> Fetches:
        """Plan the fetches of the accepted adapters.

        claims: of the caches, by service. engines: that take adapters, by service. pods: of all services and
        adapters.
        """
        self._plans = []
        self._mounts.start_pass()
        outcomes: dict[Key, FetchOutcome] = {}
        of_owner = _by_owner(pods)
        running = _count_running(adapters, of_owner)
        self.totals = _updated(self.totals, adapters, of_owner, services)
        specs: dict[Key, ServiceSpec | None] = {}
        for each in adapters:
            resource, own = each.resource, of_owner.get(each.resource.uid, ())
            key = resource.service_key
            claim = claims.get(key)
            late = _wait_for_engines(each, claim, engines) if each.is_new else None
            if not own and _is_complete(each, claim):
                if late is not None:
                    fetched = bounded(each.fetched, each.kept_revisions)
                    outcomes[resource.key] = FetchOutcome(late, fetched)
                continue
            if key not in specs:
                specs[key] = self._spec_to_fetch_by(services[key])
            with self._failures.isolate_errors("adapters", *resource.key):
                own = self._mounts.explain(resource.namespace, own)
                plan = self._plan(each, specs[key], own, MAX_FETCHES - running[key])
                running[key] += len(plan.create)
                self._plans.append((each, plan))
                fetched = bounded(plan.fetched, each.kept_revisions)
                outcomes[resource.key] = FetchOutcome(plan.step or late, fetched)
        keys = {each.resource.key for each, _ in self._plans}
        self._refusals = {key: each for key, each in self._refusals.items() if key in keys}
        return Fetches(outcomes)

    def start_writes(self) -> None:
        """Start to create and delete the pods of the last step, and to read why others do not start.

        Does nothing if the last writes have not ended: a slow API server must not delay the next pass.
        """
        is_needed = (
            any(plan.create or plan.delete for _, plan in self._plans) or self._mounts.is_due
        )
        if is_needed and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(self._plans))

    async def close(self) -> None:
        """Cancel the writes that run, and wait for their end."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _spec_to_fetch_by(self, service: Object) -> ServiceSpec | None:
        """The spec of a service, whose template and cache fetch pods may have; None if there is none.

        Its template has been checked only if the operator accepted it.
        """
        spec = None if with_accepted_spec(service) is None else accepted_spec(service)
        if spec is None or spec.model_cache_claim is None:
            return None
        return replace(spec, source_variables=self._settings.source_variables)

    def _plan(
        self,
        adapter: StoredAdapter,
        spec: ServiceSpec | None,
        pods: Sequence[AdapterFetchPod],
        num_free: int,
    ) -> FetchPlan:
        """Plan the fetches of one adapter. spec: of its service; None if there may be no pods yet."""
        resource = adapter.resource
        if spec is None:
            message = f"the fetch starts once the spec of {resource.service} is accepted"
            return FetchPlan(dict(adapter.fetched), 0, FetchStep(FETCHING, message))
        refusal = self._refusals.get(resource.key)
        inputs = FetchInputs(
            resource, adapter.needed, adapter.fetched, adapter.kept_revisions, spec, pods,
            self._settings.engine_image, "" if refusal is None else refusal.message,
        )  # fmt: skip
        return plan_fetches(inputs, num_free, unix_time())

    async def _write(self, plans: Sequence[tuple[StoredAdapter, FetchPlan]]) -> None:
        if self._mounts.is_due:
            with self._failures.isolate_errors("adapters"), suppress(Forbidden, Transient):
                await self._mounts.read()
        for adapter, plan in plans:
            key = adapter.resource.key
            about_it = service_fields(adapter.resource.service_key, adapter=key[1])
            with self._failures.isolate_errors("adapters", *key):
                try:
                    for each in plan.delete:
                        await self._kube.delete(PODS, key[0], each.name, uid=each.uid)
                    if "deletionTimestamp" not in adapter.body["metadata"]:
                        await self._create(key, plan.create)
                except NotFound:
                    continue  # the namespace or the adapter is gone
                except (Forbidden, Rejected) as error:
                    self._refusals[key] = _Refusal(str(error), monotonic() + REFUSED_PAUSE_S)
                    logger.warning("fetch of the adapter refused: %s", error, extra=about_it)
                except Transient as error:
                    logger.warning("fetch of the adapter not started: %s", error, extra=about_it)

    async def _create(self, key: Key, pods: Iterable[Object]) -> None:
        refusal = self._refusals.get(key)
        if refusal is not None and monotonic() < refusal.until_s:
            return
        for pod in pods:
            try:
                await self._kube.create(PODS, key[0], pod, fieldManager=ADAPTERS_MANAGER)
            except AlreadyExists:
                continue  # the watch has not reported it yet
        self._refusals.pop(key, None)


def _by_owner(pods: Iterable[Object]) -> dict[str, list[AdapterFetchPod]]:
    """The pods that fetch adapters, by the uid of the adapter."""
    found: dict[str, list[AdapterFetchPod]] = {}
    for body in pods:
        if (body["metadata"].get("labels") or {}).get(ROLE_LABEL) == ADAPTER_FETCH:
            each = AdapterFetchPod.of(body)
            found.setdefault(each.pod.owner, []).append(each)
    return found


def _count_running(
    adapters: Iterable[StoredAdapter], of_owner: Mapping[str, Sequence[AdapterFetchPod]]
) -> Counter[Key]:
    """Number of pods that have not ended, by service."""
    running: Counter[Key] = Counter()
    for each in adapters:
        if own := of_owner.get(each.resource.uid):
            running[each.resource.service_key] += sum(not pod.is_over for pod in own)
    return running


def _updated(
    totals: Mapping[Key, FetchTotals],
    adapters: Iterable[StoredAdapter],
    of_owner: Mapping[str, Sequence[AdapterFetchPod]],
    services: Container[Key],
) -> dict[Key, FetchTotals]:
    """The totals by service with the pods that have ended since, without services that are gone."""
    reports: dict[Key, list[PodReport]] = {key: [] for key in totals if key in services}
    for each in adapters:
        for pod in of_owner.get(each.resource.uid, ()):
            if pod.report is not None:
                reports.setdefault(each.resource.service_key, []).append((pod.pod.uid, pod.report))
    return {key: totals.get(key, FetchTotals()).updated(each) for key, each in reports.items()}


def _wait_for_engines(
    adapter: StoredAdapter, claim: str | None, engines: Mapping[Key, Sequence[LoraPod]]
) -> FetchStep | None:
    """Why a new version that was fetched is not rolled out yet; None if all engines can read it.

    An engine that cannot would refuse it, and the version would be rejected. claim: of the service's cache;
    None: unknown, and engines decide.
    """
    if claim is None:
        return None
    own = (adapter.body.get("status") or {}).get("dedicatedService")
    keys = [adapter.resource.service_key, *([(adapter.resource.namespace, own)] if own else [])]
    found = [each for key in keys for each in engines.get(key, ())]
    unable = [each.name for each in found if each.engine.cache_claim != claim]
    if not unable:
        return None
    message = (
        f"engines do not mount the claim {claim} yet, such as {unable[0]}: a rollout of their service "
        "replaces them"
    )
    return FetchStep(FETCHING, message)


def _is_complete(adapter: StoredAdapter, claim: str | None) -> bool:
    """Whether the cache has all versions that are needed. claim: of the cache; None: unknown."""
    found = (adapter.fetched.get(each.revision) for each in adapter.needed)
    return all(each is not None and claim in (None, each.claim) for each in found)
