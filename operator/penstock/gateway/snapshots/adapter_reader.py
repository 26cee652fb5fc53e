"""Reads LoraAdapters for the routing snapshot, and tells what a change of one changes there."""

from typing import Literal

from penstock.clients.kubernetes.client import Object
from penstock.core.adapters.demand import AdapterDemand
from penstock.core.adapters.fetched import is_available
from penstock.core.adapters.pool import PoolStatus
from penstock.core.adapters.resource import adapter_resource
from penstock.core.adapters.shown_demand import requests_per_s
from penstock.core.adapters.versions import traffic_of
from penstock.core.formats.conditions import find_condition
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.name_claims import adapter_claim, order_of_objects
from penstock.core.observed.rollout_state import is_rolling
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.object_reader import ObjectReader, object_name
from penstock.gateway.snapshots.snapshot import with_last_precedence

# The kind of an adapter's change since the last snapshot.
AdapterChange = Literal["Nothing", "Demand", "Other"]


class AdapterReader(ObjectReader[Adapter]):
    """Reads the adapters, oldest first."""

    def __init__(self) -> None:
        super().__init__(
            "LoraAdapter",
            lambda body, last: with_last_precedence(body, read_adapter(body), last),
            order=order_of_objects,
        )

    def find_change(self, body: Object) -> AdapterChange:
        """Return what an object changes in the snapshot. Most writes of its status change nothing."""
        try:
            adapter = read_adapter(body)
        except (KeyError, TypeError, ValueError, AttributeError):  # the next snapshot logs why
            return "Other"
        known = self.get(object_name(body))
        if known != adapter:
            return "Other"
        return "Nothing" if known.demand == adapter.demand else "Demand"


def read_adapter(body: Object) -> Adapter:
    """Read one adapter. Raises KeyError, TypeError or ValueError."""
    resource, status = adapter_resource(body), body.get("status") or {}
    shares, pool = traffic_of(resource.version, status), PoolStatus.of(status)
    return Adapter(
        namespace=resource.namespace,
        name=resource.name,
        served_name=resource.model_name,
        created_s=int(parse_timestamp(resource.created_at)),
        service=f"{resource.namespace}/{pool.serving_service(resource.service)}",
        parent="/".join(resource.service_key),
        version=shares[0].version,
        shares=shares if len(shares) > 1 else (),
        generation=status.get("trafficGeneration") or 0 if is_rolling(status) else 0,
        pool_generation=pool.generation,
        precedence=adapter_claim(body).precedence,
        demand=AdapterDemand(requests_per_s(status)),
        is_available=is_available(shares[0].version, status),
        is_listed=not any(
            find_condition(status, kind, "False") for kind in ("Accepted", "Resolved")
        ),
    )
