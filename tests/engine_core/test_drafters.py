"""Guesses from what has been written, and when they are worth their time."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock_engine.core.drafters import (
    MAX_DEPTH_TOKENS,
    MAX_STORES,
    Drafter,
    NgramDrafter,
    SuffixDrafter,
    SuffixStore,
    SuffixStoresBySalt,
)
from penstock_engine.core.speculation import PROBE_STEPS, DraftLengthController, SpeculationConfig

texts = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def propose(drafter: Drafter, tokens: list[int], max_drafts: int) -> tuple[int, ...]:
    drafter.index(tokens, len(tokens))
    return drafter.propose(tokens, max_drafts)


@pytest.mark.parametrize(
    ("tokens", "drafts"),
    [
        ([1, 2, 3, 9, 1, 2], (3, 9, 1)),
        ([1, 2, 3, 1, 2, 4, 1, 2], (4, 1, 2)),  # the latest occurrence
        ([5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2], (7, 6, 1)),  # the longest match, though older
        ([1, 2, 3], ()),
        ([1], ()),
        ([4, 4], (4,)),
    ],
)
def test_what_followed_the_same_tokens_is_guessed(tokens: list[int], drafts: tuple[int]) -> None:
    assert propose(NgramDrafter(1, 3), tokens, 3) == drafts


@given(texts, st.integers(1, 3), st.integers(0, 2), st.integers(1, 6))
def test_a_growing_text_gives_what_a_search_would(
    tokens: list[int], shortest: int, extra: int, most: int
) -> None:
    """The index, filled step by step, against a search from the back in the whole text."""
    drafter = NgramDrafter(shortest, shortest + extra)
    for end in range(1, len(tokens) + 1):
        text = tokens[:end]
        assert propose(drafter, text, most) == search(text, shortest, shortest + extra, most)


def search(text: list[int], shortest: int, longest: int, most: int) -> tuple[int, ...]:
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length - 1, -1, -1):
            if text[start : start + length] == text[len(text) - length :]:
                return tuple(text[start + length : start + length + most])
    return ()


@pytest.mark.parametrize("drafter", [NgramDrafter(1, 3), SuffixDrafter(SuffixStore(), 0.1)])
def test_a_long_text_is_indexed_in_slices_and_guessed_from_when_all_of_it_is(
    drafter: Drafter,
) -> None:
    """No call takes more than it may; a text that has grown is behind again until it has."""
    tokens = [1, 2, 3, 4] * 5
    assert [drafter.index(tokens, most) for most in (0, 8, 8)] == [0, 8, 8]
    assert drafter.propose(tokens, 2) == ()
    assert [drafter.index(tokens, 8) for _ in range(2)] == [4, 0]
    assert drafter.propose(tokens, 2) == (1, 2)
    tokens.append(1)
    assert drafter.propose(tokens, 2) == ()
    assert drafter.index(tokens, 8) == 1
    assert drafter.propose(tokens, 2) == (2, 3)


@given(texts, st.integers(1, 9), st.booleans())
def test_slices_of_any_size_index_the_same(tokens: list[int], size: int, by_ngrams: bool) -> None:
    def make() -> Drafter:
        return NgramDrafter(1, 3) if by_ngrams else SuffixDrafter(SuffixStore(), 0.1)

    sliced = make()
    while sliced.index(tokens, size):
        pass
    assert sliced.propose(tokens, 5) == propose(make(), tokens, 5)


def test_the_usual_continuation_is_guessed_while_it_is_likely() -> None:
    """1 2 was followed by 3 twice and by 4 once; 3 by 5 always."""
    store = SuffixStore()
    for text in ([1, 2, 3, 5], [1, 2, 4], [1, 2, 3, 5]):
        for position in range(len(text)):
            store.add(text, position)
    assert propose(SuffixDrafter(store, 0.5), [1, 2], 4) == (3, 5)
    assert propose(SuffixDrafter(store, 0.95), [8, 1, 2], 4) == ()


@given(st.lists(texts, max_size=5))
def test_a_store_keeps_its_bound(written: list[list[int]]) -> None:
    store = SuffixStore(max_entries=10)
    for text in written:
        propose(SuffixDrafter(store, 0.1), text, 3)
    assert len(store._followers) <= 10


def test_one_tenants_text_guesses_nothing_for_another() -> None:
    stores = SuffixStoresBySalt()
    propose(SuffixDrafter(stores.get("a"), 0.1), [1, 2, 3], 1)
    assert propose(SuffixDrafter(stores.get("a"), 0.1), [1], 2) == (2, 3)
    assert propose(SuffixDrafter(stores.get("b"), 0.1), [1], 2) == ()
    for number in range(MAX_STORES):
        stores.get(str(number))
    assert propose(SuffixDrafter(stores.get("a"), 0.1), [1], 2) == ()


def trained(chance: float, per_token_s: float, fixed_s: float, num_sequences: int) -> list[int]:
    """What a controller settles on where drafts are right with `chance` and steps cost that."""
    controller = DraftLengthController(4)
    chosen = []
    for step in range(2000):
        drafts = controller.num_drafts(num_sequences)
        chosen.append(drafts)
        num_tokens = num_sequences * (1 + drafts)
        controller.observe_step(num_tokens, fixed_s + per_token_s * num_tokens)
        for sequence in range(num_sequences if drafts else 0):
            # The golden ratio spreads the draws evenly: no randomness, any chance.
            right = 0
            while right < drafts and (step * 31 + sequence * 7 + right) * 0.618 % 1 < chance:
                right += 1
            controller.observe_acceptance(drafts, right)
    return chosen[-500:]


def test_cheap_and_right_guesses_are_made_in_full() -> None:
    """On a device where a step costs the same whatever is in it."""
    assert set(trained(0.9, 0.0, 0.01, 1)) <= {0, 4}
    assert trained(0.9, 0.0, 0.01, 1).count(4) >= 490


def test_guesses_that_are_never_right_rest() -> None:
    chosen = trained(0.0, 0.001, 0.001, 8)
    assert chosen.count(0) >= len(chosen) * (1 - 2 / PROBE_STEPS)


def test_what_does_not_pay_is_cut_short() -> None:
    """Half of the guesses right, a step's time made of its tokens: no guess pays for itself."""
    chosen = trained(0.5, 0.001, 0.0, 8)
    assert chosen.count(0) >= len(chosen) * (1 - 2 / PROBE_STEPS)


def test_somewhere_between_a_few_pay() -> None:
    """Best of 1 + a + ... + a^d over 10 + n(1 + d): worked out by hand for a = 0.7, n = 2."""
    best = max(range(5), key=lambda d: sum(0.7**i for i in range(d + 1)) / (10 + 2 * (1 + d)))
    chosen = trained(0.7, 0.001, 0.010, 2)
    assert best == 3
    assert sum(abs(d - best) <= 1 for d in chosen) >= len(chosen) * 0.95


def test_bad_luck_is_not_for_ever() -> None:
    """It rests, then text comes that can be guessed: the probes find out."""
    controller = DraftLengthController(4)
    for chance in (0.0, 1.0):
        for _ in range(3000):
            drafts = controller.num_drafts(1)
            controller.observe_step(1 + drafts, 0.010 + 0.005 * drafts)
            if drafts:
                controller.observe_acceptance(drafts, round(drafts * chance))
    assert controller.num_drafts(1) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_speculative_tokens": 0},
        {"num_speculative_tokens": 33},
        {"prompt_lookup_min": 0},
        {"prompt_lookup_min": 4, "prompt_lookup_max": 3},
        {"suffix_decoding_min_token_prob": 0.0},
        {"method": "draft_model"},
        {"model": "somewhere"},
    ],
    ids=str,
)
def test_bad_settings_are_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"method": "ngram", "num_speculative_tokens": 3}
    with pytest.raises(ValueError, match="must"):
        SpeculationConfig(**(right | wrong))  # type: ignore[arg-type]


def test_a_step_that_only_computes_prompts_has_a_price_too() -> None:
    """A step's time may be all for its tokens, with nothing fixed."""
    controller = DraftLengthController(4)
    for num_tokens in (10, 20, 40):
        controller.observe_step(num_tokens, 0.01 * num_tokens - 0.05)
    for _ in range(20):
        controller.observe_acceptance(4, 4)
    assert 0 <= controller.num_drafts(0) <= 4


@given(texts, st.integers(0, 6))
def test_a_guess_from_suffixes_is_no_longer_than_asked_for(tokens: list[int], most: int) -> None:
    store = SuffixStore()
    for position in range(len(tokens)):
        store.add(tokens, position)
    longest = propose(SuffixDrafter(store, 0.0), tokens, 10)
    assert propose(SuffixDrafter(store, 0.0), tokens, most) == longest[:most]


def longest_known(written: list[int], tail: list[int]) -> tuple[int, float] | None:
    """Reference by linear search: the most frequent successor of tail's longest known suffix."""
    for depth in range(min(MAX_DEPTH_TOKENS, len(tail)), 0, -1):
        counts: dict[int, int] = {}
        for position in range(depth, len(written)):
            if written[position - depth : position] == tail[-depth:]:
                counts[written[position]] = counts.get(written[position], 0) + 1
        if counts:
            token = max(counts, key=counts.__getitem__)
            return token, counts[token] / sum(counts.values())
    return None


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.lists(st.integers(0, 2), max_size=10),
)
def test_a_store_knows_what_a_search_would_find(written: list[int], tail: list[int]) -> None:
    store = SuffixStore()
    for position in range(len(written)):
        store.add(written, position)
    assert store.best(tail) == longest_known(written, tail)


@pytest.mark.parametrize(("min_share", "drafts"), [(0.5, (2, 1)), (0.51, ())])
def test_a_guess_may_be_just_as_likely_as_it_has_to_be(
    min_share: float, drafts: tuple[int, ...]
) -> None:
    """After 1 came 2 and 3 once each; after 1 and 2, always 1."""
    store = SuffixStore()
    for text in ([1, 2, 1, 3], [2, 4]):
        for position in range(len(text)):
            store.add(text, position)
    assert propose(SuffixDrafter(store, min_share), [1], 2) == drafts


def test_the_runs_that_were_met_last_stay() -> None:
    """A store of two runs: the one that came again is not the oldest."""
    store = SuffixStore(max_entries=2)
    for text in ([1, 5], [2, 6], [1, 5], [3, 7]):
        store.add(text, 1)
    assert [store.best([token]) for token in (1, 2, 3)] == [(5, 1.0), None, (7, 1.0)]


def test_the_least_recently_used_store_is_evicted() -> None:
    """MAX_STORES stores are kept; one more evicts the least recently used."""
    stores = SuffixStoresBySalt()
    made = [stores.get(str(number)) for number in range(MAX_STORES)]
    assert [stores.get(str(number)) for number in range(MAX_STORES)] == made
    assert stores.get("0") is made[0]
    stores.get("new")
    assert stores.get("0") is made[0]
    assert stores.get("2") is made[2]
    assert stores.get("1") is not made[1]


def test_a_store_learns_of_runs_up_to_its_depth() -> None:
    """A text of eight tokens: of the last, its one to six predecessors are known."""
    store, text = SuffixStore(), [1, 2, 3, 4, 5, 6, 7, 8]
    store.add(text, 7)
    for length in range(1, 8):
        assert store.best(text[7 - length : 7]) == (8, 1.0)
    assert store.best([9]) is None
    assert store.best([]) is None
    assert store.best([5, 6]) is None
