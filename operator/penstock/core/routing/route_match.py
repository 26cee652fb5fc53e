"""Conditions of a ModelRoute's rules on requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from penstock.core.routing.apis import Task
from penstock.core.routing.header_pattern import HeaderPattern

# Latency tiers that a request may ask for, as in OpenAI's API.
ServiceTier = Literal["auto", "default", "flex", "scale", "priority"]
SERVICE_TIERS: tuple[ServiceTier, ...] = get_args(ServiceTier)
# The tier of a request that asks for none, as in OpenAI's API.
DEFAULT_SERVICE_TIER: ServiceTier = "auto"
# Name of a region, as in the value of the label topology.kubernetes.io/region of nodes.
REGION_PATTERN = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """Attributes of a request that the rules of a route can match."""

    headers: Mapping[str, str] = field(default_factory=dict)  # by name in lower case
    user: str | None = None
    model_name: str = ""  # by which it addressed the route, without the namespace
    tenant: str = ""  # of the caller; empty: it has none
    cost_tier: str = ""  # of the tenant; empty: it has none
    region: str = ""  # of the gateway that received it; empty: unknown
    task: Task = "Chat"
    service_tier: str = DEFAULT_SERVICE_TIER  # empty: one that OpenAI does not have
    prompt_tokens: int = 0  # estimated
    # Most that it allows for each choice; None: as many as the model can generate
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TokenRange:
    """A range of token counts, both ends included. max: None: there is no upper end."""

    min: int = 0
    max: int | None = None

    def contains(self, tokens: int | None) -> bool:
        """Whether a count is in the range. tokens: None: unlimited."""
        if tokens is None:
            return self.max is None
        return self.min <= tokens and (self.max is None or tokens <= self.max)


@dataclass(frozen=True, slots=True)
class Match:
    """Condition on a request, all of whose parts must hold. Empty parts hold for every request."""

    headers: tuple[tuple[str, str], ...] = ()  # (name in lower case, value): it has all of them
    # The request has a member of each set.
    users: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    cost_tiers: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    service_tiers: frozenset[str] = frozenset()
    prompt_tokens: TokenRange = TokenRange()
    output_tokens: TokenRange = TokenRange()
    # (name in lower case, pattern of the value): it has all of them
    header_patterns: tuple[tuple[str, HeaderPattern], ...] = ()
    model_names: frozenset[str] = frozenset()

    def holds(self, request: RoutedRequest) -> bool:
        """Whether a request meets the condition."""
        sets = (
            (self.users, request.user),
            (self.model_names, request.model_name),
            (self.tenants, request.tenant),
            (self.cost_tiers, request.cost_tier),
            (self.regions, request.region),
            (self.tasks, request.task),
            (self.service_tiers, request.service_tier),
        )
        return (
            all(not wanted or value in wanted for wanted, value in sets)
            and self.prompt_tokens.contains(request.prompt_tokens)
            and self.output_tokens.contains(request.output_tokens)
            and all(request.headers.get(name) == value for name, value in self.headers)
            and all(
                (value := request.headers.get(name)) is not None and pattern.matches(value)
                for name, pattern in self.header_patterns
            )
        )
