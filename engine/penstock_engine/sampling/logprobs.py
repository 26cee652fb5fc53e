"""Log-probabilities of drawn tokens and of the prompt's."""

from collections.abc import Iterator, Sequence

import torch

from penstock_engine.core.step import TokenLogprobs


def token_logprobs(
    logits: torch.Tensor, token_ids: Sequence[int], top: int
) -> tuple[TokenLogprobs, ...]:
    """logits: [tokens, vocabulary], as the model gave them. top: how many of the best are told."""
    return tuple(_told(logits, token_ids, top))


def _told(logits: torch.Tensor, token_ids: Sequence[int], top: int) -> Iterator[TokenLogprobs]:
    logprobs = logits.float().log_softmax(-1)
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]
    of_chosen = logprobs.gather(1, chosen)
    ranks = (logprobs > of_chosen).sum(1) + 1
    best = logprobs.topk(min(top, logits.shape[1]), -1)
    for token_id, logprob, rank, values, ids in zip(
        token_ids, of_chosen[:, 0].tolist(), ranks.tolist(),
        best.values.tolist(), best.indices.tolist(), strict=True,
    ):  # fmt: skip
        yield TokenLogprobs(token_id, logprob, rank, tuple(zip(ids, values, strict=True)))
