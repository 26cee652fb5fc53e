"""A request in a simulated engine."""

from dataclasses import dataclass
from functools import cache

from penstock.sim.block_hashes import block_hashes
from penstock.sim.request import Request, prompt_of
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.sequence import Sequence

NO_TOKEN_IDS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Job:
    """A request with its sequence in the scheduler."""

    request: Request
    sequence: Sequence

    @classmethod
    def of(
        cls,
        request: Request,
        max_tokens: int,
        now: float,
        tpot_s: float | None,
        prefix_block_tokens: int,
    ) -> "Job":
        """Job of a request that arrives now and ends after max_tokens. tpot_s: as in `Sequence`."""
        prompt = prompt_of(request, prefix_block_tokens)
        sequence = Sequence(
            request.request_id, prompt, sampling(max_tokens), NO_TOKEN_IDS, now, tpot_s=tpot_s
        )
        if prefix_block_tokens:
            # The same hashes as the scheduler would compute, which other engines and rules need too
            sequence.block_hashes = block_hashes(request, prefix_block_tokens)
        return cls(request, sequence)


@cache
def sampling(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)
