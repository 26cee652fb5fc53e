"""Estimates the tokens of a prompt from the bytes of its text."""

from dataclasses import dataclass

# Decay of earlier answers with each new one: a mean over about the last 200.
MEMORY = 0.995
# Bound on the weight of one answer, as a fraction of the decayed sum: ten times the mean of 200. One
# answer moves the estimate by at most 5 %, however long its prompt is.
MAX_WEIGHT = 0.05
# Bytes of text below which a prompt does not count. A chat template adds about 30 tokens, which are a
# quarter of the tokens of 512 bytes, but fifteen times those of a word.
MIN_TEXT_BYTES = 512
# Most tenants of a service whose estimates are kept, some hundred bytes each. Those that had no answer for
# the longest time are forgotten.
MAX_TENANTS = 1000


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """Running ratio of prompt tokens, as engines report them, to bytes of text."""

    tokens: float = 5_000.0
    text_bytes: float = 20_000.0

    @property
    def ratio(self) -> float:
        """Tokens of a byte."""
        return self.tokens / self.text_bytes

    def of(self, text_bytes: int) -> int:
        """Estimated tokens of so many bytes of text."""
        return max(1, round(text_bytes * self.tokens / self.text_bytes))

    def observe(self, text_bytes: int, tokens: int) -> "TokenEstimate":
        """Add one answer, scaled down if it would exceed MAX_WEIGHT.

        No tokenizer makes more than one token of a byte: further tokens are not of the text.
        """
        if text_bytes < MIN_TEXT_BYTES or tokens <= 0:
            return self
        tokens = min(tokens, text_bytes)
        weight = min(
            1.0,
            MAX_WEIGHT * self.tokens / tokens,
            MAX_WEIGHT * self.text_bytes / text_bytes,
        )
        return TokenEstimate(
            MEMORY * self.tokens + weight * tokens, MEMORY * self.text_bytes + weight * text_bytes
        )


class TokenEstimates:
    """The estimate of each tenant of a service, which answers to other tenants do not change.

    A tenant without an answer has the mean of the others' ratios, with the weight of a first estimate.
    """

    def __init__(self) -> None:
        self._by_tenant: dict[str, TokenEstimate] = {}  # the longest without an answer first
        self._sum_of_ratios = 0.0

    def get(self, tenant: str) -> TokenEstimate:
        """The present estimate of a tenant; empty: of clients without one."""
        own = self._by_tenant.get(tenant)
        if own is not None or not self._by_tenant:
            return own or TokenEstimate()
        start = TokenEstimate()
        mean_ratio = self._sum_of_ratios / len(self._by_tenant)
        return TokenEstimate(start.text_bytes * mean_ratio, start.text_bytes)

    def observe(self, tenant: str, text_bytes: int, tokens: int) -> None:
        """Add one answer to a tenant."""
        before = self.get(tenant)
        after = before.observe(text_bytes, tokens)
        if after is before:
            return
        self._forget(tenant)
        if len(self._by_tenant) >= MAX_TENANTS:
            self._forget(next(iter(self._by_tenant)))
        self._by_tenant[tenant] = after
        self._sum_of_ratios += after.ratio

    def _forget(self, tenant: str) -> None:
        estimate = self._by_tenant.pop(tenant, None)
        if estimate is not None:
            self._sum_of_ratios -= estimate.ratio
