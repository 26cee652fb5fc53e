"""Batch layout of paged attention."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """New tokens of a batch of sequences, and their block tables.

    block_tables: int32 [sequences, width]; the first ceil(length / block_size) entries of a row are
    read. query_starts: int32 [sequences + 1], cumulative numbers of new tokens, starting at 0; None:
    one new token for each sequence. lengths: int32 [sequences], number of tokens with new ones
    included; the last query is at position length - 1. max_queries, max_length: upper bounds on the
    new tokens of a sequence and on lengths, known on the host; they affect the launch, not the result.
    """

    block_tables: torch.Tensor
    query_starts: torch.Tensor | None
    lengths: torch.Tensor
    max_queries: int
    max_length: int
