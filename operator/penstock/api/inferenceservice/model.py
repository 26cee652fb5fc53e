"""Schema of spec.model: where the model comes from, and its name."""

from typing import Annotated

from pydantic import Field

from penstock.api.schema.defaults import core_default, optional
from penstock.api.schema.model_uri import FETCHED_FORMS, MAX_URI_LENGTH, MIN_URI_LENGTH, model_uri
from penstock.api.schema.names import MAX_MODEL_NAME_LENGTH, model_name_at
from penstock.api.schema.references import ObjectName, SecretRef
from penstock.api.schema.rules import Model, Rule
from penstock.api.schema.scalars import Bytes
from penstock.core.spec.service import CacheType, ServiceSpec


class ModelCache(Model):
    """Claim, or folder of each node, that keeps the files of fetched models for later pods."""

    RULES = (
        Rule(
            "has(self.claimName) || has(self.type) && self.type == 'Node'",
            lambda cache: cache.claim_name is not None or cache.type == "Node",
            "spec.model.cache.claimName must be set, unless type is Node",
        ),
        Rule(
            "!has(self.claimName) || !has(self.type) || self.type != 'Node'",
            lambda cache: cache.claim_name is None or cache.type != "Node",
            "spec.model.cache.claimName must not be set with type Node; remove one of them",
        ),
        Rule(
            "!has(self.sizeLimit) || !has(self.type) || self.type != 'Node'",
            lambda cache: cache.size_limit is None or cache.type != "Node",
            "spec.model.cache.sizeLimit must not be set with type Node, whose size is the chart value "
            "nodeCache.sizeLimit; remove it",
        ),
    )

    type: CacheType | None = optional(
        "Claim: the claim in claimName. Node: the cache that Penstock keeps on each node for all services, "
        "which pods can only read. It requires the chart value nodeCache.enabled. A model that it does not "
        "fetch is fetched into a volume of the pod.",
        json_schema_extra=core_default(ServiceSpec, "model_cache_type"),
    )
    claim_name: ObjectName | None = optional(
        "Name of a PersistentVolumeClaim in the same namespace, such as model-cache. Pods on several nodes "
        "need access mode ReadWriteMany. Required with type Claim.",
        min_length=1,
        max_length=253,
    )
    size_limit: Bytes | None = optional(
        "Size limit of the claim's cache, such as 200Gi. The least recently used models that no pod uses are "
        "evicted to keep it. Default: the size of the volume."
    )


class ModelSource(Model):
    """The model to serve."""

    uri: Annotated[str, model_uri("spec.model.uri")] = Field(
        description=(
            f"Location of the model: {FETCHED_FORMS}, which pods "
            "fetch; pvc://CLAIM/PATH in a PersistentVolumeClaim of the same namespace, such as "
            "pvc://models/llama; or file:///PATH on every node, if the operator was started with "
            "--allowed-host-path for it. It must have config.json, safetensors weights and tokenizer.json, "
            "or one GGUF file."
        ),
        min_length=MIN_URI_LENGTH,
        max_length=MAX_URI_LENGTH,
    )
    name: Annotated[str | None, model_name_at("spec.model.name")] = optional(
        "Model name that clients send as `model`. Must be unique in the namespace. "
        "Default: metadata.name.",
        min_length=1,
        max_length=MAX_MODEL_NAME_LENGTH,
    )
    secret_ref: SecretRef | None = optional(
        "Secret with credentials for the sources of the model and of the draft model, mounted where they "
        "are fetched. Its keys are names of variables, such as HF_TOKEN or AWS_ACCESS_KEY_ID, or files, "
        "such as .dockerconfigjson. Default: none."
    )
    cache: ModelCache | None = optional(
        "Claim, or folder of each node, that keeps the files of fetched models for later pods. Adapters that "
        "are fetched require a claim: engines read them there. Default: each pod fetches its model into a "
        "volume of its own."
    )
