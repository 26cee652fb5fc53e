"""serving.penstock.dev/v1alpha1: the InferenceService, the one source of its schema and defaults.

A field's description becomes its `kubectl explain` text. A model accepts what the API server accepts
of it, and nothing else. `json_schema_extra` carries what pydantic has no word for: list-map keys and
formats.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.api.objectives import Objectives
from penstock.api.resources import Resources
from penstock.api.rollout import RULES as ROLLOUT_RULES
from penstock.api.rollout import Rollout
from penstock.api.rules import Model, Obeys, Rule, matches
from penstock.api.status import InferenceServiceStatus
from penstock.api.variants import RULES as VARIANTS_RULES
from penstock.api.variants import Variant
from penstock.core.formats.quantity import DURATION_PATTERN, QUANTITY_PATTERN
from penstock.core.spec.service import MANAGED_LABEL

GROUP = "serving.penstock.dev"
VERSION = "v1alpha1"
KIND = "InferenceService"
PLURAL = "inferenceservices"
API_VERSION = f"{GROUP}/{VERSION}"

CLAIM_PATTERN = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^/]+)*$"


class ModelSource(Model):
    """The model to serve."""

    uri: Annotated[
        str,
        Obeys(
            Rule(
                "self.startsWith('pvc://') || self.startsWith('file:///')",
                lambda uri: uri.startswith(("pvc://", "file:///")),
                "spec.model.uri must start with pvc://CLAIM/PATH or file:///PATH",
            ),
            Rule(
                f"!self.startsWith('pvc://') || self.matches('{CLAIM_PATTERN}')",
                lambda uri: not uri.startswith("pvc://") or bool(re.fullmatch(CLAIM_PATTERN, uri)),
                "spec.model.uri must name a claim: pvc://CLAIM or pvc://CLAIM/PATH, without a "
                "trailing slash",
            ),
            Rule(
                "!self.matches('(^|/)[.][.](/|$)')",
                lambda uri: ".." not in uri.split("/"),
                "spec.model.uri must not contain '..'; write the folder's own path",
            ),
        ),
    ] = Field(
        description=(
            "Where the model's folder is: pvc://CLAIM/PATH for a PersistentVolumeClaim of the same "
            "namespace, or file:///PATH for a folder that every node has. It must hold config.json, "
            "safetensors weights and tokenizer.json."
        ),
        min_length=8,
        max_length=512,
    )
    served_name: Annotated[
        str | None,
        Obeys(
            matches(
                r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
                "spec.model.servedName may have letters, digits, '.', '_' and '-', and must begin "
                "and end with a letter or digit",
            )
        ),
    ] = Field(
        default=None,
        description=(
            "The name that clients send as `model`. Defaults to the name of this object. One "
            "namespace can serve a name once."
        ),
        min_length=1,
        max_length=128,
    )


class KVCache(Model):
    """The memory that holds keys and values of the tokens in use."""

    memory: Annotated[
        str | None,
        Obeys(
            matches(
                QUANTITY_PATTERN,
                "spec.engine.kvCache.memory must be a quantity such as 512Mi or 4Gi",
            )
        ),
    ] = Field(
        default=None,
        description=(
            "Memory for the KV cache, such as 512Mi. Without it, what memoryUtilization leaves "
            "after weights and working memory is taken."
        ),
        max_length=20,
    )
    memory_utilization: Annotated[
        float,
        Obeys(
            # The API server compares a whole number with a fraction as whole numbers: 0 passes `ge`.
            Rule(
                "self >= 0.05",
                lambda part: part >= 0.05,
                "spec.engine.kvCache.memoryUtilization must be at least 0.05, such as 0.9",
            )
        ),
    ] = Field(
        default=0.9,
        description="The part of the pod's or the accelerator's memory that the engine may use.",
        ge=0.05,
        le=1.0,
    )
    block_size: Annotated[
        int,
        Obeys(
            Rule(
                "self in [8, 16, 32, 64, 128]",
                lambda tokens: tokens in (8, 16, 32, 64, 128),
                "spec.engine.kvCache.blockSize must be 8, 16, 32, 64 or 128",
            )
        ),
    ] = Field(
        default=16,
        description=(
            "Tokens in one block of the KV cache. Only whole blocks are shared between requests."
        ),
    )
    prefix_caching: bool = Field(
        default=True,
        description="Keep the blocks of finished requests and share them with requests that begin alike.",
    )


class Engine(Model):
    """How each engine runs the model."""

    max_model_len: int | None = Field(
        default=None,
        description=(
            "The most tokens that one request may have, prompt and answer together. Defaults to "
            "what the model was made for."
        ),
        ge=16,
        le=10_000_000,
    )
    max_num_seqs: int = Field(
        default=64, description="The most requests that run at the same time.", ge=1, le=4096
    )
    max_num_batched_tokens: int = Field(
        default=512,
        description=(
            "The token budget of one step. Larger finishes prompts sooner, smaller keeps the time "
            "between two tokens of running requests short."
        ),
        ge=16,
        le=131072,
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="The number type of weights and KV cache. auto is what the hardware computes natively.",
    )
    seed: int | None = Field(
        default=None,
        description=(
            "Seed of the generator that gives requests without a seed one. With it every replica gives "
            "the same seeds, and again after each restart. Default: random for each engine."
        ),
        ge=0,
        le=2**31 - 1,
    )
    kv_cache: KVCache = Field(default=KVCache(), description="The KV cache.")


class Scaling(Model):
    """Number of engines, and how it is scaled."""

    mode: Literal["Active", "Shadow", "External"] = Field(
        default="Active",
        description=(
            "Active sets the number of replicas. Shadow decides and records, and changes nothing. "
            "External leaves the number to spec.replicas, for kubectl scale, an HPA or KEDA."
        ),
    )
    min_replicas: int = Field(
        default=1, description="Never fewer replicas than this.", ge=1, le=1000
    )
    max_replicas: int = Field(
        default=1, description="Never more replicas than this.", ge=1, le=1000
    )
    kv_utilization_target: Annotated[
        float,
        Obeys(
            Rule(
                "self >= 0.1",
                lambda part: part >= 0.1,
                "spec.scaling.kvUtilizationTarget must be at least 0.1, such as 0.75",
            )
        ),
    ] = Field(
        default=0.75,
        description=(
            "How full the KV cache of a replica should be at most, as a fraction. Services with "
            "objectives are sized by those instead."
        ),
        ge=0.1,
        le=0.95,
    )
    queue_target: int = Field(
        default=4,
        description=(
            "Waiting requests for each replica that are no reason for another one. Services with "
            "objectives are sized by those instead."
        ),
        ge=1,
        le=10_000,
    )
    scale_down_delay: Annotated[
        str,
        Obeys(
            matches(
                DURATION_PATTERN, "spec.scaling.scaleDownDelay must be a duration such as 60s or 5m"
            )
        ),
    ] = Field(
        default="60s",
        description="How long fewer replicas must have been enough before one is removed.",
        max_length=20,
    )
    priority: int = Field(
        default=0,
        description=(
            "Who goes first when a ResourceQuota leaves fewer accelerators than the services of the "
            "namespace want: higher first, after everybody's minReplicas. Services of one priority "
            "share evenly."
        ),
        ge=-1_000_000,
        le=1_000_000,
    )


class Drain(Model):
    """How an engine ends."""

    seconds: int = Field(
        default=30,
        description="How long requests that are running may take to finish when their pod is removed.",
        ge=1,
        le=3600,
    )


def _not_reserved(field: str) -> Obeys:
    return Obeys(
        Rule(
            f"self.all(key, !key.startsWith('{GROUP}/') && key != '{MANAGED_LABEL}')",
            lambda keys: not any(k.startswith(f"{GROUP}/") or k == MANAGED_LABEL for k in keys),
            f"spec.template.metadata.{field} must not have {MANAGED_LABEL} or keys that begin with "
            f"{GROUP}/: Penstock knows its pods by them; remove those",
        )
    )


class PodMetadata(Model):
    """Labels and annotations of engine pods, beside those that Penstock gives them."""

    labels: Annotated[dict[str, str], _not_reserved("labels")] = Field(
        default={}, description="Labels to add.", max_length=64
    )
    annotations: Annotated[dict[str, str], _not_reserved("annotations")] = Field(
        default={}, description="Annotations to add.", max_length=64
    )


class PodTemplate(Model):
    """A strategic-merge patch of a pod template."""

    metadata: PodMetadata = Field(
        default=PodMetadata(), description="Labels and annotations to add."
    )
    spec: dict[str, Any] = Field(
        default={},
        description="Fields of the pod's spec to set or to merge.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class InferenceServiceSpec(Model):
    """Desired state of the service."""

    RULES = (
        Rule(
            "self.scaling.minReplicas <= self.scaling.maxReplicas",
            lambda spec: spec.scaling.min_replicas <= spec.scaling.max_replicas,
            "spec.scaling.minReplicas must not be greater than spec.scaling.maxReplicas; raise "
            "maxReplicas",
        ),
        Rule(
            "self.scaling.mode == 'External' || !has(self.replicas)",
            lambda spec: spec.scaling.mode == "External" or spec.replicas is None,
            "spec.replicas counts only with spec.scaling.mode External; remove it, or set the mode",
        ),
        Rule(
            "self.engine.maxNumBatchedTokens >= self.engine.maxNumSeqs",
            lambda spec: spec.engine.max_num_batched_tokens >= spec.engine.max_num_seqs,
            "spec.engine.maxNumBatchedTokens must not be smaller than spec.engine.maxNumSeqs: every "
            "running request needs a token of each step",
        ),
        Rule(
            "!has(self.objectives) || self.scaling.mode != 'External'",
            lambda spec: spec.objectives is None or spec.scaling.mode != "External",
            "spec.objectives counts only with spec.scaling.mode Active or Shadow; remove it, or set "
            "the mode",
        ),
        Rule(
            "!has(self.objectives) || (self.scaling.kvUtilizationTarget == 0.75 && "
            "self.scaling.queueTarget == 4)",
            lambda spec: (
                spec.objectives is None
                or (spec.scaling.kv_utilization_target, spec.scaling.queue_target) == (0.75, 4)
            ),
            "spec.scaling.kvUtilizationTarget and queueTarget count only without spec.objectives; "
            "remove them",
        ),
        *ROLLOUT_RULES,
        *VARIANTS_RULES,
    )

    model: ModelSource = Field(description="The model to serve.")
    engine: Engine = Field(default=Engine(), description="How each engine runs the model.")
    resources: Resources = Field(
        default=Resources(), description="What each engine pod asks for, as request and limit."
    )
    variants: list[Variant] = Field(
        default=[],
        description=(
            "Kinds of nodes that engines may run on, each at its price. The mix that holds the "
            "objectives for the least price is chosen as the load changes; the first one serves before "
            "anything is known. Adding or removing one is no new revision."
        ),
        max_length=6,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    objectives: Objectives | None = Field(
        default=None,
        description=(
            "How soon answers must come. Without it replicas follow the use of the KV cache and the "
            "queues."
        ),
    )
    scaling: Scaling = Field(default=Scaling(), description="How many engines there are.")
    replicas: int | None = Field(
        default=None,
        description=(
            "The number of replicas with scaling.mode External, and the target of this object's scale "
            "subresource. Other modes refuse it."
        ),
        ge=0,
        le=1000,
    )
    rollout: Rollout = Field(
        default=Rollout(), description="How a new revision takes over from the old."
    )
    drain: Drain = Field(default=Drain(), description="How an engine ends.")
    template: PodTemplate = Field(
        default=PodTemplate(),
        description=(
            "A strategic-merge patch of the engine pods. The engine's container is called `engine`."
        ),
    )


class InferenceService(Model):
    """A language model, served by as many engines as it needs."""

    spec: InferenceServiceSpec = Field(description="What is wanted.")
    status: InferenceServiceStatus = Field(
        default=InferenceServiceStatus(), description="What is there. Written by the operator."
    )
