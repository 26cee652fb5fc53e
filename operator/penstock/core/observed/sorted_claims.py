"""Claims on a model name, kept in an order."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.core.observed.name_claims import NameClaim, ObjectKey

# Claims of different objects must have different values.
SortKey = Callable[[NameClaim], tuple[Any, ...]]


class SortedClaims:
    """Claims of different objects. A change compares as many of them as the logarithm of their number."""

    def __init__(self, order: SortKey, claims: Iterable[NameClaim] = ()) -> None:
        self._order = order
        self._claims = sorted(claims, key=order)

    def __iter__(self) -> Iterator[NameClaim]:
        return iter(self._claims)

    def __bool__(self) -> bool:
        return bool(self._claims)

    def add(self, claim: NameClaim) -> None:
        """Add a claim of an object that has none here."""
        insort(self._claims, claim, key=self._order)

    def remove(self, claim: NameClaim) -> None:
        """Remove a claim that is here."""
        del self._claims[bisect_left(self._claims, self._order(claim), key=self._order)]

    def first(self, *, but: ObjectKey | None = None) -> NameClaim | None:
        """Return the first claim that is not of the object `but`; None if there is none."""
        return next((claim for claim in self._claims[:2] if claim.key != but), None)
