"""Tokens of each prompt that one cache without end would hold: what no routing can exceed."""

from collections.abc import Sequence

from penstock.sim.request import Request


def reusable_tokens(requests: Sequence[Request], block_tokens: int) -> list[int]:
    """Leading tokens of each prompt, in full blocks, that an earlier request had.

    requests: in order of arrival. The last token of a prompt is always computed.
    """
    seen: set[int] = set()
    reusable = []
    for request in requests:
        blocks = request.prefix + (request.answer or ())
        most = min(len(request.prefix), (request.prompt_tokens - 1) // block_tokens)
        num_seen = next((i for i in range(most) if blocks[i] not in seen), most)
        reusable.append(num_seen * block_tokens)
        # The last token of an answer has no keys and values
        written = request.prompt_tokens + (
            0 if request.answer is None else request.output_tokens - 1
        )
        seen.update(blocks[: written // block_tokens])
    return reusable
