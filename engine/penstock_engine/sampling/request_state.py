"""Sampling state of requests that is kept between steps."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.kernels.transfer import send
from penstock_engine.sampling.bad_words import BadWords

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Occurrences of tokens in a sequence.

    token_ids: distinct tokens of prompt and output, ascending. counts: how often each was generated.
    """

    token_ids: Integers
    counts: Integers

    def with_tokens(self, token_ids: Integers, *, is_output: bool) -> "TokenCounts":
        """Return new counts with more tokens. is_output: whether they were generated."""
        new, times = np.unique(token_ids, return_counts=True)
        places = np.searchsorted(self.token_ids, new)
        is_known = np.zeros(len(new), dtype=bool)
        inside = places < len(self.token_ids)
        is_known[inside] = self.token_ids[places[inside]] == new[inside]
        merged = np.insert(self.token_ids, places[~is_known], new[~is_known])
        counts = np.insert(self.counts, places[~is_known], 0)
        if is_output:
            counts[np.searchsorted(merged, new)] += times
        return TokenCounts(merged, counts)


NO_TOKENS = TokenCounts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class RequestState:
    """Sampling state of one sequence; each part is computed on first use.

    Tokens beyond the vocabulary are ignored.
    """

    def __init__(
        self, sequence: ScheduledSequence, vocab_size: int, device: torch.device | str
    ) -> None:
        self.sampling = sequence.sampling
        self.history = sequence.history
        self._num_prompt_tokens = sequence.num_prompt_tokens
        self._vocab_size = vocab_size
        self._device = device
        self._counts = NO_TOKENS
        self._num_counted = 0
        self._excluded: torch.Tensor | None = None
        self._bias: tuple[torch.Tensor, torch.Tensor] | None = None
        self.bad_words = BadWords(sequence.sampling.bad_words)

    def token_counts(self, drafts: tuple[int, ...]) -> TokenCounts:
        """Token counts of the sequence followed by these drafts."""
        counted, length = self._num_counted, len(self.history)
        if counted < length:
            tokens = self._known(self.history[counted:length])
            num_prompt = max(0, self._num_prompt_tokens - counted)
            if num_prompt:
                prompt = self._known(self.history[counted : self._num_prompt_tokens])
                self._counts = self._counts.with_tokens(prompt, is_output=False)
                tokens = self._known(self.history[self._num_prompt_tokens : length])
            self._counts = self._counts.with_tokens(tokens, is_output=True)
            self._num_counted = length
        if not drafts:
            return self._counts
        return self._counts.with_tokens(self._known(drafts), is_output=True)

    @property
    def excluded(self) -> torch.Tensor:
        """bool [vocabulary]: tokens not in allowed_token_ids. The request must have that parameter."""
        if self._excluded is None:
            allowed = self.sampling.allowed_token_ids
            assert allowed is not None
            mask = torch.ones(self._vocab_size, dtype=torch.bool)
            mask[torch.from_numpy(self._known(allowed))] = False
            self._excluded = send(mask, self._device)
        return self._excluded

    @property
    def bias(self) -> tuple[torch.Tensor, torch.Tensor]:
        """logit_bias as tensors: token ids (int64) and what is added to their logits (float32)."""
        if self._bias is None:
            bias = {t: b for t, b in self.sampling.logit_bias.items() if t < self._vocab_size}
            token_ids = torch.tensor(list(bias), dtype=torch.int64)
            added = torch.tensor(list(bias.values()), dtype=torch.float32)
            self._bias = send(token_ids, self._device), send(added, self._device)
        return self._bias

    def _known(self, token_ids: Iterable[int]) -> Integers:
        tokens = np.fromiter(token_ids, dtype=np.int64)
        return tokens[tokens < self._vocab_size]


class RequestStates:
    """Sampling states of the sequences that sampled in the last step. Others are dropped."""

    def __init__(self) -> None:
        self._states: dict[str, RequestState] = {}

    def get(
        self, sequences: Iterable[ScheduledSequence], vocab_size: int, device: torch.device | str
    ) -> list[RequestState]:
        """The states of the sequences of a step, in their order, created where missing."""
        before, self._states = self._states, {}
        states = []
        for sequence in sequences:
            state = before.get(sequence.request_id)
            if (
                state is None
                or state.history is not sequence.history
                or state.sampling is not sequence.sampling
            ):
                state = RequestState(sequence, vocab_size, device)
            self._states[sequence.request_id] = state
            states.append(state)
        return states
