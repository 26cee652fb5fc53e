"""Schema of ModelRoute, serving.penstock.dev/v1alpha1. Fields are named after those of the Gateway API."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.modelroute.match import HEADER_NAME, RouteMatch
from penstock.api.modelroute.sampling import SamplingLimits
from penstock.api.schema.conditions import Condition
from penstock.api.schema.defaults import optional
from penstock.api.schema.lists import ATOMIC, SET, UNIQUE, listed, map_by, unique_by
from penstock.api.schema.names import (
    BACKEND_NAME,
    MAX_MODEL_NAME_LENGTH,
    PART_NAME,
    SERVICE_NAME,
    model_name_at,
)
from penstock.api.schema.rules import Model, Rule
from penstock.api.schema.scalars import PositiveDuration
from penstock.core.routing.route import SERVICE, BackendKind

KIND = "ModelRoute"
PLURAL = "modelroutes"


class BackendRef(Model):
    """Service that gets requests."""

    kind: Literal["InferenceService"] = Field(
        default="InferenceService", description="Kind of the backend."
    )
    name: Annotated[str, SERVICE_NAME] = Field(
        description="Name of an InferenceService of the same namespace, such as chat.",
        min_length=1,
        max_length=40,
    )


class WeightedBackendRef(Model):
    """Service, adapter or external model that answers requests, with its weight."""

    kind: BackendKind = Field(default=SERVICE, description="Kind of the backend.")
    name: Annotated[str, BACKEND_NAME] = Field(
        description="Name of an object of that kind in the same namespace, such as chat.",
        min_length=1,
        max_length=63,
    )

    weight: int = Field(
        default=1,
        description="Share of the requests, relative to the weights of the rule's other backends.",
        ge=0,
        le=1_000_000,
    )


class SessionAffinity(Model):
    """Which requests stay with the same backend while weights do not change."""

    RULES = (
        Rule(
            "has(self.header) == (self.type == 'Header')",
            lambda affinity: (affinity.header is not None) == (affinity.type == "Header"),
            "header must be set if, and only if, type is Header",
        ),
    )

    type: Literal["None", "Conversation", "User", "Header"] = Field(
        description=(
            "None: no requests. Conversation: requests of the same conversation. User: requests with the "
            "same `user`. Header: requests with the same value of a header."
        )
    )
    header: Annotated[str | None, HEADER_NAME] = optional(
        "Name of the header, such as x-session.", min_length=1, max_length=64
    )


class Mirror(Model):
    """Service that gets copies of requests. Its responses are dropped."""

    backend_ref: BackendRef = Field(description="Service that gets the copies.")
    revision: str | None = optional(
        "Revision of the service that gets the copies, with or without traffic. Default: copies are "
        "split like the service's traffic.",
        min_length=1,
        max_length=63,
    )
    percent: int = Field(
        default=100, description="Percentage of the requests that is copied.", ge=1, le=100
    )


class Timeouts(Model):
    """Time limits of requests."""

    request: PositiveDuration | None = optional(
        "Time from the arrival of a request to the end of its response. Later it is cancelled, with "
        "a 504 if the response has not begun. Default: the gateway's limit of 30 minutes."
    )
    first_token: PositiveDuration | None = optional(
        "Time from the arrival of a stream to its first byte. Later it goes to a fallback for "
        "LateFirstToken, if the rule has one. Default: spec.objectives.ttft of the service; without that "
        "there is no limit."
    )


class Fallback(Model):
    """Service, adapter or external model that gets the requests which the backend could not answer."""

    kind: BackendKind = Field(default=SERVICE, description="Kind of the fallback.")
    name: Annotated[str, BACKEND_NAME] = Field(
        description="Name of an object of that kind in the same namespace, such as chat-small.",
        min_length=1,
        max_length=63,
    )
    reasons: Annotated[
        list[
            Annotated[
                Literal["Overload", "Error", "Absence", "LateFirstToken"],
                Field(description="A reason, such as Overload."),
            ]
        ],
        UNIQUE,
    ] = listed(
        "Reasons for which requests go there. Overload: the service has no room in time. Error: engines "
        "failed the request. Absence: there is no engine, or the backend does not exist. LateFirstToken: a "
        "stream has no first byte within timeouts.firstToken. Default: all.",
        max_length=4,
        json_schema_extra=SET,
    )


class RouteRule(Model):
    """Services and adapters that answer the requests that match."""

    RULES = (
        Rule(
            "self.backendRefs.exists(b, b.weight > 0)",
            lambda rule: any(backend.weight > 0 for backend in rule.backend_refs),
            "one backend of each rule must have a weight above 0",
        ),
    )

    name: Annotated[str, PART_NAME] = Field(
        description="Name of the rule, for the status and for patches, such as beta-users.",
        min_length=1,
        max_length=63,
    )
    matches: list[RouteMatch] = listed(
        "Conditions, one of which a request must meet. Default: every request matches.",
        max_length=8,
        json_schema_extra=ATOMIC,
    )
    backend_refs: Annotated[list[WeightedBackendRef], unique_by("kind", "name")] = Field(
        description="Services, adapters and external models that answer, by weight.",
        min_length=1,
        max_length=8,
        json_schema_extra=map_by("kind", "name"),
    )
    session_affinity: SessionAffinity | None = optional(
        "Which requests stay with the same backend. Default: none."
    )
    mirrors: list[Mirror] = listed(
        "Services that get copies of the requests.", max_length=4, json_schema_extra=ATOMIC
    )
    timeouts: Timeouts | None = optional("Time limits of the requests.")
    sampling_limits: SamplingLimits | None = optional(
        "Most that the requests may ask a model to generate. Default: no limits."
    )
    fallbacks: Annotated[list[Fallback], unique_by("kind", "name")] = listed(
        "Services, adapters and external models that get a request which the backend could not answer and "
        "whose response has not begun: in this order, each once. A tenant needs access to the fallback "
        "itself.",
        max_length=4,
        json_schema_extra=map_by("kind", "name"),
    )


class ModelRouteSpec(Model):
    """Desired state of the route."""

    RULES = (
        Rule(
            "!has(self.aliases) || !(self.modelName in self.aliases)",
            lambda spec: spec.model_name not in spec.aliases,
            "aliases must not contain modelName",
        ),
    )

    model_name: Annotated[str, model_name_at("spec.modelName")] = Field(
        description=(
            "Model name that clients send as `model`, such as chat. It takes precedence over a service of "
            "the same name in the namespace."
        ),
        min_length=1,
        max_length=MAX_MODEL_NAME_LENGTH,
    )
    aliases: Annotated[
        list[
            Annotated[
                str,
                model_name_at("spec.aliases"),
                Field(
                    description="A name, such as gpt-4o.",
                    min_length=1,
                    max_length=MAX_MODEL_NAME_LENGTH,
                ),
            ]
        ],
        UNIQUE,
    ] = listed(
        "Further names that clients may send as `model`. They are held as modelName is; status.aliases says "
        "which of them other objects have.",
        max_length=16,
        json_schema_extra=SET,
    )
    rules: Annotated[list[RouteRule], unique_by("name")] = Field(
        description="Rules in order; the first one that matches a request applies.",
        min_length=1,
        max_length=16,
        json_schema_extra=map_by("name"),
    )


class GatewayCount(Model):
    """Gateways that apply the route."""

    total: int = Field(description="Number of ready gateways.")
    programmed: int = Field(description="Number of those that apply the current spec.")


class BackendStatus(Model):
    """State of a backend of a rule."""

    rule: str = Field(description="Name of the rule.")
    kind: str = Field(description="Kind of the backend.")
    name: str = Field(description="Name of the backend.")
    ready: Literal["True", "False", "Unknown"] = Field(
        description="Whether the backend answers requests. Unknown: it does not exist."
    )


class AliasStatus(Model):
    """State of an alias."""

    name: str = Field(description="The alias.")
    answers: Literal["True", "False"] = Field(
        description="Whether the route has answered under it, so that it keeps it."
    )
    holder: str | None = optional(
        "Route of the namespace that has the name. Empty: this one has it."
    )
    short_name_holder: str | None = optional(
        "Object of another namespace that the name alone leads to, such as ModelRoute team-a/chat. Empty: it "
        "leads to this namespace."
    )


class ModelRouteStatus(Model):
    """Observed state of the route."""

    observed_generation: int = Field(
        default=-1, description="Generation of the spec that the status is about. -1: none yet."
    )
    model_name: str | None = optional(
        "Model name under which the route answers. Empty until all backends exist and one of them is "
        "ready; then it stays until spec.modelName is changed."
    )
    aliases: list[AliasStatus] = listed("State of the aliases.", json_schema_extra=map_by("name"))
    gateways: GatewayCount | None = optional(
        "Gateways that apply the route, of all that are ready."
    )
    backends: list[BackendStatus] = listed(
        "State of the backends, in the order of the rules.",
        json_schema_extra=map_by("rule", "kind", "name"),
    )
    conditions: list[Condition] = listed(
        "Accepted, ResolvedRefs, Programmed, Ready, Reconciling, Stalled, ModelNameConflict while another "
        "namespace has the model name, and AliasConflict while other objects have aliases.",
        json_schema_extra=map_by("type"),
    )


class ModelRoute(Model):
    """Model name whose requests are spread over services and adapters, by weight and by conditions."""

    spec: ModelRouteSpec = Field(description="Desired state, written by users.")
    status: ModelRouteStatus = Field(
        default=ModelRouteStatus(), description="Observed state, written by the operator."
    )
