"""Placeholder ids for sampled tokens that are still only on the device.

A step that is launched before the one before it is fetched has such placeholders in its input, and
they are replaced on the device.
"""

import torch

# The placeholder of sampled[0]; that of sampled[i] is FIRST - i.
FIRST = -1


def pending_token_id(index: int) -> int:
    """The negative placeholder id that stands for sampled[index]."""
    return FIRST - index


def fill_pending(token_ids: torch.Tensor, sampled: torch.Tensor) -> None:
    """Replace placeholders in token_ids by the sampled tokens, in place.

    token_ids: int64 [tokens]. sampled: int64 [rows]; negative entries, where no token could be sampled,
    count as token 0, because the results of such a sequence are ignored.
    """
    places = (FIRST - token_ids).clamp_(min=0)
    token_ids.copy_(torch.where(token_ids < 0, sampled[places].clamp_(min=0), token_ids))
