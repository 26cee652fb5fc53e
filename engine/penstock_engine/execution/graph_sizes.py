"""Batch sizes of recorded decode steps (decode_graphs.py), and their memory. Imports no torch."""

from collections.abc import Sequence

# The same sizes as vLLM's: padding costs at most one row in eight, or a few rows in very small batches.
SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))

# Kernel launches of a layer without those of its attention: two norms, two products, gate, and one more for
# the routing of experts or a norm of heads.
LAUNCHES_BESIDE_ATTENTION = 6
# Upper estimate of the driver's memory for a recorded launch; not measured here.
LAUNCH_BYTES = 64 * 2**10
# cuBLAS's workspace on the stream of the captures, as torch sets it: 32 MiB on sm_90, 8 MiB elsewhere.
WORKSPACE_BYTES = 32 * 2**20


def padded_size(num_rows: int) -> int | None:
    """The smallest recorded size of at least num_rows; None if there is none."""
    return next((size for size in SIZES if size >= num_rows), None)


def recorded_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """All recorded sizes, ascending. The last one holds max_num_seqs rows, unless they are too many."""
    largest = padded_size(max_num_seqs) or SIZES[-1]
    return tuple(size for size in SIZES if size <= largest)


def input_numbers(num_rows: int, width: int) -> int:
    """Size of the input buffer of num_rows rows in int32: three int64, a length, and a block table.

    width: blocks in a table.
    """
    return num_rows * (3 * 2 + 1 + width)


def graph_bytes(
    *, max_num_seqs: int, max_model_len: int, block_size: int, attention_launches: Sequence[int],
    hidden_size: int, item_bytes: int, activation_bytes: int,
) -> int:  # fmt: skip
    """Upper estimate of the memory of all recorded steps, in bytes.

    It counts the inputs of the largest size as they arrive, and its block tables once more where the
    kernels read them; the hidden states of each size; the activations of the largest size in a shared
    pool (activation_bytes of its number of tokens); cuBLAS's workspace; and the driver's memory for
    each launch. attention_launches: of each layer.
    """
    sizes = recorded_sizes(max_num_seqs)
    width = -(-max_model_len // block_size)
    inputs = 4 * (input_numbers(sizes[-1], width) + sizes[-1] * width)
    outputs = sum(sizes) * hidden_size * item_bytes
    launches = sum(LAUNCHES_BESIDE_ATTENTION + own for own in attention_launches)
    launch_bytes = len(sizes) * launches * LAUNCH_BYTES
    return inputs + outputs + activation_bytes + WORKSPACE_BYTES + launch_bytes
