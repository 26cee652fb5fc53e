import pytest
import torch

from penstock_engine.kernels.paged_decode import paged_decode_reference
from penstock_engine.layers.attention import Span, StepAttention, buckets

BLOCK_SIZE, NUM_BLOCKS, KV_HEADS, GROUP, HEAD_DIM = 4, 400, 2, 3, 16
SHAPE = torch.Size((2, NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM))


def random_spans(ranges: list[tuple[int, int]]) -> list[Span]:
    blocks = iter(torch.randperm(NUM_BLOCKS).tolist())
    return [
        # One block more than needed: a prompt has all its blocks before its last chunk.
        Span(start, end, tuple(next(blocks) for _ in range(-(-end // BLOCK_SIZE) + 1)))
        for start, end in ranges
    ]


def slot(span: Span, position: int) -> int:
    return span.block_table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 1)],
        [(2, 3), (9, 10), (9, 10), (300, 301), (700, 701)],
        [(0, 5)],
        [(0, 9), (4, 8), (3, 30)],
        [(0, 1), (6, 7), (0, 4), (17, 40), (0, 2)],
    ],
    ids=["one", "decodes", "prompt", "chunks", "mixed"],
)
def test_a_mixed_batch_equals_one_token_at_a_time(ranges: list[tuple[int, int]]) -> None:
    """Every token of every sequence, as if it were decoded alone by the reference."""
    torch.manual_seed(len(ranges))
    spans = random_spans(ranges)
    num_tokens = sum(span.num_tokens for span in spans)
    cache = torch.randn(SHAPE)
    q = torch.randn(num_tokens, KV_HEADS * GROUP, HEAD_DIM)
    k, v = torch.randn(2, num_tokens, KV_HEADS, HEAD_DIM)
    slots = torch.tensor([slot(s, p) for s in spans for p in range(s.start, s.end)])
    attend = StepAttention(spans, slots, cache_shape=SHAPE, dtype=torch.float32, use_kernels=False)
    actual = attend(q, k, v, cache, 0.25)
    assert torch.equal(cache[0].flatten(0, 1)[slots], k)
    assert torch.equal(cache[1].flatten(0, 1)[slots], v)
    row = 0
    for span in spans:
        for position in range(span.start, span.end):
            table = torch.tensor([span.block_table], dtype=torch.int32)
            end = torch.tensor([position + 1])
            expected = paged_decode_reference(q[row : row + 1], cache, table, end, 0.25)
            torch.testing.assert_close(actual[row], expected[0], atol=1e-5, rtol=1e-5)
            row += 1


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([5], [(0, 1)]),
        ([1, 200, 256], [(0, 3)]),
        ([1, 257, 500, 514, 515], [(0, 1), (1, 4), (4, 5)]),
    ],
)
def test_nobody_is_padded_to_more_than_twice_its_length(
    lengths: list[int], expected: list[tuple[int, int]]
) -> None:
    assert [(rows.start, rows.stop) for rows in buckets(lengths)] == expected
