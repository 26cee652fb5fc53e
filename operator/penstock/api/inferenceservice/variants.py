"""Schema of spec.variants: the kinds of nodes that a service may run on, with their prices."""

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.api.inferenceservice.resources import Resources
from penstock.api.schema.defaults import optional
from penstock.api.schema.labels import LABEL_KEY, LABEL_KEYS, LabelValue
from penstock.api.schema.lists import ATOMIC, listed
from penstock.api.schema.rules import DROP_NULL_ENTRIES, Model, Obeys, Rule, matches
from penstock.api.schema.scalars import MAX_DECIMAL_LENGTH, Quantity, decimal
from penstock.core.spec.service import CONTROL

MIN_PRICE, MAX_PRICE = 0.0001, 1e6


def _fits_min_replicas(spec: Any) -> bool:
    least = sum(each.min_replicas for each in spec.variants)
    return bool(least <= spec.scaling.max_replicas)


def _have_unambiguous_names(spec: Any) -> bool:
    """Whether Deployment names are unique: REVISION-COHORT-VARIANT, where a cohort may be ""."""
    names = {each.name for each in spec.variants}
    return not any(f"{CONTROL}-{name}" in names for name in names)


RULES = (
    Rule(
        "!has(self.variants) || self.variants.all(each, "
        "self.variants.all(other, other.name != 'control-' + each.name))",
        _have_unambiguous_names,
        "a variant must not be named control- and the name of another variant, as the Deployments "
        "of a canary's control are; give it another name",
    ),
    Rule(
        "!has(self.variants) || "
        "self.variants.map(each, each.minReplicas).sum() <= self.scaling.maxReplicas",
        _fits_min_replicas,
        "minReplicas of all variants together must not be greater than scaling.maxReplicas; "
        "raise maxReplicas",
    ),
)


class Toleration(Model):
    """Taint that the pods of a variant tolerate."""

    RULES = (
        Rule(
            "self.operator == 'Exists' || has(self.key)",
            lambda each: each.operator == "Exists" or each.key is not None,
            "a toleration without a key needs operator Exists",
        ),
        Rule(
            "self.operator == 'Equal' || !has(self.value)",
            lambda each: each.operator == "Equal" or each.value is None,
            "a toleration with operator Exists takes no value; remove it",
        ),
    )

    key: Annotated[str, Obeys(LABEL_KEY)] | None = optional(
        "Key of the taint. Default: all taints.", min_length=1, max_length=317
    )
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal",
        description="Equal: the taint must have this value. Exists: it may have any value.",
    )
    value: LabelValue | None = optional("Value of the taint, such as gpu.", min_length=1)
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = optional(
        "Effect of the taint. Default: all effects."
    )


class Variant(Model):
    """Kind of nodes that engines may run on."""

    RULES = (
        Rule(
            "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            lambda each: each.max_replicas is None or each.min_replicas <= each.max_replicas,
            "a variant's minReplicas must not be greater than its maxReplicas; raise maxReplicas",
        ),
    )

    name: Annotated[
        str,
        Obeys(
            matches(
                r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
                "a variant's name must have lower-case letters, digits and '-', begin with a letter, "
                "and end with a letter or digit",
            ),
            # Deployments of a rollout are called so.
            Rule(
                "self != 'control'",
                lambda name: name != "control",
                "a variant must not be called control; give it another name",
            ),
        ),
    ] = Field(
        description="Name of the variant in pods, status and messages, such as spot.",
        min_length=1,
        max_length=20,
    )
    resources: Resources | None = optional(
        "Resources of each engine pod of this variant. Default: spec.resources."
    )
    node_selector: Annotated[dict[str, LabelValue], DROP_NULL_ENTRIES, LABEL_KEYS] = Field(
        default={},
        description=(
            "Labels of the nodes that the pods of this variant may run on, in addition to "
            "those in spec.template, such as pool: spot."
        ),
        max_length=16,
    )
    tolerations: list[Toleration] = listed(
        "Taints that the pods of this variant tolerate. If set, they replace the "
        "tolerations in spec.template.",
        max_length=16,
        json_schema_extra=ATOMIC,
    )
    accelerator_memory: Quantity | None = optional(
        "Memory of one accelerator of these nodes, such as 24Gi, for the check of the model before "
        "engines start. Default: by the name of a MIG resource, the nodes' label "
        "nvidia.com/gpu.memory or ResourceSlices, else unknown, so that the check leaves memory out."
    )
    price_per_hour: Annotated[str, decimal(MIN_PRICE, MAX_PRICE)] = Field(
        description=(
            "Price of one replica per hour, in any currency, such as '2.5'. Only the ratios between "
            "variants matter."
        ),
        max_length=MAX_DECIMAL_LENGTH,
    )
    min_replicas: int = Field(
        default=0, description="Minimum number of replicas of this variant.", ge=0, le=1000
    )
    max_replicas: int | None = optional(
        "Maximum number of replicas of this variant. Default: spec.scaling.maxReplicas.",
        ge=0,
        le=1000,
    )
