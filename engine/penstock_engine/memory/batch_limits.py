"""Maximum number of sequences and tokens of a step, with defaults that suit the device. Imports no torch."""

from typing import NamedTuple


class BatchLimits(NamedTuple):
    """Maximum number of sequences and of tokens of one step."""

    max_num_seqs: int
    max_num_batched_tokens: int


CPU = BatchLimits(64, 512)
# The defaults of vLLM's server. It too has larger ones for GPUs of this memory, except for the A100.
SMALL_GPU = BatchLimits(256, 2048)
LARGE_GPU = BatchLimits(1024, 8192)
LARGE_GPU_BYTES = 70 * 2**30


def candidates(
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    *,
    device_name: str,
    memory_bytes: int,
) -> list[BatchLimits]:
    """Limits for a device, largest first. The caller uses the first that fit into memory.

    Buffers grow with the limits, so if weights fill most of a GPU, only smaller limits fit.
    max_num_seqs, max_num_batched_tokens: as set by the user, in all candidates; None: not set.
    device_name: cpu or cuda. memory_bytes: of one GPU; the CPU's defaults do not depend on it.
    """
    defaults = [CPU]
    if device_name == "cuda":
        defaults = [SMALL_GPU, CPU]
        if memory_bytes >= LARGE_GPU_BYTES:
            defaults = [LARGE_GPU, *defaults]
    found = [_completed(max_num_seqs, max_num_batched_tokens, default) for default in defaults]
    return list(dict.fromkeys(found))


def _completed(
    max_num_seqs: int | None, max_num_batched_tokens: int | None, default: BatchLimits
) -> BatchLimits:
    """The user's limits, with a default for each that is not set.

    Every running sequence needs a token of each step, so max_num_seqs never exceeds
    max_num_batched_tokens: a default is changed to suit a limit that is set.
    """
    tokens = max_num_batched_tokens
    if max_num_seqs is None:
        max_num_seqs = default.max_num_seqs if tokens is None else min(default.max_num_seqs, tokens)
    if tokens is None:
        tokens = max(default.max_num_batched_tokens, max_num_seqs)
    return BatchLimits(max_num_seqs, tokens)
