"""Tokens that only the device knows, as inputs of the next computation."""

import torch

# Stands for drawn[index] among token ids.
FIRST = -1


def placeholder(index: int) -> int:
    return FIRST - index


def put_drawn(token_ids: torch.Tensor, drawn: torch.Tensor) -> None:
    """Every placeholder becomes the token it stands for, in place.

    token_ids, drawn: int64 [tokens], [rows]. Where nothing could be drawn, token 0 is taken: what
    is computed with it is passed over.
    """
    places = (FIRST - token_ids).clamp_(min=0)
    token_ids.copy_(torch.where(token_ids < 0, drawn[places].clamp_(min=0), token_ids))
