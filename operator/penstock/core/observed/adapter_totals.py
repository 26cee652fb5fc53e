"""Sums over all gateways of their counts for adapters."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from penstock.core.adapters.demand import AdapterCounts

# Counts of each service "namespace/name" by the adapter's name in engines.
CountsByService = Mapping[str, Mapping[str, AdapterCounts]]

GAUGES = ("in_flight", "waiting")
COUNTERS = tuple(each.name for each in fields(AdapterCounts) if each.name not in GAUGES)
NO_COUNTS = AdapterCounts()


def add_counts(
    totals: CountsByService, changes: Iterable[tuple[CountsByService, CountsByService]]
) -> CountsByService:
    """Totals with the increases of each gateway added, for the adapters that some gateway reports now.

    changes: for each gateway its last report, empty if its counters started again, and the present one.
    """
    found: dict[str, dict[str, AdapterCounts]] = {}
    for before, now in changes:
        for service, adapters in now.items():
            of_service = found.setdefault(service, {})
            known, earlier = totals.get(service, {}), before.get(service, {})
            for name, counts in adapters.items():
                if name not in of_service:
                    of_service[name] = replace(known.get(name, NO_COUNTS), in_flight=0, waiting=0)
                of_service[name] = _plus(of_service[name], earlier.get(name, NO_COUNTS), counts)
    return found


def _plus(total: AdapterCounts, before: AdapterCounts, now: AdapterCounts) -> AdapterCounts:
    """Total with the increase of the counters, and with the gauges. Counters that fell started at 0."""
    if any(getattr(before, name) > getattr(now, name) for name in COUNTERS):
        before = NO_COUNTS
    return AdapterCounts(
        **{
            name: getattr(total, name) + getattr(now, name) - getattr(before, name)
            for name in COUNTERS
        },
        **{name: getattr(total, name) + getattr(now, name) for name in GAUGES},
    )
