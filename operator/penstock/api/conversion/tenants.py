"""Converts Tenant objects to core's tenants."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from penstock.core.formats.quantity import parse_duration_s, whole_quantity
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.tenants.tenant import (
    Access,
    ApiKeys,
    Header,
    Identity,
    Jwt,
    LimitedResource,
    RequestLimits,
    ServiceAccount,
    Tenant,
    UsageLimit,
    WindowUnit,
)

_Entry = Mapping[str, Any]


def to_tenant(body: Mapping[str, Any]) -> Tenant:
    """Convert a Tenant object.

    Unknown fields are ignored, and so are identities of an unknown type, as nobody can prove them. Raises
    ValueError, whose message tells what is wrong with an object that an API server with another schema took.
    """
    try:
        return _tenant(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = body["metadata"]["name"]
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"the Tenant {name} cannot be read: {problem}") from error


def _tenant(body: _Entry) -> Tenant:
    metadata, spec = body["metadata"], body.get("spec") or {}
    concurrency = spec.get("concurrency", {})
    timeout = concurrency.get("queueTimeout")
    return Tenant(
        name=metadata["name"],
        generation=metadata.get("generation", 0),
        uid=metadata.get("uid", ""),
        created_s=parse_timestamp(metadata["creationTimestamp"]),
        identities=_identities(spec.get("identities", ())),
        access=tuple(map(_access, spec.get("access", ()))),
        priority=int(spec.get("priority", 0)),
        fair_share_weight=int(spec.get("fairShareWeight", 1)),
        limits=tuple(map(_limit, spec.get("limits", ()))),
        request=_request_limits(spec.get("requestLimits", {})),
        max_running=concurrency.get("maxRunning"),
        max_queued=concurrency.get("maxQueued"),
        queue_timeout_s=None if timeout is None else parse_duration_s(timeout),
        failure_mode="Admit" if spec.get("failureMode") == "Admit" else "Reject",
        # A value that a later version may add suspends too: it is no permission
        is_suspended=spec.get("suspend", "Never") != "Never",
        cost_tier=spec.get("costTier", ""),
    )


def _identities(entries: Sequence[_Entry]) -> tuple[Identity, ...]:
    return tuple(each for each in map(_identity, entries) if each is not None)


def _identity(entry: _Entry) -> Identity | None:
    name = entry["name"]
    match entry["type"]:
        case "APIKey":
            return ApiKeys(name, entry["apiKey"]["secretName"])
        case "ServiceAccount":
            account = entry["serviceAccount"]
            return ServiceAccount(name, account["namespace"], account["name"])
        case "JWT":
            jwt = entry["jwt"]
            return Jwt(
                name,
                issuer=jwt["issuer"],
                audience=jwt["audience"],
                claim=jwt["claim"],
                value=jwt["value"],
                jwks_url=jwt.get("jwksURL", ""),
            )
        case "Header":
            return Header(name, entry["header"]["name"].lower(), entry["header"]["value"])
        case _:
            return None


def _access(entry: _Entry) -> Access:
    return Access(
        entry["namespace"],
        frozenset(entry.get("modelNames", ())),
        frozenset(entry.get("routes", ())),
    )


def _limit(entry: _Entry) -> UsageLimit:
    """Convert a limit. One of an unknown kind makes the tenant unreadable: it cannot be enforced."""
    resource, unit = entry["resource"], entry["unit"]
    if resource not in get_args(LimitedResource) or unit not in get_args(WindowUnit):
        raise ValueError(f"the limit {entry['name']} counts {resource} by {unit}, which is unknown")
    return UsageLimit(entry["name"], resource, entry["limit"], unit, entry.get("modelName", ""))


def _request_limits(entry: _Entry) -> RequestLimits:
    body = entry.get("body")
    return RequestLimits(
        body_bytes=None if body is None else whole_quantity(body),
        prompt_tokens=entry.get("promptTokens"),
        output_tokens=entry.get("outputTokens"),
    )
