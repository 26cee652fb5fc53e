"""Reads the ledger of usage from the shared store, by day."""

from collections import defaultdict
from collections.abc import Sequence

from penstock.clients.pods.usage_report import DAY_S, UsageRow
from penstock.core.tenants.limits import Usage
from penstock.gateway.quotas.ledger import HOUR_S, ledger_key, read_entries
from penstock.gateway.quotas.store import Store


async def read_usage(store: Store, from_day: int, num_days: int) -> Sequence[UsageRow]:
    """Return the usage of days of UTC. from_day: since the epoch. Raises StoreFailed."""
    hours = range(from_day * DAY_S, (from_day + num_days) * DAY_S, HOUR_S)
    rows: defaultdict[tuple[int, str, str, str], list[Usage]] = defaultdict(list)
    for hour_s, fields in zip(
        hours, await store.read([ledger_key(each) for each in hours]), strict=True
    ):
        for entry, usage in read_entries(hour_s, fields).items():
            day_s = hour_s // DAY_S * DAY_S
            rows[day_s, entry.tenant, entry.service, entry.adapter].append(usage)
    return [
        UsageRow(
            *key,
            requests=sum(each.requests for each in usages),
            prompt_tokens=sum(each.prompt_tokens for each in usages),
            cached_tokens=sum(each.cached_tokens for each in usages),
            output_tokens=sum(each.output_tokens for each in usages),
        )
        for key, usages in sorted(rows.items())
    ]
