"""Condition types of a LoraAdapter, and what their reasons mean."""

from collections.abc import Mapping

# Meaning of the condition ModelNameConflict of routes and adapters, and of its reason for all kinds.
MODEL_NAME_CONFLICT_MEANING = (
    "The model name alone leads to another namespace, which had it first; clients use NAMESPACE/NAME. "
    "Left out otherwise."
)
HELD_BY_OTHER_NAMESPACE_MEANING = "An object of another namespace had the model name first."

ADAPTER_MEANINGS: Mapping[str, str] = {
    "Accepted": "The service takes adapters, and requests reach this one: by its model name, or by a route.",
    "Resolved": (
        "An engine has read this version of the adapter. Unknown until one has tried. False with the reason "
        "of its source, such as `GatedModel`, if its files cannot be fetched."
    ),
    "Loaded": "As many engines as wanted have the adapter in memory; that may be none with policy OnDemand.",
    "RolledOut": "The version of the spec has all of the traffic.",
    "PoolReady": (
        "The engines that `spec.pool` asks for serve the adapter. Only for adapters that have or had a "
        "dedicated pool."
    ),
    "Reconciling": (
        "A version is being rolled out, the pool changes, or copies that the spec asks for are being loaded "
        "or wait, such as for a slot."
    ),
    "Stalled": "No progress is to be expected without a change of the adapter or its service by a person.",
    "Ready": (
        "Requests for the adapter are answered: from memory, after a load on demand, or by the engine that "
        "they start if the service is at zero."
    ),
    "ModelNameConflict": MODEL_NAME_CONFLICT_MEANING,
}
# Phases of a rollout are reasons too; see rollout-phases.md.
ADAPTER_REASONS: Mapping[str, str] = {
    "Accepted": "The service takes the adapter.",
    "AllLoaded": "As many copies as wanted are loaded.",
    "AwaitingPromotion": "A user has to resume, promote or abort the rollout of the version.",
    "CacheRequired": (
        "`spec.model.uri` is fetched, and the service has no `spec.model.cache` that its engines share."
    ),
    "CopyMissing": "The shared pool is to serve, but no engine of the service has the adapter in memory yet.",
    "EnginesStarting": "Engines of the dedicated pool start, or load the adapter.",
    "FetchLost": "The pod that fetched the version was lost with its node, and is replaced.",
    "Fetching": (
        "The files of the version of the spec are fetched into the service's cache; of RolledOut: another "
        "version serves meanwhile."
    ),
    "HeldByOtherNamespace": HELD_BY_OTHER_NAMESPACE_MEANING,
    "LoadFailed": "The last load failed, and is tried again; the message has the engine's reason.",
    "Loading": "Copies are being loaded.",
    "LoraNotEnabled": "The service has no `spec.engine.lora`, and no engine is left that takes adapters.",
    "ModelNameInUse": (
        "A route, a service or an older adapter of the namespace has this model name, and no route leads to "
        "the adapter."
    ),
    "NoAdapterSlot": (
        "No engine has a free slot, and the copies in all slots are worth more or pinned; of RolledOut: a "
        "minute has passed, and the new version has no copy."
    ),
    "NoEngines": "No engine that takes adapters is ready.",
    "NotRead": "No engine has read this version of the adapter yet.",
    "NotStalled": "Nothing requires a change of the adapter by a person.",
    "OnDemand": "No copy is wanted at present: engines load the adapter when requests come.",
    "Ready": "Requests for the adapter are answered.",
    "Refused": "The engine refuses the adapter without a reason of its own; see the message.",
    "Rejected": "The version of the spec was rejected; the message says why. Another one serves.",
    "Resolved": "An engine has read this version of the adapter.",
    "RevisionPending": "The rollout of the version of the spec starts in a moment.",
    "RuntimeUnsupported": "Engines of the runtime Custom load no adapters.",
    "ScaledToZero": "The service has no engine until a request comes. A request for the adapter starts one.",
    "ServiceDedicated": "The service is the dedicated pool of another adapter.",
    "ServiceNameInUse": (
        "The dedicated pool cannot be created: its name is that of another InferenceService. The shared pool "
        "serves."
    ),
    "ServiceNotFound": "The service does not exist; it may still be created.",
    "ServiceRefused": "The API server refused the InferenceService of the dedicated pool; see the message.",
    "ServiceRollout": "The dedicated pool is created when the present spec of the service is rolled out.",
    "ServiceStalled": (
        "The engines of the dedicated pool do not come up: its InferenceService is Stalled, and the message "
        "says why. The shared pool serves."
    ),
    "Serving": "The engines of the pool that `spec.pool` asks for serve the adapter.",
    "Stable": "No rollout is in progress.",
    "Settled": "No copy that the spec asks for is missing. Copies that demand asks for come and go.",
    "SourceNotMounted": "The engines do not mount the volume of `spec.model.uri`.",
    "VersionRollout": "The pool changes when the rollout of a version has ended.",
    "Waking": "The first engine of a service that was at zero starts. Requests for the adapter wait for it.",
}
