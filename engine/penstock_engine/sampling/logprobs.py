"""Log-probabilities of drawn tokens and of the prompt's."""

import torch

from penstock_engine.core.step import TokenLogprobs
from penstock_engine.kernels.transfer import fetch


class Told:
    """Of some tokens, on their way to the host: to be read behind a mark that was set since."""

    def __init__(self, logits: torch.Tensor, token_ids: torch.Tensor, top: int) -> None:
        """logits: [tokens, vocabulary], as the model gave them. token_ids: int64 [tokens], on the
        same device. top: how many of the best are told."""
        logprobs = logits.float().log_softmax(-1)
        of_chosen = logprobs.gather(1, token_ids[:, None])
        best = logprobs.topk(min(top, logits.shape[1]), -1)
        self._token_ids = fetch(token_ids)
        self._of_chosen = fetch(of_chosen[:, 0])
        self._ranks = fetch((logprobs > of_chosen).sum(1) + 1)
        self._best = fetch(best.values), fetch(best.indices)
        self._top = top

    def all(self) -> tuple[TokenLogprobs, ...]:
        return self.rows(0, len(self._token_ids), self._top)

    def rows(self, first: int, end: int, top: int) -> tuple[TokenLogprobs, ...]:
        """top: at most what was asked for all."""
        rows = slice(first, end)
        values, ids = self._best
        return tuple(
            TokenLogprobs(token_id, logprob, rank, tuple(zip(best_ids, best_values, strict=True)))
            for token_id, logprob, rank, best_ids, best_values in zip(
                self._token_ids[rows].tolist(), self._of_chosen[rows].tolist(),
                self._ranks[rows].tolist(), ids[rows, :top].tolist(),
                values[rows, :top].tolist(), strict=True,
            )
        )  # fmt: skip
