"""Batch sizes of recorded decode steps (decode_graphs.py), and their memory. Imports no torch."""

from collections.abc import Sequence

# The same sizes as vLLM's: padding costs at most one row in eight, or a few rows in very small batches.
SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))

# Kernel launches of a layer without those of its attention: two norms, two products, gate, and one more for
# the routing of experts or a norm of heads.
LAUNCHES_BESIDE_ATTENTION = 6
# Upper estimate of the driver's memory for a recorded launch; not measured here.
LAUNCH_BYTES = 64 * 2**10


def padded_size(num_rows: int) -> int | None:
    """The smallest recorded size of at least num_rows; None if there is none."""
    return next((size for size in SIZES if size >= num_rows), None)


def most_rows(max_num_seqs: int) -> int:
    """Maximum number of rows of a recorded step."""
    return padded_size(max_num_seqs) or SIZES[-1]


def graph_bytes(
    *, max_num_seqs: int, max_model_len: int, block_size: int, attention_launches: Sequence[int],
    hidden_size: int, item_bytes: int, activation_bytes: int,
) -> int:  # fmt: skip
    """Upper estimate of the memory of all recorded steps, in bytes, if each size is needed.

    It counts the input buffers (token id, position, slot, length and block table of each row), the
    hidden states of each size, the activations of the largest size in a shared pool (activation_bytes
    of most_rows tokens), and the driver's memory for each launch. attention_launches: of each layer.
    """
    rows = most_rows(max_num_seqs)
    sizes = [size for size in SIZES if size <= rows]
    inputs = rows * (3 * 8 + 4 + 4 * -(-max_model_len // block_size))
    outputs = sum(sizes) * hidden_size * item_bytes
    launches = sum(LAUNCHES_BESIDE_ATTENTION + own for own in attention_launches)
    total: int = inputs + outputs + activation_bytes + len(sizes) * launches * LAUNCH_BYTES
    return total
