"""Memory of attention on a CPU, where it gathers keys and values. Imports no torch."""

# Bytes of keys and values of decoding sequences that a CPU gathers at once, unless a single one has more.
GATHERED_AT_ONCE_BYTES = 32 * 2**20
# Entries of the attention mask of the chunk rows that are computed at once; each takes a bool and a
# float32.
MASK_NUMBERS = 1 << 21


def gathered_bytes(*, max_num_seqs: int, num_visible_tokens: int, token_bytes: int) -> int:
    """Upper estimate of attention's memory on a CPU, where it gathers keys and values.

    num_visible_tokens: maximum that one token attends to. token_bytes: keys and values of one token
    in one layer, in the model's number type.
    """
    longest_bytes = num_visible_tokens * token_bytes
    gathered = max(longest_bytes, min(GATHERED_AT_ONCE_BYTES, 2 * max_num_seqs * longest_bytes))
    return gathered + MASK_NUMBERS * (1 + 4)
