"""How many replicas of which variant: the cheapest mix that holds a need.

A replica of a variant takes a share of the need: one over the number of its replicas that would hold
the need alone. A mix whose shares sum up to one holds it as well, as in each inequality of which a need
is made its parts add up.

    the mix does not hold -> grow: the cheapest addition, and what runs is kept
    a part of it holds    -> shrink: the cheapest part
    another mix is cheaper by WORTH_A_SWAP, instead of what grows or stays
                          -> what it has more comes first; the dear ones go when that serves
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Of the price of keeping what runs: for less no pod is replaced.
WORTH_A_SWAP = 0.1
# Of a variant that is cheaper for the work, so many fewer than would fit are tried beside all and none:
# what is left is then held by a smaller one. The search stays short, and ends in one of each alone too.
FEWER_TRIED = 3
# Three replicas and a rounding error are three.
ROUNDING = 1e-9

Counts = tuple[int, ...]
"""Replicas of each offer, in the order of the offers."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One variant now. share: of the need, that one replica takes; above 0. replicas: asked for already.
    least, most: its bounds."""

    name: str
    share: float
    price_per_hour: float
    replicas: int
    least: int
    most: int

    @property
    def dearness(self) -> float:
        """Price of the whole need, if this variant took it in parts of a replica."""
        return self.price_per_hour / self.share

    @property
    def bounded(self) -> int:
        """What may stay of the replicas, with what must be there."""
        return max(self.least, min(self.most, self.replicas))


@dataclass(frozen=True, slots=True)
class Choice:
    """move: what changes. target: what is to be left when what is replaced has gone: it is beside its
    replacement in counts."""

    counts: Counts
    move: Literal["Keep", "Grow", "Shrink", "Swap"]
    target: Counts

    @property
    def total(self) -> int:
        return sum(self.counts)


def choose(offers: Sequence[Offer], least: int, most: int, need: float = 1.0) -> Choice:
    """The next mix. least, most: replicas of all variants together. need: in shares.

    Where bounds leave no mix that holds, the one that takes most.
    """
    current = within(offers, least, most)
    is_held = holds(offers, current, need)
    if is_held:
        kept = cheapest(offers, _lows(offers), current, least, most, need) or current
        if kept != current:
            return Choice(kept, "Shrink", kept)
    else:
        grown = cheapest(offers, current, _highs(offers), least, most, need)
        if grown is None:
            grown = fullest(offers, current, most)
            return Choice(grown, "Grow", grown)
        kept = grown
    other = cheapest(offers, _lows(offers), _highs(offers), least, most, need) or kept
    both = tuple(map(max, current, other))
    if price(offers, other) < (1 - WORTH_A_SWAP) * price(offers, kept) and sum(both) <= most:
        return Choice(both, "Swap" if is_held else "Grow", other)
    return Choice(kept, "Keep" if is_held else "Grow", kept)


def cheapest_first(offers: Sequence[Offer], total: int) -> Counts:
    """So many replicas, of those first that cost least each: as llm-d's WVA adds them, and takes them
    away. For whoever does not know what each of them takes."""
    counts = [offer.least for offer in offers]
    for i in sorted(range(len(offers)), key=lambda i: offers[i].price_per_hour):
        counts[i] += max(0, min(offers[i].most - counts[i], total - sum(counts)))
    return tuple(counts)


def price(offers: Sequence[Offer], counts: Counts) -> float:
    """Of an hour."""
    return sum(o.price_per_hour * n for o, n in zip(offers, counts, strict=True))


def taken(offers: Sequence[Offer], counts: Counts) -> float:
    """The share of the need that a mix takes."""
    return sum(o.share * n for o, n in zip(offers, counts, strict=True))


def holds(offers: Sequence[Offer], counts: Counts, need: float = 1.0) -> bool:
    return taken(offers, counts) >= need - ROUNDING


def within(offers: Sequence[Offer], least: int, most: int) -> Counts:
    """What is there, as far as bounds let it: the dearest for the work goes, the cheapest comes."""
    counts = [offer.bounded for offer in offers]
    by_dearness = sorted(range(len(offers)), key=lambda i: offers[i].dearness)
    for i in reversed(by_dearness):
        excess = max(0, sum(counts) - most)
        counts[i] -= min(excess, counts[i] - offers[i].least)
    for i in sorted(by_dearness, key=lambda i: offers[i].price_per_hour):
        counts[i] += min(max(0, least - sum(counts)), offers[i].most - counts[i])
    return tuple(counts)


def fewer(offers: Sequence[Offer], counts: Counts, target: Counts) -> Counts:
    """One replica less, of what the target has fewer of: the dearest for the work."""
    spare = [i for i, n in enumerate(counts) if n > target[i]]
    if not spare:
        return counts
    gone = max(spare, key=lambda i: offers[i].dearness)
    return tuple(n - (i == gone) for i, n in enumerate(counts))


def fullest(offers: Sequence[Offer], lows: Counts, most: int) -> Counts:
    """As many as may be, of those first that take most."""
    counts = list(lows)
    for i in sorted(range(len(offers)), key=lambda i: (-offers[i].share, offers[i].price_per_hour)):
        counts[i] += max(0, min(offers[i].most - counts[i], most - sum(counts)))
    return tuple(counts)


def cheapest(
    offers: Sequence[Offer], lows: Counts, highs: Counts, least: int, most: int, need: float
) -> Counts | None:
    """The cheapest mix between lows and highs that holds; None when there is none.

    Offers in the order of what work costs with them, depth first: of each as many as fit, or a few
    fewer, or none. What is left costs no less than with the next one, which bounds the search. It is
    never dearer than any one variant alone.
    """
    order = sorted(range(len(offers)), key=lambda i: (offers[i].dearness, i))
    search = _Search([offers[i] for i in order], [highs[i] - lows[i] for i in order])
    search.visit(
        [], need - taken(offers, lows), most - sum(lows), max(0, least - sum(lows)), price=0.0
    )
    if search.best is None:
        return None
    more = dict(zip(order, search.best, strict=True))
    return tuple(low + more[i] for i, low in enumerate(lows))


class _Search:
    """Additions to what must be there, offers from the cheapest for the work on."""

    def __init__(self, offers: Sequence[Offer], room: Sequence[int]) -> None:
        self._offers, self._room = offers, room
        self.best: tuple[int, ...] | None = None
        self._best_price = float("inf")

    def visit(self, taken: list[int], rest: float, most: int, least: int, price: float) -> None:
        """rest: of the need. least, most: replicas that are still to come. price: until here."""
        index = len(taken)
        if index == len(self._offers):
            if rest <= ROUNDING and least <= 0 and price < self._best_price - ROUNDING:
                self.best, self._best_price = tuple(taken), price
            return
        offer = self._offers[index]
        if price + max(0.0, rest) * offer.dearness >= self._best_price - ROUNDING:
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
        offer, limit = self._offers[index], max(0, min(most, self._room[index]))
        enough = max(0, -int(-(rest - ROUNDING) // offer.share))
        fits = min(limit, enough)
        filled = min(limit, max(enough, least))  # where more are asked for than the need takes
        tried = {filled, 0, *range(max(0, fits - FEWER_TRIED), fits + 1)}
        return sorted(tried, reverse=True)


def _lows(offers: Sequence[Offer]) -> Counts:
    return tuple(offer.least for offer in offers)


def _highs(offers: Sequence[Offer]) -> Counts:
    return tuple(max(offer.least, offer.most) for offer in offers)
