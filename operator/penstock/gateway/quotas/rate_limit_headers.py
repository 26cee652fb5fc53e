"""Headers of responses that tell a client what is left of its limits, as OpenAI's do."""

from penstock.core.tenants.lease import Lease
from penstock.gateway.quotas.tenant_account import TenantAccount

RawHeader = tuple[bytes, bytes]
RATE_LIMIT_HEADERS = tuple(
    b"x-ratelimit-%b-%b" % (what, kind)
    for kind in (b"requests", b"tokens")
    for what in (b"limit", b"remaining", b"reset")
)


def rate_limit_headers(account: TenantAccount, model_name: str, now_s: float) -> list[RawHeader]:
    """Return the headers of the tightest limit of requests, and of the tightest one of tokens."""
    headers: list[RawHeader] = []
    for kind, of_requests in ((b"requests", True), (b"tokens", False)):
        lease = account.quota.tightest(model_name, of_requests=of_requests)
        if lease is not None:
            headers += _headers(kind, lease, now_s)
    return headers


def _headers(kind: bytes, lease: Lease, now_s: float) -> list[RawHeader]:
    reset = format_duration(lease.window.retry_after_s(now_s)).encode()
    return [
        (b"x-ratelimit-limit-" + kind, b"%d" % lease.limit.limit),
        (b"x-ratelimit-remaining-" + kind, b"%d" % lease.remaining),
        (b"x-ratelimit-reset-" + kind, reset),
    ]


def format_duration(seconds: int) -> str:
    """Write a time as OpenAI does: 59s, 6m0s, 24h0m0s."""
    minutes, rest_s = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest_s}s"
    return f"{minutes}m{rest_s}s" if minutes else f"{rest_s}s"
