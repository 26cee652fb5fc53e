"""Whole replicas from ratios, without a replica more for the last bit of a float.

Kubernetes computes in milli-units, where 0.8 / 0.4 x 3 is 6 and not 6.000000000000001.
"""

import math

GRAIN = 1e-9


def up(replicas: float) -> int:
    return math.ceil(replicas - GRAIN)


def down(replicas: float) -> int:
    return math.floor(replicas + GRAIN)
