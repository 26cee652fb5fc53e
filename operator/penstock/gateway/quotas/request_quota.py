"""A request's part of its tenant's limits, from its admission to its end."""

from penstock.core.tenants.limits import BUDGET_UNITS, Usage
from penstock.core.tenants.quota import Reservation, Shortage, TooLarge
from penstock.core.tenants.slots import SlotLease
from penstock.core.tenants.tenant import LimitedResource, Tenant
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import MAX_COUNT, InferenceRequest
from penstock.gateway.quotas.quotas import Quotas
from penstock.gateway.quotas.rate_limit_headers import RawHeader, rate_limit_headers
from penstock.gateway.quotas.tenant_account import TenantAccount

WORDS: dict[LimitedResource, str] = {
    "Requests": "requests",
    "PromptTokens": "prompt tokens",
    "OutputTokens": "output tokens",
    "Tokens": "tokens",
}
# Time after which a client tries again that has too many requests running: there is no window to wait for.
RUNNING_RETRY_AFTER_S = 1


class RequestQuota:
    """The reservation and the slot of a request. Without a tenant it holds nothing.

    service: "namespace/name". adapter: name of the LoraAdapter; empty: the base model. model_name: served
    name of what answers, which limits of one model compare.
    """

    def __init__(self, quotas: Quotas, tenant: Tenant | None) -> None:
        self._quotas = quotas
        self._tenant = tenant
        self._account: TenantAccount | None = None
        self._reservation: Reservation | None = None
        self._slots: SlotLease | None = None  # that it has one of
        self._is_stream = False
        self.model_name = self.service = self.adapter = ""

    async def admit(self, request: InferenceRequest, prompt_tokens: int) -> None:
        """Reserve what the request will use, and a slot. Raises RequestError.

        prompt_tokens: estimated.
        """
        if self._tenant is None:
            return
        account = self._account = self._quotas.account(self._tenant)
        self._is_stream = request.is_stream
        usage = Usage(1, prompt_tokens, self._output_tokens(account, request, prompt_tokens))
        found = await self._quotas.reserve(account, self.model_name, usage)
        if isinstance(found, TooLarge):
            raise _too_large(found)
        if isinstance(found, Shortage):
            raise _exhausted(found)
        self._reservation = found
        slots = account.slots
        if await self._quotas.start_running(account):
            self._slots = slots
        else:
            message = (
                f"the tenant {account.name} has {self._tenant.max_running} requests running, which is its "
                "limit: wait until one has ended"
            )
            raise RequestError(
                429, message, code="rate_limit_exceeded", kind="requests",
                retry_after_s=RUNNING_RETRY_AFTER_S, reason="concurrency",
            )  # fmt: skip

    def _output_tokens(
        self, account: TenantAccount, request: InferenceRequest, prompt_tokens: int
    ) -> int:
        if not request.api.output_bounds:
            return 0
        asked = request.max_output_tokens or request.api.default_output_tokens
        if asked is None:
            return account.quota.assume_output_tokens(self.model_name, prompt_tokens)
        return min(asked * request.num_choices, MAX_COUNT)

    @property
    def headers(self) -> list[RawHeader]:
        """Headers of the response about what is left of the tenant's limits."""
        account = self._account
        if account is None or not account.quota.leases:
            return []
        return rate_limit_headers(account, self.model_name, self._quotas.now_s())

    @property
    def reserved(self) -> Usage | None:
        """Its reservation; None: there is none, or it is settled."""
        return None if self._reservation is None else self._reservation.usage

    @property
    def unseen_output_tokens(self) -> int:
        """Output tokens to count for a client that leaves before a whole answer; streams are counted."""
        reserved = self.reserved
        return 0 if reserved is None or self._is_stream else reserved.output_tokens

    def settle(self, used: Usage | None, *, is_counted: bool = True) -> None:
        """Count what the request has used, and free the rest. Further calls change nothing.

        used: None: no engine has worked for it. is_counted: whether the output was counted, not estimated.
        """
        account, reservation, self._reservation = self._account, self._reservation, None
        if account is None or reservation is None:
            return
        if self._slots is not None:  # the account has others if the tenant's bound was set since
            self._slots.end()
        if used is None:
            reservation.cancel()
        else:
            reservation.settle(used)
            if is_counted:
                account.quota.observe_output_tokens(self.model_name, used.output_tokens)
            self._quotas.record(account.name, self.service, self.adapter, used)
        self._quotas.accounts.note_change(account)


def _too_large(found: TooLarge) -> RequestError:
    limit, words = found.limit, WORDS[found.limit.resource]
    message = (
        f"the request needs {found.amount} {words}, and the limit {limit.name} allows {limit.limit} in each "
        f"{limit.unit.lower()}: send a shorter prompt, or allow fewer output tokens"
    )
    return RequestError(400, message, code="request_above_limit")


def _exhausted(found: Shortage) -> RequestError:
    limit = found.limit
    reached = [
        f"the limit {each.name} of {each.limit} {WORDS[each.resource]} in each {each.unit.lower()}"
        for each in (limit, *found.others)
    ]
    verb = "are" if found.others else "is"
    message = f"{' and '.join(reached)} {verb} reached: try again in {found.retry_after_s} s"
    retry_after_s = found.retry_after_s
    if limit.unit in BUDGET_UNITS:
        return RequestError(
            429, message, code="insufficient_quota", kind="insufficient_quota",
            retry_after_s=retry_after_s,
        )  # fmt: skip
    kind = "requests" if limit.resource == "Requests" else "tokens"
    return RequestError(
        429, message, code="rate_limit_exceeded", kind=kind, retry_after_s=retry_after_s
    )
