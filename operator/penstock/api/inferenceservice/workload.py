"""Workload of a service: engines of one kind, with their resources, number and pod template."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from penstock.api.inferenceservice.engine import RULES as ENGINE_RULES
from penstock.api.inferenceservice.engine import Engine
from penstock.api.inferenceservice.resources import Resources
from penstock.api.inferenceservice.scaling import RULES as SCALING_RULES
from penstock.api.inferenceservice.scaling import Scaling
from penstock.api.inferenceservice.variants import RULES as VARIANTS_RULES
from penstock.api.inferenceservice.variants import Variant
from penstock.api.schema.defaults import default_of, operator_default, optional
from penstock.api.schema.labels import ANNOTATION_KEYS, LABEL_KEYS, LabelValue
from penstock.api.schema.lists import listed, map_by, unique_by
from penstock.api.schema.rules import DROP_NULL_ENTRIES, Model, Obeys, Rule
from penstock.core.spec.service import GROUP, MANAGED_LABEL, TERMINATION_OVERHEAD_S, ServiceSpec


def _not_reserved(field: str) -> Obeys:
    return Obeys(
        Rule(
            f"self.all(key, !key.startsWith('{GROUP}/') && key != '{MANAGED_LABEL}')",
            lambda keys: not any(k.startswith(f"{GROUP}/") or k == MANAGED_LABEL for k in keys),
            f"spec.template.metadata.{field} must not have {MANAGED_LABEL} or keys that begin with "
            f"{GROUP}/: Penstock selects its pods by them; remove them",
        )
    )


class PodMetadata(Model):
    """Labels and annotations of engine pods, in addition to those that Penstock sets."""

    labels: Annotated[
        dict[str, LabelValue], DROP_NULL_ENTRIES, LABEL_KEYS, _not_reserved("labels")
    ] = Field(default={}, description="Labels to add, such as team: search.", max_length=64)
    annotations: Annotated[
        dict[str, str], DROP_NULL_ENTRIES, ANNOTATION_KEYS, _not_reserved("annotations")
    ] = Field(
        default={},
        description="Annotations to add, such as example.com/owner: search.",
        max_length=64,
    )


class PodTemplate(Model):
    """Strategic-merge patch of the engine pods' template."""

    metadata: PodMetadata = Field(
        default=PodMetadata(), description="Labels and annotations to add."
    )
    spec: dict[str, Any] = Field(
        default={},
        description="Fields of the pod's spec to set or merge, such as priorityClassName: serving.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class Workload(Model):
    """Engines of one kind. Each replica is one engine."""

    RULES: ClassVar[tuple[Rule, ...]] = (*ENGINE_RULES, *SCALING_RULES, *VARIANTS_RULES)

    engine: Engine = Field(default=Engine(), description="Settings of each engine.")
    resources: Resources = Field(
        default=Resources(), description="Resources of each engine's container, as in Kubernetes."
    )
    variants: Annotated[list[Variant], unique_by("name")] = listed(
        "Kinds of nodes that engines may run on, each with its price. Penstock chooses "
        "the cheapest combination that meets the objectives as the load changes; the "
        "first variant is used until the load is known. Adding or removing a variant "
        "creates no new revision. Requires spec.objectives.",
        max_length=6,
        json_schema_extra=map_by("name"),
    )
    scaling: Scaling = Field(default=Scaling(), description="Number of replicas and its bounds.")
    replicas: int | None = optional(
        "Number of replicas in scaling mode External, which requires it, such as 2, and target of the "
        "scale subresource. Refused in other modes.",
        ge=0,
        le=1000,
    )
    termination_grace_period_seconds: int | None = optional(
        "Time in seconds that an engine pod has to terminate. Of these, "
        f"{TERMINATION_OVERHEAD_S} are for gateways to stop sending requests and for the program "
        "to end; running requests have the rest to finish. The template cannot shorten it.",
        ge=TERMINATION_OVERHEAD_S + 1,
        le=7200,
        json_schema_extra=operator_default(default_of(ServiceSpec, "termination_grace_s")),
    )
    template: PodTemplate = Field(
        default=PodTemplate(),
        description=(
            "Strategic-merge patch of the engine pods' template. The engine's container is "
            "named `engine`. Its args, if given, replace all that Penstock sets, and begin with `serve`. "
            "What would give pods more rights is refused unless the operator was started with "
            "--allow-unrestricted-templates."
        ),
    )
