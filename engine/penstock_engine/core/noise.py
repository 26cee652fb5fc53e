"""Counter-based random numbers for sampling: one for each seed and token position.

A seed therefore has the same numbers in any batch, after a preemption, and with or without drafts.
"""

MASK = 2**64 - 1
# 2**64 / golden ratio, made odd: consecutive positions of one seed land far apart.
POSITION_STRIDE = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """A uniform random number in [0, 1), a multiple of 2**-52, for one seed and token position."""
    return _mix(_mix(seed & MASK) + position * POSITION_STRIDE) / 2**64


def _mix(value: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea and Flood, 2014), with the lower 12 bits cleared."""
    value &= MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return (value ^ (value >> 31)) >> 12 << 12
