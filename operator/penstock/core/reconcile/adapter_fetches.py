"""Plans the fetches of an adapter's versions: one pod for each version, whatever the number of engines.

version of the spec, or one in use, not in the cache -> a pod -> its report -> the status records it
  -> the pod is deleted, and the rollout of the version starts
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.fetched import Fetched, FetchedVersion
from penstock.core.adapters.resource import AdapterResource
from penstock.core.manifests.adapter_fetch import adapter_fetch_name, adapter_fetch_pod
from penstock.core.observed.adapter_fetches import AdapterFetchPod
from penstock.core.observed.retry_advice import source_advice
from penstock.core.reconcile.adapter_state import FetchStep
from penstock.core.reconcile.condition_types import FETCHING
from penstock.core.reconcile.missing_objects import with_advice
from penstock.core.reconcile.plan_steps import Deletion, repetition_time_s
from penstock.core.spec.service import Object, ServiceSpec


@dataclass(frozen=True, slots=True)
class FetchInputs:
    """An adapter, its versions that were fetched, and its pods that fetch others."""

    resource: AdapterResource  # with the version that the spec asks for
    needed: Sequence[AdapterVersion]  # whose files have to be in the cache
    fetched: Fetched  # as the status records them
    kept: Sequence[str]  # revisions whose files the next fetch does not remove
    service: ServiceSpec  # accepted spec of its service, with a cache
    pods: Sequence[AdapterFetchPod]  # of this adapter
    image: str  # of the program that fetches
    refusal: str = ""  # why the API server refused the last pod; empty if it did not


@dataclass(slots=True)
class FetchPlan:
    """The fetches of an adapter.

    step: of the spec's version; None if the cache has it. fetched: with those that have just been fetched.
    num_free: how many more pods may be created, of all adapters with this cache.
    """

    fetched: dict[str, FetchedVersion]
    num_free: int
    step: FetchStep | None = None
    create: list[Object] = field(default_factory=list)
    delete: list[Deletion] = field(default_factory=list)


def plan_fetches(inputs: FetchInputs, num_free: int, now_s: float) -> FetchPlan:
    """Plan the fetches of one adapter. num_free: how many pods may be created. now_s: Unix time.

    Pods of other versions than those that are needed, or that the status has recorded, are deleted.
    """
    plan = FetchPlan(dict(inputs.fetched), num_free)
    claim = inputs.service.model_cache_claim or ""
    left = {each.pod.name: each for each in inputs.pods}
    for version in inputs.needed:
        known = inputs.fetched.get(version.revision)
        if known is not None and known.claim == claim:
            continue
        name = adapter_fetch_name(inputs.resource, version, claim)
        step = _advance(plan, inputs, version, left.pop(name, None), now_s)
        if version.revision == inputs.resource.version.revision:
            plan.step = step
    plan.delete += [_deletion(each) for each in left.values() if not each.pod.is_ending]
    return plan


def _advance(
    plan: FetchPlan,
    inputs: FetchInputs,
    version: AdapterVersion,
    found: AdapterFetchPod | None,
    now_s: float,
) -> FetchStep:
    """Advance the fetch of one version. found: its pod; None if there is none."""
    if found is None:
        return _start(plan, inputs, version)
    pod, report = found.pod, found.report
    if pod.is_ending or not found.is_over:
        trouble = f": {': '.join(with_advice(pod.trouble))}" if pod.trouble else ""
        return FetchStep(FETCHING, f"the pod {pod.name} fetches {version.uri}{trouble}")
    if report is not None and report.ok:
        claim = inputs.service.model_cache_claim or ""
        resolved_uri = report.resolved_uri or version.uri
        plan.fetched[version.revision] = FetchedVersion(version.revision, claim, resolved_uri)
        return FetchStep(FETCHING, f"{version.uri} was fetched")
    if report is not None and found.is_final:
        advice = source_advice(f"kubectl delete pod {pod.name}")
        return FetchStep(report.reason, f"{report.message}; {advice}", is_final=True)
    if now_s >= repetition_time_s(pod):
        plan.delete.append(_deletion(found))
    reason, message = (report.reason, report.message) if report else ("FetchLost", pod.lost)
    return FetchStep(reason, f"{message}; the fetch is tried again")


def _start(plan: FetchPlan, inputs: FetchInputs, version: AdapterVersion) -> FetchStep:
    if plan.num_free <= 0:
        return FetchStep(FETCHING, f"{version.uri} waits for the fetches of other adapters")
    plan.num_free -= 1
    known = inputs.fetched.get(version.revision)  # in another cache: a tag may have moved since
    source = version.uri if known is None or not known.resolved_uri else known.resolved_uri
    pod = adapter_fetch_pod(
        inputs.resource, version, source, inputs.service, inputs.kept, inputs.image
    )
    plan.create.append(pod)
    refused = f": the API server refuses its pod: {inputs.refusal}" if inputs.refusal else ""
    return FetchStep(FETCHING, f"the fetch of {version.uri} starts{refused}")


def _deletion(found: AdapterFetchPod) -> Deletion:
    return Deletion("Pod", found.pod.name, found.pod.uid)
