"""One of several things, in proportion to their weights: drawn, or the same for the same key."""

import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TypeVar

# What tells one thing from another: its names.
T = TypeVar("T", bound=tuple[str, ...])


def drawn(shares: Sequence[tuple[T, int]], draw: float) -> tuple[T, float]:
    """One of them, and what is left of the draw: uniform in [0, 1) again."""
    point = draw * sum(weight for _, weight in shares)
    for one, weight in shares[:-1]:
        if point < weight:
            return one, point / weight
        point -= weight
    one, weight = shares[-1]
    return one, min(point / weight, 1 - 2**-53)  # rounding may carry the point past the end


def kept(shares: Iterable[tuple[T, int]], key: bytes) -> T:
    """The same for the same key while weights stay.

    Weighted rendezvous hashing: each has an exponential draw of its own at the rate of its weight,
    and the first one wins. So a weight that grows only draws keys in, and one that shrinks only lets
    keys go.
    """

    def arrival(share: tuple[T, int]) -> float:
        names, weight = share
        person = blake2b("\0".join(names).encode(), digest_size=16).digest()
        digest = blake2b(key, digest_size=8, person=person).digest()
        return -math.log((int.from_bytes(digest) + 1) / 2**64) / weight

    return min(shares, key=arrival)[0]
