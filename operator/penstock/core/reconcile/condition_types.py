"""Condition types of services, routes and tenants, and what the reasons of all kinds mean."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.core.observed.pods import OOM_KILLED
from penstock.core.observed.stored_status import (
    POD_FORBIDDEN,
    POD_TEMPLATE_REJECTED,
    QUOTA_EXCEEDED,
)
from penstock.core.reconcile.adapter_condition_types import (
    ADAPTER_MEANINGS,
    ADAPTER_REASONS,
    HELD_BY_OTHER_NAMESPACE_MEANING,
    MODEL_NAME_CONFLICT_MEANING,
)

Truth = Literal["True", "False", "Unknown"]
ACCESS_CONTROLLED = "AccessControlled"

# Types of all conditions that Penstock writes. Those of other types belong to others and stay.
MEANINGS: Mapping[str, str] = {
    "SpecValid": "The spec can be served.",
    "ModelReady": "The model of the revision that is rolled out, else of the stable one, passed its check.",
    "WorkloadReady": "That revision has the engine pods that it needs.",
    "TrafficAvailable": "A revision with traffic has a ready engine, or a request starts one.",
    "RolledOut": (
        "The spec's revision receives all traffic, and no other has engine pods, but for pods that do not "
        "end in their grace period. Wait for this one after a deployment."
    ),
    "MetricsReadable": "The user's metrics of a canary can be read. Only if the spec has any.",
    "ScalingActive": "Penstock decides on the replicas. Not in mode External.",
    "ObjectivesAttainable": (
        "An idle engine keeps the objectives for the mean request. Only if the spec has any."
    ),
    "Reconciling": "The spec is being rolled out. Never True together with Stalled.",
    "Stalled": "The rollout cannot go on until a user changes something.",
    "Ready": (
        "The service answers requests, also during a rollout and while a later spec is refused; or it has no "
        "replica and needs none (`ScaledToZero`), or starts its first one (`Waking`)."
    ),
    "ModelNameConflict": (
        "The model name alone leads to another namespace, or may do so; clients use NAMESPACE/NAME. Left out "
        "otherwise."
    ),
    ACCESS_CONTROLLED: "Only tenants use the service, as the cluster has some. It does not affect Ready.",
}
TYPES = tuple(MEANINGS)
# Conditions that are left out if the spec has no metrics, sets the replicas itself, or has no objectives.
CONDITIONAL_TYPES = ("MetricsReadable", "ScalingActive", "ObjectivesAttainable")

ROUTE_MEANINGS: Mapping[str, str] = {
    "Accepted": "Gateways can read the rules, and no other route of the namespace has the model name.",
    "ResolvedRefs": "All services, adapters and revisions that the rules name exist.",
    "Programmed": "Every ready gateway applies the present spec.",
    "Reconciling": "The gateways do not apply the route yet, or a rule names what does not exist.",
    "Stalled": "No progress is to be expected without a change of the route by a person.",
    "Ready": "The first three are True, and each rule has a ready backend with weight.",
    "ModelNameConflict": MODEL_NAME_CONFLICT_MEANING,
    "AliasConflict": "Other objects have aliases of the route, which the message names.",
}
ROUTE_REASONS: Mapping[str, str] = {
    "Accepted": (
        "Requests for the model name follow this route. If a service or an adapter has the name too, they do "
        "once the route's backends exist and one of them is ready; the message says so."
    ),
    "AliasInUse": "Another route of the namespace had an alias first.",
    "BackendNotFound": "A service or adapter that a rule names does not exist; it may still be created.",
    "BackendsNotReady": "No service of a rule has a ready engine, and no adapter of it is ready.",
    "GatewaysBehind": "A gateway does not apply the present spec yet.",
    "HeldByOtherNamespace": HELD_BY_OTHER_NAMESPACE_MEANING,
    "InvalidMatches": (
        "A regular expression of a rule cannot be used, or they are too many or too large. Gateways keep the "
        "last rules that they could read."
    ),
    "ModelNameInUse": "Another route of the namespace had this model name first.",
    "NoGateways": "No gateway is known to be ready.",
    "NotStalled": "Nothing requires a change of the route by a person.",
    "Programmed": "Every ready gateway applies the present spec.",
    "Ready": "The route answers requests.",
    "ResolvedRefs": "All backends of the rules exist.",
    "RevisionNotFound": "No pods have the revision that a mirror names.",
    "Settled": "The gateways apply the route.",
}

TENANT_MEANINGS: Mapping[str, str] = {
    "Accepted": "The tenant can be read, and no older one has one of its identities.",
    "Programmed": "Every ready gateway applies the present spec.",
    "Reconciling": "The gateways do not apply the tenant yet.",
    "Stalled": "No progress is to be expected without a change of a tenant by a person.",
    "Ready": "The first two are True.",
}
TENANT_REASONS: Mapping[str, str] = {
    "Accepted": "No older tenant has one of its identities.",
    "GatewaysBehind": "A gateway does not apply the present spec yet.",
    "IdentityInUse": "An older tenant has one of its identities, which counts for that one. The others hold.",
    "InvalidSpec": "The spec cannot be read; gateways keep the last one that they could read.",
    "NoGateways": "No gateway is known to be ready.",
    "NotStalled": "Nothing requires a change of the tenant by a person.",
    "Programmed": "Every ready gateway applies the present spec.",
    "Ready": "The gateways apply the tenant.",
    "Settled": "The gateways apply the tenant.",
}

# Reason of a service without engines because spec.replicas is 0, or because no request comes.
SCALED_TO_ZERO = "ScaledToZero"
# Reason of a service without engines that starts its first one for a request.
WAKING = "Waking"
# Reason of engines whose model is fetched.
FETCHING = "Fetching"
# Reason of engines that wait for the successor of one that was lost.
ENGINE_LOST = "EngineLost"

REASONS: Mapping[str, str] = {
    "Active": "Scaling decisions are based on the engines' metrics.",
    "AllowedBefore": (
        "The running revision is kept with a field that is no longer allowed; the message names it."
    ),
    "Attainable": "An idle engine keeps the objectives, or it has not been measured yet.",
    "AwaitingPromotion": "A user has to promote or abort the revision, or to resume its canary.",
    "BadConfig": "The model's config.json cannot be served.",
    "BadTokenizer": "The model's tokenizer cannot be read.",
    "BadWeights": "The model's weights are damaged or incomplete.",
    "CannotSplit": "The model cannot be split over the accelerators of a pod.",
    "ContextTooLong": "`spec.engine.maxModelLen` is more than the model supports.",
    "Discarding": "The pods of a revision that was given up finish their requests and terminate.",
    "Draining": "The pods of the previous revision finish their requests and terminate.",
    ENGINE_LOST: (
        "An engine pod was evicted, not admitted, or lost with its node; its successor is not ready yet."
    ),
    "EnginesReady": "The engine pods that are needed are ready.",
    FETCHING: "The pods fetch the model; the message has the progress.",
    "Found": "The model is there; the runtime checks it when it starts.",
    "Fits": "The model can be served, and fits into memory.",
    "Growing": "The promoted canary gets the pods that all of the traffic needs.",
    "HeldByOtherNamespace": HELD_BY_OTHER_NAMESPACE_MEANING,
    "HostPathNotAllowed": "The model is in a folder of the node that the operator does not allow.",
    "InvalidSpec": "The spec cannot be read; the message names the field.",
    "Judging": "A canary gets a share of the traffic and is compared with its control.",
    "KVCacheTooSmall": "The KV cache cannot hold one request of the longest length.",
    "MemoryTooSmall": "The engine's memory cannot hold the model.",
    "MetricUnreadable": "A metric of the canary cannot be read; the canary waits.",
    "MetricsMissing": "The engines' metrics cannot be read, so the replicas stay as they are or grow.",
    "ModelNameInUse": "Another service of the namespace had this model name first.",
    "ModelNotFound": "There is no model at `spec.model.uri`.",
    "NamesNotListed": (
        "The operator has not listed all routes and adapters yet; until then clients use NAMESPACE/NAME."
    ),
    "NoCanary": "Unknown, because no canary is being judged.",
    "NoDecision": "No scaling decision has been made yet.",
    "NoEngineReady": "No engine of the revisions with traffic is ready.",
    "NoEngines": "The revision has no engine pods yet.",
    "NoRevision": "No revision has traffic.",
    "NoTenants": "The cluster has no Tenant; any client may use the service unless gateways require one.",
    "NoSafetensors": "The model's weights are not in the safetensors format.",
    "NoTokenizer": "The model has no tokenizer.json.",
    "NodeCacheNotEnabled": "The service asks for the cache of nodes, which is not enabled.",
    "NotAModel": "There is no config.json at `spec.model.uri`.",
    "NotStalled": "Nothing requires a change of the spec by a user.",
    OOM_KILLED: "The kernel killed an engine for lack of memory, and it is not ready again.",
    "Passed": "The check of the model succeeded without a report.",
    "ObjectivesUnattainable": (
        "An engine misses an objective though it has no other request, so more replicas do not help."
    ),
    "Paused": "A user has paused the canary; it keeps its share of the traffic.",
    POD_FORBIDDEN: (
        "RBAC, pod security or a limit range forbids the pod, or a quota counts a resource of which the pod "
        "sets no limit."
    ),
    POD_TEMPLATE_REJECTED: "The API server refuses the pod template as invalid.",
    "PreflightFailed": "The check of the model failed without a report.",
    "PreflightLost": "The pod that checks the model was lost with its node; the check is repeated.",
    "PreflightPending": "The model has not been checked yet.",
    "PreflightRunning": "The model is being checked.",
    "ProgressDeadlineExceeded": (
        "Pods did not come up or end in time, and there is no other revision to return to. Taken back "
        "if they do later."
    ),
    "Progressing": "Fewer engine pods are ready than needed.",
    "Promoting": "The gateways move all of the traffic to the new revision.",
    "QuantizedAlready": "The model is quantized already, so it cannot be quantized again.",
    QUOTA_EXCEEDED: "A quota of the namespace has no room for the pod now; it is tried again.",
    "ReadFailed": "A file of the model cannot be read; the message names it and the user who has to read it.",
    "Readable": "The metrics of the canary can be read.",
    "Ready": "The service answers requests.",
    "Rejected": "The spec's revision was rolled back and is not tried again.",
    "Replacing": "Pods are replaced by the new revision's, a few at a time.",
    "RevisionPending": "The rollout of the spec's revision starts in a moment.",
    "RollingBack": "The gateways move all of the traffic back to the stable revision.",
    "ScaledToZero": (
        "No engine is wanted, as `spec.replicas` is 0, or as no request comes and `spec.scaling.minReplicas` "
        "is 0. `Ready` is True then: the service has all that its spec asks for."
    ),
    WAKING: (
        "A service that was at zero starts its first engine, and requests wait for it. `Ready` is False once "
        "the engine fails to start."
    ),
    "Serving": "Engines run, or receive traffic.",
    "Settled": "The spec is rolled out.",
    "DryRun": "Scaling decisions are recorded, and not applied.",
    "Mirroring": "A canary gets copies of requests; their responses are dropped.",
    "UnsupportedByRuntime": "The runtime has no such setting, or not with this value; the message names it.",
    "Stable": "The spec's revision receives all traffic.",
    "Stalled": "The condition Stalled is True and says why.",
    "Starting": "The pods of the new revision start.",
    "Stopping": "The pods of the old revision terminate before new ones start (Recreate).",
    "Tenants": "Only tenants with access to the model name use it; the message has their number.",
    "Terminating": "The service is being deleted. A finalizer, which the message names, keeps it.",
    "TemplateNotAllowed": "`spec.template` sets what the operator does not allow; the message names it.",
    "UnevenWidth": "The model's width cannot be split over the accelerators of a pod.",
    "Unknown": "The original reason is not valid in a condition; see the message.",
    "UnsupportedArchitecture": "The model's architecture cannot be served.",
    "UnsupportedQuantization": "The model's quantization cannot be read.",
    "Valid": "The spec can be served.",
    "Waiting": "A user has to promote or abort the revision.",
    "WeightsMismatch": "The weights do not belong to config.json.",
}

# The API server accepts only such reasons.
REASON_PATTERN = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
_MAX_REASON, _MAX_MESSAGE = 1024, 1000  # characters


@dataclass(frozen=True, slots=True)
class Condition:
    """A Kubernetes status condition without its times."""

    type: str
    status: Truth
    reason: str
    message: str

    def as_object(self) -> dict[str, str]:
        """The condition in the status's format.

        Reasons of pods and of preflights come from others. One that the API server would refuse, together
        with the whole status, becomes `Unknown`.
        """
        is_word = len(self.reason) <= _MAX_REASON and re.fullmatch(REASON_PATTERN, self.reason)
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason if is_word else "Unknown",
            "message": self.message[:_MAX_MESSAGE],
        }


def page() -> str:
    """The Markdown reference page of condition types and reasons."""
    lines = [
        "# Conditions",
        "",
        "Generated from `core/reconcile/condition_types.py` by `penstock docs`; do not edit.",
        *_types("an InferenceService", MEANINGS),
        "",
        "### Reasons",
        "",
        "The message about a model that was refused ends with the command that has it checked again, once",
        "the source, its Secret or its files are corrected.",
        "",
        "Further reasons come from Kubernetes, such as `ErrImagePull`, `CrashLoopBackOff`, `Unschedulable`",
        "and `FailedCreate`, from the check of the model, and from its source, such as `GatedModel`,",
        "`RevisionNotFound`, `DigestMismatch` and `NoSpace`.",
        *_reasons(REASONS),
        *_types("a ModelRoute", ROUTE_MEANINGS),
        "",
        "### Reasons of a route",
        *_reasons(ROUTE_REASONS),
        *_types("a LoraAdapter", ADAPTER_MEANINGS),
        "",
        "### Reasons of an adapter",
        "",
        "Further reasons of `Resolved` come from the engine, such as `AdapterNotFound`.",
        *_reasons(ADAPTER_REASONS),
        *_types("a Tenant", TENANT_MEANINGS),
        "",
        "### Reasons of a tenant",
        *_reasons(TENANT_REASONS),
    ]
    return "\n".join(lines) + "\n"


def _types(kind: str, meanings: Mapping[str, str]) -> list[str]:
    return ["", f"## Conditions of {kind}", "", *_table("type", "True means", meanings.items())]


def _reasons(meanings: Mapping[str, str]) -> list[str]:
    return ["", *_table("reason", "meaning", sorted(meanings.items()))]


def _table(header: str, meaning: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"| {header} | {meaning} |", "| --- | --- |", *(f"| `{k}` | {v} |" for k, v in rows)]
