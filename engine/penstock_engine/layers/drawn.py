"""Placeholders for sampled tokens that only the device knows, as inputs of the next step."""

import torch

# The placeholder for drawn[0]; those of the next indices are below it.
FIRST = -1


def placeholder_id(index: int) -> int:
    """The placeholder for the token drawn[index], which is not sampled yet."""
    return FIRST - index


def put_drawn(token_ids: torch.Tensor, drawn: torch.Tensor) -> None:
    """Replaces every placeholder by the sampled token, in place.

    token_ids, drawn: int64 [tokens], [rows]. Where nothing could be drawn, token 0 is taken; the result
    computed with it is discarded.
    """
    places = (FIRST - token_ids).clamp_(min=0)
    token_ids.copy_(torch.where(token_ids < 0, drawn[places].clamp_(min=0), token_ids))
