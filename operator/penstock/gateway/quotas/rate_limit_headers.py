"""Headers of responses that tell a client what is left of its limits, as OpenAI's do."""

from penstock.gateway.quotas.tenant_account import TenantAccount

RawHeader = tuple[bytes, bytes]
# Names of the headers of requests and of tokens: of the limit, what is left, and the time to its next window.
HEADERS_BY_KIND = [
    tuple(b"x-ratelimit-%b-%b" % (what, kind) for what in (b"limit", b"remaining", b"reset"))
    for kind in (b"requests", b"tokens")
]
RATE_LIMIT_HEADERS = [*HEADERS_BY_KIND[0], *HEADERS_BY_KIND[1]]


def rate_limit_headers(account: TenantAccount, model_name: str, now_s: float) -> list[RawHeader]:
    """Return the headers of the tightest limit of requests, and of the tightest one of tokens."""
    headers: list[RawHeader] = []
    for lease, (limit, remaining, reset) in zip(
        account.quota.tightest(model_name), HEADERS_BY_KIND, strict=True
    ):
        if lease is not None:
            headers += (
                (limit, b"%d" % lease.limit.limit),
                (remaining, b"%d" % lease.remaining),
                (reset, format_duration(lease.window.retry_after_s(now_s)).encode()),
            )
    return headers


def format_duration(seconds: int) -> str:
    """Write a time as OpenAI does: 59s, 6m0s, 24h0m0s."""
    minutes, rest_s = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest_s}s"
    return f"{minutes}m{rest_s}s" if minutes else f"{rest_s}s"
