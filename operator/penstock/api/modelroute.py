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
    """A header with its value."""

    name: Annotated[str, _HEADER] = Field(
        description="The header, in lower case.", min_length=1, max_length=64
    )
    value: str = Field(description="Its whole value.", max_length=256)


class RouteMatch(Model):
    """Match on headers and users. An empty one matches every request."""

    headers: list[HeaderMatch] = Field(
        default=[],
        description="Headers that a request must have, all with these values, such as a tenant's.",
        max_length=8,
    )
    users: list[Annotated[str, Field(max_length=256)]] = Field(
        default=[],
        description="The request's `user` must be one of these.",
        max_length=64,
        json_schema_extra={"items": {"type": "string", "description": "A user.", "maxLength": 256}},
    )


class Backend(Model):
    """Service and its traffic share."""

    service: Annotated[str, _SERVICE] = Field(
        description="An InferenceService of the same namespace.", min_length=1, max_length=40
    )
    weight: int = Field(
        default=100,
        description="Share of the requests, relative to the rule's other weights.",
        ge=0,
        le=10_000,
    )


class Shadow(Model):
    """Mirroring of requests, whose responses are dropped."""

    service: Annotated[str, _SERVICE] = Field(
        description="An InferenceService of the same namespace.", min_length=1, max_length=40
    )
    revision: str | None = Field(
        default=None,
        description=(
            "Copies go to this revision of it, whether it has a share of the traffic or not. Without "
            "it they follow the service's traffic."
        ),
        min_length=1,
        max_length=63,
    )
    percent: int = Field(
        default=100, description="Percentage of requests that is copied.", ge=1, le=100
    )


class RouteRule(Model):
    """Rule: services that answer the requests that match."""

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
        default=RouteMatch(), description="Requests that the rule applies to. Empty: every request."
    )
    backends: list[Backend] = Field(
        description="The services that answer, by weight.", min_length=1, max_length=8
    )
    sticky_by: Literal["None", "Conversation", "User"] = Field(
        default="None",
        description=(
            "What stays with a service while weights stay: nothing, all requests of a conversation, or "
            "all requests with the same `user`."
        ),
    )
    sticky_header: Annotated[str | None, _HEADER] = Field(
        default=None,
        description="All requests with the same value of this header stay with a service.",
        min_length=1,
        max_length=64,
    )
    shadows: list[Shadow] = Field(
        default=[], description="Who gets copies of the requests.", max_length=4
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
            "The name that clients send as `model`. It goes before the name of a service of the same "
            "namespace."
        ),
        min_length=1,
        max_length=128,
    )
    rules: list[RouteRule] = Field(
        description="The first one that matches counts.", min_length=1, max_length=16
    )


class ModelRoute(Model):
    """A name of a model whose requests are spread over services: by weight, header or user."""

    spec: ModelRouteSpec = Field(description="What is wanted.")
