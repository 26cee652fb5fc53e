"""Reads LoraAdapters for the routing snapshot. There may be thousands, and few change at a time."""

import operator
from collections.abc import Callable, Iterable
from typing import Literal

from penstock.clients.kube import Object
from penstock.core.adapters.demand_estimate import AdapterDemand
from penstock.core.adapters.pool import PoolStatus
from penstock.core.adapters.resource import adapter_resource
from penstock.core.adapters.shown_demand import requests_per_s
from penstock.core.adapters.versions import traffic_of
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.name_claims import adapter_claim
from penstock.core.observed.rollout_state import is_rolling
from penstock.core.spec.claim_order import claim_order
from penstock.gateway.snapshot_adapter import Adapter

# Reads an object; None if it is unreadable.
Read = Callable[[Object], Adapter | None]
# What differs in an adapter since the last snapshot.
AdapterChange = Literal["Nothing", "Demand", "Other"]


class AdapterReader:
    """Keeps each adapter with the object that it was read from."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Object, Adapter]] = {}
        self._bodies: list[Object] = []
        self._adapters: tuple[Adapter, ...] = ()

    def read(self, objects: Iterable[Object], read: Read) -> tuple[Adapter, ...]:
        """Return all adapters, oldest first. Only new objects are read.

        An adapter whose new object is unreadable stays as it was.
        """
        bodies = list(objects)
        if len(bodies) == len(self._bodies) and all(map(operator.is_, bodies, self._bodies)):
            return self._adapters
        found: dict[str, tuple[Object, Adapter]] = {}
        for body in sorted(bodies, key=_claim_order):
            name = _name(body)
            known = self._known.get(name)
            if known is None or known[0] is not body:
                adapter = read(body)
                known = known if adapter is None else (body, adapter)
            if known is not None:
                found[name] = known
        self._known = found
        self._adapters = tuple(adapter for _, adapter in found.values())
        is_readable = len(found) == len(bodies) and all(
            found[_name(body)][0] is body for body in bodies
        )
        self._bodies = bodies if is_readable else []
        return self._adapters

    def find_change(self, body: Object) -> AdapterChange:
        """Return what an object changes in the snapshot. Most writes of its status change nothing."""
        try:
            adapter = read_adapter(body)
        except (KeyError, TypeError, ValueError, AttributeError):  # the next snapshot logs why
            return "Other"
        _, known = self._known.get(_name(body), (body, None))
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
        is_listed=not any(
            each.get("type") in ("Accepted", "Resolved") and each.get("status") == "False"
            for each in status.get("conditions") or ()
        ),
    )


def _claim_order(body: Object) -> tuple[str, str, str]:
    return claim_order(body["metadata"])


def _name(body: Object) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
