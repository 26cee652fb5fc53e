"""How long a step of an engine takes that computes no prompts, by the KV tokens that it attends to."""

from dataclasses import dataclass, fields

# Loads that differ less than this share of their mean do not show a slope.
LEAST_SPREAD = 0.05


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Sums over steps: their number, KV tokens, seconds, and the products of a least-squares line."""

    steps: float = 0.0
    kv: float = 0.0
    s: float = 0.0
    kv_kv: float = 0.0
    kv_s: float = 0.0

    def times(self, factor: float) -> "StepTimes":
        return StepTimes(*(factor * getattr(self, field.name) for field in fields(self)))

    def after(self, steps: int, kv_tokens: float, took_s: float) -> "StepTimes":
        return StepTimes(
            self.steps + steps,
            self.kv + steps * kv_tokens,
            self.s + took_s,
            self.kv_kv + steps * kv_tokens**2,
            self.kv_s + kv_tokens * took_s,
        )

    def step_s(self, kv_tokens: float) -> float:
        """Never negative, growing with the tokens, and in proportion to them at the most. 0 when
        nothing is known."""
        if not self.steps:
            return 0.0
        mean_kv, mean_s = self.kv / self.steps, self.s / self.steps
        variance = self.kv_kv / self.steps - mean_kv**2
        if variance <= (LEAST_SPREAD * mean_kv) ** 2:
            return mean_s
        slope = (self.kv_s / self.steps - mean_kv * mean_s) / variance
        slope = max(0.0, min(slope, mean_s / mean_kv))
        return mean_s + slope * (kv_tokens - mean_kv)


NO_STEPS = StepTimes()
