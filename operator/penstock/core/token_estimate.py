"""Estimates the tokens of a prompt from the bytes of its text."""

from dataclasses import dataclass

# The weight that one more answer leaves to those before: a mean over the last 200.
MEMORY = 0.995
# What one answer may add to the memory, as a share of it: ten times the mean of 200. So one answer moves
# the estimate by at most 5 %, however long its prompt was.
MAX_WEIGHT = 0.05


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """Running ratio of prompt tokens, as engines report them, to bytes of text."""

    tokens: float = 5_000.0
    text_bytes: float = 20_000.0

    def of(self, text_bytes: int) -> int:
        return max(1, round(text_bytes * self.tokens / self.text_bytes))

    def observe(self, text_bytes: int, tokens: int) -> "TokenEstimate":
        """Adds one answer: both at their ratio, scaled down where they would outweigh the memory."""
        if text_bytes <= 0 or tokens <= 0:
            return self
        weight = min(
            1.0,
            MAX_WEIGHT * self.tokens / tokens,
            MAX_WEIGHT * self.text_bytes / text_bytes,
        )
        return TokenEstimate(
            MEMORY * self.tokens + weight * tokens, MEMORY * self.text_bytes + weight * text_bytes
        )
