"""Schema of spec.resources: the resources of an engine's container. Those of a variant are the same."""

import json
import re
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.lists import listed, map_by, unique_by
from penstock.api.schema.rules import DROP_NULL_ENTRIES, Model, Obeys, Rule
from penstock.api.schema.scalars import Quantity
from penstock.core.formats.quantity import exact_quantity
from penstock.core.spec.resources import (
    ACCELERATOR_DOMAIN,
    DEFAULT_LIMITS,
    accelerators_among,
    is_extended,
)

# Memory that the engine reserves for its own program; with less, no model passes the preflight.
MIN_MEMORY = "640Mi"
# Maximum number of tensor-parallel ranks of one engine.
MAX_ACCELERATORS = 64
# Greater numbers of an extended resource may have a fraction: a double does not tell it from an error.
MAX_CHECKED = 10**6

STANDARD = ["cpu", "memory", "ephemeral-storage"]
OTHER_PATTERN = (
    r"^(hugepages-[0-9]+[KMG]i|"
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$"
)

# CEL: whether `name` is an extended resource, and whether Kubernetes wants its request to be its limit.
_EXTENDED = "(name.contains('/') && !name.contains('kubernetes.io/'))"
_FIXED = f"({_EXTENDED} || name.startsWith('hugepages-'))"
# CEL: the quantity of `name`, plus less than half of the smallest fraction, 1e-9: the double of a whole
# quantity such as 3.00000 may be less than it.
_ALMOST = "(quantity(string(self[name])).asApproximateFloat() + 4e-10)"


def _number(quantity: int | str) -> Decimal:
    return exact_quantity(str(quantity))


def _is_fixed(name: str) -> bool:
    return is_extended(name) or name.startswith("hugepages-")


def _is_resource(name: str) -> bool:
    is_other = re.fullmatch(OTHER_PATTERN, name, re.ASCII) and not name.startswith("requests.")
    return name in STANDARD or bool(is_other)


def _are_whole(quantities: dict[str, int | str]) -> bool:
    return all(
        number > MAX_CHECKED or number == number.to_integral_value()
        for number in (_number(each) for name, each in quantities.items() if is_extended(name))
    )


_QUANTITIES = Obeys(
    Rule(
        f"self.all(name, name in {json.dumps(STANDARD)} || "
        f"(name.matches('{OTHER_PATTERN}') && !name.startsWith('requests.')))",
        lambda quantities: all(_is_resource(name) for name in quantities),
        "must name cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu",
    ),
    Rule(
        f"self.all(name, !{_EXTENDED} || !isQuantity(string(self[name])) || "
        f"quantity(string(self[name])).compareTo(quantity('{MAX_CHECKED}')) > 0 || "
        f"{_ALMOST} - double(int({_ALMOST})) < 8e-10)",
        _are_whole,
        "must have whole numbers of extended resources, such as nvidia.com/gpu: 1",
    ),
)
_ACCELERATORS = Obeys(
    Rule(
        f"self.filter(name, {_EXTENDED}).size() <= 1 || "
        f"self.filter(name, name.startsWith('{ACCELERATOR_DOMAIN}')).size() == 1",
        lambda limits: len(accelerators_among(limits)) <= 1,
        "must have one kind of accelerator: of several extended resources, exactly one must begin with "
        f"{ACCELERATOR_DOMAIN}",
    ),
    Rule(
        f"self.all(name, !{_EXTENDED} || !isQuantity(string(self[name])) || "
        f"(!name.startsWith('{ACCELERATOR_DOMAIN}') && self.filter(other, other.contains('/')).size() > 1)"
        f" || quantity(string(self[name])).compareTo(quantity('{MAX_ACCELERATORS}')) <= 0)",
        lambda limits: all(
            _number(limits[name]) <= MAX_ACCELERATORS
            for name in limits
            if is_extended(name)
            and (name.startswith(ACCELERATOR_DOMAIN) or sum("/" in other for other in limits) == 1)
        ),
        f"must have at most {MAX_ACCELERATORS} accelerators, which one engine can use",
    ),
)


def _memory(resources: Any) -> int | str | None:
    """The quantity that bounds the engine's memory; None if it is the default."""
    for quantities in (resources.limits, resources.requests):
        if quantities and "memory" in quantities:
            return quantities["memory"]  # type: ignore[no-any-return]
    return None


def _has_enough_memory(resources: Any) -> bool:
    memory = _memory(resources)
    return memory is None or _number(memory) >= _number(MIN_MEMORY)


def _are_within_limits(resources: Any) -> bool:
    limits = resources.limits or {}
    return all(
        _number(each) <= _number(limits[name])
        for name, each in (resources.requests or {}).items()
        if name in limits
    )


def _are_fixed_ones_limited(resources: Any) -> bool:
    limits = resources.limits or {}
    return all(
        name in limits and _number(each) == _number(limits[name])
        for name, each in (resources.requests or {}).items()
        if _is_fixed(name)
    )


def _is_enough(quantities: str) -> str:
    memory = f"string(self.{quantities}['memory'])"
    return f"(!isQuantity({memory}) || quantity({memory}).compareTo(quantity('{MIN_MEMORY}')) >= 0)"


def _compared(sign: str) -> str:
    """CEL: how the request of the resource `name` compares with its limit."""
    request, limit = "string(self.requests[name])", "string(self.limits[name])"
    return f"quantity({request}).compareTo(quantity({limit})) {sign} 0"


class ResourceClaim(Model):
    """Entry of spec.resourceClaims in the pod template that the engine uses."""

    name: str = Field(
        description="Name of the entry in spec.template.spec.resourceClaims, such as gpus.",
        min_length=1,
        max_length=63,
    )


class ResourceRequirements(Model):
    """Resources of a container, as in Kubernetes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(name, "
            f"!(name in self.limits) || {_compared('<=')})",
            _are_within_limits,
            "requests must not be greater than limits; raise the limits",
        ),
        Rule(
            f"!has(self.requests) || self.requests.all(name, !{_FIXED} || (has(self.limits) && "
            f"name in self.limits && {_compared('==')}))",
            _are_fixed_ones_limited,
            "requests of extended resources and hugepages must equal their limits; set them in limits only",
        ),
    )

    requests: Annotated[dict[str, Quantity] | None, DROP_NULL_ENTRIES, _QUANTITIES] = optional(
        "Resources that a node must have free. Default: the limits, by resource.", max_length=16
    )
    limits: Annotated[dict[str, Quantity] | None, DROP_NULL_ENTRIES, _QUANTITIES] = optional(
        "Maximum resources, such as memory: 1Gi.", max_length=16
    )


class Resources(ResourceRequirements):
    """Resources of each engine's container, as in Kubernetes."""

    RULES = (
        Rule(
            "(has(self.limits) && 'memory' in self.limits) ? "
            f"{_is_enough('limits')} : (!has(self.requests) || !('memory' in self.requests) || "
            f"{_is_enough('requests')})",
            _has_enough_memory,
            f"limits.memory, or requests.memory without a limit, must be at least {MIN_MEMORY}: an "
            "engine needs that much besides weights and KV cache; set it, such as to 2Gi",
        ),
        *ResourceRequirements.RULES,
    )

    requests: Annotated[dict[str, Quantity] | None, DROP_NULL_ENTRIES, _QUANTITIES] = optional(
        "Resources that a node must have free for the engine. Default: the limits, by resource.",
        max_length=16,
    )
    limits: Annotated[dict[str, Quantity] | None, DROP_NULL_ENTRIES, _QUANTITIES, _ACCELERATORS] = (
        optional(
            "Maximum resources of the engine. Its memory limit, or its request if there is no "
            f"limit, must hold weights, KV cache and {MIN_MEMORY} for its program. It computes with one "
            "thread per whole CPU core. An extended resource such as nvidia.com/gpu is its accelerator; "
            "with several accelerators it uses tensor parallelism, without one it computes on the CPU. "
            f"If neither limit nor request is set, it gets {DEFAULT_LIMITS['cpu']} CPU and "
            f"{DEFAULT_LIMITS['memory']} of memory.",
            max_length=16,
        )
    )
    claims: Annotated[list[ResourceClaim], unique_by("name")] = listed(
        "Resource claims of the pod that the engine uses. An engine with claims and without an "
        "extended resource computes on one GPU.",
        max_length=16,
        json_schema_extra=map_by("name"),
    )
