"""serving.penstock.dev/v1alpha1: the InferenceService, the one source of its schema and defaults.

A field's description becomes its `kubectl explain` text. A model accepts what the API server accepts
of it, and nothing else. `json_schema_extra` carries what pydantic has no word for: list-map keys and
formats.
"""

import re
from typing import Annotated, Any

from pydantic import Field

from penstock.api.defaults import default_of, operator_default
from penstock.api.engine import RULES as ENGINE_RULES
from penstock.api.engine import Engine
from penstock.api.lists import map_by, unique_by
from penstock.api.objectives import Objectives
from penstock.api.resources import Resources
from penstock.api.rollout import Rollout
from penstock.api.rules import DROP_NULL_ENTRIES, Model, Obeys, Rule, matches
from penstock.api.scaling import RULES as SCALING_RULES
from penstock.api.scaling import Scaling
from penstock.api.status import InferenceServiceStatus
from penstock.api.variants import RULES as VARIANTS_RULES
from penstock.api.variants import Variant
from penstock.core.spec.service import MANAGED_LABEL, TERMINATION_OVERHEAD_S, ServiceSpec

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
            "Location of the model's folder: pvc://CLAIM/PATH in a PersistentVolumeClaim of "
            "the same namespace, or file:///PATH on every node. The folder must contain "
            "config.json, safetensors weights and tokenizer.json, or one GGUF file."
        ),
        min_length=8,
        max_length=512,
    )
    name: Annotated[
        str | None,
        Obeys(
            matches(
                r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
                "spec.model.name may have letters, digits, '.', '_' and '-', and must begin "
                "and end with a letter or digit",
            )
        ),
    ] = Field(
        default=None,
        description=(
            "Model name that clients send as `model`. Must be unique in the namespace. "
            "Default: metadata.name."
        ),
        min_length=1,
        max_length=128,
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
    """Labels and annotations of engine pods, in addition to those that Penstock sets."""

    labels: Annotated[dict[str, str], DROP_NULL_ENTRIES, _not_reserved("labels")] = Field(
        default={}, description="Labels to add.", max_length=64
    )
    annotations: Annotated[dict[str, str], DROP_NULL_ENTRIES, _not_reserved("annotations")] = Field(
        default={}, description="Annotations to add.", max_length=64
    )


class PodTemplate(Model):
    """Strategic-merge patch of the engine pods' template."""

    metadata: PodMetadata = Field(
        default=PodMetadata(), description="Labels and annotations to add."
    )
    spec: dict[str, Any] = Field(
        default={},
        description="Fields of the pod's spec to set or merge.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class InferenceServiceSpec(Model):
    """Desired state of the service."""

    RULES = (
        *ENGINE_RULES,
        *SCALING_RULES,
        *VARIANTS_RULES,
    )

    model: ModelSource = Field(description="The model to serve.")
    engine: Engine = Field(default=Engine(), description="Settings of each engine.")
    resources: Resources = Field(
        default=Resources(), description="Resources of each engine's container, as in Kubernetes."
    )
    variants: Annotated[list[Variant], unique_by("name")] = Field(
        default=[],
        description=(
            "Kinds of nodes that engines may run on, each with its price. Penstock chooses "
            "the cheapest combination that meets the objectives as the load changes; the "
            "first variant is used until the load is known. Adding or removing a variant "
            "creates no new revision. Requires spec.objectives."
        ),
        max_length=6,
        json_schema_extra=map_by("name"),
    )
    objectives: Objectives | None = Field(
        default=None,
        description=(
            "Latency objectives. With them, replicas are sized to meet the objectives; "
            "without them, by KV-cache use and queue length."
        ),
    )
    scaling: Scaling = Field(default=Scaling(), description="Number of replicas and its bounds.")
    replicas: int | None = Field(
        default=None,
        description=(
            "Number of replicas in scaling mode External, which requires it, and target of the "
            "scale subresource. Refused in other modes."
        ),
        ge=0,
        le=1000,
    )
    rollout: Rollout = Field(
        default=Rollout(), description="How a new revision replaces the old one."
    )
    termination_grace_period_seconds: int | None = Field(
        default=None,
        description=(
            "Time in seconds that an engine pod has to terminate. Of these, "
            f"{TERMINATION_OVERHEAD_S} are for gateways to stop sending requests and for the program "
            "to end; running requests have the others to finish."
        ),
        ge=TERMINATION_OVERHEAD_S + 1,
        le=7200,
        json_schema_extra=operator_default(default_of(ServiceSpec, "termination_grace_s")),
    )
    template: PodTemplate = Field(
        default=PodTemplate(),
        description=(
            "Strategic-merge patch of the engine pods' template. The engine's container is "
            "named `engine`. Its args, if given, replace all that Penstock sets, and begin with `serve`."
        ),
    )


class InferenceService(Model):
    """A language model served by a scaled set of engines."""

    spec: InferenceServiceSpec = Field(description="Desired state.")
    status: InferenceServiceStatus = Field(
        default=InferenceServiceStatus(), description="Observed state, written by the operator."
    )
