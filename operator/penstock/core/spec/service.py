"""An InferenceService as decisions see it: flat, complete, in plain units."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.core.formats.strategic_merge import merge
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.rollout import RolloutSpec

Object = dict[str, Any]

GROUP = "serving.penstock.dev"
SERVICE_LABEL = f"{GROUP}/service"
REVISION_LABEL = f"{GROUP}/revision"
ROLE_LABEL = f"{GROUP}/role"
COHORT_LABEL = f"{GROUP}/cohort"
VARIANT_LABEL = f"{GROUP}/variant"
# An annotation of Deployments: the hash of the pod template that was applied last.
TEMPLATE_HASH = f"{GROUP}/template-hash"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "penstock"
SERVE, PREFLIGHT, EVALUATION = "serve", "preflight", "evaluation"
# Pods of the stable revision that a canary is compared with; all others have no cohort.
CONTROL = "control"

ENGINE_CONTAINER = "engine"
EVALUATION_CONTAINER = "evaluation"
ENGINE_PORT = 8000
ENGINE_PORT_NAME = "http"

ScalingMode = Literal["Active", "Shadow", "External"]


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """What bounds and steers the number of replicas. objectives: None where the KV cache does.
    priority: where accelerators do not suffice for all services, higher first."""

    mode: ScalingMode
    min_replicas: int
    max_replicas: int
    kv_utilization_target: float
    queue_target: int
    scale_down_delay_s: float
    objectives: Objectives | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """One kind of nodes that a service may run on. price_per_hour: of a replica."""

    name: str
    cpu: str
    memory: str
    accelerator: tuple[str, int] | None
    price_per_hour: float
    min_replicas: int
    max_replicas: int
    node_selector: Object = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One service. Optional fields are those that the engine works out by itself.

    variants: what its pods may run on instead of cpu, memory and accelerator. shape: the parts of the
    spec that make its pods, as the user wrote them.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created_at: str
    served_name: str
    model_uri: str
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    dtype: str
    seed: int | None
    kv_memory_bytes: int | None
    memory_utilization: float
    block_size: int
    prefix_caching: bool
    cpu: str
    memory: str
    accelerator: tuple[str, int] | None
    scaling: ScalingSpec
    external_replicas: int
    drain_s: int
    template: Object = field(default_factory=dict)
    rollout: RolloutSpec = field(default_factory=RolloutSpec)
    shape: Object = field(default_factory=dict)
    variants: tuple[VariantSpec, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def placed(self) -> "dict[str, ServiceSpec]":
        """By variant, the service as it would be with that one alone; "" where there are none."""
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
            cpu=variant.cpu,
            memory=variant.memory,
            accelerator=variant.accelerator,
            template=merge(self.template, {"spec": pod}) if pod else self.template,
        )
