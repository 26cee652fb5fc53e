"""The chosen mix of variants covers the need, within bounds, at the lowest price."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.variants.cheapest import (
    WORTH_A_SWAP,
    Offer,
    bounded_counts,
    choose,
    covers,
    fill_by_share,
    price,
    remove_one,
    share,
)

SHARES = st.floats(0.05, 2.0)
PRICES = st.floats(0.1, 10.0)


@st.composite
def offers(draw: st.DrawFn, most_replicas: int = 12) -> tuple[Offer, ...]:
    made = []
    for number in range(draw(st.integers(1, 4))):
        least = draw(st.integers(0, 2))
        most = draw(st.integers(least, most_replicas))
        replicas = draw(st.integers(0, most_replicas))
        made.append(Offer(f"v{number}", draw(SHARES), draw(PRICES), replicas, least, most))
    return tuple(made)


def bounds_of(mix: tuple[Offer, ...], room: int) -> tuple[int, int]:
    least = sum(offer.least for offer in mix)
    return least, least + room


@given(offers(), st.integers(0, 30), st.floats(0.01, 6.0))
def test_the_need_is_covered_or_the_mix_is_at_its_bounds(mix, room, need) -> None:
    least, most = bounds_of(mix, room)
    choice = choose(mix, least, most, need)
    if not covers(mix, choice.counts, need):
        assert choice.move == "Grow"
        assert choice.counts == fill_by_share(mix, bounded_counts(mix, least, most), most)


@given(offers(), st.integers(0, 30), st.floats(0.01, 6.0))
def test_bounds_are_never_crossed(mix, room, need) -> None:
    least, most = bounds_of(mix, room)
    choice = choose(mix, least, most, need)
    assert choice.total <= most
    for offer, count in zip(mix, choice.counts, strict=True):
        assert offer.least <= count <= offer.most


@given(offers(), st.floats(0.01, 6.0))
def test_from_nothing_it_is_never_dearer_than_one_variant_alone(mix, need) -> None:
    mix = tuple(replace(offer, replicas=0, least=0) for offer in mix)
    choice = choose(mix, 0, 100, need)
    for offer in mix:
        alone = -int(-(need - 1e-9) // offer.share)
        if alone <= offer.most:
            assert price(mix, choice.counts) <= alone * offer.price_per_hour + 1e-6


@given(offers(most_replicas=4), st.floats(0.01, 4.0))
def test_from_nothing_it_is_the_cheapest_of_all_mixes(mix, need) -> None:
    mix = tuple(replace(offer, replicas=0, least=0) for offer in mix[:3])
    every = product(*(range(offer.most + 1) for offer in mix))
    holding = [price(mix, counts) for counts in every if covers(mix, counts, need)]
    if holding:
        assert price(mix, choose(mix, 0, 100, need).counts) == pytest.approx(min(holding))


@given(offers(), st.floats(0.01, 3.0), st.floats(1.0, 2.0))
def test_more_need_never_costs_less_from_nothing(mix, need, factor) -> None:
    mix = tuple(replace(offer, replicas=0, least=0, most=4) for offer in mix)
    less, more = choose(mix, 0, 100, need), choose(mix, 0, 100, factor * need)
    if covers(mix, more.counts, factor * need):
        assert price(mix, less.counts) <= price(mix, more.counts) + 1e-6


@given(offers(), st.integers(0, 30), st.floats(0.01, 6.0))
def test_only_one_way_at_a_time(mix, room, need) -> None:
    """A choice either adds replicas or removes them, never both."""
    least, most = bounds_of(mix, room)
    current = bounded_counts(mix, least, most)
    choice = choose(mix, least, most, need)
    pairs = list(zip(current, choice.counts, strict=True))
    if choice.move == "Shrink":
        assert all(after <= before for before, after in pairs)
        assert covers(mix, choice.counts, need)
    else:
        assert all(after >= before for before, after in pairs)
    if choice.move == "Keep":
        assert choice.counts == current


@given(offers(), st.integers(0, 30), st.floats(0.01, 6.0))
def test_it_comes_to_rest(mix, room, need) -> None:
    """The choices converge if the need is constant and each choice is carried out in full."""
    least, most = bounds_of(mix, room)
    for _ in range(12):
        choice = choose(mix, least, most, need)
        if choice.move == "Keep" or choice.counts == tuple(o.replicas for o in mix):
            break
        mix = tuple(replace(o, replicas=n) for o, n in zip(mix, choice.counts, strict=True))
    else:
        pytest.fail("it goes on choosing")


CHEAP = Offer("cheap", 0.25, 2.5, 0, 0, 8)
STRONG = Offer("strong", 0.6, 4.0, 0, 0, 8)


@pytest.mark.parametrize(
    ("replicas", "need", "move", "counts"),
    [
        ((0, 0), 0.2, "Grow", (1, 0)),  # replicas cannot be divided
        ((0, 0), 0.5, "Grow", (0, 1)),
        ((0, 0), 0.8, "Grow", (1, 1)),
        ((0, 2), 1.3, "Grow", (1, 2)),
        ((1, 2), 1.2, "Shrink", (0, 2)),
        ((0, 2), 0.6, "Shrink", (0, 1)),
        ((2, 0), 0.5, "Swap", (2, 1)),  # 4 instead of 5
        ((2, 1), 0.5, "Shrink", (0, 1)),
        ((0, 1), 0.2, "Swap", (1, 1)),  # 2.5 instead of 4
        ((2, 0), 0.6, "Grow", (2, 1)),  # the mix in the end costs 4 instead of 7.5
        ((3, 5), 3.7, "Keep", (3, 5)),  # 27.5 instead of 28
    ],
)
def test_moves(replicas, need, move, counts) -> None:
    mix = tuple(replace(o, replicas=n) for o, n in zip((CHEAP, STRONG), replicas, strict=True))
    choice = choose(mix, 0, 16, need)
    assert (choice.move, choice.counts) == (move, counts)


def test_a_saving_that_is_small_moves_nothing() -> None:
    for factor, move in ((1 - WORTH_A_SWAP / 2, "Keep"), (1 - 2 * WORTH_A_SWAP, "Swap")):
        other = Offer("other", 0.5, factor, 0, 0, 4)
        assert choose((Offer("here", 0.5, 1.0, 2, 0, 4), other), 0, 8).move == move


def test_the_highest_unit_price_is_removed_first() -> None:
    mix = (replace(CHEAP, replicas=2), replace(STRONG, replicas=2))
    assert remove_one(mix, (2, 2), (0, 1)) == (1, 2)
    assert remove_one(mix, (2, 2), (2, 1)) == (2, 1)
    assert remove_one(mix, (2, 2), (2, 2)) == (2, 2)


@given(offers(), st.integers(0, 30))
def test_what_is_within_bounds_stays(mix, room) -> None:
    least, most = bounds_of(mix, room)
    counts = bounded_counts(mix, least, most)
    assert least <= sum(counts) <= most
    if (
        all(o.least <= o.replicas <= o.most for o in mix)
        and least <= sum(o.replicas for o in mix) <= most
    ):
        assert counts == tuple(o.replicas for o in mix)
    assert share(mix, counts) >= 0
