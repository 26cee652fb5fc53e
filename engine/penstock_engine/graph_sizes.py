"""Sizes of recorded steps (decode_graphs.py), and the memory they take. Imports no torch."""

# As many as vLLM has: padding costs at most a row in eight, or a few of very small batches.
SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))

# Of a layer: two norms, four products, rotation, write to the cache, two of attention, gate, and one
# more of a mixture's routing or a norm of heads.
LAUNCHES_PER_LAYER = 12
# What the driver keeps for a recorded launch: an upper estimate, not measured here.
LAUNCH_BYTES = 64 * 2**10


def padded_size(num_rows: int) -> int | None:
    """The least size that holds them; None: none does."""
    return next((size for size in SIZES if size >= num_rows), None)


def most_rows(max_num_seqs: int) -> int:
    """Of a recorded step."""
    return padded_size(max_num_seqs) or SIZES[-1]


def graph_bytes(
    *, max_num_seqs: int, max_model_len: int, block_size: int, num_layers: int, hidden_size: int,
    item_bytes: int, activation_bytes: int,
) -> int:  # fmt: skip
    """Upper estimate of what all recorded steps hold, when each size was needed.

    Inputs at fixed addresses (token id, position, slot, length, table of each row); the hidden states
    that each size leaves; the activations of the largest, in a pool that all share: activation_bytes
    of most_rows tokens; and what the driver keeps of each launch.
    """
    rows = most_rows(max_num_seqs)
    sizes = [size for size in SIZES if size <= rows]
    inputs = rows * (3 * 8 + 4 + 4 * -(-max_model_len // block_size))
    outputs = sum(sizes) * hidden_size * item_bytes
    launches = len(sizes) * num_layers * LAUNCHES_PER_LAYER * LAUNCH_BYTES
    total: int = inputs + outputs + activation_bytes + launches
    return total
