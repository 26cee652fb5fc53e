"""Tests of attention in torch: mixed batches, soft caps, padding and invalid rows."""

import pytest
import torch

from penstock_engine.kernels.kv_quant import quantize_kv
from penstock_engine.layers import softcap
from penstock_engine.layers.attention import QKV, AttentionShape, Span
from penstock_engine.layers.gathered_attention import GatheredAttention, buckets
from penstock_engine.layers.kv_cache import KVCache

BLOCK_SIZE, NUM_BLOCKS, KV_HEADS, GROUP, HEAD_DIM = 4, 400, 2, 3, 16
SHAPE = torch.Size((2, NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM))


def random_spans(ranges: list[tuple[int, int]]) -> list[Span]:
    blocks = iter(torch.randperm(NUM_BLOCKS - 1).tolist())
    return [
        # a block more than needed: a prompt has all its blocks before its last chunk
        Span(start, end, tuple(next(blocks) for _ in range(-(-end // BLOCK_SIZE) + 1)))
        for start, end in ranges
    ]


def slot(span: Span, position: int) -> int:
    return span.block_table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE


def one_token(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shape: AttentionShape
) -> torch.Tensor:
    """q: [heads, head_dim]; k, v: [positions, kv_heads, head_dim], of which q is the last."""
    if shape.window_tokens is not None:
        k, v = k[-shape.window_tokens :], v[-shape.window_tokens :]
    scores = torch.einsum("hgd,shd->hgs", q.view(KV_HEADS, GROUP, HEAD_DIM), k) * shape.scale
    if shape.softcap is not None:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    return torch.einsum("hgs,shd->hgd", scores.softmax(-1), v).reshape(q.shape)


SHAPES = [
    AttentionShape(0.25),
    AttentionShape(0.25, softcap=0.5),
    AttentionShape(0.25, window_tokens=1),
    AttentionShape(0.25, window_tokens=4),
    AttentionShape(0.25, window_tokens=7),
    AttentionShape(0.25, window_tokens=7, softcap=0.5),
    AttentionShape(0.25, window_tokens=300),
]


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
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.int8, torch.float8_e4m3fn])
def test_a_mixed_batch_equals_one_token_at_a_time(
    ranges: list[tuple[int, int]], kv_dtype: torch.dtype
) -> None:
    """Every token of every sequence as if it were alone; layers of all shapes share a step.

    A cache of fewer bits is what all tokens see, of themselves too.
    """
    torch.manual_seed(len(ranges))
    spans = random_spans(ranges)
    num_tokens = sum(span.num_tokens for span in spans)
    slots = torch.tensor([slot(s, p) for s in spans for p in range(s.start, s.end)])
    is_quantized = kv_dtype != torch.float32
    attend = GatheredAttention(spans, slots, dtype=torch.float32, is_quantized=is_quantized)
    for shape in SHAPES:
        full = torch.randn(SHAPE)
        cache = KVCache(*quantize_kv(full, kv_dtype)) if is_quantized else KVCache(full, None)
        q = torch.randn(num_tokens, KV_HEADS * GROUP, HEAD_DIM)
        k, v = torch.randn(2, num_tokens, KV_HEADS, HEAD_DIM)
        actual = attend(QKV(q, k, v), cache, shape)
        full = cache.numbers.float()
        if cache.scales is not None:
            full *= cache.scales[..., None]
        tolerance = 0.07 if is_quantized else 0
        torch.testing.assert_close(full[0].flatten(0, 1)[slots], k, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(full[1].flatten(0, 1)[slots], v, atol=tolerance, rtol=tolerance)
        row = 0
        for span in spans:
            keys, values = full[:, list(span.block_table)].flatten(1, 2)
            for position in range(span.start, span.end):
                seen = slice(0, position + 1)
                expected = one_token(q[row], keys[seen], values[seen], shape)
                torch.testing.assert_close(actual[row], expected, atol=1e-5, rtol=1e-5)
                row += 1


def test_a_softcapped_chunk_is_cut_to_bounded_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    q = torch.randn(9, KV_HEADS * GROUP, HEAD_DIM)
    k, v = torch.randn(2, 20, KV_HEADS, HEAD_DIM)
    mask = torch.ones(9, 20, dtype=torch.bool).tril_(11)
    whole = softcap.softcap_chunk_attention(q, k, v, mask, 0.25, 0.5)
    for max_scores in (1, 2 * 20 * KV_HEADS * GROUP):
        monkeypatch.setattr(softcap, "MAX_SCORES", max_scores)
        torch.testing.assert_close(softcap.softcap_chunk_attention(q, k, v, mask, 0.25, 0.5), whole)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([5], [(0, 1)]),
        ([1, 200, 256], [(0, 3)]),
        ([1, 257, 500, 514, 515], [(0, 1), (1, 4), (4, 5)]),
        ([500, 500, 500, 500, 500], [(0, 4), (4, 5)]),
        ([1800, 2001, 2002], [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_no_sequence_is_padded_to_more_than_twice_its_length(
    lengths: list[int], expected: list[tuple[int, int]]
) -> None:
    """A bucket has at most 2,000 padded tokens, unless a single sequence is longer."""
    assert [(rows.start, rows.stop) for rows in buckets(lengths, 2000)] == expected


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_a_row_does_not_see_may_be_no_number(
    shape: AttentionShape, kv_dtype: torch.dtype, number: float
) -> None:
    """NaN or infinity does no harm in unused slots, in slots that a sequence has not filled yet, and in
    later tokens of a chunk."""
    torch.manual_seed(0)
    ranges = [(2, 3), (9, 10), (300, 301), (0, 9), (4, 30)]
    spans = random_spans(ranges)
    num_tokens = sum(span.num_tokens for span in spans)
    slots = torch.tensor([slot(s, p) for s in spans for p in range(s.start, s.end)])
    used = torch.tensor([slot(s, p) for s in spans for p in range(s.end)])
    q = torch.randn(num_tokens, KV_HEADS * GROUP, HEAD_DIM)
    k, v = torch.randn(2, num_tokens, KV_HEADS, HEAD_DIM)
    full = torch.randn(SHAPE)
    full[:, -1] = 0  # that block is read by padding, and written by nobody

    def attended() -> torch.Tensor:
        is_quantized = kv_dtype != torch.float32
        cache = KVCache(*quantize_kv(full, kv_dtype)) if is_quantized else KVCache(full, None)
        attend = GatheredAttention(spans, slots, dtype=torch.float32, is_quantized=is_quantized)
        return attend(QKV(q, k, v), cache, shape)

    expected = attended()
    foreign = torch.ones(NUM_BLOCKS * BLOCK_SIZE, dtype=torch.bool)
    foreign[used] = False
    foreign[-BLOCK_SIZE:] = False
    full.flatten(1, 2)[:, foreign] = number
    later = {num_tokens - 7: 7, 3 + 5: 9 - 5}  # rows of the chunks, and how many see them
    for index, row in enumerate(later):
        (k, v)[index][row] = number
    actual = attended()
    sees = torch.zeros(num_tokens, dtype=torch.bool)
    for row, num_rows in later.items():
        sees[row : row + num_rows] = True
    torch.testing.assert_close(actual[~sees], expected[~sees])
    assert not actual[list(later)].isfinite().any()
