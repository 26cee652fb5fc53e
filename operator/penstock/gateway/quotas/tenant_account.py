"""A gateway's parts of the limits of each tenant."""

from collections.abc import Iterator, Set
from dataclasses import dataclass

from penstock.core.tenants.lease import Lease
from penstock.core.tenants.quota import TenantQuota
from penstock.core.tenants.slots import SlotLease
from penstock.core.tenants.tenant import Tenant


@dataclass(slots=True)
class TenantAccount:
    """A tenant's leases and slots. slots: None without a bound of running requests."""

    quota: TenantQuota
    slots: SlotLease | None = None

    @property
    def name(self) -> str:
        """Name of the tenant."""
        return self.quota.tenant.name

    @property
    def is_idle(self) -> bool:
        """Whether the store has to hear of nothing until the tenant's next request."""
        slots = self.slots
        if slots is not None and (slots.is_to_report or slots.held or slots.num_running):
            return False
        return all(each.is_idle for each in self.quota.leases)


class TenantAccounts:
    """The accounts of tenants that have sent requests. changed: those that the store may have to hear of.

    dropped: leases of limits that a tenant has no longer, with its name.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, TenantAccount] = {}
        self.changed: dict[str, TenantAccount] = {}
        self.dropped: list[tuple[str, Lease]] = []

    def __iter__(self) -> Iterator[TenantAccount]:
        return iter(self._accounts.values())

    def get(self, name: str) -> TenantAccount | None:
        """The account of a tenant; None before its first request."""
        return self._accounts.get(name)

    def of(self, tenant: Tenant, now_s: float) -> TenantAccount:
        """Return the account of a tenant, as its Tenant object says now, and note that it changes."""
        account = self._accounts.get(tenant.name)
        if account is None:
            account = self._accounts[tenant.name] = TenantAccount(TenantQuota(tenant, now_s))
            _bound_slots(account)
        elif account.quota.tenant is not tenant:
            dropped = account.quota.update(tenant, now_s)
            self.dropped += [(tenant.name, lease) for lease in dropped]
            _bound_slots(account)
        self.changed[tenant.name] = account
        return account

    def note_change(self, account: TenantAccount) -> None:
        """Note that the store may have to hear of an account."""
        if self._accounts.get(account.name) is account:
            self.changed[account.name] = account

    def keep_only(self, names: Set[str]) -> None:
        """Forget tenants that are deleted. Their pieces are given back."""
        for name in self._accounts.keys() - names:
            account = self._accounts.pop(name)
            self.changed.pop(name, None)
            self.dropped += [(name, lease) for lease in account.quota.leases]


def _bound_slots(account: TenantAccount) -> None:
    """Follow the tenant's bound of running requests. Without one they are not counted."""
    bound = account.quota.tenant.max_running
    if bound is None:
        account.slots = None
    elif account.slots is None:
        account.slots = SlotLease(bound)
    else:
        account.slots.bound = bound
