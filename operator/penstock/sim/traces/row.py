"""Row of a trace: one recorded request."""

from typing import NamedTuple


class Row(NamedTuple):
    """Recorded request. prefix: ids of the blocks of its prompt, if the trace has them."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = ()
