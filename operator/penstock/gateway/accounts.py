"""The accounts of all services, for the operator that sizes them and judges their engines."""

from collections.abc import Callable, Iterable

from penstock.clients.clock import wall
from penstock.core.observed.gateway_feed import VERSION, Feed
from penstock.gateway.account import Account
from penstock.gateway.snapshot import Service
from penstock.gateway.ticket import Ticket


class Accounts:
    """now: the monotonic clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._started_s = wall()
        self._accounts: dict[str, Account] = {}

    def arrived(
        self,
        service: Service,
        came_s: float,
        prompt_bytes: int,
        *,
        is_stream: bool,
        is_chat: bool,
        is_text_only: bool = True,
        tenant: str | None = None,
    ) -> Ticket:
        account = self.of(service.key)
        account.objectives = service.objectives
        return Ticket(
            account,
            self._now,
            came_s,
            prompt_bytes,
            is_stream=is_stream,
            is_chat=is_chat,
            is_text_only=is_text_only,
            tenant=tenant,
        )

    def of(self, key: str) -> Account:
        return self._accounts.setdefault(key, Account())

    def feed(self, services: Iterable[Service]) -> Feed:
        """services: all that are served now; the others are forgotten."""
        now = [(service, self._accounts.get(service.key) or Account()) for service in services]
        self._accounts = {service.key: account for service, account in now}
        for service, account in now:
            account.only(service.sides)
        at_s, now_s = wall(), self._now()
        return Feed(
            VERSION,
            self._started_s,
            {service.key: account.reading(at_s, now_s) for service, account in now},
            {service.key: account.arms() for service, account in now if service.is_mixed},
            {service.key: service.generation for service, _ in now},
        )
