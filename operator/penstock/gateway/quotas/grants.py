"""Gives what the store has granted to the leases and slots of tenants."""

import logging

from penstock.gateway.quotas.store_call import (
    OTHER_WINDOW,
    PREFIX,
    UNREADABLE,
    Reply,
    StoreCall,
    count_key,
    slots_key,
)

logger = logging.getLogger(__name__)


def take_grants(call: StoreCall, reply: Reply, num_gateways: int) -> None:
    """Add the grants of a reply to a call. num_gateways: that share a limit which the store cannot count."""
    num_counts = len(call.counts)
    of_counts, of_slots = reply.grants[:num_counts], reply.grants[num_counts:]
    for entry, (granted, total) in zip(call.counts, of_counts, strict=True):
        lease = entry.lease
        if granted == UNREADABLE:
            if lease.num_unstored is None:
                log_unreadable(count_key(entry.tenant, lease))
            lease.num_unstored = num_gateways
        elif granted != OTHER_WINDOW and lease.window == entry.window:
            lease.take(granted, total, reply.now_s)
    for (tenant, slots, _, _), (granted, total) in zip(call.slots, of_slots, strict=True):
        if granted != UNREADABLE:
            slots.take(granted, total)
            continue
        if slots.num_unstored is None:
            log_unreadable(slots_key(tenant))
        slots.num_unstored = num_gateways


def log_unreadable(key: str) -> None:
    """Log that the value of a key is none that gateways write."""
    logger.error(
        "the key %s%s of the quota store has a value that no gateway has written: delete it. Until then "
        "gateways do not share what it counts",
        PREFIX,
        key,
    )
