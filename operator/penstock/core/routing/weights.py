"""Weighted choice: at random, or by a key with rendezvous hashing."""

import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TypeVar

# An option, identified by its names.
T = TypeVar("T", bound=tuple[str, ...])


def choose_by_weight(shares: Sequence[tuple[T, int]], draw: float) -> tuple[T, float]:
    """Choose by weight. Also returns the rest of the draw, which is uniform in [0, 1) again."""
    point = draw * sum(weight for _, weight in shares)
    for one, weight in shares[:-1]:
        if point < weight:
            return one, point / weight
        point -= weight
    one, weight = shares[-1]
    return one, min(point / weight, 1 - 2**-53)  # floating-point error may exceed 1


def choose_by_key(shares: Iterable[tuple[T, int]], key: bytes) -> T:
    """Choose by key: the same option for the same key while weights are unchanged.

    Weighted rendezvous hashing: each option has an exponential variate at the rate of its weight, and the
    smallest wins. So a growing weight only gains keys, and a shrinking one only loses keys.
    """

    def arrival(share: tuple[T, int]) -> float:
        names, weight = share
        person = blake2b("\0".join(names).encode(), digest_size=16).digest()
        digest = blake2b(key, digest_size=8, person=person).digest()
        return -math.log((int.from_bytes(digest) + 1) / 2**64) / weight

    return min(shares, key=arrival)[0]
