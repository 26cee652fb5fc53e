"""serving.penstock.dev/v1alpha1: the InferenceService, the one source of its schema and defaults.

A field's description becomes its `kubectl explain` text. A model accepts what the API server accepts
of it, and nothing else. `json_schema_extra` carries what pydantic has no word for: list-map keys and
formats.
"""

import re
from typing import Annotated

from pydantic import Field

from penstock.api.objectives import Objectives
from penstock.api.rollout import Rollout
from penstock.api.rules import Model, Obeys, Rule, matches
from penstock.api.status import InferenceServiceStatus
from penstock.api.workload import Workload
from penstock.core.spec.service import GROUP

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
            "the same namespace, or file:///PATH on every node, if the operator was started "
            "with --allowed-host-path for it. The folder must contain "
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


class InferenceServiceSpec(Workload):
    """Desired state of the service."""

    RULES = (
        *Workload.RULES,
        Rule(
            "!has(self.objectives) || self.scaling.mode != 'External'",
            lambda spec: spec.objectives is None or spec.scaling.mode != "External",
            "spec.objectives requires spec.scaling.mode Active or DryRun; remove it, or set the "
            "mode",
        ),
        Rule(
            "!has(self.objectives) || !has(self.scaling.targets)",
            lambda spec: spec.objectives is None or spec.scaling.targets is None,
            "spec.scaling.targets and spec.objectives must not both be set; remove one of them",
        ),
        Rule(
            "!has(self.variants) || size(self.variants) == 0 || has(self.objectives)",
            lambda spec: not spec.variants or spec.objectives is not None,
            "spec.variants requires spec.objectives; set them, or remove the variants",
        ),
    )

    model: ModelSource = Field(description="The model to serve.")
    objectives: Objectives | None = Field(
        default=None,
        description=(
            "Latency objectives. With them, replicas are sized to meet the objectives; "
            "without them, by KV-cache use and queue length."
        ),
    )
    rollout: Rollout = Field(
        default=Rollout(), description="How a new revision replaces the old one."
    )


class InferenceService(Model):
    """A language model served by a scaled set of engines."""

    spec: InferenceServiceSpec = Field(description="Desired state.")
    status: InferenceServiceStatus = Field(
        default=InferenceServiceStatus(), description="Observed state, written by the operator."
    )
