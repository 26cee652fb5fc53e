"""The one number behind each drawn token.

It depends on the sequence's seed and the token's position alone, so a seed draws the same tokens
in any batch, after a preemption, and with or without drafts.
"""

MASK = 2**64 - 1
# 2**64 / golden ratio, made odd: consecutive positions of one seed land far apart.
POSITION_STRIDE = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """In [0, 1), in steps of 2**-52."""
    return _mix(_mix(seed & MASK) + position * POSITION_STRIDE) / 2**64


def _mix(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), cut to its upper 52 bits."""
    value &= MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return (value ^ (value >> 31)) >> 12 << 12
