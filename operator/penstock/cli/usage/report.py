"""Sums of usage and their cost, by tenant, model or day. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

from penstock.clients.pods.usage_report import UsageRow
from penstock.core.spec.prices import Prices
from penstock.core.tenants.limits import Usage
from penstock.core.tenants.prices import token_cost

Group = Literal["tenant", "model", "day"]


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The usage of a tenant, a model or a day. cost: of tokens; None if no service of it has prices."""

    name: str
    usage: Usage
    cost: Decimal | None


def sum_usage(rows: Iterable[UsageRow], prices: Mapping[str, Prices], by: Group) -> list[UsageSum]:
    """Sum rows. prices: by service "namespace/name"."""
    groups: defaultdict[str, list[UsageRow]] = defaultdict(list)
    for row in rows:
        groups[_name(row, by)].append(row)
    return [_sum(name, group, prices) for name, group in sorted(groups.items())]


def _sum(name: str, rows: list[UsageRow], prices: Mapping[str, Prices]) -> UsageSum:
    costs = [
        token_cost(_usage([row]), prices[row.service]) for row in rows if row.service in prices
    ]
    known = [each for each in costs if each is not None]
    return UsageSum(name, _usage(rows), sum(known, Decimal(0)) if known else None)


def _usage(rows: list[UsageRow]) -> Usage:
    return Usage(
        requests=sum(each.requests for each in rows),
        prompt_tokens=sum(each.prompt_tokens for each in rows),
        output_tokens=sum(each.output_tokens for each in rows),
        cached_tokens=sum(each.cached_tokens for each in rows),
    )


def _name(row: UsageRow, by: Group) -> str:
    match by:
        case "tenant":
            return row.tenant
        case "model":
            return f"{row.service}:{row.adapter}" if row.adapter else row.service
        case "day":
            return datetime.fromtimestamp(row.day_s, UTC).date().isoformat()
