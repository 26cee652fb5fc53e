"""Reads ModelRoutes for the routing snapshot."""

from penstock.clients.kubernetes.client import Object
from penstock.core.formats.quantity import parse_duration_s
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.name_claims import alias_claims, route_claim
from penstock.core.routing.affinity import affinity_of
from penstock.core.routing.header_pattern import HeaderPattern, check_expressions
from penstock.core.routing.route import (
    ADAPTER,
    EXTERNAL,
    SERVICE,
    Backend,
    BackendKind,
    Fallback,
    FallbackReason,
    Mirror,
    RouteRule,
)
from penstock.core.routing.route_match import Match, TokenRange
from penstock.core.routing.sampling_limits import SamplingLimits
from penstock.gateway.snapshots.snapshot import Route


def read_route(body: Object) -> Route:
    """Read one route. Raises KeyError, TypeError or ValueError."""
    metadata, spec = body["metadata"], body["spec"]
    check_expressions(spec["rules"])
    return Route(
        namespace=metadata["namespace"],
        name=metadata["name"],
        served_name=spec["modelName"],
        created_s=int(parse_timestamp(metadata["creationTimestamp"])),
        rules=tuple(map(_rule, spec["rules"])),
        precedence=route_claim(body).precedence,
        aliases=tuple((claim.model_name, claim.precedence) for claim in alias_claims(body)),
        generation=metadata.get("generation", 0),
    )


def _rule(rule: Object) -> RouteRule:
    affinity = rule.get("sessionAffinity", {})
    header, timeouts = affinity.get("header"), rule.get("timeouts", {})
    return RouteRule(
        matches=tuple(map(_match, rule.get("matches", []))),
        backends=_weights_of(rule, SERVICE),
        adapters=_weights_of(rule, ADAPTER),
        externals=_weights_of(rule, EXTERNAL),
        affinity=affinity_of(affinity.get("type", "None")),
        affinity_header=header and header.lower(),
        mirrors=tuple(
            Mirror(each["backendRef"]["name"], each.get("revision"), each.get("percent", 100))
            for each in rule.get("mirrors", [])
        ),
        timeout_s=_seconds(timeouts.get("request")),
        first_token_s=_seconds(timeouts.get("firstToken")),
        fallbacks=tuple(map(_fallback, rule.get("fallbacks", []))),
        sampling=_sampling(rule["samplingLimits"]) if "samplingLimits" in rule else None,
    )


def _sampling(limits: Object) -> SamplingLimits:
    temperature = limits.get("maxTemperature")
    return SamplingLimits(
        output_tokens=limits.get("maxOutputTokens"),
        choices=limits.get("maxChoices"),
        temperature=None if temperature is None else float(temperature),
        top_logprobs=limits.get("maxTopLogprobs"),
    )


def _weights_of(rule: Object, kind: BackendKind) -> tuple[tuple[str, int], ...]:
    """Names and weights of a rule's backends of one kind."""
    return tuple(
        (ref["name"], ref.get("weight", 1))
        for ref in rule["backendRefs"]
        if ref.get("kind", SERVICE) == kind
    )


def _fallback(fallback: Object) -> Fallback:
    backend = Backend(fallback["name"], fallback.get("kind", SERVICE))
    return Fallback(
        backend, frozenset(map(FallbackReason, fallback.get("reasons") or FallbackReason))
    )


def _seconds(duration: str | None) -> float | None:
    return parse_duration_s(duration) if duration else None


def _match(match: Object) -> Match:
    headers = [
        (each["name"].lower(), each["value"], each.get("type") == "RegularExpression")
        for each in match.get("headers", [])
    ]
    return Match(
        headers=tuple((name, value) for name, value, is_pattern in headers if not is_pattern),
        header_patterns=tuple(
            (name, HeaderPattern(value)) for name, value, is_pattern in headers if is_pattern
        ),
        users=frozenset(match.get("users", [])),
        model_names=frozenset(match.get("modelNames", [])),
        tenants=frozenset(match.get("tenants", [])),
        cost_tiers=frozenset(match.get("costTiers", [])),
        regions=frozenset(match.get("regions", [])),
        tasks=frozenset(match.get("tasks", [])),
        service_tiers=frozenset(match.get("serviceTiers", [])),
        prompt_tokens=_range(match.get("promptTokens", {})),
        output_tokens=_range(match.get("outputTokens", {})),
    )


def _range(tokens: Object) -> TokenRange:
    return TokenRange(tokens.get("min", 0), tokens.get("max"))
