"""One recorded request."""

from typing import NamedTuple


class Row(NamedTuple):
    """prefix: ids of the blocks its prompt consists of, where the trace has them."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = ()
