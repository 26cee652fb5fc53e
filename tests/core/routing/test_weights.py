"""Weighted choice, at random and by key."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.weights import choose_by_key, choose_by_weight

A, B, C = ("a", ""), ("b", ""), ("c", "control")
SHARES = [(A, 1), (B, 3), (C, 4)]
WEIGHTS = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


def test_a_draw_picks_one_and_its_rest_is_a_draw_again() -> None:
    found = [choose_by_weight(SHARES, draw) for draw in (0.0, 0.0625, 0.125, 0.3125, 0.5, 0.75)]
    assert found == [(A, 0.0), (A, 0.5), (B, 0.0), (B, 0.5), (C, 0.0), (C, 0.5)]
    assert choose_by_weight([(A, 5)], 0.25) == (A, 0.25)
    assert choose_by_weight(SHARES, 1.0) == (C, 1 - 2**-53)


def test_keys_are_kept_by_the_same_one_over_versions() -> None:
    """Another hash would move every session when a gateway is upgraded."""
    names = "".join(choose_by_key(SHARES, f"key-{n}".encode())[0] for n in range(32))
    assert names == "babcaccbcbcbaabcccccaccabaccbccb"
    moved = "".join(
        choose_by_key([(A, 4), (B, 3), (C, 1)], f"key-{n}".encode())[0] for n in range(32)
    )
    assert moved == "babaabbbbacaaababcbbaacabaccbaab"


def test_each_keeps_its_share_of_the_keys() -> None:
    counts = dict.fromkeys((A, B, C), 0)
    for n in range(4000):
        counts[choose_by_key(SHARES, n.to_bytes(4))] += 1
    for one, weight in SHARES:
        assert abs(counts[one] / 4000 - weight / 8) < 0.03


@given(st.binary(max_size=8), WEIGHTS, st.integers(1, 9))
def test_a_weight_that_grows_only_draws_keys_in(
    key: bytes, weights: tuple[int, int, int], more: int
) -> None:
    shares = list(zip((A, B, C), weights, strict=True))
    grown = [(A, weights[0] + more), *shares[1:]]
    assert choose_by_key(grown, key) in (A, choose_by_key(shares, key))
