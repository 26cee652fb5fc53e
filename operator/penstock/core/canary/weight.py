"""How much traffic the canary has earned: evidence moves the weight, the clock does not."""

import math

from penstock.core.spec.canary import CanarySpec

# At most twofold from one block to the next: a gateway's endpoints warm up, too.
MAX_GROWTH = 2.0


def next_weight(spec: CanarySpec, weight: float, progress: float, e_value: float) -> float:
    """progress: 0 to 1, the part of the information that acceptance needs which is there.

    Grows on its own scale from min_weight to max_weight, and halts where the evidence against the
    canary is half of what aborts it (in logs): more traffic would then be a bet against the odds.
    It never shrinks: an abort does that.
    """
    if e_value >= 1 / math.sqrt(spec.alpha):
        return weight
    span = max(1.0, spec.max_weight / spec.min_weight)
    earned = spec.min_weight * math.pow(span, min(1.0, max(0.0, progress)))
    return max(weight, min(earned, MAX_GROWTH * weight, spec.max_weight))
