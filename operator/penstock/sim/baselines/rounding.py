"""Rounds ratios to whole replicas, tolerant of floating-point error.

Kubernetes computes in milli-units, where 0.8 / 0.4 x 3 is 6 and not 6.000000000000001.
"""

import math

GRAIN = 1e-9


def up(replicas: float) -> int:
    """Smallest whole number at or above, up to GRAIN."""
    return math.ceil(replicas - GRAIN)


def down(replicas: float) -> int:
    """Largest whole number at or below, up to GRAIN."""
    return math.floor(replicas + GRAIN)
