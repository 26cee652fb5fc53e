"""Guesses at the next tokens, found in what has been written before. No model is asked."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

# An entry of a suffix store is about 500 bytes, so that all stores together stay below 130 MB.
MAX_DEPTH_TOKENS = 6
MAX_ENTRIES = 16_000
MAX_STORES = 16


class Drafter(Protocol):
    """Proposes draft tokens for one sequence, whose tokens are only appended to between calls."""

    def index(self, tokens: Sequence[int], max_tokens: int) -> int:
        """Index at most max_tokens more of `tokens`. Returns how many were indexed."""
        ...

    def propose(self, tokens: Sequence[int], max_drafts: int) -> tuple[int, ...]:
        """At most max_drafts tokens that may follow `tokens`, the most likely continuation.

        Empty until all of them are indexed.
        """
        ...


class NgramDrafter:
    """What followed the last tokens when they last occurred in this sequence.

    Prompt lookup (Saxena, 2023): the longest of the last max_ngram to min_ngram tokens counts.
    One dictionary entry for each token and length, so a step costs no search.
    """

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self._lengths = range(max_ngram, min_ngram - 1, -1)
        self._followed_at: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def index(self, tokens: Sequence[int], max_tokens: int) -> int:
        first = self._num_indexed
        self._num_indexed = min(len(tokens), first + max_tokens)
        for position in range(first, self._num_indexed):
            for length in self._lengths:
                if length <= position:
                    self._followed_at[tuple(tokens[position - length : position])] = position
        return self._num_indexed - first

    def propose(self, tokens: Sequence[int], max_drafts: int) -> tuple[int, ...]:
        if self._num_indexed < len(tokens):
            return ()
        for length in self._lengths:
            if length <= len(tokens):
                found = self._followed_at.get(tuple(tokens[len(tokens) - length :]))
                if found is not None:
                    return tuple(tokens[found : found + max_drafts])
        return ()


class SuffixStore:
    """How often each token followed each run of up to MAX_DEPTH_TOKENS; the oldest runs go first."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._followers: OrderedDict[tuple[int, ...], dict[int, int]] = OrderedDict()

    def add(self, tokens: Sequence[int], position: int) -> None:
        """Learns that the token at `position` followed those before it."""
        for depth in range(1, min(MAX_DEPTH_TOKENS, position) + 1):
            run = tuple(tokens[position - depth : position])
            followers = self._followers.setdefault(run, {})
            followers[tokens[position]] = followers.get(tokens[position], 0) + 1
            self._followers.move_to_end(run)
        while len(self._followers) > self._max_entries:
            self._followers.popitem(last=False)

    def best(self, tokens: Sequence[int]) -> tuple[int, float] | None:
        """The token that followed the longest known run at the end of `tokens`, and its share."""
        for depth in range(min(MAX_DEPTH_TOKENS, len(tokens)), 0, -1):
            followers = self._followers.get(tuple(tokens[len(tokens) - depth :]))
            if followers:
                token = max(followers, key=followers.__getitem__)
                return token, followers[token] / sum(followers.values())
        return None


class SuffixDrafter:
    """Continues by what most often followed, as long as that is likely enough.

    After SuffixDecoding (Oliaro et al., 2024): the guess grows while the product of the shares is
    at least min_share.
    """

    def __init__(self, store: SuffixStore, min_share: float) -> None:
        self._store = store
        self._min_share = min_share
        self._num_indexed = 0

    def index(self, tokens: Sequence[int], max_tokens: int) -> int:
        first = self._num_indexed
        self._num_indexed = min(len(tokens), first + max_tokens)
        for position in range(first, self._num_indexed):
            self._store.add(tokens, position)
        return self._num_indexed - first

    def propose(self, tokens: Sequence[int], max_drafts: int) -> tuple[int, ...]:
        if self._num_indexed < len(tokens):
            return ()
        drafts: list[int] = []
        tail = list(tokens[-MAX_DEPTH_TOKENS:])
        share = 1.0
        while len(drafts) < max_drafts and (found := self._store.best(tail)) is not None:
            token, share_here = found
            share *= share_here
            if share < self._min_share:
                break
            drafts.append(token)
            tail.append(token)
        return tuple(drafts)


class SuffixStores:
    """One store for each cache salt, least recently used out first.

    Sequences of one salt learn from each other; of another's text none learns anything, not even
    by its own speed.
    """

    def __init__(self) -> None:
        self._stores: OrderedDict[str, SuffixStore] = OrderedDict()

    def of(self, cache_salt: str) -> SuffixStore:
        store = self._stores.setdefault(cache_salt, SuffixStore())
        self._stores.move_to_end(cache_salt)
        if len(self._stores) > MAX_STORES:
            self._stores.popitem(last=False)
        return store
