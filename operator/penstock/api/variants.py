"""spec.variants: the kinds of nodes that a service may run on, each at its price."""

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.api.resources import Resources
from penstock.api.rules import Model, Obeys, Rule, matches
from penstock.core.spec.service import CONTROL

LEAST_PRICE = 0.0001


def _least_together(spec: Any) -> bool:
    least = sum(each.min_replicas for each in spec.variants)
    return bool(least <= spec.scaling.max_replicas)


def _have_unambiguous_names(spec: Any) -> bool:
    """Whether Deployment names are unique: REVISION-COHORT-VARIANT, where a cohort may be ""."""
    names = {each.name for each in spec.variants}
    return not any(f"{CONTROL}-{name}" in names for name in names)


RULES = (
    Rule(
        "size(self.variants) == 0 || has(self.objectives)",
        lambda spec: not spec.variants or spec.objectives is not None,
        "spec.variants are chosen by what holds spec.objectives; set those, or remove the variants",
    ),
    Rule(
        "self.variants.all(each, self.variants.exists_one(other, other.name == each.name))",
        lambda spec: len({each.name for each in spec.variants}) == len(spec.variants),
        "two of spec.variants have the same name; give each its own",
    ),
    Rule(
        "self.variants.all(each, self.variants.all(other, other.name != 'control-' + each.name))",
        _have_unambiguous_names,
        "of two spec.variants, one must not be called control- and the name of the other: the control "
        "of a canary is; give it another name",
    ),
    Rule(
        "self.variants.map(each, each.minReplicas).sum() <= self.scaling.maxReplicas",
        _least_together,
        "minReplicas of all spec.variants together must not be greater than "
        "spec.scaling.maxReplicas; raise maxReplicas",
    ),
)


class Toleration(Model):
    """A taint that the pods of a variant tolerate."""

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

    key: str | None = Field(
        default=None,
        description="The taint's key; without one, every taint.",
        min_length=1,
        max_length=317,
    )
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="Whether the taint must have this value, or may have any."
    )
    value: str | None = Field(
        default=None, description="The taint's value.", min_length=1, max_length=63
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect; without it, every effect."
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
    ] = Field(description="What pods, status and reasons call it.", min_length=1, max_length=20)
    resources: Resources | None = Field(
        default=None,
        description="What each of its engine pods asks for. Defaults to spec.resources.",
    )
    node_selector: dict[str, str] = Field(
        default={},
        description="Labels of the nodes that its pods may run on, beside those of spec.template.",
        max_length=16,
    )
    tolerations: list[Toleration] = Field(
        default=[],
        description="Taints that its pods tolerate, instead of those that spec.template says.",
        max_length=16,
    )
    price_per_hour: Annotated[
        float,
        Obeys(
            Rule(
                f"self >= {LEAST_PRICE}",
                lambda price: price >= LEAST_PRICE,
                f"a variant's pricePerHour must be at least {LEAST_PRICE}",
            )
        ),
    ] = Field(
        description=(
            "What one replica costs in an hour, in any currency: only the proportions between variants "
            "count."
        ),
        ge=LEAST_PRICE,
        le=1_000_000.0,
    )
    min_replicas: int = Field(
        default=0, description="Never fewer replicas of it than this.", ge=0, le=1000
    )
    max_replicas: int | None = Field(
        default=None,
        description="Never more replicas of it than this. Defaults to spec.scaling.maxReplicas.",
        ge=0,
        le=1000,
    )
