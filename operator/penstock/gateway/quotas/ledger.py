"""The ledger of usage by hour, tenant, service and adapter, until the shared store has it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.tenants.limits import Usage

HOUR_S = 3600
# Names of Kubernetes have no tab.
SEPARATOR = "\t"
KINDS = ("requests", "prompt_tokens", "output_tokens", "cached_tokens")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Whose usage of which hour it is. service: "namespace/name". adapter: empty for the base model."""

    hour_s: int
    tenant: str
    service: str
    adapter: str


def ledger_key(hour_s: int) -> str:
    """The key of an hour's entries in the store."""
    return f"usage:{hour_s}"


def read_entries(hour_s: int, fields: Mapping[str, int]) -> dict[LedgerEntry, Usage]:
    """Read the usage of an hour from the fields of its key. Fields that others have set are left out."""
    counts: dict[LedgerEntry, dict[str, int]] = {}
    for name, amount in fields.items():
        parts = name.split(SEPARATOR)
        if len(parts) != 4 or parts[-1] not in KINDS:
            continue
        tenant, service, adapter, kind = parts
        counts.setdefault(LedgerEntry(hour_s, tenant, service, adapter), {})[kind] = amount
    return {account: Usage(**each) for account, each in counts.items()}


class Ledger:
    """Usage that the store does not have yet. retention_s: how long the store keeps an hour."""

    def __init__(self, retention_s: int) -> None:
        self._retention_s = retention_s
        self._counts: dict[LedgerEntry, list[int]] = {}

    def add(self, account: LedgerEntry, usage: Usage) -> None:
        """Count the usage of a request."""
        counts = self._counts.get(account)
        if counts is None:
            counts = self._counts[account] = [0] * len(KINDS)
        counts[0] += usage.requests
        counts[1] += usage.prompt_tokens
        counts[2] += usage.output_tokens
        counts[3] += usage.cached_tokens

    @property
    def is_empty(self) -> bool:
        """Whether the store has all."""
        return not self._counts

    def drain(self) -> Iterable[dict[str, Any]]:
        """Return what to add to the store, and forget it."""
        entries, self._counts = self._counts, {}
        for account, counts in entries.items():
            name = SEPARATOR.join((account.tenant, account.service, account.adapter))
            for kind, amount in zip(KINDS, counts, strict=True):
                if amount:
                    yield {
                        "key": ledger_key(account.hour_s),
                        "field": f"{name}{SEPARATOR}{kind}",
                        "amount": amount,
                        "expires_s": account.hour_s + self._retention_s,
                    }
