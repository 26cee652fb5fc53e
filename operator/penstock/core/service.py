"""An InferenceService as decisions see it: flat, complete, in plain units."""

from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.core.rollout.spec import RolloutSpec
from penstock.core.rule import Objectives

Object = dict[str, Any]

GROUP = "serving.penstock.dev"
SERVICE_LABEL = f"{GROUP}/service"
REVISION_LABEL = f"{GROUP}/revision"
ROLE_LABEL = f"{GROUP}/role"
COHORT_LABEL = f"{GROUP}/cohort"
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
class ServiceSpec:
    """One service. Optional fields are those that the engine works out by itself.

    shape: the parts of the spec that make its pods, as the user wrote them.
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
    seed: int
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

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name
