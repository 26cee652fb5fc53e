"""Replicas of each variant: the cheapest mix that covers a need.

A replica of a variant covers a share of the need: one over the number of replicas of this variant that would
be enough alone. A mix whose shares sum up to one covers the need, because the load on each resource is a sum
over replicas.

    the present mix does not cover the need -> grow: all its replicas, and the cheapest addition
    a part of it does                       -> shrink: the cheapest such part
    another mix is cheaper by WORTH_A_SWAP  -> swap: add what that mix has more of; the others are removed
                                               when it serves
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Least saving for which pods are replaced, as a fraction of the price of the mix without a swap.
WORTH_A_SWAP = 0.1
# The search tries the number of replicas that fits, up to so many fewer, and none. With fewer, a smaller
# variant may cover the rest for less. It bounds the time of the search.
FEWER_TRIED = 3
# Tolerance for floating-point error in shares and prices.
ROUNDING = 1e-9

Counts = tuple[int, ...]
"""Replicas of each offer, in the order of the offers."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Variant as a choice. share: of the need that one replica covers; above 0.

    replicas: provisioned ones. least, most: its bounds.
    """

    name: str
    share: float
    price_per_hour: float
    replicas: int
    least: int
    most: int

    @property
    def unit_price(self) -> float:
        """Price of the whole need, if this variant covered it and replicas could be divided."""
        return self.price_per_hour / self.share

    @property
    def bounded(self) -> int:
        """The provisioned replicas within its bounds."""
        return max(self.least, min(self.most, self.replicas))


@dataclass(frozen=True, slots=True)
class Choice:
    """Next mix. counts: replicas of each offer. move: how these differ from the present ones.

    target: the mix when replaced replicas are removed. Until then, counts have both.
    """

    counts: Counts
    move: Literal["Keep", "Grow", "Shrink", "Swap"]
    target: Counts

    @property
    def total(self) -> int:
        return sum(self.counts)


def choose(offers: Sequence[Offer], least: int, most: int, need: float = 1.0) -> Choice:
    """Choose the next mix: the cheapest that covers the need, or the largest if bounds allow none that does.

    least, most: bounds of all replicas together. need: sum of shares.
    """
    current = bounded_counts(offers, least, most)
    is_enough = covers(offers, current, need)
    if is_enough:
        kept = cheapest(offers, _lows(offers), current, least, most, need) or current
        if kept != current:
            return Choice(kept, "Shrink", kept)
    else:
        grown = cheapest(offers, current, _highs(offers), least, most, need)
        if grown is None:
            grown = fill_by_share(offers, current, most)
            return Choice(grown, "Grow", grown)
        kept = grown
    other = cheapest(offers, _lows(offers), _highs(offers), least, most, need) or kept
    both = tuple(map(max, current, other))
    if price(offers, other) < (1 - WORTH_A_SWAP) * price(offers, kept) and sum(both) <= most:
        return Choice(both, "Swap" if is_enough else "Grow", other)
    return Choice(kept, "Keep" if is_enough else "Grow", kept)


def cheapest_first(offers: Sequence[Offer], total: int) -> Counts:
    """Fill up to `total` replicas by the price of a replica, as llm-d's WVA adds and removes them.

    For rules that do not know the shares of the variants.
    """
    counts = [offer.least for offer in offers]
    for i in sorted(range(len(offers)), key=lambda i: offers[i].price_per_hour):
        counts[i] += max(0, min(offers[i].most - counts[i], total - sum(counts)))
    return tuple(counts)


def price(offers: Sequence[Offer], counts: Counts) -> float:
    """Price of a mix per hour."""
    return sum(o.price_per_hour * n for o, n in zip(offers, counts, strict=True))


def share(offers: Sequence[Offer], counts: Counts) -> float:
    """Share of the need that a mix covers."""
    return sum(o.share * n for o, n in zip(offers, counts, strict=True))


def covers(offers: Sequence[Offer], counts: Counts, need: float = 1.0) -> bool:
    """Whether a mix covers a need."""
    return share(offers, counts) >= need - ROUNDING


def bounded_counts(offers: Sequence[Offer], least: int, most: int) -> Counts:
    """The present mix within all bounds.

    Those with the highest unit price are removed first, and those with the lowest price per replica added.
    """
    counts = [offer.bounded for offer in offers]
    by_unit_price = sorted(range(len(offers)), key=lambda i: offers[i].unit_price)
    for i in reversed(by_unit_price):
        excess = max(0, sum(counts) - most)
        counts[i] -= min(excess, counts[i] - offers[i].least)
    for i in sorted(by_unit_price, key=lambda i: offers[i].price_per_hour):
        counts[i] += min(max(0, least - sum(counts)), offers[i].most - counts[i])
    return tuple(counts)


def remove_one(offers: Sequence[Offer], counts: Counts, target: Counts) -> Counts:
    """Remove one replica: of the offers of which the target has fewer, that with the highest unit price."""
    spare = [i for i, n in enumerate(counts) if n > target[i]]
    if not spare:
        return counts
    removed = max(spare, key=lambda i: offers[i].unit_price)
    return tuple(n - (i == removed) for i, n in enumerate(counts))


def add_towards(offers: Sequence[Offer], counts: Counts, target: Counts, total: int) -> Counts:
    """Add replicas that the target has, up to `total`, those with the lowest unit price first."""
    added = list(counts)
    for i in sorted(range(len(offers)), key=lambda i: offers[i].unit_price):
        added[i] += max(0, min(target[i] - added[i], total - sum(added)))
    return tuple(added)


def fill_by_share(offers: Sequence[Offer], lows: Counts, most: int) -> Counts:
    """Add up to `most` replicas, largest share first."""
    counts = list(lows)
    for i in sorted(range(len(offers)), key=lambda i: (-offers[i].share, offers[i].price_per_hour)):
        counts[i] += max(0, min(offers[i].most - counts[i], most - sum(counts)))
    return tuple(counts)


def cheapest(
    offers: Sequence[Offer], lows: Counts, highs: Counts, least: int, most: int, need: float
) -> Counts | None:
    """The cheapest mix between lows and highs that covers the need; None if there is none.

    Branch and bound, depth first, by ascending unit price: of each offer as many replicas as fit, a few
    fewer, or none. The rest of the need costs at least the unit price of the next offer, which is the bound.
    The mix costs no more than any single variant. It may miss the optimum, as not all numbers are tried.
    """
    order = sorted(range(len(offers)), key=lambda i: (offers[i].unit_price, i))
    search = _Search([offers[i] for i in order], [highs[i] - lows[i] for i in order])
    search.visit(
        [], need - share(offers, lows), most - sum(lows), max(0, least - sum(lows)), price=0.0
    )
    if search.best is None:
        return None
    more = dict(zip(order, search.best, strict=True))
    return tuple(low + more[i] for i, low in enumerate(lows))


class _Search:
    """Branch-and-bound search for the cheapest replicas to add, over offers by ascending unit price.

    room: most replicas to add of each offer.
    """

    def __init__(self, offers: Sequence[Offer], room: Sequence[int]) -> None:
        self._offers, self._room = offers, room
        self.best: tuple[int, ...] | None = None
        self._best_price = float("inf")

    def visit(self, taken: list[int], rest: float, most: int, least: int, price: float) -> None:
        """Try the numbers of the next offer.

        taken: numbers of the offers so far. rest: of the need. least, most: replicas to add from here on.
        price: of those so far.
        """
        index = len(taken)
        if index == len(self._offers):
            if rest <= ROUNDING and least <= 0 and price < self._best_price - ROUNDING:
                self.best, self._best_price = tuple(taken), price
            return
        offer = self._offers[index]
        if price + max(0.0, rest) * offer.unit_price >= self._best_price - ROUNDING:
            return
        for count in self._tried(index, rest, most, least):
            self.visit(
                [*taken, count],
                rest - count * offer.share,
                most - count,
                least - count,
                price + count * offer.price_per_hour,
            )

    def _tried(self, index: int, rest: float, most: int, least: int) -> list[int]:
        """Numbers of replicas of an offer to try, largest first."""
        offer, limit = self._offers[index], max(0, min(most, self._room[index]))
        enough = max(0, -int(-(rest - ROUNDING) // offer.share))
        fits = min(limit, enough)
        filled = min(limit, max(enough, least))  # least may be more than the need
        tried = {filled, 0, *range(max(0, fits - FEWER_TRIED), fits + 1)}
        return sorted(tried, reverse=True)


def _lows(offers: Sequence[Offer]) -> Counts:
    return tuple(offer.least for offer in offers)


def _highs(offers: Sequence[Offer]) -> Counts:
    return tuple(max(offer.least, offer.most) for offer in offers)
