"""Drafters without a model (core/drafter.py): they propose tokens that followed the same context before."""

from collections import OrderedDict
from collections.abc import Sequence

# An entry of a suffix store is about 500 bytes, so that all stores together stay below 130 MB.
MAX_DEPTH_TOKENS = 6
MAX_ENTRIES = 16_000
MAX_STORES = 16


class NgramDrafter:
    """Prompt lookup (Saxena, 2023): proposes the tokens that last followed the sequence's last n-gram.

    The longest matching n-gram of max_ngram down to min_ngram tokens counts. The index has one
    dictionary entry for each token and length, so that a step needs no search.
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
    """Counts how often each token followed each n-gram of up to MAX_DEPTH_TOKENS tokens.

    At most max_entries n-grams are kept; the least recently added one is evicted.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._followers: OrderedDict[tuple[int, ...], dict[int, int]] = OrderedDict()

    def add(self, tokens: Sequence[int], position: int) -> None:
        """Count that the token at `position` followed the n-grams that end before it."""
        for depth in range(1, min(MAX_DEPTH_TOKENS, position) + 1):
            run = tuple(tokens[position - depth : position])
            followers = self._followers.setdefault(run, {})
            followers[tokens[position]] = followers.get(tokens[position], 0) + 1
            self._followers.move_to_end(run)
        while len(self._followers) > self._max_entries:
            self._followers.popitem(last=False)

    def best(self, tokens: Sequence[int]) -> tuple[int, float] | None:
        """The most frequent next token after the longest known n-gram at the end of `tokens`.

        Returns the token and its relative frequency; None if no n-gram is known.
        """
        for depth in range(min(MAX_DEPTH_TOKENS, len(tokens)), 0, -1):
            followers = self._followers.get(tuple(tokens[len(tokens) - depth :]))
            if followers:
                token = max(followers, key=followers.__getitem__)
                return token, followers[token] / sum(followers.values())
        return None


class SuffixDrafter:
    """Proposes the most frequent continuation, after SuffixDecoding (Oliaro et al., 2024).

    The draft grows while the product of the relative frequencies is at least min_share.
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


class SuffixStoresBySalt:
    """The suffix stores by cache salt, at most MAX_STORES of them, with LRU eviction.

    Sequences with the same salt share a store. Sequences with different salts share nothing, so that
    the speed of one cannot reveal the text of another.
    """

    def __init__(self) -> None:
        self._stores: OrderedDict[str, SuffixStore] = OrderedDict()

    def get(self, cache_salt: str) -> SuffixStore:
        """The store of this salt, created if there is none."""
        store = self._stores.setdefault(cache_salt, SuffixStore())
        self._stores.move_to_end(cache_salt)
        if len(self._stores) > MAX_STORES:
            self._stores.popitem(last=False)
        return store
