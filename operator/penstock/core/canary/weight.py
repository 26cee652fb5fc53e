"""Computes the canary's share of traffic from the evidence; elapsed time alone does not raise it."""

import math

from penstock.core.spec.canary import CanarySpec

# Largest growth of the share from one block to the next, so that new endpoints can warm up.
MAX_WEIGHT_GROWTH = 2.0


def next_weight(spec: CanarySpec, weight: float, progress: float, e_value: float) -> float:
    """The next share of traffic, from min_weight to max_weight; it never falls.

    progress: the gathered part (0 to 1) of the information that acceptance needs; the share grows
    exponentially with it. The share stays when the evidence against the canary (e_value) exceeds half of
    the abort threshold on a log scale.
    """
    if e_value >= 1 / math.sqrt(spec.alpha):
        return weight
    span = max(1.0, spec.max_weight / spec.min_weight)
    earned = spec.min_weight * math.pow(span, min(1.0, max(0.0, progress)))
    return max(weight, min(earned, MAX_WEIGHT_GROWTH * weight, spec.max_weight))
