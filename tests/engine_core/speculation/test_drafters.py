"""Tests of n-gram and suffix drafters, and of the draft length controller over many steps."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock_engine.core.drafter import Drafter
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.speculation.draft_length import PROBE_STEPS, DraftLengthController
from penstock_engine.core.speculation.drafters import (
    MAX_DEPTH_TOKENS,
    MAX_STORES,
    NgramDrafter,
    SuffixDrafter,
    SuffixStore,
    SuffixStoresBySalt,
)

texts = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def propose(drafter: Drafter, tokens: list[int], max_drafts: int) -> tuple[int, ...]:
    drafter.index(tokens, len(tokens))
    return drafter.propose(tokens, max_drafts)


@pytest.mark.parametrize(
    ("tokens", "drafts"),
    [
        ([1, 2, 3, 9, 1, 2], (3, 9, 1)),
        ([1, 2, 3, 1, 2, 4, 1, 2], (4, 1, 2)),  # the latest occurrence
        ([5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2], (7, 6, 1)),  # the longest match, although older
        ([1, 2, 3], ()),
        ([1], ()),
        ([4, 4], (4,)),
    ],
)
def test_ngram_drafts_are_what_followed_the_same_tokens(
    tokens: list[int], drafts: tuple[int]
) -> None:
    assert propose(NgramDrafter(1, 3), tokens, 3) == drafts


@given(texts, st.integers(1, 3), st.integers(0, 2), st.integers(1, 6))
def test_ngram_drafts_equal_those_of_a_linear_search(
    tokens: list[int], shortest: int, extra: int, most: int
) -> None:
    """The index grows with the text; the reference searches the whole text backwards."""
    drafter = NgramDrafter(shortest, shortest + extra)
    for end in range(1, len(tokens) + 1):
        text = tokens[:end]
        assert propose(drafter, text, most) == search(text, shortest, shortest + extra, most)


def search(text: list[int], shortest: int, longest: int, most: int) -> tuple[int, ...]:
    """Reference by linear search: what followed the longest, latest match."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length - 1, -1, -1):
            if text[start : start + length] == text[len(text) - length :]:
                return tuple(text[start + length : start + length + most])
    return ()


@pytest.mark.parametrize("drafter", [NgramDrafter(1, 3), SuffixDrafter(SuffixStore(), 0.1)])
def test_a_text_is_indexed_in_slices_and_drafts_need_a_complete_index(
    drafter: Drafter,
) -> None:
    """Each call indexes at most the given number of tokens. New tokens must be indexed again."""
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
def test_the_size_of_slices_does_not_change_drafts(
    tokens: list[int], size: int, by_ngrams: bool
) -> None:
    def make() -> Drafter:
        return NgramDrafter(1, 3) if by_ngrams else SuffixDrafter(SuffixStore(), 0.1)

    sliced = make()
    while sliced.index(tokens, size):
        pass
    assert sliced.propose(tokens, 5) == propose(make(), tokens, 5)


def test_suffix_drafts_are_the_most_frequent_continuation_if_likely() -> None:
    """In the texts, 1 2 is followed by 3 twice and by 4 once, and 3 always by 5."""
    store = SuffixStore()
    for text in ([1, 2, 3, 5], [1, 2, 4], [1, 2, 3, 5]):
        for position in range(len(text)):
            store.add(text, position)
    assert propose(SuffixDrafter(store, 0.5), [1, 2], 4) == (3, 5)
    assert propose(SuffixDrafter(store, 0.95), [8, 1, 2], 4) == ()


@given(st.lists(texts, max_size=5))
def test_a_store_has_a_maximum_size(texts_added: list[list[int]]) -> None:
    store = SuffixStore(max_entries=10)
    for text in texts_added:
        propose(SuffixDrafter(store, 0.1), text, 3)
    assert len(store._followers) <= 10


def test_texts_of_one_salt_give_no_drafts_for_another() -> None:
    stores = SuffixStoresBySalt()
    propose(SuffixDrafter(stores.get("a"), 0.1), [1, 2, 3], 1)
    assert propose(SuffixDrafter(stores.get("a"), 0.1), [1], 2) == (2, 3)
    assert propose(SuffixDrafter(stores.get("b"), 0.1), [1], 2) == ()
    for number in range(MAX_STORES):
        stores.get(str(number))
    assert propose(SuffixDrafter(stores.get("a"), 0.1), [1], 2) == ()


def chosen_lengths(
    chance: float, per_token_s: float, fixed_s: float, num_sequences: int
) -> list[int]:
    """Returns the last choices of a controller for this acceptance rate and these step times."""
    controller = DraftLengthController(4)
    chosen = []
    for step in range(2000):
        drafts = controller.num_drafts(num_sequences)
        chosen.append(drafts)
        num_tokens = num_sequences * (1 + drafts)
        controller.observe_step(num_tokens, fixed_s + per_token_s * num_tokens)
        for sequence in range(num_sequences if drafts else 0):
            # Multiples of the golden ratio are spread evenly, so no randomness is needed.
            right = 0
            while right < drafts and (step * 31 + sequence * 7 + right) * 0.618 % 1 < chance:
                right += 1
            controller.observe_acceptance(drafts, right)
    return chosen[-500:]


def test_the_maximum_is_chosen_if_drafts_cost_nothing() -> None:
    """All steps take the same time, whatever their size."""
    assert set(chosen_lengths(0.9, 0.0, 0.01, 1)) <= {0, 4}
    assert chosen_lengths(0.9, 0.0, 0.01, 1).count(4) >= 490


def test_no_drafts_are_made_if_none_is_accepted() -> None:
    chosen = chosen_lengths(0.0, 0.001, 0.001, 8)
    assert chosen.count(0) >= len(chosen) * (1 - 2 / PROBE_STEPS)


def test_no_drafts_are_made_if_they_do_not_pay() -> None:
    """Half of the drafts are accepted, but step time is proportional to tokens."""
    chosen = chosen_lengths(0.5, 0.001, 0.0, 8)
    assert chosen.count(0) >= len(chosen) * (1 - 2 / PROBE_STEPS)


def test_a_few_drafts_are_made_if_only_a_few_pay() -> None:
    """The optimum of (1 + a + ... + a^d) / (10 + n(1 + d)) for a = 0.7 and n = 2 is d = 3."""
    best = max(range(5), key=lambda d: sum(0.7**i for i in range(d + 1)) / (10 + 2 * (1 + d)))
    chosen = chosen_lengths(0.7, 0.001, 0.010, 2)
    assert best == 3
    assert sum(abs(d - best) <= 1 for d in chosen) >= len(chosen) * 0.95


def test_probes_discover_that_drafts_are_accepted_again() -> None:
    """First no drafts are accepted, so that the controller makes none; then all are."""
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
def test_invalid_settings_are_rejected(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"method": "ngram", "num_speculative_tokens": 3}
    with pytest.raises(ValueError, match="must"):
        SpeculationConfig(**(right | wrong))  # type: ignore[arg-type]


def test_the_number_of_drafts_is_valid_for_a_step_of_prompts_only() -> None:
    """The fit of the step times may have a negative constant."""
    controller = DraftLengthController(4)
    for num_tokens in (10, 20, 40):
        controller.observe_step(num_tokens, 0.01 * num_tokens - 0.05)
    for _ in range(20):
        controller.observe_acceptance(4, 4)
    assert 0 <= controller.num_drafts(0) <= 4


@given(texts, st.integers(0, 6))
def test_suffix_drafts_have_at_most_the_requested_length(tokens: list[int], most: int) -> None:
    store = SuffixStore()
    for position in range(len(tokens)):
        store.add(tokens, position)
    longest = propose(SuffixDrafter(store, 0.0), tokens, 10)
    assert propose(SuffixDrafter(store, 0.0), tokens, most) == longest[:most]


def longest_known(texts_added: list[int], tail: list[int]) -> tuple[int, float] | None:
    """Reference by linear search: the most frequent successor of tail's longest known suffix."""
    for depth in range(min(MAX_DEPTH_TOKENS, len(tail)), 0, -1):
        counts: dict[int, int] = {}
        for position in range(depth, len(texts_added)):
            if texts_added[position - depth : position] == tail[-depth:]:
                counts[texts_added[position]] = counts.get(texts_added[position], 0) + 1
        if counts:
            token = max(counts, key=counts.__getitem__)
            return token, counts[token] / sum(counts.values())
    return None


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.lists(st.integers(0, 2), max_size=10),
)
def test_a_store_finds_what_a_linear_search_finds(texts_added: list[int], tail: list[int]) -> None:
    store = SuffixStore()
    for position in range(len(texts_added)):
        store.add(texts_added, position)
    assert store.best(tail) == longest_known(texts_added, tail)


@pytest.mark.parametrize(("min_share", "drafts"), [(0.5, (2, 1)), (0.51, ())])
def test_the_minimum_probability_is_inclusive(min_share: float, drafts: tuple[int, ...]) -> None:
    """In the texts, 1 is followed by 2 and by 3 once each, and 1 2 always by 1."""
    store = SuffixStore()
    for text in ([1, 2, 1, 3], [2, 4]):
        for position in range(len(text)):
            store.add(text, position)
    assert propose(SuffixDrafter(store, min_share), [1], 2) == drafts


def test_a_store_evicts_the_least_recently_added_run() -> None:
    """The store has room for two runs. Adding a run again makes it the latest."""
    store = SuffixStore(max_entries=2)
    for text in ([1, 5], [2, 6], [1, 5], [3, 7]):
        store.add(text, 1)
    assert [store.best([token]) for token in (1, 2, 3)] == [(5, 1.0), None, (7, 1.0)]


def test_the_least_recently_used_store_is_evicted() -> None:
    """MAX_STORES stores exist at most; one more evicts the least recently used."""
    stores = SuffixStoresBySalt()
    made = [stores.get(str(number)) for number in range(MAX_STORES)]
    assert [stores.get(str(number)) for number in range(MAX_STORES)] == made
    assert stores.get("0") is made[0]
    stores.get("new")
    assert stores.get("0") is made[0]
    assert stores.get("2") is made[2]
    assert stores.get("1") is not made[1]


def test_a_store_indexes_runs_up_to_its_depth() -> None:
    """The last of eight tokens is found after its one to six predecessors."""
    store, text = SuffixStore(), [1, 2, 3, 4, 5, 6, 7, 8]
    store.add(text, 7)
    for length in range(1, 8):
        assert store.best(text[7 - length : 7]) == (8, 1.0)
    assert store.best([9]) is None
    assert store.best([]) is None
    assert store.best([5, 6]) is None
