"""Schema of spec.model: where the model comes from, and its name."""

from typing import Annotated

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.model_uri import model_uri
from penstock.api.schema.names import model_name_at
from penstock.api.schema.references import ObjectName, SecretRef
from penstock.api.schema.rules import Model
from penstock.api.schema.scalars import Bytes


class ModelCache(Model):
    """Claim that keeps the files of fetched models for later pods."""

    claim_name: ObjectName = Field(
        description=(
            "Name of a PersistentVolumeClaim in the same namespace, such as model-cache. Pods on several "
            "nodes need access mode ReadWriteMany."
        ),
        min_length=1,
        max_length=253,
    )
    size_limit: Bytes | None = optional(
        "Size at which the cache is held by removing models that were not used for longest and that no pod "
        "uses, such as 200Gi. Default: the size of the volume."
    )


class ModelSource(Model):
    """The model to serve."""

    uri: Annotated[str, model_uri("spec.model.uri")] = Field(
        description=(
            "Location of the model: hf://ORG/NAME@REVISION, s3://BUCKET/PATH, gs://BUCKET/PATH, "
            "az://CONTAINER/PATH, oci://HOST/NAME:TAG or https://HOST/PATH#sha256=DIGEST, which pods "
            "fetch; pvc://CLAIM/PATH in a PersistentVolumeClaim of the same namespace, such as "
            "pvc://models/llama; or file:///PATH on every node, if the operator was started with "
            "--allowed-host-path for it. It must have config.json, safetensors weights and tokenizer.json, "
            "or one GGUF file."
        ),
        min_length=8,
        max_length=512,
    )
    name: Annotated[str | None, model_name_at("spec.model.name")] = optional(
        "Model name that clients send as `model`. Must be unique in the namespace. "
        "Default: metadata.name.",
        min_length=1,
        max_length=128,
    )
    secret_ref: SecretRef | None = optional(
        "Secret with credentials for the sources of the model and of the draft model, mounted where they "
        "are fetched. Its keys are names of variables, such as HF_TOKEN or AWS_ACCESS_KEY_ID, or files, "
        "such as .dockerconfigjson. Default: none."
    )
    cache: ModelCache | None = optional(
        "Claim that keeps the files of fetched models for later pods. Adapters that are fetched require it: "
        "engines read them there. Default: each pod fetches its model into a volume of its own."
    )
