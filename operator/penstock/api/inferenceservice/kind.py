"""serving.penstock.dev/v1alpha1: the InferenceService, the one source of its schema and defaults.

A field's description becomes its `kubectl explain` text. A model accepts what the API server accepts
of it, and nothing else. `json_schema_extra` carries what pydantic has no word for: list-map keys and
formats.
"""

from pydantic import Field

from penstock.api.inferenceservice.model import ModelSource
from penstock.api.inferenceservice.objectives import Objectives
from penstock.api.inferenceservice.prices import Prices
from penstock.api.inferenceservice.rollout import Rollout
from penstock.api.inferenceservice.runtime import Runtime
from penstock.api.inferenceservice.status import InferenceServiceStatus
from penstock.api.inferenceservice.tracing import Tracing
from penstock.api.inferenceservice.workload import Workload
from penstock.api.schema.defaults import optional
from penstock.api.schema.rules import Model, Rule

KIND = "InferenceService"
PLURAL = "inferenceservices"


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
        Rule(
            "!has(self.rollout.atZero) || self.scaling.minReplicas == 0",
            lambda spec: spec.rollout.at_zero is None or spec.scaling.min_replicas == 0,
            "spec.rollout.atZero requires spec.scaling.minReplicas 0; set it, or remove atZero",
        ),
        Rule(
            # Another rule refuses spec.runtime.custom with another type.
            "!has(self.runtime) || self.runtime.type != 'Custom' || !has(self.runtime.custom) || "
            "has(self.runtime.custom.metrics) || self.scaling.mode == 'External'",
            lambda spec: (
                spec.runtime is None
                or spec.runtime.type != "Custom"
                or spec.runtime.custom is None
                or spec.runtime.custom.metrics is not None
                or spec.scaling.mode == "External"
            ),
            "a runtime without metrics cannot be scaled by them: set spec.runtime.custom.metrics, or "
            "spec.scaling.mode External",
        ),
    )

    model: ModelSource = Field(description="The model to serve.")
    runtime: Runtime | None = optional("The program that serves the model. Default: type Penstock.")
    tracing: Tracing | None = optional(
        "OpenTelemetry traces of requests in engines. Default: none."
    )
    objectives: Objectives | None = optional(
        "Latency objectives. With them, replicas are sized to meet the objectives; "
        "without them, by KV-cache use and queue length."
    )
    prices: Prices | None = optional(
        "Prices of tokens, by which `penstock usage` shows costs. Default: none."
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
