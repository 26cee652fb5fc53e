"""A LoraAdapter resource as a flat record with all defaults applied."""

from dataclasses import dataclass
from typing import Any

from penstock.core.adapters.adapter import AdapterVersion, Placement, Policy
from penstock.core.adapters.pool import DEFAULT_BOUNDS, Pool, PoolBounds, bounds_of
from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class AdapterResource:
    """A LoraAdapter."""

    namespace: str
    name: str
    uid: str
    generation: int
    created_at: str
    service: str  # name of its InferenceService
    model_name: str  # the name that clients send
    version: AdapterVersion
    pool: Pool = "Shared"  # pool that the spec asks for
    bounds: PoolBounds = DEFAULT_BOUNDS  # of a dedicated pool
    secret: str | None = None  # with the credentials of the source of fetched versions

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def service_key(self) -> tuple[str, str]:
        return self.namespace, self.service

    @property
    def claim(self) -> tuple[str, str, str]:
        """Sort key of the adapters that claim a model name; the one that gets it comes first."""
        return self.created_at, self.namespace, self.name


def adapter_resource(body: Object) -> AdapterResource:
    """Read a LoraAdapter from the API server. Raises KeyError, TypeError or ValueError."""
    metadata, spec = body["metadata"], body["spec"]
    name, model = metadata["name"], spec["model"]
    return AdapterResource(
        namespace=metadata["namespace"],
        name=name,
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        created_at=metadata["creationTimestamp"],
        service=spec["serviceRef"]["name"],
        model_name=model.get("name") or name,
        version=AdapterVersion(name, model["uri"], placement_of(spec.get("placement") or {})),
        pool="Dedicated" if spec.get("pool") == "Dedicated" else "Shared",
        bounds=bounds_of(spec.get("dedicated") or {}),
        secret=(model.get("secretRef") or {}).get("name"),
    )


def placement_of(placement: dict[str, Any]) -> Placement:
    """The bounds on copies that spec.placement sets, with the operator's defaults."""
    policy: Policy = placement.get("policy") or "OnDemand"
    is_fixed = policy == "Fixed"
    return Placement(
        policy=policy,
        min_copies=placement.get("replicas" if is_fixed else "minReplicas") or 0,
        max_copies=placement.get("replicas" if is_fixed else "maxReplicas"),
        is_pinned=placement.get("eviction") == "Never",
        priority=placement.get("priority") or 0,
    )
