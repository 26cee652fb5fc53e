"""Schema of the conditions of a ModelRoute's rules."""

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.api.modelroute.sampling import MAX_TOKENS
from penstock.api.schema.defaults import optional
from penstock.api.schema.labels import LabelValue
from penstock.api.schema.lists import SET, UNIQUE, listed, map_by, unique_by
from penstock.api.schema.names import MAX_MODEL_NAME_LENGTH, model_name_at
from penstock.api.schema.references import ObjectName
from penstock.api.schema.rules import Model, Obeys, Rule, matches
from penstock.core.routing.apis import Task
from penstock.core.routing.header_pattern import HeaderPattern
from penstock.core.routing.route_match import ServiceTier

HEADER_NAME = Obeys(
    matches(r"^[A-Za-z0-9!#$%&*+.^_|~-]+$", "must be the name of an HTTP header, such as x-tenant")
)


def _is_expression(text: str) -> bool:
    try:
        HeaderPattern(text)
    except ValueError:
        return False
    return True


class HeaderMatch(Model):
    """Condition on a header of a request."""

    RULES = (
        # In CEL an expression that cannot be read is an error, by which the object is refused.
        Rule(
            "self.type != 'RegularExpression' || ''.matches(self.value) in [true, false]",
            lambda header: header.type != "RegularExpression" or _is_expression(header.value),
            "value must be a regular expression (RE2) if type is RegularExpression",
        ),
    )

    name: Annotated[str, HEADER_NAME] = Field(
        description="Name of the header, such as x-team. Upper and lower case are the same.",
        min_length=1,
        max_length=64,
    )
    type: Literal["Exact", "RegularExpression"] = Field(
        default="Exact",
        description=(
            "How the value is compared. Exact: the whole value is equal. RegularExpression: it is an "
            "expression (RE2), which the whole value matches."
        ),
    )
    value: str = Field(
        description="Value of the header, such as search, or an expression, such as team-(a|b).",
        min_length=1,
        max_length=256,
    )


class TokenRange(Model):
    """Range of token counts. Both ends are included."""

    RULES = (
        Rule(
            "has(self.min) || has(self.max)",
            lambda tokens: tokens.min is not None or tokens.max is not None,
            "min or max must be set",
        ),
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            lambda tokens: tokens.min is None or tokens.max is None or tokens.min <= tokens.max,
            "min must not be greater than max",
        ),
    )

    min: int | None = optional("Fewest tokens. Default: no bound.", ge=0, le=MAX_TOKENS)
    max: int | None = optional("Most tokens. Default: no bound.", ge=0, le=MAX_TOKENS)


def _texts(description: str, **items: Any) -> dict[str, Any]:
    """Schema of a set of texts. items: further rules of a text."""
    return SET | {"items": {"type": "string", "description": description, **items}}


class RouteMatch(Model):
    """Condition on a request, all of whose fields must hold. Absent fields hold for every request."""

    headers: Annotated[list[HeaderMatch], unique_by("name")] = listed(
        "Headers that a request must have, all with these values.",
        max_length=8,
        json_schema_extra=map_by("name"),
    )
    users: Annotated[list[Annotated[str, Field(max_length=256)]], UNIQUE] = listed(
        "Users, one of which must be the request's `user`. Default: any user, or none.",
        max_length=64,
        json_schema_extra=_texts("A user, such as alice.", maxLength=256),
    )
    model_names: Annotated[
        list[
            Annotated[
                str,
                model_name_at("modelNames"),
                Field(
                    description="A name, such as chat.",
                    min_length=1,
                    max_length=MAX_MODEL_NAME_LENGTH,
                ),
            ]
        ],
        UNIQUE,
    ] = listed(
        "Names of the route, one of which the request must have as `model`: spec.modelName or of "
        "spec.aliases. Default: any.",
        max_length=16,
        json_schema_extra=SET,
    )
    tenants: Annotated[
        list[
            Annotated[
                ObjectName,
                Field(description="A Tenant, such as team-a.", min_length=1, max_length=253),
            ]
        ],
        UNIQUE,
    ] = listed(
        "Names of Tenants, one of which the request must belong to. Default: any tenant, or none.",
        max_length=64,
        json_schema_extra=SET,
    )
    cost_tiers: Annotated[
        list[Annotated[LabelValue, Field(description="A tier, such as economy.", min_length=1)]],
        UNIQUE,
    ] = listed(
        "Values of spec.costTier, one of which the request's Tenant must have. Default: any, or none.",
        max_length=16,
        json_schema_extra=SET,
    )
    regions: Annotated[
        list[Annotated[LabelValue, Field(description="A region, such as eu-west.", min_length=1)]],
        UNIQUE,
    ] = listed(
        "Regions, one of which the gateway that received the request must be of, by gateway.region of the "
        "chart. Default: any.",
        max_length=16,
        json_schema_extra=SET,
    )
    tasks: Annotated[list[Annotated[Task, Field(description="A task, such as Chat.")]], UNIQUE] = (
        listed(
            "What the request's API route does, one of these. Default: anything.",
            max_length=8,
            json_schema_extra=SET,
        )
    )
    service_tiers: Annotated[
        list[Annotated[ServiceTier, Field(description="A tier, such as flex.")]], UNIQUE
    ] = listed(
        "Latency tiers, one of which must be the request's `service_tier`. A request without one asks for "
        "auto. Default: any.",
        max_length=5,
        json_schema_extra=SET,
    )
    prompt_tokens: TokenRange | None = optional(
        "Length of the prompt, as the gateway estimates it: 4 bytes of text are a token. Default: any."
    )
    output_tokens: TokenRange | None = optional(
        "Most tokens that the request allows for each choice, such as its `max_tokens`. A request without a "
        "bound is only in a range without max. Default: any."
    )
