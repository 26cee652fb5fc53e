"""The canaries of services to judge now, from mirrored Kubernetes objects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.api.conversion.past_specs import accepted_spec
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.controller.process.failures import Failures
from penstock.controller.watching.children import by_service, children_of
from penstock.core.canary.evidence import Faults
from penstock.core.manifests.stored_record import RecordOwner, service_owner
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_phases import JUDGED_PHASES, MIRRORED_PHASES
from penstock.core.observed.stored_status import stored_phase, stored_status
from penstock.core.rollout.blocks import ComparedArms
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.service import CONTROL, SERVE, ServiceSpec


@dataclass(frozen=True, slots=True)
class CanaryCase:
    """A canary to judge, as observed in this tick: a revision of a service, or a version of an adapter."""

    key: Key  # key of the service, or `adapter_key` of the adapter
    service: str  # name of the InferenceService
    spec: CanarySpec  # settings
    owner: RecordOwner  # of the stored trial
    trial_id: str  # differs if the revision is rolled out again
    revision: str  # the canary's
    stable: str  # the revision that it is compared with
    sides: ComparedArms  # arms of the canary and of the control
    faults: Faults  # counted on the canary's pods
    is_mirrored: bool = False  # whether the canary gets only copies of requests

    @property
    def placeholders(self) -> dict[str, str]:
        """Values of the placeholders in metric queries."""
        return {
            "namespace": self.key[0],
            "service": self.service,
            "revision": self.revision,
            "stable": self.stable,
        }


def canary_cases(
    services: Mapping[Key, Object],
    deployments: Iterable[Object],
    pods: Iterable[Object],
    failures: Failures,
) -> list[CanaryCase]:
    """List the canaries to judge, from mirrored Kubernetes objects."""
    own_pods, deployments_of = by_service(pods), by_service(deployments)
    cases = []
    for key, body in services.items():
        with failures.isolate_errors("judge", *key):
            if stored_phase(body) in JUDGED_PHASES + MIRRORED_PHASES:
                cases += _cases(body, deployments_of.get(key, []), own_pods.get(key, []))
    return cases


def _cases(body: Object, deployments: list[Object], pods: list[Object]) -> list[CanaryCase]:
    """List the service's canary; empty if no spec was accepted or the canary has no Deployment."""
    status = stored_status(body)
    revision, stable = status.get("candidateRevision", ""), status.get("stableRevision", "")
    service = accepted_spec(body)
    if service is None:
        return []
    own, engines = children_of(body, deployments, pods)
    canary = [each for each in own if each.side == (revision, "")]
    if not canary:
        return []
    first = min(canary, key=lambda each: each.name)  # of several variants
    case = _case(service, revision, stable, first.uid, engines)
    return [replace(case, is_mirrored=stored_phase(body) in MIRRORED_PHASES)]


def _case(
    service: ServiceSpec, revision: str, stable: str, deployment: str, pods: Sequence[ObservedPod]
) -> CanaryCase:
    serving = [pod for pod in pods if pod.role == SERVE]
    canary = [pod for pod in serving if pod.revision == revision]
    stable_pods = [pod for pod in serving if pod.revision == stable]
    # Control pods are as young as the canary's. Without any, all stable pods are the control.
    control = [pod for pod in stable_pods if pod.cohort == CONTROL] or stable_pods
    return CanaryCase(
        key=service.key,
        service=service.name,
        spec=service.rollout.canary,
        owner=service_owner(service),
        trial_id=deployment,
        revision=revision,
        stable=stable,
        sides=ComparedArms(_names(service, canary), _names(service, control)),
        faults=Faults(
            crash_loops=sum(pod.is_crash_looping and not pod.is_out_of_memory for pod in canary),
            out_of_memory=sum(pod.is_out_of_memory for pod in canary),
        ),
    )


def _names(service: ServiceSpec, pods: list[ObservedPod]) -> frozenset[str]:
    return frozenset(f"{service.namespace}/{pod.name}" for pod in pods)
