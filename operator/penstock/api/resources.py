"""spec.resources, and those of a variant: the resources of an engine pod."""

from typing import Annotated

from pydantic import Field

from penstock.api.rules import Model, Obeys, Rule, matches
from penstock.core.formats.quantity import QUANTITY_PATTERN, parse_quantity

# The engine counts so much for its program; with less, no model passes the preflight.
MIN_MEMORY = "640Mi"


class Accelerator(Model):
    """Accelerator of each engine, as an extended resource."""

    resource: Annotated[
        str,
        Obeys(
            matches(
                r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
                "spec.resources.accelerator.resource must be DOMAIN/NAME, such as nvidia.com/gpu",
            )
        ),
    ] = Field(
        description=(
            "Name of the extended resource, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb."
        ),
        max_length=253,
    )
    count: int = Field(
        default=1,
        description="Number of accelerators. An engine uses one.",
        ge=1,
        le=1,
    )


class Resources(Model):
    """Resources of each engine pod, as requests and limits."""

    cpu: Annotated[
        str,
        Obeys(
            matches(
                r"^([1-9][0-9]*m?|[0-9]+[.][0-9]+)$",
                "spec.resources.cpu must be a number of cores such as 2, 1.5 or 500m",
            )
        ),
    ] = Field(
        default="1",
        description=(
            "CPU cores, such as 2, 1.5 or 500m. An engine computes with one thread per "
            "whole core, at least one."
        ),
        max_length=20,
    )
    memory: Annotated[
        str,
        Obeys(
            matches(QUANTITY_PATTERN, "spec.resources.memory must be a quantity such as 2Gi"),
            Rule(
                f"!isQuantity(self) || quantity(self).compareTo(quantity('{MIN_MEMORY}')) >= 0",
                lambda memory: parse_quantity(memory) >= parse_quantity(MIN_MEMORY),
                f"spec.resources.memory must be at least {MIN_MEMORY}: an engine needs that much "
                "besides weights and KV cache; such as 2Gi",
            ),
        ),
    ] = Field(
        default="2Gi",
        description=(
            "Memory of the pod, such as 2Gi, for weights, KV cache and the program, which needs "
            f"{MIN_MEMORY}."
        ),
        max_length=20,
    )
    accelerator: Accelerator | None = Field(
        default=None,
        description="Accelerator of each engine. Default: none; the engine computes on the CPU.",
    )
