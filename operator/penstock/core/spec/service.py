"""An InferenceService as a flat record with all defaults applied, in base units (bytes, seconds)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.core.formats.strategic_merge import merge
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.settings import Settings

Object = dict[str, Any]

GROUP, VERSION = "serving.penstock.dev", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SERVICE_LABEL = f"{GROUP}/service"
REVISION_LABEL = f"{GROUP}/revision"
ROLE_LABEL = f"{GROUP}/role"
COHORT_LABEL = f"{GROUP}/cohort"
VARIANT_LABEL = f"{GROUP}/variant"
# Annotation: of Deployments the hash of the pod template that was applied last, of preflights that of what
# they check.
TEMPLATE_HASH = f"{GROUP}/template-hash"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "penstock"
SERVE, PREFLIGHT, EVALUATION = "serve", "preflight", "evaluation"
# Role of pods that fetch an adapter. They are children of a LoraAdapter, and have no label of a service.
ADAPTER_FETCH = "adapter-fetch"
# Cohort of the stable pods that a canary is compared with; all other pods have no cohort.
CONTROL = "control"

ENGINE_CONTAINER = "engine"
EVALUATION_CONTAINER = "evaluation"
ENGINE_PORT = 8000
ENGINE_PORT_NAME = "http"
# Ports of an engine that publishes block events: of the events, and of their replay.
EVENTS_PORT, EVENTS_REPLAY_PORT = 5557, 5558
EVENTS_PORT_NAME, EVENTS_REPLAY_PORT_NAME = "kv-events", "kv-replay"
# Names of volumes in engine pods.
MODEL_VOLUME, DRAFT_MODEL_VOLUME, CHAT_TEMPLATE_VOLUME = "model", "draft-model", "chat-template"
MODEL_CACHE_VOLUME, MODEL_SECRET_VOLUME = "model-cache", "model-secret"
MAX_ADAPTER_SOURCES = 8
ADAPTER_VOLUMES = tuple(f"adapters-{index}" for index in range(MAX_ADAPTER_SOURCES))

# Length of the preStop sleep in seconds. Gateways stop routing to a deleted pod within 1 s.
PRE_STOP_S = 3
# Part of the termination grace period in which no request runs, in seconds: the preStop sleep, and 10 s
# for the engine to exit before Kubernetes kills it.
TERMINATION_OVERHEAD_S = PRE_STOP_S + 10

# Place that keeps the files of fetched models for later pods: a claim, or a folder of each node.
CacheType = Literal["Claim", "Node"]
NODE_CACHE: CacheType = "Node"
ScalingMode = Literal["Active", "DryRun", "External"]


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """Scaling settings of a service."""

    mode: ScalingMode
    min_replicas: int
    max_replicas: int
    kv_utilization_target: float = 0.75  # fraction of each replica's KV cache
    queue_length_target: int = 4  # waiting requests per replica
    scale_down_delay_s: float = 60.0
    objectives: Objectives | None = None  # without them it scales by KV-cache use
    # Time without requests after which a service with min_replicas 0 has no replica. It is a few start-ups of
    # most engines: a shorter one starts engines again and again for people who pause.
    idle_after_s: float = 300.0
    quota_priority: int = 0  # services with a higher one get scarce accelerators first


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """A kind of nodes that a service may run on."""

    name: str
    resources: ResourceSpec
    price_per_hour: float  # of one replica
    min_replicas: int
    max_replicas: int
    node_selector: Object = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    accelerator_memory_bytes: int | None = None  # of one accelerator; None: read from the nodes


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """Spec of a service."""

    namespace: str
    name: str
    uid: str
    generation: int
    created_at: str
    model_name: str
    model_uri: str
    scaling: ScalingSpec
    external_replicas: int  # replicas in scaling mode External
    # Settings of fetched models: the Secret with the credentials, the claim that keeps files for later pods,
    # the size limit of this claim, and whether pods use the cache of their node in place of a claim
    model_secret: str | None = None
    model_cache_claim: str | None = None
    model_cache_bytes: int | None = None
    model_cache_type: CacheType = "Claim"
    # Settings of the operator for containers that fetch models: variables by name, of a mirror or a proxy,
    # and the folder of the cache on each node; None: nodes have no cache
    source_variables: Mapping[str, str] = field(default_factory=dict)
    node_cache_path: str | None = None
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    termination_grace_s: int = 45  # time in which a pod must have terminated
    settings: Settings = field(default_factory=dict)  # of engine, runtime and tracing
    template: Object = field(default_factory=dict)
    rollout: RolloutSpec = field(default_factory=RolloutSpec)
    # The parts of the user's spec that determine the pods, as written
    recorded_fields: Object = field(default_factory=dict)
    # Kinds of nodes, each with its own resources instead of the service's
    variants: tuple[VariantSpec, ...] = ()
    # Memory of the variant's accelerator; set for a service that is placed on a variant
    accelerator_memory_bytes: int | None = None

    @property
    def uses_node_cache(self) -> bool:
        """Whether the service asks for the cache of its pods' nodes."""
        return self.model_cache_type == NODE_CACHE

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def placed(self) -> "dict[str, ServiceSpec]":
        """The service with the resources and node selection of each variant, by variant name.

        A service without variants has the single key "".
        """
        if not self.variants:
            return {"": self}
        return {variant.name: self._on(variant) for variant in self.variants}

    def _on(self, variant: VariantSpec) -> "ServiceSpec":
        pod: Object = {}
        if variant.node_selector:
            pod["nodeSelector"] = variant.node_selector
        if variant.tolerations:
            pod["tolerations"] = list(variant.tolerations)
        return replace(
            self,
            resources=variant.resources,
            accelerator_memory_bytes=variant.accelerator_memory_bytes,
            template=merge(self.template, {"spec": pod}) if pod else self.template,
        )
