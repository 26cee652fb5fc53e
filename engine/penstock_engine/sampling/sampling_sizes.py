"""Memory of the sampler, and the number of rows that it samples at once. Imports no torch."""

# Logits that are sampled at once, by device: 8 and 64 MiB of float32. Bounds the sampler's memory.
LOGITS_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 24}
# Bytes of one reported log-probability, by device: value and token id in the step's buffer and in the
# result of top-k. On a CPU also the Python objects that they become.
REPORTED_LOGPROB_BYTES = {"cpu": 24 + 136, "cuda": 24}

# Peak memory of the sampler for each logit that is sampled at once, by benchmarks/engine/sampling_cost.py.
SAMPLING_BYTES_PER_LOGIT = 44


def sampling_bytes(
    *,
    max_num_seqs: int,
    rows_per_sequence: int,
    vocab_size: int,
    item_bytes: int,
    device: str,
    max_logprobs: int = 0,
    max_num_batched_tokens: int = 0,
) -> int:
    """Upper estimate of the sampler's memory in one step, with any sampling parameters.

    Counts the model's logits of all rows, of item_bytes each; float32 copies and sort orders of those
    that are sampled at once; one byte per sequence and token of the vocabulary for state that is
    kept between steps; and the reported log-probabilities, max_logprobs of each row and of each
    prompt token of a step.
    """
    num_rows = max_num_seqs * rows_per_sequence
    at_once = min(num_rows, rows_at_once(vocab_size, device))
    kept_bytes = max_num_seqs * vocab_size
    reported_bytes = (
        (num_rows + max_num_batched_tokens) * max_logprobs * REPORTED_LOGPROB_BYTES[device]
    )
    logit_bytes = vocab_size * (num_rows * item_bytes + at_once * SAMPLING_BYTES_PER_LOGIT)
    return logit_bytes + kept_bytes + reported_bytes


def rows_at_once(vocab_size: int, device: str) -> int:
    """Rows of logits that are sampled at once. More take more memory, but fewer kernel launches."""
    return max(1, LOGITS_AT_ONCE[device] // vocab_size)
