"""Work items and memory of paged attention's splits of keys. Imports no torch."""

# Programs of a launch that is split: one more than a multiprocessor holds at a time (three of the tile for
# single tokens), so that those that end last are short.
ATTENTION_PROGRAMS_PER_MULTIPROCESSOR = 4
MOST_MULTIPROCESSORS = 192  # upper bound for memory; a Blackwell RTX PRO 6000 has 188, an H200 132

# Keys in the shortest split for each row of the tile. A row's partial sum is stored and read in float32: 8
# bytes for each element of a head. The keys and values of 8 positions have four times as many in 16 bits. Of
# the smallest tile, two blocks of keys remain. The first loads of a program, each of which needs the one
# before, take about as long as their loads.
SPLIT_KEYS_OF_ROW = 8

ITEM_SIZE = 8  # int32 numbers of a work item; SplitPlan lists them

MIN_DOT = 16  # smallest side of a matrix product in Triton
MOST_ROWS = 128  # of a tile


def max_query_blocks(num_tokens: int, num_seqs: int, block_queries: int) -> int:
    """Upper bound on the number of query blocks: a sequence with tokens pads less than one block."""
    return (num_tokens + min(num_tokens, num_seqs) * (block_queries - 1)) // block_queries


def min_split_blocks(block_rows: int, block_keys: int) -> int:
    """Blocks of keys in the shortest split of a tile."""
    return -(-SPLIT_KEYS_OF_ROW * block_rows // block_keys)


def max_extra_splits(
    *, num_query_blocks: int, num_key_blocks: int, min_blocks: int, num_kv_heads: int,
    num_multiprocessors: int,
) -> int:  # fmt: skip
    """Number of splits after the first ones: as many as fill the device, if there are keys for them.

    num_key_blocks: upper bound on the blocks of keys that a query block sees. min_blocks: in the shortest
    split.
    """
    if num_key_blocks <= min_blocks:
        return 0
    wanted = ATTENTION_PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // num_kv_heads
    return max(1, min(wanted, num_query_blocks * -(-num_key_blocks // min_blocks)))


def fewest_rows(group: int) -> int:
    """Rows of the smallest tile: a token's query heads of one KV head."""
    return max(MIN_DOT, 1 << (group - 1).bit_length())


def partial_sums_bytes(*, block_rows: int, num_kv_heads: int, head_dim: int) -> int:
    """Upper bound on the memory of a launch's partial sums: two float32 vectors for each extra split."""
    programs = max(ATTENTION_PROGRAMS_PER_MULTIPROCESSOR * MOST_MULTIPROCESSORS, num_kv_heads)
    return 2 * programs * block_rows * (head_dim + 2) * 4
