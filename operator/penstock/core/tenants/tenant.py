"""A tenant: a team or customer whose requests share rights, limits and a place in the queue."""

from dataclasses import dataclass
from typing import Literal

# Bounds of a tenant's priority. A higher one is served first and shed last.
MIN_PRIORITY, MAX_PRIORITY = 0, 1000
# Priority of batches, and of requests that ask for the service tier `flex`: below that of every tenant.
BATCH_PRIORITY = -1
MAX_FAIR_SHARE_WEIGHT = 1000

LimitedResource = Literal["Requests", "PromptTokens", "OutputTokens", "Tokens"]
WindowUnit = Literal["Second", "Minute", "Hour", "Day", "Month"]
# Answer to requests beyond a gateway's local share of a limit while gateways cannot share their counts.
FailureMode = Literal["Reject", "Admit"]


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """API keys, of which a Secret in the namespace of keys has the hashes. secret: its name."""

    name: str
    secret: str


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """Pods that send the token of a Kubernetes ServiceAccount."""

    name: str
    namespace: str
    account: str


@dataclass(frozen=True, slots=True)
class Jwt:
    """Bearer tokens of an OIDC issuer with a claim of this value.

    issuer: its URL, as in the claim `iss`. audience: must be among the token's. jwks_url: URL of the issuer's
    keys; empty: as the issuer's OIDC discovery document says.
    """

    name: str
    issuer: str
    audience: str
    claim: str
    value: str
    jwks_url: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """Requests of trusted proxies with a header of this value. header: in lower case."""

    name: str
    header: str
    value: str


Identity = ApiKeys | ServiceAccount | Jwt | Header


@dataclass(frozen=True, slots=True)
class Access:
    """Models that a tenant may use. Empty fields hold for all.

    namespace: of the services, routes and adapters. model_names: that clients send, without the namespace.
    api_paths: paths of API routes, such as /v1/embeddings.
    """

    namespace: str
    model_names: frozenset[str] = frozenset()
    api_paths: frozenset[str] = frozenset()

    def allows(self, namespace: str, model_name: str, api_path: str) -> bool:
        """Whether a request for a model may be sent to an API route."""
        return self.allows_route(api_path) and self.allows_model(namespace, model_name)

    def allows_route(self, api_path: str) -> bool:
        """Whether a request for any of its models may be sent to an API route."""
        return not self.api_paths or api_path in self.api_paths

    def allows_model(self, namespace: str, model_name: str) -> bool:
        """Whether a request for a model may be sent to any API route."""
        is_model = not self.model_names or model_name in self.model_names
        return namespace == self.namespace and is_model


@dataclass(frozen=True, slots=True)
class UsageLimit:
    """Most of a resource that a tenant may use in a window of time.

    Windows of a unit follow each other without a gap, by UTC: a minute, a day, a month of the calendar.
    model_name: the only one that it counts; empty: all together.
    """

    name: str
    resource: LimitedResource
    limit: int
    unit: WindowUnit
    model_name: str = ""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of a single request. None: there is no bound but the gateway's."""

    body_bytes: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, as its Tenant object says."""

    name: str
    generation: int
    identities: tuple[Identity, ...] = ()
    access: tuple[Access, ...] = ()
    priority: int = 0
    fair_share_weight: int = 1  # among the tenants of its priority
    limits: tuple[UsageLimit, ...] = ()
    request: RequestLimits = RequestLimits()
    # Requests at a time that were admitted and have not ended, over all gateways; None: no bound
    max_running: int | None = None
    # Requests that wait at a gateway, and how long each may; None: the gateway's bounds
    max_queued: int | None = None
    queue_timeout_s: float | None = None
    failure_mode: FailureMode = "Reject"
    is_suspended: bool = False
    cost_tier: str = ""  # what its requests may cost, for the rules of ModelRoutes; empty: none
    # UID and creation time of the object. Of two tenants with one identity the older has it.
    uid: str = ""
    created_s: float = 0.0

    def may_use(self, namespace: str, model_name: str, api_path: str) -> bool:
        """Whether it may send a request for a model to an API route. Nothing is allowed by default."""
        return any(each.allows(namespace, model_name, api_path) for each in self.access)

    def may_list(self, namespace: str, model_name: str) -> bool:
        """Whether it may send a request for a model to any API route."""
        return any(each.allows_model(namespace, model_name) for each in self.access)

    def may_call(self, api_path: str) -> bool:
        """Whether it may send a request for any model to an API route."""
        return any(each.allows_route(api_path) for each in self.access)
