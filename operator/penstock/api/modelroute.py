"""serving.penstock.dev/v1alpha1: the ModelRoute, the one source of its schema and defaults."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.rules import Model, Obeys, Rule, matches

KIND = "ModelRoute"
PLURAL = "modelroutes"

_SERVICE = Obeys(
    matches(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "service must be the name of an InferenceService of the same namespace",
    )
)
_HEADER = Obeys(
    matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a header is named in lower case, as in x-tenant")
)


class HeaderMatch(Model):
    """Header with its exact value."""

    name: Annotated[str, _HEADER] = Field(
        description="Name of the header, in lower case.", min_length=1, max_length=64
    )
    value: str = Field(description="Exact value of the header.", max_length=256)


class RouteMatch(Model):
    """Condition on headers and user. An empty one matches every request."""

    headers: list[HeaderMatch] = Field(
        default=[],
        description="Headers that a request must have, all with these values.",
        max_length=8,
    )
    users: list[Annotated[str, Field(max_length=256)]] = Field(
        default=[],
        description="Users, one of which must be the request's `user`.",
        max_length=64,
        json_schema_extra={"items": {"type": "string", "description": "A user.", "maxLength": 256}},
    )


class Backend(Model):
    """Service that gets a share of the requests."""

    service: Annotated[str, _SERVICE] = Field(
        description="Name of an InferenceService of the same namespace.",
        min_length=1,
        max_length=40,
    )
    weight: int = Field(
        default=100,
        description="Share of the requests, relative to the weights of the rule's other backends.",
        ge=0,
        le=10_000,
    )


class Shadow(Model):
    """Service that gets copies of requests, whose answers are dropped."""

    service: Annotated[str, _SERVICE] = Field(
        description="Name of an InferenceService of the same namespace.",
        min_length=1,
        max_length=40,
    )
    revision: str | None = Field(
        default=None,
        description=(
            "Revision of the service that gets the copies, with or without traffic. "
            "Default: copies are split like the service's traffic."
        ),
        min_length=1,
        max_length=63,
    )
    percent: int = Field(
        default=100, description="Percentage of the requests that is copied.", ge=1, le=100
    )


class RouteRule(Model):
    """Requests that match, and the services that answer them."""

    RULES = (
        Rule(
            "self.backends.exists(b, b.weight > 0)",
            lambda rule: any(backend.weight > 0 for backend in rule.backends),
            "one backend of each rule must have a weight above 0",
        ),
        Rule(
            "!has(self.stickyHeader) || self.stickyBy == 'None'",
            lambda rule: rule.sticky_header is None or rule.sticky_by == "None",
            "stickyHeader and stickyBy exclude each other; remove one of them",
        ),
    )

    match: RouteMatch = Field(
        default=RouteMatch(),
        description="Requests that the rule applies to. Default: every request.",
    )
    backends: list[Backend] = Field(
        description="Services that answer, by weight.", min_length=1, max_length=8
    )
    sticky_by: Literal["None", "Conversation", "User"] = Field(
        default="None",
        description=(
            "Requests that stay with the same service while weights do not change. None: no "
            "requests. Conversation: requests of the same conversation. User: requests with "
            "the same `user`."
        ),
    )
    sticky_header: Annotated[str | None, _HEADER] = Field(
        default=None,
        description=(
            "Header whose value decides the service: requests with the same value stay with "
            "the same service while weights do not change. Default: none."
        ),
        min_length=1,
        max_length=64,
    )
    shadows: list[Shadow] = Field(
        default=[], description="Services that get copies of the requests.", max_length=4
    )


class ModelRouteSpec(Model):
    """Desired state of the route."""

    model_name: Annotated[
        str,
        Obeys(
            matches(
                r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
                "spec.modelName may have letters, digits, '.', '_' and '-', and must begin and end "
                "with a letter or digit",
            )
        ),
    ] = Field(
        description=(
            "Model name that clients send as `model`. It takes precedence over a service of "
            "the same name in the namespace."
        ),
        min_length=1,
        max_length=128,
    )
    rules: list[RouteRule] = Field(
        description="Rules in order; the first one that matches a request applies.",
        min_length=1,
        max_length=16,
    )


class ModelRoute(Model):
    """A model name whose requests are split between services by weight, header or user."""

    spec: ModelRouteSpec = Field(description="Desired state.")
