"""Log-probabilities of sampled tokens and of prompt tokens."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from penstock_engine.core.step import TokenLogprobs
from penstock_engine.kernels.transfer import fetch


class LogprobBuffer:
    """Device buffer of log-probabilities, filled in parts and then copied to the host at once.

    All memory is allocated at the start, because results allocated one by one would fragment the
    memory that the parts need temporarily.
    """

    def __init__(
        self, num_tokens: int, top: int, device: torch.device | str, *, num_given: int = 0
    ) -> None:
        """num_tokens: capacity. top: number of most probable tokens to report, at most the vocabulary
        size. num_given: maximum number of tokens that a request names (logprob_token_ids)."""
        self._ids = torch.zeros(num_tokens, dtype=torch.int64, device=device)
        self._logprobs = torch.zeros(num_tokens, device=device)
        self._ranks = torch.zeros(num_tokens, dtype=torch.int64, device=device)
        self._best_ids = torch.zeros(num_tokens, top, dtype=torch.int64, device=device)
        self._best_logprobs = torch.zeros(num_tokens, top, device=device)
        self._given_logprobs = torch.zeros(num_tokens, num_given, device=device)
        self.num_given = num_given
        self._num_filled = 0

    def fill(
        self, logits: torch.Tensor, token_ids: torch.Tensor, given: torch.Tensor | None = None
    ) -> None:
        """Add the next tokens.

        logits: [tokens, vocabulary], before sampling parameters are applied. token_ids: int64
        [tokens], on the same device. given: int64 [tokens, num_given], named tokens, padded with any.
        """
        rows = slice(self._num_filled, self._num_filled + len(token_ids))
        self._num_filled = rows.stop
        logprobs = logits.log_softmax(-1, dtype=torch.float32)
        of_chosen = logprobs.gather(1, token_ids[:, None])
        best = logprobs.topk(self._best_ids.shape[1], -1)
        self._ids[rows] = token_ids
        self._logprobs[rows] = of_chosen[:, 0]
        self._ranks[rows] = (logprobs > of_chosen).sum(1) + 1
        self._best_ids[rows] = best.indices
        self._best_logprobs[rows] = best.values
        if given is not None:
            self._given_logprobs[rows] = logprobs.gather(1, given)

    def fetch(self) -> None:
        """Start the copies to the host. Read them after a CompletionEvent that is created afterwards."""
        self._ids = fetch(self._ids)
        self._logprobs = fetch(self._logprobs)
        self._ranks = fetch(self._ranks)
        self._best_ids = fetch(self._best_ids)
        self._best_logprobs = fetch(self._best_logprobs)
        self._given_logprobs = fetch(self._given_logprobs)

    @property
    def are_numbers(self) -> bool:
        """Whether no logit was NaN. Read it after a CompletionEvent that follows `fetch`."""
        return not bool(self._logprobs.isnan().any())

    def all(self) -> tuple[TokenLogprobs, ...]:
        """Entries of all tokens, with all of the most probable ones."""
        return self.rows(0, len(self._ids), self._best_ids.shape[1])

    def rows_of_named(
        self, first: int, end: int, given: tuple[int, ...]
    ) -> tuple[TokenLogprobs, ...]:
        """Entries of tokens [first, end), with the named tokens instead of the most probable ones."""
        values = self._given_logprobs[first:end, : len(given)].tolist()
        return tuple(
            replace(one, top=_with_named(one, given, own))
            for one, own in zip(self.rows(first, end, 0), values, strict=True)
        )

    def rows(self, first: int, end: int, top: int) -> tuple[TokenLogprobs, ...]:
        """Entries of tokens [first, end). top: number of most probable tokens, at most the buffer's."""
        rows = slice(first, end)
        return tuple(
            TokenLogprobs(token_id, logprob, rank, tuple(zip(best_ids, best_values, strict=True)))
            for token_id, logprob, rank, best_ids, best_values in zip(
                self._ids[rows].tolist(), self._logprobs[rows].tolist(),
                self._ranks[rows].tolist(), self._best_ids[rows, :top].tolist(),
                self._best_logprobs[rows, :top].tolist(), strict=True,
            )
        )  # fmt: skip


def _with_named(
    one: TokenLogprobs, given: Sequence[int], values: Sequence[float]
) -> tuple[tuple[int, float], ...]:
    """The sampled token, then the named ones, each once."""
    named = dict(zip(given, values, strict=True))
    named.pop(one.token_id, None)
    return ((one.token_id, one.logprob), *named.items())
