"""Tokens that only the device knows, as inputs of the next computation."""

import torch

# The awaited token of index 0; the next ones are below it.
FIRST = -1


def awaited(index: int) -> int:
    """The token id that says: drawn[index], once it is there."""
    return FIRST - index


def put_drawn(token_ids: torch.Tensor, drawn: torch.Tensor) -> None:
    """Every awaited token becomes the drawn one, in place.

    token_ids, drawn: int64 [tokens], [rows]. Where nothing could be drawn, token 0 is taken: what
    is computed with it is passed over.
    """
    places = (FIRST - token_ids).clamp_(min=0)
    token_ids.copy_(torch.where(token_ids < 0, drawn[places].clamp_(min=0), token_ids))
